//! The model calls of a run that have no outcome yet.

use soong_protocol::{Event, ModelCallKind, OpenModelCall};

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
        if let Some(ended) = event.ended_model_call() {
            self.calls.retain(|call| call.kind != ended.kind);
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
