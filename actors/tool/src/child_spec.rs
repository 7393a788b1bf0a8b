//! The specification of a child that a program adds to a live run (RT-4). All fields except the
//! task have defaults.
//!
//! Elsewhere (in `soong`): how children are started.

use std::time::Duration;

use serde_json::Value;
use soong_protocol::{Budget, ChildMode, GivenMessage, RunOptions, TraceId};

/// A child that a program adds to a live run.
#[derive(Debug, Clone)]
#[must_use = "has no effect until it is started"]
pub struct ChildSpec {
    /// The task of the child.
    pub task: String,
    /// Mode of the child. Default: delegate.
    pub mode: ChildMode,
    /// Preset. Default: the preset of the mode.
    pub preset: Option<String>,
    /// Profile or model name. Default: the parent's.
    pub model: Option<String>,
    /// Context that is added to the task: a text or an object.
    pub context: Option<Value>,
    /// Options that all runs have in common. Tools and budget are limited to those of the parent,
    /// the time limit to `agents.child_timeout_ms`.
    pub options: RunOptions,
    /// Sub-trace of an earlier child of the parent that this child continues. Preset, model,
    /// budget, skills, tools and turn limit that are not set are then taken from the last run of
    /// the sub-trace.
    pub continue_from: Option<TraceId>,
    /// Whether the result is added to the parent's conversation before its next turn. Otherwise,
    /// only holders of the child's handle get it.
    pub deliver: bool,
}

impl ChildSpec {
    /// Creates a delegate with this task: a child that works on a part of the task.
    pub fn new(task: impl Into<String>) -> Self {
        Self {
            task: task.into(),
            mode: ChildMode::Delegate,
            preset: None,
            model: None,
            context: None,
            options: RunOptions::default(),
            continue_from: None,
            deliver: false,
        }
    }

    /// Creates an explorer: a child that reads and searches, and changes nothing.
    pub fn explore(task: impl Into<String>) -> Self {
        Self {
            mode: ChildMode::Explore,
            ..Self::new(task)
        }
    }

    /// Creates an evaluator: a child that judges. Its answer is `{"passed", "summary",
    /// "findings"}`.
    pub fn evaluate(task: impl Into<String>) -> Self {
        Self {
            mode: ChildMode::Evaluate,
            ..Self::new(task)
        }
    }

    /// Sets the mode of the child.
    pub fn mode(mut self, mode: ChildMode) -> Self {
        self.mode = mode;
        self
    }

    /// Sets the preset.
    pub fn preset(mut self, preset: impl Into<String>) -> Self {
        self.preset = Some(preset.into());
        self
    }

    /// Sets the model: a profile, or a model name within the default profile. Default: the
    /// parent's.
    pub fn model(mut self, model: impl Into<String>) -> Self {
        self.model = Some(model.into());
        self
    }

    /// Sets the context that is added to the task: a text or an object.
    pub fn context(mut self, context: impl Into<Value>) -> Self {
        self.context = Some(context.into());
        self
    }

    /// Sets the maximum number of turns.
    pub fn max_turns(mut self, turns: u32) -> Self {
        self.options.max_turns = Some(turns);
        self
    }

    /// Sets the tools of the child, limited to the tools that the parent passes on.
    pub fn tools(mut self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.options.tools = Some(names.into_iter().map(Into::into).collect());
        self
    }

    /// Sets the messages that precede the task in the child's conversation. The first must be a
    /// user message.
    pub fn messages(mut self, messages: impl IntoIterator<Item = GivenMessage>) -> Self {
        self.options.messages = messages.into_iter().collect();
        self
    }

    /// Sets the skills in the system prompt. Default: the preset's.
    pub fn skills(mut self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.options.skills = Some(names.into_iter().map(Into::into).collect());
        self
    }

    /// Sets the JSON schema that the answer must match; `RunHandle::wait_as` parses it.
    pub fn expect(mut self, schema: Value) -> Self {
        self.options.expected_output_schema = Some(schema);
        self
    }

    /// Sets the budget of the child and its descendants, within the remaining budget of the parent.
    pub fn budget(mut self, budget: Budget) -> Self {
        self.options.budget = budget;
        self
    }

    /// Sets the maximum active time, rounded up to milliseconds. Default and upper limit:
    /// `agents.child_timeout_ms`.
    pub fn timeout(mut self, limit: Duration) -> Self {
        self.options.set_timeout(limit);
        self
    }

    /// Continues the sub-trace of an earlier child; see
    /// [`ChildSpec::continue_from`](field@ChildSpec::continue_from).
    pub fn continue_from(mut self, sub_trace: TraceId) -> Self {
        self.continue_from = Some(sub_trace);
        self
    }

    /// Adds the result to the parent's conversation; see
    /// [`ChildSpec::deliver`](field@ChildSpec::deliver).
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
