//! The ends of model calls, as events record them.

use crate::{ContextEvent, ErrorInfo, Event, MemoryEvent, ModelCallKind, ModelEvent, Usage, Usd};

/// The end of a model call, or of one attempt of the call of a turn.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct EndedModelCall<'a> {
    /// Kind of the call.
    pub kind: ModelCallKind,
    /// Why the call failed.
    pub error: Option<&'a ErrorInfo>,
    /// Usage that is charged for it.
    pub usage: Option<&'a Usage>,
    /// Cost of that usage, if the price is known.
    pub cost: Option<Usd>,
}

impl Event {
    /// Returns the model call that ends with this event. A new attempt of a turn ends the one before
    /// it.
    pub fn ended_model_call(&self) -> Option<EndedModelCall<'_>> {
        match self {
            Self::Model(event) => ended_by_model_event(event),
            Self::Context(event) => ended_by_context_event(event),
            Self::Memory(event) => ended_by_memory_event(event),
            Self::Run(_)
            | Self::Message(_)
            | Self::Tool(_)
            | Self::Goal(_)
            | Self::SubAgent(_)
            | Self::Artifact(_)
            | Self::Budget(_)
            | Self::Permission(_)
            | Self::Hook(_)
            | Self::Unknown { .. } => None,
        }
    }
}

fn ended_by_model_event(event: &ModelEvent) -> Option<EndedModelCall<'_>> {
    let ended = |kind, error, usage, cost| {
        Some(EndedModelCall {
            kind,
            error,
            usage,
            cost,
        })
    };
    match event {
        ModelEvent::Started { .. } => ended(ModelCallKind::Turn, None, None, None),
        ModelEvent::Completed { usage, cost, .. } => {
            ended(ModelCallKind::Turn, None, Some(usage), *cost)
        }
        ModelEvent::Fallback { usage, cost, .. } => {
            ended(ModelCallKind::Turn, None, usage.as_ref(), *cost)
        }
        ModelEvent::Retrying {
            error, usage, cost, ..
        }
        | ModelEvent::Failed {
            error, usage, cost, ..
        } => ended(ModelCallKind::Turn, Some(error), usage.as_ref(), *cost),
        ModelEvent::NamingEnded {
            error, usage, cost, ..
        } => {
            let error = error.as_deref();
            ended(ModelCallKind::Naming, error, usage.as_ref(), *cost)
        }
        ModelEvent::ContextBuilt { .. }
        | ModelEvent::Waiting { .. }
        | ModelEvent::UsageCorrected { .. }
        | ModelEvent::EffortAdjusted { .. }
        | ModelEvent::ProviderDataRejected { .. }
        | ModelEvent::CallsFoundInText { .. }
        | ModelEvent::FallbackEnded { .. }
        | ModelEvent::NamingStarted { .. } => None,
    }
}

fn ended_by_context_event(event: &ContextEvent) -> Option<EndedModelCall<'_>> {
    let kind = ModelCallKind::Summary;
    match event {
        ContextEvent::CompactionCompleted { usage, cost, .. } => Some(EndedModelCall {
            kind,
            error: None,
            usage: Some(usage),
            cost: *cost,
        }),
        ContextEvent::CompactionFailed { error, usage, cost } => Some(EndedModelCall {
            kind,
            error: Some(error),
            usage: usage.as_ref(),
            cost: *cost,
        }),
        ContextEvent::CompactionStarted { .. }
        | ContextEvent::OldestOmitted { .. }
        | ContextEvent::FilesOmitted { .. } => None,
    }
}

fn ended_by_memory_event(event: &MemoryEvent) -> Option<EndedModelCall<'_>> {
    let (kind, error, usage, cost) = match event {
        MemoryEvent::Injected {
            error, usage, cost, ..
        } => (ModelCallKind::Recall, error, usage, cost),
        MemoryEvent::ReflectionEnded {
            error, usage, cost, ..
        } => (ModelCallKind::Reflection, error, usage, cost),
        MemoryEvent::Added { .. }
        | MemoryEvent::ReflectionStarted { .. }
        | MemoryEvent::Rated { .. } => return None,
    };
    Some(EndedModelCall {
        kind,
        error: error.as_deref(),
        usage: usage.as_ref(),
        cost: *cost,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorCode;

    #[test]
    fn end_of_each_kind_has_its_error_and_usage() {
        let usage = Usage::estimate(7, 3);
        let error = ErrorInfo::new(ErrorCode::Interrupted, "interrupted");
        let ends: [Event; 4] = [
            ModelEvent::NamingEnded {
                name: None,
                usage: Some(usage),
                cost: None,
                error: Some(Box::new(error.clone())),
            }
            .into(),
            ContextEvent::CompactionFailed {
                error: error.clone(),
                usage: Some(usage),
                cost: None,
            }
            .into(),
            MemoryEvent::ReflectionEnded {
                covered: (1, 2),
                usage: Some(usage),
                cost: None,
                error: Some(Box::new(error.clone())),
            }
            .into(),
            ModelEvent::Retrying {
                attempt: 1,
                error: error.clone(),
                wait_ms: 0,
                usage: Some(usage),
                cost: None,
            }
            .into(),
        ];
        let kinds = [
            ModelCallKind::Naming,
            ModelCallKind::Summary,
            ModelCallKind::Reflection,
            ModelCallKind::Turn,
        ];
        for (event, kind) in ends.iter().zip(kinds) {
            let ended = event.ended_model_call().unwrap();
            let expected = EndedModelCall {
                kind,
                error: Some(&error),
                usage: Some(&usage),
                cost: None,
            };
            assert_eq!(ended, expected);
        }
        let started = Event::from(ModelEvent::NamingStarted {
            estimated_tokens: 1,
        });
        assert_eq!(started.ended_model_call(), None);
    }
}
