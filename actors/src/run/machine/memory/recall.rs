//! How a run that begins a new conversation is told what earlier ones have learned (MEM-3).
//!
//! Pure but for [`look`], which an effect does. Nothing of it keeps a run from its work: what cannot be found out is
//! told as an event, and the run begins without.

use std::sync::Arc;

use soong_protocol::{ErrorCode, ErrorInfo, ExperienceId, MemoryEvent, Role, Tags, Usage};

use crate::run::{
    machine::{
        spec::RunSpec,
        state::{Phase, RunState},
        transition::{Deciding, Effect},
    },
    tasks::model_call::{self, Line},
};
use crate::{
    budget::Reservation,
    live::Shared,
    memory::{Book, matching, mend_request, read_tags, tag_request, told},
    model::Completion,
};

/// What was found.
#[derive(Debug, Default)]
pub(crate) struct Recalled {
    tags: Tags,
    ids: Vec<ExperienceId>,
    /// What the first message is given along.
    told: Option<String>,
    model_calls: u64,
    usage: Option<Usage>,
    /// Whether a call is on its way of which nothing came back, and what it was asked with.
    pub(in crate::run) was_sent: bool,
    asked_tokens: u64,
    /// Why nothing was found out.
    pub(in crate::run) error: Option<ErrorInfo>,
}

impl Recalled {
    pub(crate) fn says_cancelled(&self) -> bool {
        self.error.as_ref().is_some_and(|error| error.code == ErrorCode::Cancelled)
    }

    /// Adds what a call used that was answered.
    fn book(&mut self, completion: &Completion) {
        self.model_calls += 1;
        let answer = || Usage {
            prompt_tokens: self.asked_tokens,
            completion_tokens: crate::context::count_estimate(&completion.text),
            estimated: true,
            ..Usage::default()
        };
        let used = completion.usage.unwrap_or_else(answer);
        self.add(used);
        self.asked_tokens = 0;
    }

    fn add(&mut self, used: Usage) {
        let sum = self.usage.get_or_insert_default();
        sum.prompt_tokens += used.prompt_tokens;
        sum.completion_tokens += used.completion_tokens;
        sum.cached_tokens += used.cached_tokens;
        sum.reasoning_tokens += used.reasoning_tokens;
        sum.estimated |= used.estimated;
    }
}

impl RunState {
    /// Returns whether it is to be looked for what earlier runs have learned: the conversation is new.
    pub(in crate::run) fn recalls(&self) -> bool {
        self.spec.recalls && self.head.is_none()
    }
}

impl Deciding<'_, '_> {
    /// Books the call that an incarnation before had made: nobody knows what it used (DUR-4).
    pub(in crate::run) fn forget_recall(&mut self, was_here: bool) {
        if !self.state.recalls() {
            return;
        }
        let spec = &self.state.spec;
        let mut prompt_tokens = spec.counter.count_text(&spec.task);
        let mut completion_tokens = spec.utility.output_tokens;
        if let Some(purse) = self.now.purse.filter(|_| was_here) {
            let held = purse.lost();
            if held.model_calls == 0 {
                return;
            }
            prompt_tokens = prompt_tokens.min(held.tokens);
            completion_tokens = held.tokens - prompt_tokens;
        }
        let error = ErrorInfo::new(ErrorCode::Interrupted, "the look for experiences was cut off");
        let usage = Usage { prompt_tokens, completion_tokens, estimated: true, ..Usage::default() };
        let cost = spec.utility.prices.map(|prices| prices.cost(&usage));
        let (ids, tags, usage, error) = (Vec::new(), Tags::default(), Some(usage), Some(error));
        self.emit(MemoryEvent::Injected { ids, tags, model_calls: 1, usage, cost, error });
    }

    pub(in crate::run) fn recall(&mut self) {
        self.state.phase = Phase::Recalling;
        self.step.effects.push(Effect::Recall);
    }

    /// Takes what was found, and begins.
    pub(in crate::run) fn recalled(&mut self, mut recalled: Recalled) {
        if recalled.was_sent && recalled.says_cancelled() {
            // What was cut off is paid for as well.
            recalled.model_calls += 1;
            recalled.add(Usage { prompt_tokens: recalled.asked_tokens, estimated: true, ..Usage::default() });
        }
        let Recalled { tags, ids, told, model_calls, usage, error, .. } = recalled;
        let prices = self.state.spec.utility.prices;
        let cost = usage.and_then(|usage| prices.map(|prices| prices.cost(&usage)));
        // A file that holds nothing usable is no news.
        if model_calls > 0 || error.is_some() {
            self.emit(MemoryEvent::Injected { ids, tags, model_calls, usage, cost, error });
        }
        if self.state.ending.is_some() {
            self.state.phase = Phase::Halted;
            return;
        }
        self.speak(told);
    }
}

/// Looks for what fits a run's task; `recalled` is filled as it comes, so that it is told what a call has used that was
/// cut off.
pub(in crate::run) async fn look(
    shared: &Arc<Shared>,
    spec: &RunSpec,
    line: &mut Line,
    recalled: &mut Recalled,
) -> Result<(), ErrorInfo> {
    let memory = shared.profiles.memory.of(&spec.uid);
    let read = tokio::task::spawn_blocking(move || memory.read_and_log()).await;
    let book: Arc<Book> = read.map_err(|error| ErrorInfo::new(ErrorCode::InternalError, error.to_string()))??;
    if book.experiences().is_empty() {
        return Ok(());
    }
    let (system, user) = tag_request(&spec.task, book.experiences());
    let mut said = vec![(Role::User, user)];
    let mut tried = 0;
    recalled.tags = loop {
        let count = |text: &str| spec.counter.count_text(text);
        // What the first call has used is known, and nobody else draws on this budget yet.
        line.held.take().into_iter().for_each(Reservation::settle);
        line.was_sent = false;
        recalled.asked_tokens = count(&system) + said.iter().map(|(_, text)| count(text)).sum::<u64>();
        let answer = model_call::ask(shared, spec, &spec.utility, system.clone(), said.clone(), line).await?;
        recalled.book(&answer);
        match read_tags(&answer.text) {
            Ok(tags) => break tags,
            Err(why) if tried == 0 => {
                tried += 1;
                said.push((Role::Assistant, answer.text));
                said.push((Role::User, mend_request(&why)));
            }
            Err(why) => {
                let message =
                    format!("what the task is about was not found out: the model's answer does not fit: {why}");
                return Err(ErrorInfo::new(ErrorCode::ProviderError, message));
            }
        }
    };
    // What has done more harm than good is not told without being asked for.
    let mut found = matching(book.experiences(), &recalled.tags, usize::MAX);
    found.retain(|known| known.metrics.worth() >= 0);
    found.truncate(shared.config.memory.top_k);
    recalled.ids = found.iter().map(|known| known.id.clone()).collect();
    recalled.told = (!found.is_empty()).then(|| told(&found));
    Ok(())
}
