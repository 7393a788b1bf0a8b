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
        let kind = match self {
            Self::Model(
                ModelEvent::Started { .. }
                | ModelEvent::Retrying { .. }
                | ModelEvent::Fallback { .. }
                | ModelEvent::Completed { .. }
                | ModelEvent::Failed { .. },
            ) => ModelCallKind::Turn,
            Self::Model(ModelEvent::NamingEnded { .. }) => ModelCallKind::Naming,
            Self::Context(
                ContextEvent::CompactionCompleted { .. } | ContextEvent::CompactionFailed { .. },
            ) => ModelCallKind::Summary,
            Self::Memory(MemoryEvent::ReflectionEnded { .. }) => ModelCallKind::Reflection,
            Self::Memory(MemoryEvent::Injected { .. }) => ModelCallKind::Recall,
            _ => return None,
        };
        let error = match self {
            Self::Model(ModelEvent::Retrying { error, .. } | ModelEvent::Failed { error, .. })
            | Self::Context(ContextEvent::CompactionFailed { error, .. }) => Some(error),
            Self::Model(ModelEvent::NamingEnded { error, .. })
            | Self::Memory(
                MemoryEvent::ReflectionEnded { error, .. } | MemoryEvent::Injected { error, .. },
            ) => error.as_deref(),
            _ => None,
        };
        let (usage, cost) = match self {
            Self::Model(ModelEvent::Completed { usage, cost, .. })
            | Self::Context(ContextEvent::CompactionCompleted { usage, cost, .. }) => {
                (Some(usage), *cost)
            }
            Self::Model(
                ModelEvent::Retrying { usage, cost, .. }
                | ModelEvent::Fallback { usage, cost, .. }
                | ModelEvent::Failed { usage, cost, .. }
                | ModelEvent::NamingEnded { usage, cost, .. },
            )
            | Self::Context(ContextEvent::CompactionFailed { usage, cost, .. })
            | Self::Memory(
                MemoryEvent::ReflectionEnded { usage, cost, .. }
                | MemoryEvent::Injected { usage, cost, .. },
            ) => (usage.as_ref(), *cost),
            _ => (None, None),
        };
        Some(EndedModelCall {
            kind,
            error,
            usage,
            cost,
        })
    }
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
