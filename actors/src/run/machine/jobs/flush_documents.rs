//! Storing a version of each document that the run wrote, when it ends (ART-4).
//!
//! Elsewhere: the content of documents (the working set).

use std::collections::BTreeMap;

use futures::future::BoxFuture;
use soong_protocol::{
    ArtifactEvent, EndReason, ErrorInfo, Event, FlushFailure, FlushReport, MessageEvent,
    ModelEvent, RunStatus, ToolEvent,
};

#[cfg(any(test, feature = "testing"))]
use crate::run::machine::jobs::Comparison;
use crate::run::machine::{
    RunState, Transition,
    ending::Ending,
    errors::documents_not_stored,
    jobs::{Job, JobEnd, JobPolicy, JobTools, OnCancel},
    tools::is_internal_tool,
};

/// Stores the documents of the run.
#[derive(Debug)]
pub(crate) struct FlushDocuments;

/// The documents of the run that may have to be stored.
#[derive(Debug, Default)]
pub(crate) struct WrittenDocuments {
    /// Whether the run may have edits: a tool that writes was started, a rewind restored documents,
    /// or the store has documents that are not stored as versions.
    may_exist: bool,
    /// Whether they are stored since the last model call began.
    are_stored: bool,
    /// Whether this incarnation has requested that since the last model call began.
    is_requested: bool,
    /// Documents that were edited before a crash, with the version that the run has stored of them;
    /// 0: none.
    versions: BTreeMap<String, u64>,
}

impl Job for FlushDocuments {
    type State = WrittenDocuments;
    type Output = FlushReport;

    const POLICY: JobPolicy = JobPolicy {
        // A cancelled run flushes too.
        on_cancel: OnCancel::Complete,
        is_silent_at_close: true,
        ..JobPolicy::new("the artifact store")
    };

    fn run(self, tools: &mut dyn JobTools) -> BoxFuture<'_, Result<FlushReport, ErrorInfo>> {
        tools.flush_documents()
    }

    fn apply(run: &mut RunState, event: &Event) {
        match event {
            Event::Tool(ToolEvent::Started { name, .. }) => {
                let tool = run.spec.tool(name);
                let is_mutating = tool.is_some_and(|tool| tool.effect.is_mutating());
                if is_mutating && !is_internal_tool(name) {
                    run.documents_may_exist();
                }
            }
            // The restored documents become versions when the run ends.
            Event::Message(MessageEvent::Rewind { restored, .. }) if !restored.is_empty() => {
                run.documents_may_exist();
            }
            Event::Model(ModelEvent::Started { .. }) => {
                run.jobs.flush_documents.are_stored = false;
                run.jobs.flush_documents.is_requested = false;
            }
            // An edit after a stored version is not stored yet.
            Event::Artifact(ArtifactEvent::Edited { name, .. }) => {
                let versions = &mut run.jobs.flush_documents.versions;
                versions.insert(name.clone(), 0);
            }
            Event::Artifact(ArtifactEvent::Saved {
                name: Some(name),
                version,
                ..
            }) => {
                let versions = &mut run.jobs.flush_documents.versions;
                if let Some(stored) = versions.get_mut(name) {
                    *stored = *version;
                }
            }
            Event::Artifact(ArtifactEvent::Flushed { versions, failed }) => {
                run.documents_flushed(versions, failed);
            }
            _ => {}
        }
    }

    fn ended(transition: &mut Transition<'_, '_>, end: JobEnd<FlushReport>) {
        let report = end.result.unwrap_or_else(unknown_flush);
        transition.record_flush(report);
    }

    #[cfg(any(test, feature = "testing"))]
    fn comparison(state: &WrittenDocuments) -> Comparison {
        // `versions` is only used for documents that were edited before a crash.
        Comparison {
            state: state.may_exist.to_string(),
            has_ended: state.are_stored,
        }
    }
}

/// Returns the outcome of a flush whose documents cannot be determined.
pub(crate) fn unknown_flush(error: ErrorInfo) -> FlushReport {
    let name = "(the list of edited documents cannot be read)".to_owned();
    FlushReport {
        failed: vec![FlushFailure { name, error }],
        ..FlushReport::default()
    }
}

impl RunState {
    /// Notes that the run may have documents to store when it ends.
    pub(crate) fn documents_may_exist(&mut self) {
        self.jobs.flush_documents.may_exist = true;
    }

    /// Returns whether this incarnation stores the documents, or has stored them.
    pub(crate) fn has_begun_to_flush(&self) -> bool {
        self.jobs.flush_documents.is_requested
    }

    /// Applies the outcome of storing the run's documents. If a document could not be stored, the
    /// run fails, unless it was ended by a crash or an interruption.
    fn documents_flushed(&mut self, versions: &BTreeMap<String, u64>, failed: &[FlushFailure]) {
        let documents = &mut self.jobs.flush_documents;
        documents.are_stored = true;
        documents.versions.clear();
        for reference in &mut self.artifacts {
            if let Some(version) = versions.get(reference.label()) {
                reference.version = *version;
            }
        }
        let is_external = |ending: &Ending| {
            matches!(
                ending.reason,
                EndReason::Interrupted | EndReason::ActorCrashed
            )
        };
        if !failed.is_empty() && !self.end.ending.as_ref().is_some_and(is_external) {
            let error = Some(documents_not_stored(failed));
            self.end.ending = Some(Ending {
                status: RunStatus::Failed,
                reason: EndReason::Failed,
                error,
            });
        }
    }
}

impl Transition<'_, '_> {
    /// Requests that the documents of an ending run are stored. Returns `true` while the run must
    /// wait for that.
    pub(crate) fn awaits_flush(&mut self) -> bool {
        let documents = &mut self.state.jobs.flush_documents;
        if !documents.may_exist || documents.are_stored {
            return false;
        }
        if !documents.is_requested {
            documents.is_requested = true;
            self.start_job(FlushDocuments);
        }
        true
    }

    /// Records the outcome of storing the run's documents. Emits no event if there are none.
    pub(crate) fn record_flush(&mut self, report: FlushReport) {
        let FlushReport {
            mut versions,
            failed,
        } = report;
        let documents = &mut self.state.jobs.flush_documents;
        documents.are_stored = true;
        // Versions that an earlier incarnation stored and could not report.
        for (name, version) in std::mem::take(&mut documents.versions) {
            if version > 0 && failed.iter().all(|failure| failure.name != name) {
                versions.entry(name).or_insert(version);
            }
        }
        if !versions.is_empty() || !failed.is_empty() {
            self.emit(ArtifactEvent::Flushed { versions, failed });
        }
    }
}
