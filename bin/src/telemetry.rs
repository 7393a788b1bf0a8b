//! Traces for a collector (OTLP over HTTP): runs, model calls and tool calls as spans, where they are asked for.
//!
//! Built with the feature `otlp`, and asked for by OpenTelemetry's own variables: `OTEL_EXPORTER_OTLP_ENDPOINT` (or
//! `…_TRACES_ENDPOINT`) says where the collector is. What is said by people, models and tools is in no span.
//! Not here: the spans themselves, which are the library's.

use std::sync::OnceLock;

use opentelemetry::{KeyValue, trace::TracerProvider};
use opentelemetry_otlp::SpanExporter;
use opentelemetry_sdk::{Resource, trace::SdkTracerProvider};
use tracing::{Metadata, Subscriber};
use tracing_subscriber::{Layer, filter::FilterFn, registry::LookupSpan};

use crate::print;

/// Where a collector is, in the order in which they are looked at.
const ENDPOINTS: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"];
/// Spans of this target follow OpenTelemetry's conventions.
const TARGET: &str = "soong::gen_ai";

static PROVIDER: OnceLock<SdkTracerProvider> = OnceLock::new();

/// Makes the layer that exports spans; `None` = nobody asks for them.
pub(crate) fn layer<S>() -> Option<Box<dyn Layer<S> + Send + Sync>>
where
    S: Subscriber + for<'a> LookupSpan<'a> + Send + Sync,
{
    ENDPOINTS.iter().find(|name| std::env::var_os(name).is_some_and(|value| !value.is_empty()))?;
    let exporter = match SpanExporter::builder().with_http().build() {
        Ok(exporter) => exporter,
        Err(error) => {
            print::error_line(&format!("warning: no traces are exported: {error}"));
            return None;
        }
    };
    let resource = Resource::builder()
        .with_service_name("soong")
        .with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")))
        .build();
    let provider = SdkTracerProvider::builder().with_batch_exporter(exporter).with_resource(resource).build();
    let tracer = provider.tracer("soong");
    let _ = PROVIDER.set(provider);
    let own = FilterFn::new(|metadata: &Metadata<'_>| metadata.is_span() && metadata.target() == TARGET);
    Some(tracing_opentelemetry::layer().with_tracer(tracer).with_filter(own).boxed())
}

/// Sends what has not been sent yet; waits for that, but not for long.
pub(crate) fn finish() {
    if let Some(provider) = PROVIDER.get()
        && let Err(error) = provider.shutdown()
    {
        print::error_line(&format!("warning: the last traces were not exported: {error}"));
    }
}
