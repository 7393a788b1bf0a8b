//! The model calls of a run that have no outcome yet.

use soong_protocol::{ContextEvent, Event, MemoryEvent, ModelCallKind, ModelEvent, OpenModelCall};

use crate::run::machine::auxiliary_call::Used;

/// The model calls of a run that have no outcome yet.
#[derive(Default)]
pub(in crate::run::machine) struct OpenModelCalls {
    /// The calls that have reported their usage.
    pub(in crate::run::machine) calls: Vec<OpenModelCall>,
    /// The same as it is stored.
    pub(in crate::run::machine) recorded: Vec<OpenModelCall>,
}

impl OpenModelCalls {
    /// Sets the calls as they are stored.
    pub(in crate::run::machine) fn restore(&mut self, calls: Vec<OpenModelCall>) {
        self.calls.clone_from(&calls);
        self.recorded = calls;
    }

    /// Removes the call that an event gives an outcome.
    pub(in crate::run::machine) fn apply(&mut self, event: &Event) {
        if let Some(ended) = ended_call(event) {
            self.calls.retain(|call| call.kind != ended);
        }
    }

    pub(in crate::run::machine) fn set(&mut self, open_call: OpenModelCall) {
        self.calls.retain(|call| call.kind != open_call.kind);
        self.calls.push(open_call);
    }

    pub(in crate::run::machine) fn get(&self, kind: ModelCallKind) -> Option<Used> {
        let open_call = self.calls.iter().find(|call| call.kind == kind)?;
        Some((open_call.usage, open_call.cost))
    }
}

/// Returns the kind of the call of which an attempt ended with this event.
fn ended_call(event: &Event) -> Option<ModelCallKind> {
    match event {
        Event::Model(
            ModelEvent::Started { .. }
            | ModelEvent::Retrying { .. }
            | ModelEvent::Fallback { .. }
            | ModelEvent::Completed { .. }
            | ModelEvent::Failed { .. },
        ) => Some(ModelCallKind::Turn),
        Event::Model(ModelEvent::NamingEnded { .. }) => Some(ModelCallKind::Naming),
        Event::Context(
            ContextEvent::CompactionCompleted { .. } | ContextEvent::CompactionFailed { .. },
        ) => Some(ModelCallKind::Summary),
        Event::Memory(MemoryEvent::ReflectionEnded { .. }) => Some(ModelCallKind::Reflection),
        Event::Memory(MemoryEvent::Injected { .. }) => Some(ModelCallKind::Recall),
        _ => None,
    }
}
