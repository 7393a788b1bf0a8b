//! Recall: a run that starts a new conversation gets the experiences of earlier runs (MEM-3).
//!
//! If the search fails, the run starts without experiences, and an event records the error.
//!
//! Elsewhere: the request to the model, and the text of the experiences (`memory/recall.rs`).

use futures::future::BoxFuture;
use soong_protocol::{
    ErrorCode, ErrorInfo, ExperienceId, MemoryEvent, ModelCallKind, Role, Tags, Usage,
};

#[cfg(any(test, feature = "testing"))]
use crate::run::machine::jobs::Comparison;
use crate::{
    memory::{
        ExperienceText, correction_request, format_experiences, matching, read_tags, tag_request,
    },
    run::machine::{
        RunState, Transition,
        auxiliary_call::{AuxiliaryRole, UsedByCalls, usage_and_cost},
        jobs::{Job, JobEnd, JobPolicy, JobTools},
        state::phase::Phase,
    },
};

/// Searches the experiences that match this task.
#[derive(Debug)]
pub(crate) struct Recall(String);

/// The experiences that were found.
#[derive(Debug, Default)]
pub(crate) struct Recalled {
    /// Tags of the task.
    tags: Tags,
    ids: Vec<ExperienceId>,
    /// Text that is added to the first message; `None` if none match.
    prompt_text: Option<String>,
}

impl Job for Recall {
    type State = ();
    type Output = Recalled;

    const POLICY: JobPolicy = JobPolicy {
        model_call: Some(ModelCallKind::Recall),
        ..JobPolicy::new("the model provider")
    };

    fn run(self, tools: &mut dyn JobTools) -> BoxFuture<'_, Result<Recalled, ErrorInfo>> {
        Box::pin(async move {
            let file = tools.read_experiences().await?;
            if file.experiences().is_empty() {
                return Ok(Recalled::default());
            }
            let tags = ask_for_tags(tools, &self.0, &file).await?;
            // Experiences that did more harm than good are not offered automatically.
            let mut found = matching(file.experiences(), &tags, usize::MAX);
            found.retain(|known| known.metrics.score() >= 0);
            found.truncate(tools.max_recalled());
            Ok(Recalled {
                tags,
                ids: found.iter().map(|known| known.id.clone()).collect(),
                prompt_text: (!found.is_empty()).then(|| format_experiences(&found)),
            })
        })
    }

    fn is_calling(run: &RunState) -> bool {
        run.phase == Phase::Recalling
    }

    /// Records the result of the search, and starts the conversation.
    fn ended(transition: &mut Transition<'_, '_>, end: JobEnd<Recalled>) {
        if transition.state.phase != Phase::Recalling {
            return;
        }
        let (recalled, error) = match end.result {
            Ok(recalled) => (recalled, None),
            Err(error) => (Recalled::default(), Some(error)),
        };
        // If no model call was made and nothing failed, there is nothing to record.
        if end.model_calls.calls > 0 || error.is_some() {
            transition.record_recall(recalled.ids, recalled.tags, end.model_calls, error);
        }
        if transition.state.end.ending.is_some() {
            transition.state.halt();
            return;
        }
        transition.start_conversation(recalled.prompt_text);
    }

    /// Charges the model call of an earlier incarnation. Its usage is estimated (BUD-1a).
    fn lost(transition: &mut Transition<'_, '_>, same_process: bool) {
        let state = &transition.state;
        let may_have_begun = state.phase == Phase::New && state.start.loop_started;
        if !may_have_begun
            || !state.needs_recall()
            || transition.is_known_to_have_lost_no_call(same_process)
        {
            return;
        }
        let spec = &state.spec;
        let prompt_tokens = spec.model.counter.count_text(&spec.task);
        let utility = &spec.auxiliary_models.utility;
        let prompt = utility.priced(Usage::estimate(prompt_tokens, 0));
        let used = transition.used_by_lost_call(ModelCallKind::Recall, prompt);
        let mut model_calls = UsedByCalls::default();
        model_calls.add(used);
        let error = ErrorInfo::new(
            ErrorCode::Interrupted,
            "the search for experiences was interrupted",
        );
        transition.record_recall(Vec::new(), Tags::default(), model_calls, Some(error));
    }

    #[cfg(any(test, feature = "testing"))]
    fn comparison((): &()) -> Comparison {
        Comparison::default()
    }
}

/// Asks the model for the tags of a task. An invalid answer is corrected once.
async fn ask_for_tags(
    tools: &mut dyn JobTools,
    task: &str,
    file: &ExperienceText,
) -> Result<Tags, ErrorInfo> {
    let (system, user) = tag_request(task, file.experiences());
    let mut messages = vec![(Role::User, user)];
    let mut may_be_corrected = true;
    loop {
        let answer = tools
            .ask_model(AuxiliaryRole::Utility, system.clone(), messages.clone())
            .await?;
        let text = answer.completion.text;
        match read_tags(&text) {
            Ok(tags) => return Ok(tags),
            Err(why) if may_be_corrected => {
                may_be_corrected = false;
                messages.push((Role::Assistant, text));
                messages.push((Role::User, correction_request(&why)));
            }
            Err(why) => {
                let message = format!(
                    "the task could not be classified: the model's answer does not match the format: {why}"
                );
                return Err(ErrorInfo::new(ErrorCode::ProviderError, message));
            }
        }
    }
}

impl RunState {
    /// Returns whether the run must search experiences first: recall is enabled, and the
    /// conversation is new.
    fn needs_recall(&self) -> bool {
        self.spec.auxiliary_models.recall_enabled && self.conversation.head.is_none()
    }
}

impl Transition<'_, '_> {
    /// Requests a search for experiences, if that is due. Returns `false` if it is not.
    pub(in crate::run::machine) fn awaits_recall(&mut self) -> bool {
        if !self.state.needs_recall() {
            return false;
        }
        self.state.await_before_start(Phase::Recalling);
        let task = self.state.task().to_owned();
        self.start_job(Recall(task));
        true
    }

    fn record_recall(
        &mut self,
        ids: Vec<ExperienceId>,
        tags: Tags,
        model_calls: UsedByCalls,
        error: Option<ErrorInfo>,
    ) {
        let (usage, cost) = usage_and_cost(model_calls.used);
        self.emit(MemoryEvent::Injected {
            ids,
            tags,
            model_calls: model_calls.calls,
            usage,
            cost,
            error: error.map(Box::new),
        });
    }
}
