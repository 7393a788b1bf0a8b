//! Faults on purpose: named points of a runtime, and plans of what goes wrong there (DUR-6, DUR-7).
//!
//! A product feature, not a test's toy: drills and tests of every crate use it. [`FaultPoint`] is the one
//! list of points, also of those that other crates meet; a [`FaultPlan`] says what happens at which, and can
//! be written as a text (`rule.rs`).
//! Adding a point: a line in the list below, and a call of [`FaultPlan::meet`] at its place.
//! Not here: the points themselves, which lie where the work is done.

mod plan;
mod rule;
mod store;

pub use self::{
    plan::{Fault, FaultPlan, Injected},
    rule::FaultRuleError,
    store::FaultStore,
};

/// Who meets a point, which decides what failing means there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FaultPlace {
    /// The actor of a run. Failing, it crashes; its supervisor restarts it.
    Run,
    /// The thread that writes the database. Failing, the commit is refused as the disk would.
    Writer,
    /// Where files of sessions are stored and removed. Failing, it is refused as the disk would.
    Blob,
    /// Where task journals are written. Failing, it is refused as the disk would.
    Journal,
}

macro_rules! points {
    ($($(#[$meta:meta])* $variant:ident = $text:literal at $place:ident),* $(,)?) => {
        /// A named point where a plan can make something go wrong.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum FaultPoint { $($(#[$meta])* $variant),* }

        impl FaultPoint {
            /// Every point, in the order of their declaration.
            pub const ALL: [Self; [$($text),*].len()] = [$(Self::$variant),*];

            /// Returns the name of the point in the text of a plan.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text),* }
            }

            /// Returns who meets it.
            pub const fn place(self) -> FaultPlace {
                match self { $(Self::$variant => FaultPlace::$place),* }
            }
        }
    };
}

points! {
    /// News was decided upon; nothing is handed to the journal yet.
    BeforeAppend = "before_append" at Run,
    /// An append is durable; nothing that follows from it has been done yet.
    AfterAppend = "after_append" at Run,
    /// A model call is about to be made.
    CallModel = "call_model" at Run,
    /// A model has answered; nobody but the run's actor knows, and nothing is decided upon it.
    ModelAnswered = "model_answered" at Run,
    /// A tool is about to be run.
    RunTool = "run_tool" at Run,
    /// A tool has ended, so that its effect is made; nothing is decided upon its outcome.
    ToolEnded = "tool_ended" at Run,
    /// Children are about to be started; they are recorded.
    StartChildren = "start_children" at Run,
    /// What the run edited is about to be stored as versions.
    Flush = "flush" at Run,
    /// The run has ended and is recorded; nobody has been told.
    Ended = "ended" at Run,
    /// A transaction is about to be written.
    BeforeCommit = "before_commit" at Writer,
    /// A transaction is durable; nobody has been told. Failing, its callers are told that it was refused.
    AfterCommit = "after_commit" at Writer,
    /// The bytes of an artifact's version are about to be written; the version is announced.
    BeforeBlob = "before_blob" at Blob,
    /// The bytes are durable and in place; the version is not registered. Failing, they stay there until
    /// the path is deleted, as where the answer of a bucket was lost.
    AfterBlob = "after_blob" at Blob,
    /// The files of a session are about to be removed; that it goes is recorded.
    BeforeRemoval = "before_removal" at Blob,
    /// They are gone; the rows of the session are still there.
    AfterRemoval = "after_removal" at Blob,
    /// Lines are about to be written to a task journal; what they tell of is recorded.
    BeforeJournal = "before_journal" at Journal,
    /// The lines are written, and where the run has ended the file is synced; nobody has been told.
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
        found.ok_or_else(|| FaultRuleError::Point { name: name.to_owned() })
    }
}
