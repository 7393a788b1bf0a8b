//! What a program says of a child that it adds to a live run (RT-4); everything but the task has a default.

use serde_json::Value;
use soong_protocol::{Budget, ChildMode, GivenMessage, TraceId};

/// A child to be added to a live run by program.
#[derive(Debug, Clone)]
pub struct ChildSpec {
    /// What is asked of the child.
    pub task: String,
    /// Why it is started; a delegate by default.
    pub mode: ChildMode,
    /// Preset; `None` = the one that fits the mode.
    pub agent_type: Option<String>,
    /// Profile or model name; `None` = the parent's.
    pub model: Option<String>,
    /// What the child needs to know beyond its task.
    pub context: Option<String>,
    /// What stands in its conversation before the task; begins with a user's message.
    pub messages: Vec<GivenMessage>,
    /// The skills that go into its system prompt; `None` = the preset's.
    pub skills: Option<Vec<String>>,
    /// The JSON schema that its answer has to fit; see [`RunHandle::wait_as`](crate::RunHandle::wait_as).
    pub expected_output_schema: Option<Value>,
    /// What it and everything below it may use, within what is left to its parent.
    pub budget: Budget,
    /// Most run time, in milliseconds; never more than `agents.child_timeout_ms`.
    pub timeout_ms: Option<u64>,
    /// Most turns.
    pub max_iterations: Option<u32>,
    /// Tools, within what the parent hands on.
    pub tools: Option<Vec<String>>,
    /// The sub-trace of an earlier child of the parent that it goes on with.
    pub continue_from: Option<TraceId>,
    /// Whether its result enters the parent's conversation, before its next turn. Otherwise only who holds its
    /// handle hears of it.
    pub deliver: bool,
}

impl ChildSpec {
    /// Asks for a delegate with this task: one that does a piece of work.
    pub fn new(task: impl Into<String>) -> Self {
        Self {
            task: task.into(),
            mode: ChildMode::Delegate,
            agent_type: None,
            model: None,
            context: None,
            messages: Vec::new(),
            skills: None,
            expected_output_schema: None,
            budget: Budget::default(),
            timeout_ms: None,
            max_iterations: None,
            tools: None,
            continue_from: None,
            deliver: false,
        }
    }

    /// Asks for one that reads and searches, and changes nothing.
    pub fn explore(task: impl Into<String>) -> Self {
        Self { mode: ChildMode::Explore, ..Self::new(task) }
    }

    /// Asks for one that judges; its answer is `{"passed", "summary", "findings"}`.
    pub fn evaluate(task: impl Into<String>) -> Self {
        Self { mode: ChildMode::Evaluate, ..Self::new(task) }
    }

    /// Sets why the child is started.
    #[must_use]
    pub fn mode(mut self, mode: ChildMode) -> Self {
        self.mode = mode;
        self
    }

    /// Sets the preset.
    #[must_use]
    pub fn agent_type(mut self, preset: impl Into<String>) -> Self {
        self.agent_type = Some(preset.into());
        self
    }

    /// Sets what the child needs to know beyond its task.
    #[must_use]
    pub fn context(mut self, context: impl Into<String>) -> Self {
        self.context = Some(context.into());
        self
    }

    /// Sets the JSON schema that the answer has to fit.
    #[must_use]
    pub fn expect(mut self, schema: Value) -> Self {
        self.expected_output_schema = Some(schema);
        self
    }

    /// Sets what the child and everything below it may use.
    #[must_use]
    pub fn budget(mut self, budget: Budget) -> Self {
        self.budget = budget;
        self
    }

    /// Lets the result enter the parent's conversation.
    #[must_use]
    pub fn deliver(mut self) -> Self {
        self.deliver = true;
        self
    }
}

impl<T: Into<String>> From<T> for ChildSpec {
    fn from(task: T) -> Self {
        Self::new(task)
    }
}
