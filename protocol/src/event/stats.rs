//! Updating statistics from events.

use crate::{ContextEvent, ErrorCode, MemoryEvent, ModelEvent, Stats, ToolEvent};

impl Stats {
    /// Adds a model call.
    pub fn add_model_event(&mut self, event: &ModelEvent) {
        let (usage, cost) = match event {
            ModelEvent::Completed { usage, cost, .. } => (Some(usage), cost),
            // The attempt used nothing: it was rejected, or interrupted before the request was
            // sent.
            ModelEvent::Retrying { usage: None, .. }
            | ModelEvent::Fallback { usage: None, .. }
            | ModelEvent::NamingEnded { usage: None, .. } => return,
            ModelEvent::Retrying { usage, cost, .. }
            | ModelEvent::Fallback { usage, cost, .. }
            | ModelEvent::NamingEnded { usage, cost, .. } => (usage.as_ref(), cost),
            ModelEvent::UsageCorrected {
                estimate,
                estimated_cost,
                usage,
                cost,
            } => {
                self.subtract_usage(estimate, *estimated_cost);
                return self.add_usage(usage, *cost);
            }
            // The call was not made, because the budget does not suffice.
            ModelEvent::Failed { error, .. } if error.code == ErrorCode::BudgetExceeded => return,
            ModelEvent::Failed { usage, cost, .. } => (usage.as_ref(), cost),
            ModelEvent::ContextBuilt { .. }
            | ModelEvent::EffortAdjusted { .. }
            | ModelEvent::FallbackEnded { .. }
            | ModelEvent::NamingStarted { .. }
            | ModelEvent::Started { .. }
            | ModelEvent::Waiting { .. }
            | ModelEvent::CallsFoundInText { .. }
            | ModelEvent::ProviderDataRejected { .. } => return,
        };
        self.model_calls = self.model_calls.saturating_add(1);
        if let Some(usage) = usage {
            self.add_usage(usage, *cost);
        }
    }

    /// Adds the model call of a compaction.
    pub fn add_context_event(&mut self, event: &ContextEvent) {
        match event {
            ContextEvent::CompactionCompleted { usage, cost, .. } => self.add_usage(usage, *cost),
            ContextEvent::CompactionFailed {
                usage: Some(usage),
                cost,
                ..
            } => self.add_usage(usage, *cost),
            ContextEvent::CompactionFailed { error, .. }
                if error.code == ErrorCode::BudgetExceeded =>
            {
                return;
            }
            ContextEvent::CompactionFailed { .. } => {}
            ContextEvent::CompactionStarted { .. }
            | ContextEvent::OldestOmitted { .. }
            | ContextEvent::FilesOmitted { .. } => return,
        }
        self.model_calls = self.model_calls.saturating_add(1);
    }

    /// Adds the model calls of a search for experiences, or of a reflection.
    pub fn add_memory_event(&mut self, event: &MemoryEvent) {
        let (model_calls, usage, cost) = match event {
            MemoryEvent::Injected {
                model_calls,
                usage,
                cost,
                ..
            } => (*model_calls, usage, cost),
            MemoryEvent::ReflectionEnded { usage, cost, .. } => {
                (u64::from(usage.is_some()), usage, cost)
            }
            MemoryEvent::Added { .. }
            | MemoryEvent::ReflectionStarted { .. }
            | MemoryEvent::Rated { .. } => return,
        };
        if let Some(usage) = usage {
            self.add_usage(usage, *cost);
        }
        self.model_calls = self.model_calls.saturating_add(model_calls);
    }

    /// Counts a tool call unless it was never executed.
    pub fn add_tool_event(&mut self, event: &ToolEvent) {
        match event {
            ToolEvent::Completed { .. } => self.tool_calls = self.tool_calls.saturating_add(1),
            ToolEvent::Failed { error, .. }
                if !matches!(error.code, ErrorCode::Skipped | ErrorCode::BudgetExceeded) =>
            {
                self.tool_calls = self.tool_calls.saturating_add(1);
            }
            ToolEvent::Failed { .. }
            | ToolEvent::Started { .. }
            | ToolEvent::Denied { .. }
            | ToolEvent::McpServerFailed { .. } => {}
        }
    }
}
