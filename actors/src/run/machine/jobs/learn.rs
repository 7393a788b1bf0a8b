//! Writing what a reflecting run has learned to the experiences file (MEM-4).
//!
//! The answer of the run is recorded first. A crash in between makes the changes again, which has
//! no effect.
//!
//! Elsewhere: the reflecting run (`machine/reflection.rs`).

use std::collections::HashSet;

use futures::future::BoxFuture;
use soong_protocol::{EndReason, ErrorInfo};

#[cfg(any(test, feature = "testing"))]
use crate::run::machine::jobs::Comparison;
use crate::{
    memory::{Changes, experiences_in, read_reflection},
    run::machine::{
        Transition,
        jobs::{Job, JobEnd, JobPolicy, JobTools, LearnedChanges, OnCancel, Progress},
        state::phase::Phase,
    },
};

/// Makes these changes of the file.
#[derive(Debug)]
pub(crate) struct Learn(Changes);

impl Job for Learn {
    type State = Progress;
    type Output = LearnedChanges;

    const POLICY: JobPolicy = JobPolicy {
        on_cancel: OnCancel::Complete,
        ..JobPolicy::new("the memory")
    };

    fn run(self, tools: &mut dyn JobTools) -> BoxFuture<'_, Result<LearnedChanges, ErrorInfo>> {
        tools.change_experiences(self.0)
    }

    fn ended(transition: &mut Transition<'_, '_>, end: JobEnd<LearnedChanges>) {
        transition.state.jobs.learn = Progress::Ended;
        match end.result {
            Ok(learned) => {
                let summary = transition.record_experiences(learned.changes, learned.added);
                transition.state.set_answer_text(summary);
            }
            Err(error) => transition.set_failure(EndReason::Failed, error),
        }
    }

    #[cfg(any(test, feature = "testing"))]
    fn comparison(state: &Progress) -> Comparison {
        Comparison::from(*state)
    }
}

impl Transition<'_, '_> {
    /// Requests that the experiences of a reflecting run are written once there is an answer.
    /// Returns `true` while the run must wait for that.
    pub(crate) fn awaits_learning(&mut self) -> bool {
        let Some(reflection) = &self.state.reflection else {
            return false;
        };
        let has_answer = self.state.phase == Phase::Answered && self.state.end.ending.is_none();
        match self.state.jobs.learn {
            Progress::Ended => false,
            // A write in progress cannot be cancelled: the run waits for its outcome, however it
            // ends.
            Progress::Running => true,
            Progress::NotStarted if !has_answer => false,
            Progress::NotStarted => {
                let messages = reflection.conversation.iter().map(|entry| &*entry.message);
                let shown_ids: HashSet<String> = experiences_in(messages);
                let (new, rated) = read_reflection(&self.state.answer.text, &shown_ids);
                let identity = &self.state.spec.identity;
                let changes = Changes {
                    reflection: identity.run_id.to_string(),
                    trace_id: Some(identity.trace_id.clone()),
                    at: self.context.now,
                    new,
                    rated,
                };
                self.state.jobs.learn = Progress::Running;
                self.start_job(Learn(changes));
                true
            }
        }
    }
}
