//! Effects of events on the rows of runs and traces (RUN-1, RUN-6).
//!
//! Pure: changes rows in memory. Invariant: the row of an ended run does not change any more.

use soong_protocol::{
    ContextEvent, EndReason, ErrorInfo, MemoryEvent, ModelEvent, RunEvent, RunMode, RunStatus,
    Stats, StatsPair, Timestamp, ToolEvent, TraceStatus,
};

use super::{
    runs::RunRow,
    traces::{LastRunInfo, TraceRow},
};

/// End of a run, taken from its terminal event.
struct RunEnd<'a> {
    status: RunStatus,
    reason: EndReason,
    stats: &'a StatsPair,
    summary: Option<&'a str>,
    error: Option<&'a ErrorInfo>,
}

/// Counts a new run of a trace. A run that only reflects does not change the trace.
pub(super) fn count_new_run(status: RunStatus, reflects: bool, trace: &mut TraceRow) {
    if status.is_terminal() || reflects {
        return;
    }
    trace.live_runs += 1;
    trace.status = TraceStatus::Running;
    trace.end_reason = None;
    trace.error_message = None;
    trace.completed_at = None;
}

/// Returns whether an event starts a run that keeps a plan and therefore a task journal (TASK-1).
/// `false` if the event only continues a run that has started before.
pub(super) fn starts_task_journal(event: &RunEvent, run: &RunRow) -> bool {
    let is_orchestrator_start = matches!(
        event,
        RunEvent::LoopStarted {
            mode: RunMode::Orchestrator,
            ..
        }
    );
    is_orchestrator_start && run.started_at.is_none() && !run.status.is_terminal()
}

/// Applies an event of a run.
pub(super) fn apply_run_event(
    event: &RunEvent,
    ts: Timestamp,
    run: &mut RunRow,
    trace: &mut TraceRow,
) {
    if run.status.is_terminal() {
        return;
    }
    let end = match event {
        RunEvent::LoopStarted {
            mode,
            agent_type,
            model,
        } => {
            run.status = RunStatus::Running;
            // A run that is resumed after a restart of the process keeps its first start time.
            if run.started_at.is_none() {
                run.started_at = Some(ts);
                run.counted_usage.start_model = Some(model.clone());
            }
            if run.is_reflection {
                return;
            }
            trace.status = TraceStatus::Running;
            trace.last_run = Some(LastRunInfo {
                run_mode: *mode,
                agent_type: agent_type.clone(),
                model: model.clone(),
            });
            return;
        }
        RunEvent::Queued { .. } => {
            run.status = RunStatus::Queued;
            return;
        }
        RunEvent::Completed { summary, stats } => RunEnd {
            status: RunStatus::Completed,
            reason: EndReason::Completed,
            stats,
            summary: Some(summary),
            error: None,
        },
        RunEvent::Failed {
            error,
            end_reason,
            stats,
        } => RunEnd {
            status: RunStatus::Failed,
            reason: *end_reason,
            stats,
            summary: None,
            error: Some(error),
        },
        RunEvent::Cancelled {
            end_reason, stats, ..
        } => RunEnd {
            status: RunStatus::Cancelled,
            reason: *end_reason,
            stats,
            summary: None,
            error: None,
        },
        RunEvent::Waiting { .. } => {
            run.status = RunStatus::Waiting;
            return;
        }
        RunEvent::Resumed { .. } => {
            run.status = RunStatus::Running;
            return;
        }
        RunEvent::CancelRequested {} => {
            run.cancel_requested = true;
            return;
        }
        // For these events the status follows later: with `run_cancelled`, `run_failed` or
        // `loop_started`.
        RunEvent::Dequeued { .. }
        | RunEvent::CancelTimeout { .. }
        | RunEvent::Recovered { .. }
        | RunEvent::SessionForked { .. }
        | RunEvent::Stuck { .. }
        | RunEvent::Ending { .. }
        | RunEvent::ActorRestarted { .. } => return,
    };
    end_run(&end, ts, run, trace);
}

fn end_run(end: &RunEnd<'_>, ts: Timestamp, run: &mut RunRow, trace: &mut TraceRow) {
    run.status = end.status;
    run.end_reason = Some(end.reason);
    run.error = end.error.cloned();
    run.completed_at = Some(ts);
    run.stats.duration_ms = end.stats.own.duration_ms;
    trace.stats.duration_ms += end.stats.own.duration_ms;
    if run.is_reflection {
        return;
    }
    trace.live_runs = trace.live_runs.saturating_sub(1);
    trace.result_summary = end.summary.map(str::to_owned);
    trace.error_message = end.error.map(|error| error.message.clone());
    // If another run of the trace is still live, the trace has not ended.
    if trace.live_runs == 0 {
        trace.status = TraceStatus::from_run_status(end.status);
        trace.end_reason = Some(end.reason);
        trace.completed_at = Some(ts);
    }
}

/// Applies an event of a model call.
pub(super) fn apply_model_event(event: &ModelEvent, run: &mut RunRow, trace: &mut TraceRow) {
    if let ModelEvent::Started { attempt: 1, .. } = event {
        run.turn += 1;
    }
    update_stats(run, trace, |stats| stats.add_model_event(event));
}

/// Applies a context event: summaries use tokens too.
pub(super) fn apply_context_event(event: &ContextEvent, run: &mut RunRow, trace: &mut TraceRow) {
    update_stats(run, trace, |stats| stats.add_context_event(event));
}

/// Adds the usage of searching for experiences.
pub(super) fn apply_memory_event(event: &MemoryEvent, run: &mut RunRow, trace: &mut TraceRow) {
    update_stats(run, trace, |stats| stats.add_memory_event(event));
}

/// Counts tool calls.
pub(super) fn apply_tool_event(event: &ToolEvent, run: &mut RunRow, trace: &mut TraceRow) {
    update_stats(run, trace, |stats| stats.add_tool_event(event));
}

fn update_stats(run: &mut RunRow, trace: &mut TraceRow, update: impl Fn(&mut Stats)) {
    update(&mut run.stats);
    update(&mut trace.stats);
}
