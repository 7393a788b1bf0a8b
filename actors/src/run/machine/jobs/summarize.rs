//! The summary that replaces the older part of the conversation (CTX-2, CTX-3).
//!
//! Invariants:
//! - After a summary, the next prompt still contains the last request of the caller, the goals and
//!   the active collaborators.
//! - A failed summary leaves the conversation unchanged.
//!
//! Elsewhere: when a summary is due, and what it covers (`machine/turn/compaction.rs`), the text of
//! the request (`context/`).

use futures::future::BoxFuture;
use serde_json::json;
use soong_protocol::{
    ContextEvent, Covers, ErrorCode, ErrorInfo, Event, ModelCallKind, ModelEvent, Role, Usage,
};

#[cfg(any(test, feature = "testing"))]
use crate::run::machine::jobs::Comparison;
use crate::{
    context::{
        accept_summary, correction_request, plain_summary, saves_too_little, summary_message,
    },
    run::machine::{
        RunState, Transition,
        auxiliary_call::{AuxiliaryAnswer, AuxiliaryCall, AuxiliaryRole, usage_and_cost},
        jobs::{Job, JobEnd, JobPolicy, JobTools},
        state::phase::Phase,
    },
};

/// Maximum number of attempts per turn, including failed ones, but not the correction of the last.
const MAX_ATTEMPTS: u32 = 3;
/// Maximum number of failed attempts that are carried over into the next turn.
const MAX_CARRIED_OVER_FAILURES: u32 = 2;
/// Divisor of the context window: after a failed summary, the prompt must grow by 1/20 of the
/// window before the next attempt. The required growth doubles with each consecutive failure.
const RETRY_GROWTH_DIVISOR: u64 = 20;
/// Maximum number of times that the required growth is doubled; see [`RETRY_GROWTH_DIVISOR`].
const MAX_RETRY_DOUBLINGS: u32 = 8;

/// Divisor of the tokens of the messages: a summary must save at least 1/5 of them.
const MIN_SAVING_DIVISOR: u64 = 5;
/// Divisor of the prompt size: after a failed summary, the prompt must grow by at least 1/10 of its
/// own size before the next attempt.
const MIN_GROWTH_DIVISOR: u64 = 10;

/// Divisor of the prompt size: a summary that makes the prompt less than 1/10 shorter gains too
/// little.
const MIN_GAIN_DIVISOR: u64 = 10;
/// Number of summaries in a row that may gain too little. After them, the prompt must grow by a
/// quarter of the window before the next attempt.
const MAX_SMALL_GAINS: u32 = 2;
/// Divisor of the context window, see [`MAX_SMALL_GAINS`].
const STOP_GROWTH_DIVISOR: u64 = 4;

/// Asks a model for a summary.
#[derive(Debug)]
pub(crate) struct Summarize {
    /// The messages that the summary replaces.
    pub(in crate::run::machine) covers: Covers,
    /// Size of the prompt, in tokens, for which the summary is requested.
    pub(in crate::run::machine) tokens_before: u64,
    pub(in crate::run::machine) call: AuxiliaryCall,
    /// Whether the first answer lacked the required sections.
    pub(in crate::run::machine) is_correction: bool,
}

/// A summary as the model wrote it.
#[derive(Debug)]
pub(crate) struct Summary {
    request: Summarize,
    answer: AuxiliaryAnswer,
}

/// The attempts to shorten the conversation by a summary.
#[derive(Debug, Default)]
pub(crate) struct SummaryAttempts {
    /// Number of summaries that replaced messages in this turn.
    completed: u32,
    /// Number of failed attempts that count in this turn, including those carried over.
    failed: u32,
    /// Number of summaries in a row that failed, over all turns.
    consecutive_failures: u32,
    /// Size of the prompt, in tokens, for which the last summary was requested.
    tokens_before: u64,
    /// Prompts up to this size, in tokens, are not summarized: a summary at this size has failed.
    retry_above_tokens: u64,
    /// Number of summaries in a row that gained less than a tenth of the prompt.
    small_gains: u32,
    /// Prompts up to this size, in tokens, are not summarized, even if they exceed the window:
    /// summaries gain too little.
    stopped_below_tokens: u64,
    /// Whether a service has rejected a nearly full prompt for an unknown reason, and the model has
    /// not answered since.
    follows_rejection: bool,
}

impl Job for Summarize {
    type State = SummaryAttempts;
    type Output = Summary;

    const POLICY: JobPolicy = JobPolicy {
        model_call: Some(ModelCallKind::Summary),
        ..JobPolicy::new("the model provider")
    };

    fn run(self, tools: &mut dyn JobTools) -> BoxFuture<'_, Result<Summary, ErrorInfo>> {
        let AuxiliaryCall { system, user } = self.call.clone();
        Box::pin(async move {
            let messages = vec![(Role::User, user)];
            let answer = tools
                .ask_model(AuxiliaryRole::Summary, system, messages)
                .await?;
            Ok(Summary {
                request: self,
                answer,
            })
        })
    }

    fn apply(run: &mut RunState, event: &Event) {
        let window = run.conversation.window;
        let attempts = &mut run.jobs.summarize;
        match event {
            Event::Context(ContextEvent::CompactionStarted { estimated_tokens }) => {
                attempts.tokens_before = *estimated_tokens;
                run.phase = Phase::Compacting;
            }
            Event::Context(ContextEvent::CompactionCompleted {
                tokens_before,
                tokens_after,
                ..
            }) => {
                attempts.add_completed(*tokens_before, *tokens_after, window);
                run.halt_if_ending();
            }
            Event::Context(ContextEvent::CompactionFailed { error, .. }) => {
                attempts.add_failed(error, window);
                run.halt_if_ending();
            }
            Event::Model(ModelEvent::Completed { .. }) => attempts.follows_rejection = false,
            Event::Model(ModelEvent::Retrying { error, .. })
                if error.code == ErrorCode::ProviderError
                    && !error.retryable
                    && error.details["is_about_file"] != true =>
            {
                attempts.follows_rejection = true;
            }
            _ => {}
        }
    }

    fn is_calling(run: &RunState) -> bool {
        run.phase == Phase::Compacting
    }

    /// Applies the summary, and continues the turn.
    ///
    /// If the answer lacks the required sections, the summary is requested once more. If the second
    /// answer lacks them too, it is accepted as plain text. A summary that saves too little is
    /// rejected.
    fn ended(transition: &mut Transition<'_, '_>, end: JobEnd<Summary>) {
        if transition.state.phase != Phase::Compacting {
            return;
        }
        match end.result {
            Ok(summary) => transition.summary_answered(summary),
            Err(error) => {
                let (usage, cost) = usage_and_cost(end.model_calls.used);
                transition.emit(ContextEvent::CompactionFailed { error, usage, cost });
                transition.continue_or_halt();
            }
        }
    }

    /// Records the summary as failed. Its usage is estimated (BUD-1a).
    fn lost(transition: &mut Transition<'_, '_>, _: bool) {
        if transition.state.phase != Phase::Compacting {
            return;
        }
        let summary = &transition.state.spec.auxiliary_models.summary;
        let tokens_before = transition.state.jobs.summarize.tokens_before;
        let prompt_tokens = tokens_before.min(summary.max_prompt_tokens);
        let prompt = summary.priced(Usage::estimate(prompt_tokens, 0));
        let (usage, cost) = transition.used_by_lost_call(ModelCallKind::Summary, prompt);
        transition.emit(ContextEvent::CompactionFailed {
            error: ErrorInfo::new(ErrorCode::Interrupted, "the summary was interrupted"),
            usage: Some(usage),
            cost,
        });
    }

    #[cfg(any(test, feature = "testing"))]
    fn comparison(state: &SummaryAttempts) -> Comparison {
        Comparison {
            state: format!("{state:?}"),
            ..Comparison::default()
        }
    }
}

impl RunState {
    /// Returns the attempts to shorten the conversation by a summary.
    pub(in crate::run::machine) fn summary_attempts(&self) -> &SummaryAttempts {
        &self.jobs.summarize
    }

    /// Allows more summaries after a turn. A summarizer that failed repeatedly does not get all its
    /// attempts again in every turn.
    pub(in crate::run::machine) fn renew_summary_attempts(&mut self) {
        let attempts = &mut self.jobs.summarize;
        attempts.completed = 0;
        attempts.failed = attempts.failed.min(MAX_CARRIED_OVER_FAILURES);
    }
}

impl SummaryAttempts {
    /// Returns whether a summary was attempted in this turn, or a failed one is carried over.
    pub(in crate::run::machine) fn has_any(&self) -> bool {
        self.completed + self.failed > 0
    }

    /// Returns whether this turn may request no other summary.
    pub(in crate::run::machine) fn are_used_up(&self) -> bool {
        self.completed + self.failed >= MAX_ATTEMPTS
    }

    /// Returns whether the last summaries gained too little for a prompt of this size to be
    /// summarized again.
    pub(in crate::run::machine) fn have_stopped(&self, prompt_tokens: u64) -> bool {
        prompt_tokens <= self.stopped_below_tokens
    }

    /// Returns the number of summaries that replaced messages in this turn.
    pub(in crate::run::machine) fn completed(&self) -> u32 {
        self.completed
    }

    /// Returns the number of failed attempts that count in this turn.
    pub(in crate::run::machine) fn failed(&self) -> u32 {
        self.failed
    }

    /// Returns the number of summaries in a row that failed, over all turns.
    pub(in crate::run::machine) fn consecutive_failures(&self) -> u32 {
        self.consecutive_failures
    }

    /// Returns the size of a prompt, in tokens, up to which it is not summarized.
    pub(in crate::run::machine) fn retry_above_tokens(&self) -> u64 {
        self.retry_above_tokens
    }

    /// Returns whether a service has rejected a nearly full prompt for an unknown reason, and the
    /// model has not answered since.
    pub(in crate::run::machine) fn follows_rejection(&self) -> bool {
        self.follows_rejection
    }

    fn add_completed(&mut self, tokens_before: u64, tokens_after: u64, window: u64) {
        self.record_gain(tokens_before, tokens_after, window);
        self.completed += 1;
        self.failed = 0;
        self.consecutive_failures = 0;
        self.retry_above_tokens = 0;
    }

    fn add_failed(&mut self, error: &ErrorInfo, window: u64) {
        // The error of a summary that saves too little states how long the prompt would have been.
        if let Some(tokens_after) = error.details["tokens_after"].as_u64() {
            self.record_gain(self.tokens_before, tokens_after, window);
        }
        // A summary request that a crash interrupted does not count as a failure of the summarizer.
        if error.code == ErrorCode::Interrupted {
            return;
        }
        self.failed += 1;
        // Each attempt costs tokens, so the required growth doubles with every consecutive failure.
        let doublings = self.consecutive_failures.min(MAX_RETRY_DOUBLINGS);
        let growth_of_window = (window / RETRY_GROWTH_DIVISOR) << doublings;
        let growth = growth_of_window.max(self.tokens_before / MIN_GROWTH_DIVISOR);
        self.consecutive_failures += 1;
        self.retry_above_tokens = self.tokens_before.saturating_add(growth);
    }

    /// Records how much shorter a summary makes the prompt. All sizes are in tokens.
    fn record_gain(&mut self, before: u64, after: u64, window: u64) {
        let is_small = before.saturating_sub(after) < before / MIN_GAIN_DIVISOR;
        if !is_small {
            self.small_gains = 0;
            self.stopped_below_tokens = 0;
            return;
        }
        self.small_gains += 1;
        if self.small_gains >= MAX_SMALL_GAINS {
            self.stopped_below_tokens = after.min(before) + window / STOP_GROWTH_DIVISOR;
        }
    }
}

impl Transition<'_, '_> {
    /// Requests a summary.
    pub(in crate::run::machine) fn request_summary(&mut self, request: Summarize) {
        self.emit(ContextEvent::CompactionStarted {
            estimated_tokens: request.tokens_before,
        });
        self.start_job(request);
    }

    fn summary_answered(&mut self, summary: Summary) {
        let Summary { request, answer } = summary;
        let (usage, cost) = answer.used();
        let text = &answer.completion.text;
        let accepted = accept_summary(text).or_else(|error| match plain_summary(text) {
            Some(text) if request.is_correction => Ok(text),
            _ => Err(error),
        });
        let text = match accepted {
            Ok(text) => text,
            Err(error) => {
                let may_be_corrected = plain_summary(text).is_some()
                    && !request.is_correction
                    && self.state.end.ending.is_none();
                let correction = correction_request(&request.call.user, &error.message);
                self.emit(ContextEvent::CompactionFailed {
                    error,
                    usage: Some(usage),
                    cost,
                });
                if !may_be_corrected {
                    return self.continue_or_halt();
                }
                return self.request_summary(Summarize {
                    call: AuxiliaryCall {
                        user: correction,
                        ..request.call
                    },
                    is_correction: true,
                    ..request
                });
            }
        };
        let Summarize {
            covers,
            tokens_before,
            ..
        } = request;
        let content = summary_message(&text, covers.first, covers.last, &self.state.goals);
        let tokens_after = self.tokens_with_summary(&content, covers);
        // Compare only the messages: the system prompt and the tools are the same before and after.
        let fixed_tokens = self.state.fixed_tokens();
        let before = tokens_before.saturating_sub(fixed_tokens);
        let after = tokens_after.saturating_sub(fixed_tokens);
        if after > before - before / MIN_SAVING_DIVISOR {
            let mut error = saves_too_little(before, after);
            error.details = json!({ "tokens_after": tokens_after });
            self.emit(ContextEvent::CompactionFailed {
                error,
                usage: Some(usage),
                cost,
            });
            return self.continue_or_halt();
        }
        let sequence = self.add_summary(content, covers);
        let covered = (covers.first, covers.last);
        self.emit(ContextEvent::CompactionCompleted {
            sequence,
            covered,
            tokens_before,
            tokens_after,
            usage,
            cost,
        });
        self.continue_or_halt();
    }

    /// Calls the model, unless the run is ending (R6).
    fn continue_or_halt(&mut self) {
        if self.state.end.ending.is_none() {
            self.call_model();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_small_gains_in_a_row_stop_summaries_until_the_prompt_has_grown() {
        let mut attempts = SummaryAttempts::default();
        attempts.record_gain(1_000, 950, 1_200);
        assert!(!attempts.have_stopped(1_000), "one small gain");
        attempts.record_gain(1_000, 500, 1_200);
        attempts.record_gain(1_000, 910, 1_200);
        assert!(
            !attempts.have_stopped(1_000),
            "a large gain is between them"
        );
        attempts.record_gain(1_000, 1_010, 1_200);
        for (prompt_tokens, have_stopped) in [(1_000, true), (1_300, true), (1_301, false)] {
            assert_eq!(
                attempts.have_stopped(prompt_tokens),
                have_stopped,
                "{prompt_tokens}"
            );
        }
        attempts.record_gain(1_301, 600, 1_200);
        assert!(!attempts.have_stopped(1_000), "a large gain ends it");
    }
}
