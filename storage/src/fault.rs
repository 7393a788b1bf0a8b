//! Fault injection: named points of a runtime, and plans of what fails there (DUR-6, DUR-7).
//!
//! This is a product feature: drills, and the tests of every crate, use it. [`FaultPoint`] lists
//! all points, including those in other crates. A [`FaultPlan`] says what happens at which point,
//! and can be written as text (`rule.rs`). To add a point, add a line to the list below, and call
//! [`FaultPlan::hit`] where the point is reached.
//!
//! Not in this module: the points themselves, which are in the code that reaches them.

mod plan;
mod rule;
mod store;

pub use self::{
    plan::{Fault, FaultPlan, InjectedFault},
    rule::FaultRuleError,
    store::FaultStore,
};

/// Component that reaches a point. It decides what a failure at the point means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FaultComponent {
    /// The actor of a run. On failure it crashes, and its supervisor restarts it.
    Run,
    /// The thread that writes the database. On failure the commit returns an error, as after a disk
    /// error.
    Writer,
    /// The code that stores and deletes files of sessions. On failure it returns an error, as after
    /// a disk error.
    Blob,
    /// The code that writes task journals. On failure it returns an error, as after a disk error.
    Journal,
}

macro_rules! points {
    ($($(#[$meta:meta])* $variant:ident = $text:literal at $place:ident),* $(,)?) => {
        /// A named point where a plan can inject a fault.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum FaultPoint { $($(#[$meta])* $variant),* }

        impl FaultPoint {
            /// All points, in the order of their declaration.
            pub const ALL: [Self; [$($text),*].len()] = [$(Self::$variant),*];

            /// Returns the name of the point in the text of a plan.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text),* }
            }

            /// Returns the component that reaches the point.
            pub const fn place(self) -> FaultComponent {
                match self { $(Self::$variant => FaultComponent::$place),* }
            }
        }
    };
}

points! {
    /// An input was processed; its events are not yet handed to the journal.
    BeforeAppend = "before_append" at Run,
    /// An append is durable; its effects have not started yet.
    AfterAppend = "after_append" at Run,
    /// A model call is about to start.
    CallModel = "call_model" at Run,
    /// A model has answered; only the run's actor knows, and the answer is not processed yet.
    ModelAnswered = "model_answered" at Run,
    /// A tool is about to run.
    RunTool = "run_tool" at Run,
    /// A tool has ended and had its effect; its outcome is not processed yet.
    ToolEnded = "tool_ended" at Run,
    /// Children are about to start; they are recorded.
    StartChildren = "start_children" at Run,
    /// The run's document edits are about to be stored as versions.
    Flush = "flush" at Run,
    /// The run has ended and this is recorded; no one is notified yet.
    Ended = "ended" at Run,
    /// A transaction is about to be written.
    BeforeCommit = "before_commit" at Writer,
    /// A transaction is durable; its callers are not answered yet. On failure they get an error as
    /// if the commit had failed.
    AfterCommit = "after_commit" at Writer,
    /// The bytes of an artifact's version are about to be written; the version is announced.
    BeforeBlob = "before_blob" at Blob,
    /// The bytes are durable and in place; the version is not registered. On failure they stay
    /// until the path is deleted, as if the answer of a bucket was lost.
    AfterBlob = "after_blob" at Blob,
    /// The files of a session are about to be deleted; the deletion is recorded.
    BeforeRemoval = "before_removal" at Blob,
    /// The files of a session are deleted; its rows still exist.
    AfterRemoval = "after_removal" at Blob,
    /// Lines are about to be written to a task journal; the events that they report are recorded.
    BeforeJournal = "before_journal" at Journal,
    /// The lines are written, and the file is synced if the run has ended; no one is notified yet.
    AfterJournal = "after_journal" at Journal,
}

impl std::fmt::Display for FaultPoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

impl std::str::FromStr for FaultPoint {
    type Err = FaultRuleError;

    fn from_str(name: &str) -> Result<Self, FaultRuleError> {
        let found = Self::ALL.into_iter().find(|point| point.as_str() == name);
        found.ok_or_else(|| FaultRuleError::Point {
            name: name.to_owned(),
        })
    }
}
