//! Events of a run.

use crate::{EndReason, ErrorInfo, GoalTree, RunMode, RunSettings, StatsPair, Timestamp, TraceId, event_macro::events};

events! {
    /// What happened to a run.
    RunEvent {
        /// Accepted while another run of the session is active.
        Queued = "run_queued" {
            /// Place in the queue, from 1.
            position: u32,
        },
        /// Left the queue, to start or because it was cancelled.
        Dequeued = "run_dequeued" {
            /// Whether it was cancelled and never starts.
            #[serde(default, skip_serializing_if = "std::ops::Not::not")]
            cancelled: bool,
        },
        /// Began to work.
        LoopStarted = "loop_started" {
            /// What kind of agent leads it.
            mode: RunMode,
            /// Its preset.
            agent_type: String,
            /// Its model.
            model: String,
        },
        /// It waits for a person, and for nothing else.
        Waiting = "run_waiting" {
            /// For what: `question` or `permission`.
            r#for: String,
        },
        /// It goes on.
        Resumed = "run_resumed" {
            /// What it waited for.
            from: String,
        },
        /// Nothing has come of it for longer than `runtime.stuck_after_s` (RUN-7).
        Stuck = "run_stuck" {
            /// When something last did.
            since: Timestamp,
        },
        /// Finished with an answer.
        Completed = "run_completed" {
            /// The answer, shortened.
            summary: String,
            /// What it used.
            stats: StatsPair,
        },
        /// Ended without an answer.
        Failed = "run_failed" {
            /// Why, with what to do.
            error: ErrorInfo,
            /// Why, as one of a closed set.
            end_reason: EndReason,
            /// What it used.
            stats: StatsPair,
        },
        /// Ended on request.
        Cancelled = "run_cancelled" {
            /// Whether it was cancelled while queued.
            #[serde(default, skip_serializing_if = "std::ops::Not::not")]
            queued: bool,
            /// In what it was cut off.
            end_reason: EndReason,
            /// What it used.
            stats: StatsPair,
        },
        /// Somebody asked for its end.
        CancelRequested = "cancel_requested" {},
        /// It did not end within the time that cancelling may take; cleaning up goes on.
        CancelTimeout = "cancel_timeout" {
            /// The time that passed, in milliseconds.
            after_ms: u64,
        },
        /// It goes on in another process than the one it was at work in (DUR-3).
        Recovered = "run_recovered" {
            /// How many tool calls were told as interrupted, because nobody knows what became of them (DUR-4).
            healed_calls: u64,
        },
        /// The trace was made as a copy of another one; the first event on its timeline.
        SessionForked = "session_forked" {
            /// The trace that was copied.
            source: TraceId,
            /// Its last message that was copied.
            at: u64,
            /// The goals that came along.
            goal_tree: Box<GoalTree>,
            /// Settings of the source's last run, which the first run of the copy keeps. Absent in copies that version
            /// 0.1 made.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            settings: Option<Box<RunSettings>>,
        },
        /// Its actor crashed and was restarted from the journal.
        ActorRestarted = "actor_restarted" {
            /// What kind of actor.
            actor: String,
            /// How often within the window.
            count: u32,
            /// What it died of.
            error: String,
        },
    }
}
