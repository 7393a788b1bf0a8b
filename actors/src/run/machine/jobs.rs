//! The jobs of a run: work besides its turns and its tool calls.
//!
//! A job is a file below this module: its request, its outcome, its state, what its events change,
//! what happens when it begins, ends or is lost, and the body of its task. The table at the end of
//! this file lists them.
//!
//! Pure: a body names no service. It gets [`JobTools`], and its future does nothing before it is
//! polled. Elsewhere: the task that polls it, and owns cancellation, panics, budget and time
//! (`tasks/job.rs`).

pub(crate) mod after_agent;
pub(crate) mod before_agent;
pub(crate) mod flush_documents;
pub(crate) mod learn;
pub(crate) mod name_trace;
pub(crate) mod recall;
pub(crate) mod reflect;
pub(crate) mod stop_hooks;
pub(crate) mod store_answer;
pub(crate) mod summarize;

use std::{fmt::Debug, sync::Arc, time::Duration};

use futures::{FutureExt, future::BoxFuture};
use soong_protocol::{
    ArtifactRef, ErrorCode, ErrorInfo, Event, ExperienceId, FlushReport, ModelCallKind, Role,
};

use crate::{
    callback::{AfterResult, BeforeResult, Reports},
    hook::HookResult,
    memory::{Changes, ExperienceText},
    run::machine::{
        RunState, Transition,
        auxiliary_call::{AuxiliaryAnswer, AuxiliaryRole, UsedByCalls},
    },
};

/// A kind of job. The value is the request of one job.
pub(crate) trait Job: Sized + Debug + Send + 'static {
    /// The facts about the job that the run keeps. Those that no event records have their default
    /// value after a restart.
    type State: Default + Debug;
    /// Result of the body.
    type Output: Debug + Send;

    /// How the task treats the job.
    const POLICY: JobPolicy;

    /// The body of the task.
    fn run(self, tools: &mut dyn JobTools) -> BoxFuture<'_, Result<Self::Output, ErrorInfo>>;

    /// Applies an event to the state, live and on rebuild.
    fn apply(_run: &mut RunState, _event: &Event) {}

    /// Returns whether the model call of the job is in progress.
    fn is_calling(_run: &RunState) -> bool {
        false
    }

    /// Handles the outcome.
    fn ended(transition: &mut Transition<'_, '_>, end: JobEnd<Self::Output>);

    /// Records that the job was lost with an earlier incarnation, or was cut off by the end of the
    /// run. By default nothing is recorded, and the next incarnation starts the job again.
    /// `same_process`: the incarnation ran in this process.
    fn lost(_transition: &mut Transition<'_, '_>, _same_process: bool) {}

    /// Records that the job continues after the end of the run. Returns whether one is in progress.
    fn detached(_transition: &mut Transition<'_, '_>) -> bool {
        false
    }

    /// Returns the event that the task records if the job ends after its run.
    fn late_event(_result: &Result<Self::Output, ErrorInfo>) -> Option<Event> {
        None
    }

    /// Returns how the state is compared with the rebuilt one.
    #[cfg(any(test, feature = "testing"))]
    fn comparison(state: &Self::State) -> Comparison;
}

/// How the task of a job treats it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct JobPolicy {
    /// Component that is named if the body panics.
    pub(crate) component: &'static str,
    /// Kind of the model calls that the body makes. In a child, such a job starts only while the
    /// child has its slot (ACT-5).
    pub(crate) model_call: Option<ModelCallKind>,
    /// Maximum time of a model call, including the time in queues.
    pub(crate) max_call_time: Option<Duration>,
    pub(crate) on_cancel: OnCancel,
    /// Maximum time that the job takes after the end of its run. `None`: the run waits for it.
    pub(crate) max_time_after_run: Option<Duration>,
    /// Whether the job has no outcome if it ends while the runtime closes. The next process starts
    /// it again. A job that may outlive its run never has one then, and is recorded as lost.
    pub(crate) is_silent_at_close: bool,
}

impl JobPolicy {
    /// Returns the policy of a job that calls no model, is cut off by a cancellation, and always has
    /// an outcome before the run ends.
    pub(crate) const fn new(component: &'static str) -> Self {
        Self {
            component,
            model_call: None,
            max_call_time: None,
            on_cancel: OnCancel::CutOff,
            max_time_after_run: None,
            is_silent_at_close: false,
        }
    }
}

/// Effect of a cancellation of the run on a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OnCancel {
    /// The job is cut off, and its outcome is the error `cancelled`.
    CutOff,
    /// A model call of the job is cut off, and fails with the error `cancelled`.
    CutOffCalls,
    /// The job ends as if the run were not cancelled.
    Complete,
}

/// Progress of a job that the run waits for before it ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Progress {
    #[default]
    NotStarted,
    Running,
    Ended,
}

/// How the state of a job is compared with the one that is rebuilt from the stored events.
#[cfg(any(test, feature = "testing"))]
#[derive(Default)]
pub(crate) struct Comparison {
    /// The part that is equal in both.
    pub(crate) state: String,
    /// Whether the job has ended. It may be repeated, so the rebuilt state may lack that.
    pub(crate) has_ended: bool,
}

#[cfg(any(test, feature = "testing"))]
impl From<Progress> for Comparison {
    fn from(progress: Progress) -> Self {
        Self {
            has_ended: progress == Progress::Ended,
            ..Self::default()
        }
    }
}

/// The outcome of a job.
#[derive(Debug)]
pub(crate) struct JobEnd<T> {
    /// Turn of the run in which the job was started.
    pub(crate) turn: u32,
    pub(crate) result: Result<T, ErrorInfo>,
    /// The charged model calls: those that were answered, and the last one if it was cut off, or
    /// something of its answer had arrived.
    pub(crate) model_calls: UsedByCalls,
}

/// Changes of the experiences file that were made.
#[derive(Debug)]
pub(crate) struct LearnedChanges {
    pub(crate) changes: Changes,
    /// The id of each learned experience; `false`: the file had it already.
    pub(crate) added: Vec<(ExperienceId, bool)>,
}

/// Everything that the body of a job may use.
pub(crate) trait JobTools: Send {
    /// Sends a system prompt and messages to a model of the run.
    fn ask_model(
        &mut self,
        role: AuxiliaryRole,
        system: String,
        messages: Vec<(Role, String)>,
    ) -> BoxFuture<'_, Result<AuxiliaryAnswer, ErrorInfo>>;

    /// Reads the experiences of the run's user.
    fn read_experiences(&mut self) -> BoxFuture<'_, Result<Arc<ExperienceText>, ErrorInfo>>;

    /// Returns the number of experiences that a run gets when it starts (`memory.top_k`).
    fn max_recalled(&self) -> usize;

    /// Changes the experiences of the run's user.
    fn change_experiences(
        &mut self,
        changes: Changes,
    ) -> BoxFuture<'_, Result<LearnedChanges, ErrorInfo>>;

    /// Calls the callbacks of the program before the run.
    fn call_before_agent(
        &mut self,
        task: String,
    ) -> BoxFuture<'_, (BeforeResult<String, String>, Reports)>;

    /// Calls the callbacks of the program after the run.
    fn call_after_agent(&mut self, answer: String)
    -> BoxFuture<'_, (AfterResult<String>, Reports)>;

    /// Asks the stop hooks whether the run may end with this answer.
    fn call_stop_hooks(&mut self, answer: String) -> BoxFuture<'_, HookResult>;

    /// Stores a version of each document that the run wrote.
    fn flush_documents(&mut self) -> BoxFuture<'_, Result<FlushReport, ErrorInfo>>;

    /// Stores a text of the run as an artifact.
    fn store_text(
        &mut self,
        title: &'static str,
        text: String,
    ) -> BoxFuture<'_, Result<ArtifactRef, ErrorInfo>>;
}

/// Declares the jobs. A row is `REQUEST in module`; the module is a file of its own.
macro_rules! jobs {
    ($($request:ident in $module:ident;)*) => {
        /// The request of any job.
        #[derive(Debug)]
        pub(crate) enum JobRequest {
            $($request(Box<$module::$request>),)*
        }

        /// The outcome of any job.
        #[derive(Debug)]
        pub(crate) enum JobOutcome {
            $($request(Box<JobEnd<<$module::$request as Job>::Output>>),)*
        }

        /// A kind of job.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum JobKind {
            $($request,)*
        }

        /// The states of the jobs.
        #[derive(Debug, Default)]
        #[allow(dead_code, reason = "some jobs have no state")]
        pub(crate) struct JobStates {
            $($module: <$module::$request as Job>::State,)*
        }

        #[cfg(any(test, feature = "testing"))]
        impl JobStates {
            /// Returns how each state is compared with the rebuilt one.
            pub(crate) fn comparisons(&self) -> Vec<(&'static str, Comparison)> {
                vec![$((
                    concat!("jobs.", stringify!($module)),
                    $module::$request::comparison(&self.$module),
                ),)*]
            }
        }

        impl JobRequest {
            pub(crate) fn kind(&self) -> JobKind {
                match self {
                    $(Self::$request(_) => JobKind::$request,)*
                }
            }

            /// Returns whether the body calls a model.
            pub(crate) fn calls_model(&self) -> bool {
                self.kind().policy().model_call.is_some()
            }

            /// Runs the body. `turn`: the one in which the job was started.
            pub(crate) fn run(
                self,
                turn: u32,
                tools: &mut dyn JobTools,
            ) -> BoxFuture<'_, Result<JobOutcome, ErrorInfo>> {
                match self {
                    $(Self::$request(request) => {
                        let body = request.run(tools);
                        let to_outcome = move |output| {
                            JobOutcome::$request(Box::new(JobEnd {
                                turn,
                                result: Ok(output),
                                model_calls: UsedByCalls::default(),
                            }))
                        };
                        async move { body.await.map(to_outcome) }.boxed()
                    })*
                }
            }
        }

        $(impl From<$module::$request> for JobRequest {
            fn from(request: $module::$request) -> Self {
                Self::$request(Box::new(request))
            }
        })*

        impl JobOutcome {
            /// Returns whether the job was cut off by a cancellation.
            pub(crate) fn is_cancelled(&self) -> bool {
                let error = match self {
                    $(Self::$request(end) => end.result.as_ref().err(),)*
                };
                error.is_some_and(|error| error.code == ErrorCode::Cancelled)
            }

            /// Sets the model calls that the job has made.
            pub(crate) fn set_model_calls(&mut self, model_calls: UsedByCalls) {
                match self {
                    $(Self::$request(end) => end.model_calls = model_calls,)*
                }
            }

            /// Returns the event that the task records if the job ends after its run.
            pub(crate) fn late_event(&self) -> Option<Event> {
                match self {
                    $(Self::$request(end) => $module::$request::late_event(&end.result),)*
                }
            }
        }

        impl JobKind {
            pub(crate) fn policy(self) -> JobPolicy {
                match self {
                    $(Self::$request => $module::$request::POLICY,)*
                }
            }

            /// Returns the outcome of a job that failed.
            pub(crate) fn failed(
                self,
                turn: u32,
                error: ErrorInfo,
            ) -> JobOutcome {
                match self {
                    $(Self::$request => JobOutcome::$request(Box::new(JobEnd {
                        turn,
                        result: Err(error),
                        model_calls: UsedByCalls::default(),
                    })),)*
                }
            }
        }

        impl RunState {
            /// Applies an event to the states of the jobs, in the order of the table.
            pub(crate) fn apply_to_jobs(&mut self, event: &Event) {
                $($module::$request::apply(self, event);)*
            }

            /// Returns whether a job makes a model call of this kind.
            pub(crate) fn is_job_calling(&self, kind: ModelCallKind) -> bool {
                $(if $module::$request::POLICY.model_call == Some(kind) {
                    return $module::$request::is_calling(self);
                })*
                false
            }
        }

        impl Transition<'_, '_> {
            pub(crate) fn job_ended(&mut self, outcome: JobOutcome) {
                match outcome {
                    $(JobOutcome::$request(end) => $module::$request::ended(self, *end),)*
                }
            }

            /// Records the jobs that were lost with an earlier incarnation, or that the end of the
            /// run cuts off. `same_process`: the incarnation ran in this process.
            pub(crate) fn lose_jobs(&mut self, same_process: bool) {
                $($module::$request::lost(self, same_process);)*
            }

            /// Lets jobs continue after the end of the run. Returns those that are in progress.
            pub(crate) fn detach_jobs(&mut self) -> Vec<JobKind> {
                let mut detached = Vec::new();
                $(if $module::$request::detached(self) {
                    detached.push(JobKind::$request);
                })*
                detached
            }
        }
    };
}

jobs! {
    NameTrace in name_trace;
    Learn in learn;
    StopHooks in stop_hooks;
    FlushDocuments in flush_documents;
    StoreAnswer in store_answer;
    BeforeAgent in before_agent;
    AfterAgent in after_agent;
    Recall in recall;
    Reflect in reflect;
    Summarize in summarize;
}

/// Tools for tests of bodies.
#[cfg(test)]
pub(crate) mod testing {
    use std::future::ready;

    use soong_model::Completion;

    use super::*;

    /// Answers each request with what it contains.
    pub(crate) struct EchoTools;

    impl JobTools for EchoTools {
        fn ask_model(
            &mut self,
            _: AuxiliaryRole,
            _: String,
            mut messages: Vec<(Role, String)>,
        ) -> BoxFuture<'_, Result<AuxiliaryAnswer, ErrorInfo>> {
            let (_, text) = messages.pop().unwrap_or((Role::User, String::new()));
            let completion = Completion {
                text,
                ..Completion::default()
            };
            let answer = AuxiliaryAnswer {
                completion,
                prompt_tokens: 1,
                prices: None,
                discarded: None,
            };
            ready(Ok(answer)).boxed()
        }

        fn read_experiences(&mut self) -> BoxFuture<'_, Result<Arc<ExperienceText>, ErrorInfo>> {
            ready(Ok(Arc::default())).boxed()
        }

        fn max_recalled(&self) -> usize {
            0
        }

        fn change_experiences(
            &mut self,
            changes: Changes,
        ) -> BoxFuture<'_, Result<LearnedChanges, ErrorInfo>> {
            let learned = LearnedChanges {
                changes,
                added: Vec::new(),
            };
            ready(Ok(learned)).boxed()
        }

        fn call_before_agent(
            &mut self,
            task: String,
        ) -> BoxFuture<'_, (BeforeResult<String, String>, Reports)> {
            ready((BeforeResult::Answered(task), Reports::new())).boxed()
        }

        fn call_after_agent(
            &mut self,
            answer: String,
        ) -> BoxFuture<'_, (AfterResult<String>, Reports)> {
            let result = AfterResult::Result {
                result: answer,
                is_replaced: false,
            };
            ready((result, Reports::new())).boxed()
        }

        fn call_stop_hooks(&mut self, answer: String) -> BoxFuture<'_, HookResult> {
            let result = HookResult {
                denied: Some(answer),
                ..HookResult::default()
            };
            ready(result).boxed()
        }

        fn flush_documents(&mut self) -> BoxFuture<'_, Result<FlushReport, ErrorInfo>> {
            ready(Ok(FlushReport::default())).boxed()
        }

        fn store_text(
            &mut self,
            _: &'static str,
            text: String,
        ) -> BoxFuture<'_, Result<ArtifactRef, ErrorInfo>> {
            ready(Err(ErrorInfo::new(ErrorCode::StorageError, text))).boxed()
        }
    }
}
