//! Metrics: counters since the runtime was built, and the current state.
//!
//! Work is counted when it is committed, on the writer thread: only data on disk is counted, and
//! nothing waits for the counting.
//!
//! Elsewhere: the current state of actors (`runtime/metrics.rs`), the Prometheus format
//! (`bin/server`).

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use soong_protocol::{
    ContextEvent, Event, MemoryEvent, ModelEvent, RunEvent, RunStatus, Stats, ToolEvent, Usd, Write,
};
use soong_storage::{store::Append, writer::WriterStats};

/// Counters since the runtime was built, and the current state.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Metrics {
    /// Runs that have not ended, including those of sub-agents, by status.
    pub live_runs: BTreeMap<&'static str, u64>,
    /// Runs that have started, of users and of sub-agents.
    pub started_runs: u64,
    /// Runs that have ended, by final status.
    pub ended_runs: BTreeMap<&'static str, u64>,
    /// Turns started.
    pub turns: u64,
    /// Usage of all runs by model and tool calls. `cost` includes only calls with a known price.
    pub usage: Stats,
    /// Sessions that have actors.
    pub live_sessions: u64,
    /// User runs that are queued after other runs of their session.
    pub queued_runs: u64,
    /// Sub-agents that wait for a slot.
    pub queued_children: u64,
    /// Model calls by profile: in flight, and waiting for the gateway.
    pub gateways: BTreeMap<String, GatewayMetrics>,
    /// Appends that wait for the writer.
    pub queued_appends: u64,
    /// Statistics of the journal writer.
    pub journal: WriterStats,
    /// Events committed.
    pub events: u64,
    /// Subscribers of event streams.
    pub subscribers: SubscriberMetrics,
    /// Number of actor restarts, by actor kind.
    pub restarts: BTreeMap<&'static str, u64>,
}

/// Model calls of one profile.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct GatewayMetrics {
    /// Calls in flight.
    pub in_flight: u64,
    /// Calls waiting for admission.
    pub waiting: u64,
}

/// Subscribers of event streams.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SubscriberMetrics {
    /// Number of subscribers.
    pub count: u64,
    /// Maximum number of live items buffered for one subscriber. Subscribers that reread from the
    /// store are not counted.
    pub max_waiting: u64,
    /// Number of subscribers whose buffer overflowed, and that reread from the store.
    pub rereading: u64,
}

/// Counters of committed work.
#[derive(Debug, Default)]
pub(crate) struct MetricsCounter {
    begun: AtomicU64,
    completed: AtomicU64,
    failed: AtomicU64,
    cancelled: AtomicU64,
    turns: AtomicU64,
    events: AtomicU64,
    model_calls: AtomicU64,
    tool_calls: AtomicU64,
    prompt_tokens: AtomicU64,
    completion_tokens: AtomicU64,
    cached_tokens: AtomicU64,
    cache_write_tokens: AtomicU64,
    reasoning_tokens: AtomicU64,
    cost_nanos: AtomicU64,
}

impl MetricsCounter {
    /// Counts a committed append.
    pub(crate) fn record(&self, append: &Append) {
        let add = |counter: &AtomicU64, by: u64| {
            counter.fetch_add(by, Relaxed);
        };
        // Most events have no usage, so they are sorted out before anything is summed.
        for write in &append.writes {
            let Write::Event(draft) = write else { continue };
            add(&self.events, 1);
            match &draft.event {
                Event::Run(RunEvent::LoopStarted { .. }) => add(&self.begun, 1),
                Event::Run(RunEvent::Completed { .. }) => add(&self.completed, 1),
                Event::Run(RunEvent::Failed { .. }) => add(&self.failed, 1),
                Event::Run(RunEvent::Cancelled { .. }) => add(&self.cancelled, 1),
                Event::Model(ModelEvent::Started { attempt: 1, .. }) => add(&self.turns, 1),
                // The counters only increase.
                Event::Model(ModelEvent::UsageCorrected { .. }) => {}
                Event::Model(event) => self.add_usage(|stats| stats.add_model_event(event)),
                Event::Context(
                    event @ (ContextEvent::CompactionCompleted { .. }
                    | ContextEvent::CompactionFailed { .. }),
                ) => {
                    self.add_usage(|stats| stats.add_context_event(event));
                }
                Event::Memory(
                    event @ (MemoryEvent::Injected { .. } | MemoryEvent::ReflectionEnded { .. }),
                ) => self.add_usage(|stats| stats.add_memory_event(event)),
                Event::Tool(event @ (ToolEvent::Completed { .. } | ToolEvent::Failed { .. })) => {
                    self.add_usage(|stats| stats.add_tool_event(event));
                }
                _ => {}
            }
        }
    }

    fn add_usage(&self, take: impl FnOnce(&mut Stats)) {
        let mut stats = Stats::zero();
        take(&mut stats);
        for (counter, by) in [
            (&self.model_calls, stats.model_calls),
            (&self.tool_calls, stats.tool_calls),
            (&self.prompt_tokens, stats.prompt_tokens),
            (&self.completion_tokens, stats.completion_tokens),
            (&self.cached_tokens, stats.cached_tokens),
            (&self.cache_write_tokens, stats.cache_write_tokens),
            (&self.reasoning_tokens, stats.reasoning_tokens),
            (&self.cost_nanos, stats.cost.map_or(0, Usd::as_nanos)),
        ] {
            if by > 0 {
                // Saturate, since a provider may report any number.
                let _ = counter.fetch_update(Relaxed, Relaxed, |sum| Some(sum.saturating_add(by)));
            }
        }
    }
}

impl MetricsCounter {
    /// Returns the counters. The other fields have their default values.
    pub(crate) fn snapshot(&self) -> Metrics {
        let get = |counter: &AtomicU64| counter.load(Relaxed);
        let prompt_tokens = get(&self.prompt_tokens);
        let completion_tokens = get(&self.completion_tokens);
        let used = Stats {
            total_tokens: prompt_tokens.saturating_add(completion_tokens),
            prompt_tokens,
            completion_tokens,
            cached_tokens: get(&self.cached_tokens),
            cache_write_tokens: get(&self.cache_write_tokens),
            reasoning_tokens: get(&self.reasoning_tokens),
            model_calls: get(&self.model_calls),
            tool_calls: get(&self.tool_calls),
            cost: Some(Usd::from_nanos(get(&self.cost_nanos))),
            ..Stats::zero()
        };
        let ended = [
            (RunStatus::Completed, &self.completed),
            (RunStatus::Failed, &self.failed),
            (RunStatus::Cancelled, &self.cancelled),
        ];
        Metrics {
            started_runs: get(&self.begun),
            ended_runs: ended
                .map(|(status, counter)| (status.as_str(), get(counter)))
                .into(),
            turns: get(&self.turns),
            usage: used,
            events: get(&self.events),
            ..Metrics::default()
        }
    }
}

pub(crate) fn count(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}
