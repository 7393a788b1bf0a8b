//! What events add to statistics.

use crate::{ContextEvent, ErrorCode, MemoryEvent, ModelEvent, Stats, ToolEvent};

impl Stats {
    /// Books what happened to a model call.
    pub fn take_model(&mut self, event: &ModelEvent) {
        let (usage, cost) = match event {
            ModelEvent::Completed { usage, cost, .. } => (Some(usage), cost),
            // Nothing came of it: turned away, or cut off before it was made.
            ModelEvent::Retrying { usage: None, .. } => return,
            ModelEvent::Retrying { usage, cost, .. } => (usage.as_ref(), cost),
            // A call that nobody could pay for was not made.
            ModelEvent::Failed { error, .. } if error.code == ErrorCode::BudgetExceeded => return,
            ModelEvent::Failed { usage, cost, .. } => (usage.as_ref(), cost),
            ModelEvent::ContextBuilt { .. } | ModelEvent::Started { .. } | ModelEvent::Waiting { .. } => return,
        };
        self.model_calls = self.model_calls.saturating_add(1);
        if let Some(usage) = usage {
            self.book(usage, *cost);
        }
    }

    /// Books what happened to a summary.
    pub fn take_context(&mut self, event: &ContextEvent) {
        match event {
            ContextEvent::CompactionCompleted { usage, cost, .. } => self.book(usage, *cost),
            ContextEvent::CompactionFailed { usage: Some(usage), cost, .. } => self.book(usage, *cost),
            ContextEvent::CompactionFailed { error, .. } if error.code == ErrorCode::BudgetExceeded => return,
            ContextEvent::CompactionFailed { .. } => {}
            ContextEvent::CompactionStarted { .. } => return,
        }
        self.model_calls = self.model_calls.saturating_add(1);
    }

    /// Adds what looking for experiences used.
    pub fn take_memory(&mut self, event: &MemoryEvent) {
        let MemoryEvent::Injected { model_calls, usage, cost, .. } = event else { return };
        if let Some(usage) = usage {
            self.book(usage, *cost);
        }
        self.model_calls = self.model_calls.saturating_add(*model_calls);
    }

    /// Counts a tool call; not one that was never run.
    pub fn take_tool(&mut self, event: &ToolEvent) {
        match event {
            ToolEvent::Completed { .. } => self.tool_calls = self.tool_calls.saturating_add(1),
            ToolEvent::Failed { error, .. }
                if !matches!(error.code, ErrorCode::Skipped | ErrorCode::BudgetExceeded) =>
            {
                self.tool_calls = self.tool_calls.saturating_add(1);
            }
            _ => {}
        }
    }
}
