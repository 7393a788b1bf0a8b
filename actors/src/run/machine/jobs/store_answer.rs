//! The answer of a child as an artifact, if it is too large for the result that its parent gets
//! (SUB-4).

use futures::future::BoxFuture;
use soong_protocol::{ArtifactEvent, ArtifactRef, ErrorInfo, Event, ModelEvent, RefKind};

#[cfg(any(test, feature = "testing"))]
use crate::run::machine::jobs::Comparison;
use crate::run::machine::{
    RunState, Transition,
    jobs::{Job, JobEnd, JobPolicy, JobTools, OnCancel, Progress},
    state::phase::Phase,
};

/// Stores this answer.
#[derive(Debug)]
pub(crate) struct StoreAnswer(String);

/// Storage of the last answer.
#[derive(Debug, Default)]
pub(crate) struct AnswerStorage {
    /// The artifact that holds the answer.
    stored: Option<ArtifactRef>,
    /// Progress of the attempt to store it.
    progress: Progress,
}

impl Job for StoreAnswer {
    type State = AnswerStorage;
    type Output = ArtifactRef;

    const POLICY: JobPolicy = JobPolicy {
        on_cancel: OnCancel::Complete,
        ..JobPolicy::new("the artifact store")
    };

    fn run(self, tools: &mut dyn JobTools) -> BoxFuture<'_, Result<ArtifactRef, ErrorInfo>> {
        tools.store_text("answer", self.0)
    }

    fn apply(run: &mut RunState, event: &Event) {
        match event {
            Event::Model(ModelEvent::Started { .. }) => run.forget_stored_answer(),
            // After its answer, a run stores nothing else without a name, except for debugging: this
            // is the answer, stored by an earlier incarnation.
            Event::Artifact(ArtifactEvent::Saved {
                name: None,
                debug: false,
                artifact_id,
                version,
                content_type,
                size,
                ..
            }) if run.is_child_with_answer() => {
                let reference = ArtifactRef {
                    kind: RefKind::ArtifactRef,
                    artifact_id: artifact_id.clone(),
                    name: None,
                    version: *version,
                    content_type: content_type.clone(),
                    size: *size,
                    summary: String::new(),
                };
                run.add_stored_answer(reference);
            }
            _ => {}
        }
    }

    /// Handles the outcome. An answer that could not be stored is shortened.
    fn ended(transition: &mut Transition<'_, '_>, end: JobEnd<ArtifactRef>) {
        transition.state.jobs.store_answer.progress = Progress::Ended;
        if let Ok(reference) = end.result {
            transition.state.add_stored_answer(reference);
        }
    }

    #[cfg(any(test, feature = "testing"))]
    fn comparison(state: &AnswerStorage) -> Comparison {
        Comparison {
            has_ended: state.stored.is_some() || state.progress == Progress::Ended,
            ..Comparison::default()
        }
    }
}

impl RunState {
    /// Returns the artifact that holds the answer of the run.
    pub(crate) fn stored_answer(&self) -> Option<&ArtifactRef> {
        self.jobs.store_answer.stored.as_ref()
    }

    /// Forgets how the last answer was stored, because there is another one.
    pub(crate) fn forget_stored_answer(&mut self) {
        self.jobs.store_answer = AnswerStorage::default();
    }

    /// Returns whether the answer is being stored, or was.
    pub(crate) fn has_begun_to_store_answer(&self) -> bool {
        self.jobs.store_answer.progress != Progress::NotStarted
    }

    fn add_stored_answer(&mut self, reference: ArtifactRef) {
        self.artifacts.push(reference.clone());
        self.jobs.store_answer.stored = Some(reference);
    }

    fn is_child_with_answer(&self) -> bool {
        self.spec.identity.parent.is_some() && matches!(self.phase, Phase::Answered | Phase::Halted)
    }
}

impl Transition<'_, '_> {
    /// Requests storage of an answer that is too large for a result. Returns `true` while the run
    /// must wait for it.
    pub(crate) fn awaits_answer_storage(&mut self) -> bool {
        let spec = &self.state.spec;
        let AnswerStorage { stored, progress } = &self.state.jobs.store_answer;
        let is_too_large = spec.limits.inline.are_exceeded_by(&self.state.answer.text);
        if spec.identity.parent.is_none() || stored.is_some() || !is_too_large {
            return false;
        }
        match progress {
            Progress::Ended => false,
            Progress::Running => true,
            Progress::NotStarted => {
                self.state.jobs.store_answer.progress = Progress::Running;
                let answer = self.state.answer.text.clone();
                self.start_job(StoreAnswer(answer));
                true
            }
        }
    }

    /// Ends the run without another attempt to store its answer.
    pub(crate) fn give_up_answer_storage(&mut self) {
        self.state.jobs.store_answer.progress = Progress::Ended;
    }
}
