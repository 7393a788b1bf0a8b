//! The specification of a child that a program adds to a live run (RT-4). All fields except the task have defaults.

use serde_json::Value;
use soong_protocol::{Budget, ChildMode, GivenMessage, TraceId};

/// A child that a program adds to a live run.
#[derive(Debug, Clone)]
pub struct ChildSpec {
    /// The task of the child.
    pub task: String,
    /// Mode of the child. Default: delegate.
    pub mode: ChildMode,
    /// Preset. Default: the preset of the mode.
    pub agent_type: Option<String>,
    /// Profile or model name. Default: the parent's.
    pub model: Option<String>,
    /// Context that is added to the task.
    pub context: Option<String>,
    /// Messages that precede the task in the child's conversation. The first must be a user message.
    pub messages: Vec<GivenMessage>,
    /// Skills to include in the system prompt. Default: the preset's.
    pub skills: Option<Vec<String>>,
    /// JSON schema that the answer must match; see [`RunHandle::wait_as`](crate::RunHandle::wait_as).
    pub expected_output_schema: Option<Value>,
    /// Budget of the child and its descendants, within the remaining budget of the parent.
    pub budget: Budget,
    /// Maximum active time, in milliseconds. Default and upper limit: `agents.child_timeout_ms`.
    pub timeout_ms: Option<u64>,
    /// Maximum number of turns. Default: the preset's, else `runtime.max_turns`.
    pub max_iterations: Option<u32>,
    /// Tools of the child, limited to the tools that the parent passes on. Default: all of these.
    pub tools: Option<Vec<String>>,
    /// Sub-trace of an earlier child of the parent that this child continues. Preset, model, budget, skills, tools and
    /// turn limit that are not set are then taken from the last run of the sub-trace.
    pub continue_from: Option<TraceId>,
    /// Whether the result is added to the parent's conversation before its next turn. Otherwise, only holders of the
    /// child's handle get it.
    pub deliver: bool,
}

impl ChildSpec {
    /// Creates a delegate with this task: a child that works on a part of the task.
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

    /// Creates an explorer: a child that reads and searches, and changes nothing.
    pub fn explore(task: impl Into<String>) -> Self {
        Self { mode: ChildMode::Explore, ..Self::new(task) }
    }

    /// Creates an evaluator: a child that judges. Its answer is `{"passed", "summary", "findings"}`.
    pub fn evaluate(task: impl Into<String>) -> Self {
        Self { mode: ChildMode::Evaluate, ..Self::new(task) }
    }

    /// Sets the mode of the child.
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

    /// Sets the context that is added to the task.
    #[must_use]
    pub fn context(mut self, context: impl Into<String>) -> Self {
        self.context = Some(context.into());
        self
    }

    /// Sets the JSON schema that the answer must match.
    #[must_use]
    pub fn expect(mut self, schema: Value) -> Self {
        self.expected_output_schema = Some(schema);
        self
    }

    /// Sets the budget of the child and its descendants.
    #[must_use]
    pub fn budget(mut self, budget: Budget) -> Self {
        self.budget = budget;
        self
    }

    /// Adds the result to the parent's conversation.
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
