//! Metrics for Prometheus and OpenMetrics, read when they are requested.
//!
//! Elsewhere: counting (the library).

use std::collections::HashSet;

use axum::{
    extract::State,
    http::{HeaderMap, header},
    response::{IntoResponse, Response},
};
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeGaugeValue, EncodeMetric, NoLabelSet, text},
    metrics::{MetricType, counter::ConstCounter, gauge::ConstGauge},
    registry::Registry,
};
use soong::{BATCH_SIZE_BUCKETS, ErrorCode, ErrorInfo, Metrics};

use super::{Api, caller::Access, error::ApiError, request::quality};

/// Content types of the Prometheus text format and of OpenMetrics.
const PROMETHEUS: &str = "text/plain; version=0.0.4; charset=utf-8";
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Reads the metrics of the whole home: in the Prometheus text format, or as OpenMetrics if
/// `Accept` requests it. They cover all users, and therefore require the home's own token.
#[cfg_attr(feature = "openapi", utoipa::path(get, path = "/metrics", tag = "health", responses((status = OK, content(
    (String = "text/plain; version=0.0.4; charset=utf-8"),
    (String = "application/openmetrics-text; version=1.0.0; charset=utf-8"),
)))))]
pub(super) async fn show(
    State(api): State<Api>,
    // Checks the caller.
    _: Access,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let websockets = u64::try_from(api.websockets.len()).unwrap_or(u64::MAX);
    let mut registry = Registry::default();
    registry.register_collector(Box::new(MetricsCollector {
        metrics: api.runtime.info().metrics(),
        websockets,
    }));
    let mut written = String::new();
    let failed = |error: std::fmt::Error| {
        ErrorInfo::new(ErrorCode::InternalError, format!("metrics: {error}"))
    };
    text::encode(&mut written, &registry).map_err(failed)?;
    // Only a client that names it gets OpenMetrics.
    let open_metrics = quality(&headers, "application/openmetrics-text");
    let plain = quality(&headers, "text/plain");
    let (form, written) = if open_metrics > 0 && open_metrics >= plain {
        (OPEN_METRICS, written)
    } else {
        (PROMETHEUS, as_prometheus(&written))
    };
    Ok(([(header::CONTENT_TYPE, form)], written).into_response())
}

/// Converts OpenMetrics to the Prometheus text format: the help and type lines of a counter get the
/// suffix `_total`, as its samples have. Unit lines and the end marker, which Prometheus does not
/// know, are removed.
fn as_prometheus(text: &str) -> String {
    let is_type_of_counter =
        |line: &&str| line.starts_with("# TYPE ") && line.ends_with(" counter");
    let name = |line: &'_ str| line.split(' ').nth(2).unwrap_or_default().to_owned();
    let counters: HashSet<String> = text.lines().filter(is_type_of_counter).map(name).collect();
    let mut written = String::with_capacity(text.len());
    for line in text
        .lines()
        .filter(|line| *line != "# EOF" && !line.starts_with("# UNIT "))
    {
        let mut words = line.splitn(4, ' ');
        match (words.next(), words.next(), words.next(), words.next()) {
            (Some("#"), Some(kind @ ("HELP" | "TYPE")), Some(name), Some(rest))
                if counters.contains(name) =>
            {
                written.push_str(&format!("# {kind} {name}_total {rest}"));
            }
            _ => written.push_str(line),
        }
        written.push('\n');
    }
    written
}

/// Metrics at one moment.
#[derive(Debug)]
struct MetricsCollector {
    metrics: Metrics,
    websockets: u64,
}

type EncodeResult = Result<(), std::fmt::Error>;

/// Encoder of metrics.
struct MetricsEncoder<'a>(DescriptorEncoder<'a>);

impl MetricsEncoder<'_> {
    fn counter(&mut self, name: &str, help: &str, value: u64) -> EncodeResult {
        let metric = ConstCounter::new(value);
        metric.encode(
            self.0
                .encode_descriptor(name, help, None, metric.metric_type())?,
        )
    }

    fn gauge(&mut self, name: &str, help: &str, value: u64) -> EncodeResult {
        let metric = ConstGauge::new(gauge(value));
        metric.encode(
            self.0
                .encode_descriptor(name, help, None, metric.metric_type())?,
        )
    }

    /// Encodes one counter for each value of a label.
    fn counters<'v>(
        &mut self,
        name: &str,
        help: &str,
        label: &str,
        values: impl IntoIterator<Item = (&'v str, u64)>,
    ) -> EncodeResult {
        let mut family = self
            .0
            .encode_descriptor(name, help, None, MetricType::Counter)?;
        for (of, value) in values {
            let labels = [(label, of)];
            ConstCounter::new(value).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }

    fn gauges<'v, N: EncodeGaugeValue>(
        &mut self,
        name: &str,
        help: &str,
        label: &str,
        values: impl IntoIterator<Item = (&'v str, N)>,
    ) -> EncodeResult
    where
        ConstGauge<N>: EncodeMetric,
    {
        let mut family = self
            .0
            .encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (of, value) in values {
            let labels = [(label, of)];
            ConstGauge::new(value).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }
}

fn gauge(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

impl Collector for MetricsCollector {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> EncodeResult {
        let mut page = MetricsEncoder(encoder);
        self.encode_runs(&mut page)?;
        self.encode_queues(&mut page)?;
        self.encode_journal(&mut page)?;
        self.encode_streams(&mut page)
    }
}

impl MetricsCollector {
    fn encode_runs(&self, page: &mut MetricsEncoder<'_>) -> EncodeResult {
        let of = &self.metrics;
        let run_gauges = of
            .live_runs
            .iter()
            .map(|(status, runs)| (*status, gauge(*runs)));
        page.gauges(
            "soong_runs",
            "Runs that have not ended, including those of sub-agents.",
            "status",
            run_gauges,
        )?;
        page.counter(
            "soong_runs_begun",
            "Runs that started, including those of sub-agents.",
            of.started_runs,
        )?;
        let ended = of.ended_runs.iter().map(|(status, runs)| (*status, *runs));
        page.counters(
            "soong_runs_ended",
            "Runs that ended, including those of sub-agents.",
            "status",
            ended,
        )?;
        page.counter("soong_turns", "Turns started.", of.turns)?;
        page.counter("soong_model_calls", "Model calls.", of.usage.model_calls)?;
        page.counter("soong_tool_calls", "Tool calls.", of.usage.tool_calls)?;
        let tokens = [
            ("prompt", of.usage.prompt_tokens),
            ("completion", of.usage.completion_tokens),
            ("cached", of.usage.cached_tokens),
            ("cache_write", of.usage.cache_write_tokens),
            ("reasoning", of.usage.reasoning_tokens),
        ];
        page.counters(
            "soong_tokens", "Tokens used; cached and cache_write tokens are part of the prompt, reasoning tokens of the completion.", "kind",
            tokens,
        )?;
        let nanos = of.usage.cost.map_or(0, |cost| cost.as_nanos());
        page.counter(
            "soong_cost_nano_usd",
            "Cost of the tokens in billionths of a USD, as far as prices are known.",
            nanos,
        )?;
        Ok(())
    }

    fn encode_queues(&self, page: &mut MetricsEncoder<'_>) -> EncodeResult {
        let of = &self.metrics;
        page.gauge(
            "soong_sessions",
            "Sessions with live actors.",
            of.live_sessions,
        )?;
        page.gauges(
            "soong_queue_depth", "Queue lengths: user runs, sub-agents waiting for a slot, appends waiting for the writer.", "queue",
            [
                ("runs", gauge(of.queued_runs)),
                ("children", gauge(of.queued_children)),
                ("appends", gauge(of.queued_appends)),
            ],
        )?;
        let gateways = || of.gateways.iter();
        let out = gateways().map(|(profile, calls)| (profile.as_str(), gauge(calls.in_flight)));
        page.gauges(
            "soong_gateway_in_flight",
            "Model calls in progress.",
            "profile",
            out,
        )?;
        let waiting = gateways().map(|(profile, calls)| (profile.as_str(), gauge(calls.waiting)));
        page.gauges(
            "soong_gateway_waiting",
            "Model calls waiting in the gateway.",
            "profile",
            waiting,
        )?;
        Ok(())
    }

    fn encode_journal(&self, page: &mut MetricsEncoder<'_>) -> EncodeResult {
        let of = &self.metrics;
        page.counter("soong_events", "Events committed.", of.events)?;
        page.counter(
            "soong_journal_refused",
            "Transactions that could not be written to disk.",
            of.journal.failed_commits,
        )?;
        // The number of observations is the number of transactions.
        let bounds = BATCH_SIZE_BUCKETS
            .iter()
            .map(|most| *most as f64)
            .chain([f64::INFINITY]);
        let batches: Vec<(f64, u64)> = bounds.zip(of.journal.batches).collect();
        let help = "Appends per transaction; the count is the number of committed transactions.";
        let mut histogram = page.0.encode_descriptor(
            "soong_journal_batch_appends",
            help,
            None,
            MetricType::Histogram,
        )?;
        histogram.encode_histogram::<NoLabelSet>(
            of.journal.appends as f64,
            of.journal.commits(),
            &batches,
            None,
        )?;
        Ok(())
    }

    fn encode_streams(&self, page: &mut MetricsEncoder<'_>) -> EncodeResult {
        let of = &self.metrics;
        page.gauge(
            "soong_subscribers",
            "Subscribers of event streams.",
            of.subscribers.count,
        )?;
        page.gauge(
            "soong_subscriber_lag_items",
            "Largest number of live items waiting for one subscriber.",
            of.subscribers.max_waiting,
        )?;
        page.gauge(
            "soong_subscribers_behind",
            "Subscribers that exceeded their buffer and read from the store.",
            of.subscribers.rereading,
        )?;
        page.gauge("soong_websockets", "Open WebSockets.", self.websockets)?;
        let restarts = of
            .restarts
            .iter()
            .map(|(kind, restarts)| (*kind, *restarts));
        page.counters("soong_actor_restarts", "Actor restarts.", "kind", restarts)
    }
}
