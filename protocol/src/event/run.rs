//! Events of a run.

use crate::{
    EndReason, ErrorInfo, GoalTree, RunMode, RunSettings, StatsPair, Timestamp, TraceId,
    event_macro::events,
};

events! {
    /// A change of a run.
    RunEvent {
        /// The run was accepted while another run of the session is active.
        Queued = "run_queued" {
            /// Position in the queue, from 1.
            position: u32,
        },
        /// The run left the queue.
        Dequeued = "run_dequeued" {
            /// Whether the run was cancelled and will not start.
            #[serde(default, skip_serializing_if = "std::ops::Not::not")]
            cancelled: bool,
        },
        /// The run started.
        LoopStarted = "loop_started" {
            /// Mode of the run.
            mode: RunMode,
            /// Preset of the run.
            agent_type: String,
            /// Model of the run.
            model: String,
        },
        /// The run waits for users only.
        Waiting = "run_waiting" {
            /// Reason for waiting: `question` or `permission`.
            r#for: String,
        },
        /// The run resumed after waiting.
        Resumed = "run_resumed" {
            /// Reason for which it waited: `question` or `permission`.
            from: String,
        },
        /// The run has made no progress for longer than `runtime.stuck_after_s` (RUN-7).
        Stuck = "run_stuck" [Warn] {
            /// Time of the last progress.
            since: Timestamp,
        },
        /// Why the run fails, if no other event says it. `run_failed` follows when its sub-agents
        /// and its open work have ended.
        Ending = "run_ending" [Warn] {
            /// Why the run fails, and what to do.
            error: ErrorInfo,
            /// End reason.
            end_reason: EndReason,
        },
        /// The run ended with an answer.
        Completed = "run_completed" {
            /// The answer, shortened.
            summary: String,
            /// Statistics of the run.
            stats: StatsPair,
        },
        /// The run ended without an answer.
        Failed = "run_failed" [Error] {
            /// Why the run failed, and what to do.
            error: ErrorInfo,
            /// End reason.
            end_reason: EndReason,
            /// Statistics of the run.
            stats: StatsPair,
        },
        /// The run was ended by a cancel request.
        Cancelled = "run_cancelled" [Warn] {
            /// Whether the run was still queued.
            #[serde(default, skip_serializing_if = "std::ops::Not::not")]
            queued: bool,
            /// End reason: the activity that was interrupted.
            end_reason: EndReason,
            /// Statistics of the run.
            stats: StatsPair,
        },
        /// A cancel request was stored.
        CancelRequested = "cancel_requested" {},
        /// The run did not end within the cancel timeout. Cleanup continues.
        CancelTimeout = "cancel_timeout" [Error] {
            /// Elapsed time, in milliseconds.
            after_ms: u64,
        },
        /// The run resumed in another process (DUR-3).
        Recovered = "run_recovered" [Warn] {
            /// Number of tool calls that the model sees as interrupted, because their effect is
            /// unknown (DUR-4).
            healed_calls: u64,
        },
        /// The trace was created as a copy of another one. This is the first event of its timeline.
        SessionForked = "session_forked" {
            /// Source trace.
            source: TraceId,
            /// Last copied message of the source trace.
            at: u64,
            /// Goal tree of the copy.
            goal_tree: Box<GoalTree>,
            /// Settings of the source's last run, which the first run of the copy keeps. Absent in
            /// copies that version 0.1 made.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            settings: Option<Box<RunSettings>>,
        },
        /// The actor of the run crashed and was restarted from the journal.
        ActorRestarted = "actor_restarted" [Warn] {
            /// Kind of the actor.
            actor: String,
            /// Number of crashes within the restart window.
            count: u32,
            /// Error or panic message of the crash.
            error: String,
        },
    }
}

impl RunEvent {
    /// Returns whether the event ends its run. Such an event is the last one of the run.
    pub fn is_terminal(&self) -> bool {
        matches!(
            self,
            Self::Completed { .. } | Self::Failed { .. } | Self::Cancelled { .. }
        )
    }
}
