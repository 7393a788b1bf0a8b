//! Export of traces to a collector (OTLP over HTTP): runs, model calls and tool calls as spans.
//!
//! Built with the feature `otlp`, and enabled by the environment variables of OpenTelemetry:
//! `OTEL_EXPORTER_OTLP_ENDPOINT` (or `…_TRACES_ENDPOINT`) contains the address of the collector.
//! Spans contain no text of users, models or tools.
//!
//! Not in this module: the spans themselves, which the library creates.

use std::sync::OnceLock;

use opentelemetry::{KeyValue, trace::TracerProvider};
use opentelemetry_otlp::SpanExporter;
use opentelemetry_sdk::{Resource, trace::SdkTracerProvider};
use tracing::{Metadata, Subscriber};
use tracing_subscriber::{Layer, filter::FilterFn, registry::LookupSpan};

use crate::print;

/// Environment variables with the address of a collector, in order of precedence.
const ENDPOINTS: [&str; 2] = [
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
    "OTEL_EXPORTER_OTLP_ENDPOINT",
];
/// Target of the spans that follow OpenTelemetry's conventions.
const TARGET: &str = "soong::gen_ai";

static PROVIDER: OnceLock<SdkTracerProvider> = OnceLock::new();

/// Returns the layer that exports spans, or `None` if no endpoint is set.
pub(crate) fn layer<S>() -> Option<Box<dyn Layer<S> + Send + Sync>>
where
    S: Subscriber + for<'a> LookupSpan<'a> + Send + Sync,
{
    ENDPOINTS
        .iter()
        .find(|name| std::env::var_os(name).is_some_and(|value| !value.is_empty()))?;
    soong_http::install_tls_provider();
    let exporter = match SpanExporter::builder().with_http().build() {
        Ok(exporter) => exporter,
        Err(error) => {
            print::error_line(&format!("warning: trace export is disabled: {error}"));
            return None;
        }
    };
    let resource = Resource::builder()
        .with_service_name("soong")
        .with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")))
        .build();
    let provider = SdkTracerProvider::builder()
        .with_batch_exporter(exporter)
        .with_resource(resource)
        .build();
    let tracer = provider.tracer("soong");
    let _ = PROVIDER.set(provider);
    let own =
        FilterFn::new(|metadata: &Metadata<'_>| metadata.is_span() && metadata.target() == TARGET);
    Some(
        tracing_opentelemetry::layer()
            .with_tracer(tracer)
            .with_filter(own)
            .boxed(),
    )
}

/// Exports the remaining spans. Waits for that, up to the timeout of the exporter.
pub(crate) fn finish() {
    if let Some(provider) = PROVIDER.get()
        && let Err(error) = provider.shutdown()
    {
        print::error_line(&format!(
            "warning: the last traces were not exported: {error}"
        ));
    }
}
