//! Compaction: replaces the older part of the conversation with a summary (CTX-2, CTX-3).
//!
//! Pure; part of the run state machine.
//!
//! Invariants:
//! - After a compaction, the next prompt still contains the last request of the caller, the goals
//!   and the active collaborators.
//! - A failed summary leaves the conversation unchanged. If the prompt does not fit then, its
//!   oldest messages are left out without a summary.
//!
//! Elsewhere: the text of the summary request (`context/`).

use std::sync::Arc;

use serde_json::json;
use soong_protocol::{
    ContextEvent, Covers, ErrorCode, ErrorInfo, Message, MessageEvent, ModelCallKind, ModelEvent,
    Role, Usage,
};

use crate::{
    context::{
        SizedMessage, accept_summary, correction_request, is_summary, omitted_message,
        plain_summary, plan_compaction, saves_too_little, summary_message, summary_request,
    },
    run::machine::{
        RunState, Transition,
        auxiliary_call::{AuxiliaryAnswer, AuxiliaryCall, Used, usage_and_cost},
        effect::{Effect, ModelEffect, ReflectionCall},
        inline::InlineLimits,
        state::{
            compaction::{CompactionState, PendingCompaction},
            phase::Phase,
        },
    },
};

/// Maximum number of summary attempts per turn, including failed ones. Also the maximum number of
/// retries of a reflection whose prompt is too long.
const MAX_COMPACTION_ATTEMPTS: u32 = 3;
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
/// Share of the size above which prompts are summarized: a longer prompt that a service rejects for
/// an unknown reason is probably too long.
const NEARLY_FULL_RATIO: f64 = 0.8;

/// A summary that may be requested.
struct SummaryPlan {
    pending: PendingCompaction,
    call: AuxiliaryCall,
    /// The reflection on the messages that precedes it, if one is due.
    reflection: Option<ReflectionCall>,
}

/// The oldest messages, to be left out without a summary.
struct Omission {
    /// Text of the message that replaces them.
    content: String,
    covers: Covers,
    /// Size of the prompt without them, in tokens.
    tokens_after: u64,
}

impl RunState {
    /// Updates the usage and the compaction state from a context event.
    pub(crate) fn apply_context(&mut self, event: &ContextEvent) {
        self.usage.own.add_context_event(event);
        match event {
            ContextEvent::CompactionStarted { estimated_tokens } => {
                self.phase = Phase::Compacting;
                self.compaction.tokens_before = *estimated_tokens;
            }
            ContextEvent::OldestOmitted { .. } => {}
            ContextEvent::FilesOmitted {
                sequence, rejected, ..
            } if rejected.is_empty() => {
                self.conversation.files_omitted_to = *sequence;
            }
            ContextEvent::FilesOmitted { rejected, .. } => {
                self.conversation.reject_files(&self.spec, rejected);
                self.conversation.are_changes_recorded = false;
            }
            ContextEvent::CompactionCompleted {
                tokens_before,
                tokens_after,
                ..
            } => {
                self.compaction.record_gain(
                    *tokens_before,
                    *tokens_after,
                    self.conversation.window,
                );
                self.compaction.completed += 1;
                self.compaction.failed = 0;
                self.compaction.consecutive_failures = 0;
                self.compaction.retry_above_tokens = 0;
                self.halt_if_ending();
            }
            ContextEvent::CompactionFailed { error, .. } => {
                // The error of a summary that saves too little states how long the prompt would
                // have been.
                if let Some(tokens_after) = error.details["tokens_after"].as_u64() {
                    self.compaction.record_gain(
                        self.compaction.tokens_before,
                        tokens_after,
                        self.conversation.window,
                    );
                }
                // A summary request that a crash interrupted does not count as a failure of the
                // summarizer.
                if error.code != ErrorCode::Interrupted {
                    self.compaction.failed += 1;
                    // Each attempt costs tokens, so the required growth doubles with every
                    // consecutive failure.
                    let growth = (self.conversation.window / RETRY_GROWTH_DIVISOR)
                        << self
                            .compaction
                            .consecutive_failures
                            .min(MAX_RETRY_DOUBLINGS);
                    self.compaction.consecutive_failures += 1;
                    self.compaction.retry_above_tokens =
                        self.compaction.tokens_before.saturating_add(
                            growth.max(self.compaction.tokens_before / MIN_GROWTH_DIVISOR),
                        );
                }
                self.halt_if_ending();
            }
        }
    }

    /// Returns whether a service has rejected the last prompt probably because of its length: the
    /// prompt is nearly long enough for a summary, and neither the status nor the code says another
    /// reason.
    fn is_rejected_when_nearly_full(&self, error: &ErrorInfo) -> bool {
        let is_bad_request = matches!(error.details["status"].as_u64(), Some(400 | 422));
        let is_about_file = error.details["is_about_file"] == true;
        let is_rejected = error.code == ErrorCode::ProviderError
            && !error.retryable
            && is_bad_request
            && !is_about_file;
        let nearly_full_tokens = self.compaction_threshold() as f64 * NEARLY_FULL_RATIO;
        is_rejected && self.conversation.prompt_tokens as f64 > nearly_full_tokens
    }

    /// Returns the maximum size of a prompt, in tokens.
    pub(in crate::run) fn prompt_room(&self) -> u64 {
        self.prompt_room_in(self.conversation.window)
    }

    /// Returns the limits of the output of one tool call. The outputs of a turn must fit into the
    /// next prompt together, because the last messages are never summarized. If the context window
    /// is small, each gets an equal part of what it leaves for messages, and two parts are for the
    /// messages before them.
    pub(in crate::run::machine) fn output_limits(&mut self) -> InlineLimits {
        let room_tokens = self
            .compaction_threshold()
            .saturating_sub(self.fixed_tokens());
        let calls = self.calls_mut().map_or(1, |calls| calls.iter().count());
        self.spec
            .limits
            .inline
            .within(room_tokens / (calls as u64 + 2))
    }

    fn prompt_room_in(&self, window: u64) -> u64 {
        // The service may report a smaller window than the one that is configured.
        window.saturating_sub(self.spec.model.answer_room.min(window / 2))
    }

    /// Returns the oldest messages of the conversation that a summary may replace, and their range.
    /// The last `keep_recent` messages are never among them. `None` if there are none.
    fn oldest_messages(
        &self,
        keep_recent: usize,
        window: u64,
    ) -> Option<(&[SizedMessage], Covers)> {
        let budget = self
            .compaction_threshold_in(window)
            .saturating_sub(self.fixed_tokens());
        let cut = plan_compaction(&self.conversation.transcript, keep_recent, budget)?;
        let covered = &self.conversation.transcript[..cut.covered];
        let first = covered.first()?;
        let last_of = |entry: &SizedMessage| {
            entry
                .message
                .covers
                .map_or(entry.message.sequence, |covers| covers.last)
        };
        let next = self
            .conversation
            .transcript
            .get(cut.covered)?
            .message
            .sequence;
        let covers = Covers {
            first: first
                .message
                .covers
                .map_or(first.message.sequence, |covers| covers.first),
            last: covered.iter().map(last_of).max().unwrap_or_default(),
            next,
            system: self
                .conversation
                .system_sequence
                .filter(|sequence| *sequence < next),
            request: covered
                .iter()
                .rev()
                .find(|entry| entry.message.is_request())
                .map(|entry| entry.message.sequence),
        };
        Some((covered, covers))
    }

    /// Returns the prompt size in tokens above which older messages are summarized.
    pub(super) fn compaction_threshold(&self) -> u64 {
        self.compaction_threshold_in(self.conversation.window)
    }

    fn compaction_threshold_in(&self, window: u64) -> u64 {
        let available_tokens = self.prompt_room_in(window);
        let share = window as f64 * self.spec.context.threshold_ratio;
        // The threshold always leaves room for the answer, whatever ratio is configured.
        (share as u64).min(available_tokens)
    }

    /// Returns whether the caller has requested a summary before the first model call, and none was
    /// attempted yet.
    pub(super) fn is_compaction_requested(&self) -> bool {
        let attempts = self.compaction.completed + self.compaction.failed;
        self.spec.settings.compacts && self.turn.number == 0 && attempts == 0
    }

    /// Replaces the covered messages of the transcript with their summary.
    pub(crate) fn apply_summary(&mut self, summary: &Arc<Message>, covers: &Covers) {
        let is_after_cut = |entry: &SizedMessage| {
            !is_summary(&entry.message) && entry.message.sequence >= covers.next
        };
        // Keep the last covered request of the caller, unless a later one remains after the
        // summary.
        let has_later_request = self
            .conversation
            .transcript
            .iter()
            .any(|entry| is_after_cut(entry) && entry.message.is_request());
        let request = covers.request.filter(|_| !has_later_request);
        let is_kept =
            |entry: &SizedMessage| is_after_cut(entry) || Some(entry.message.sequence) == request;
        self.conversation.transcript.retain(is_kept);
        self.conversation.transcript.insert(0, self.entry(summary));
        self.conversation.forget_summarized_changes();
        self.conversation.drop_bound_data(&self.spec);
    }
}

impl CompactionState {
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

    /// Returns whether the last summaries gained too little for a prompt of this size to be
    /// summarized again.
    pub(super) fn has_stopped(&self, prompt_tokens: u64) -> bool {
        prompt_tokens <= self.stopped_below_tokens
    }
}

impl Transition<'_, '_> {
    /// Requests a summary of the older part of the conversation, if one is possible. Returns
    /// whether it is.
    pub(super) fn begin_compaction(&mut self, tokens: u64) -> bool {
        let Some(plan) = self.plan_summary(tokens, self.state.conversation.window) else {
            return false;
        };
        self.request_plan(plan);
        true
    }

    /// Prepares a summary of the older part of the conversation for a context window of this size.
    /// Returns `None` if nothing can be summarized, the request has too little room for the
    /// conversation, the run is a reflection, [`MAX_COMPACTION_ATTEMPTS`] is reached, or the last
    /// summaries gained too little.
    fn plan_summary(&self, tokens: u64, window: u64) -> Option<SummaryPlan> {
        let state = &*self.state;
        // A reflection must not compact the conversation that it reviews.
        if state.reflection.is_some()
            || state.compaction.completed + state.compaction.failed >= MAX_COMPACTION_ATTEMPTS
        {
            return None;
        }
        if state.compaction.has_stopped(tokens) {
            return None;
        }
        let keep_recent = if state.is_compaction_requested() {
            1
        } else {
            // After each completed summary, the next one keeps only a quarter as many recent
            // messages.
            state.spec.context.keep_recent_messages >> (2 * state.compaction.completed)
        };
        let (covered, covers) = state.oldest_messages(keep_recent.max(1), window)?;
        // The summarizer's context window may be smaller than configured, so each failure halves
        // the next request.
        let available_tokens = state.prompt_room_in(window);
        let max_tokens = if state.spec.auxiliary_models.summary_is_own_model {
            state
                .spec
                .auxiliary_models
                .summary
                .max_prompt_tokens
                .min(available_tokens)
        } else {
            state.spec.auxiliary_models.summary.max_prompt_tokens
        };
        let (system, user) =
            summary_request(covered, &state.goals, max_tokens >> state.compaction.failed)?;
        let call = AuxiliaryCall { system, user };
        let pending = PendingCompaction {
            covers,
            tokens_before: tokens,
            request: Some(call.clone()),
        };
        // Not with the last part of a budget.
        let reflection = state
            .reflection_call(covered, max_tokens)
            .filter(|_| self.nearly_used().is_empty());
        Some(SummaryPlan {
            pending,
            call,
            reflection,
        })
    }

    fn request_plan(&mut self, plan: SummaryPlan) {
        match plan.reflection {
            Some(reflection) => self.request_reflection(reflection, plan.pending),
            None => self.request_summary(plan.pending, plan.call),
        }
    }

    pub(in crate::run::machine) fn request_summary(
        &mut self,
        plan: PendingCompaction,
        call: AuxiliaryCall,
    ) {
        self.emit(ContextEvent::CompactionStarted {
            estimated_tokens: plan.tokens_before,
        });
        self.state.compaction.plan = Some(plan);
        self.step
            .effects
            .push(Effect::Model(ModelEffect::Summarize(call)));
    }

    /// Applies the summarizer's answer and continues the turn.
    ///
    /// If the answer lacks the required sections, the summary is requested once more. If the second
    /// answer lacks them too, it is accepted as plain text. A summary that saves too little is
    /// rejected.
    pub(crate) fn summary_completed(&mut self, answer: AuxiliaryAnswer) {
        let Some(PendingCompaction {
            covers,
            tokens_before,
            request: call,
        }) = self.state.compaction.plan.take()
        else {
            return self.call_model();
        };
        let (usage, cost) = answer.used(tokens_before);
        let text = match accept_summary(&answer.completion.text) {
            Ok(text) => text,
            Err(error) => match (plain_summary(&answer.completion.text), call) {
                (Some(_), Some(call)) if self.state.end.ending.is_none() => {
                    let call = AuxiliaryCall {
                        user: correction_request(&call.user, &error.message),
                        ..call
                    };
                    self.emit(ContextEvent::CompactionFailed {
                        error,
                        usage: Some(usage),
                        cost,
                    });
                    return self.request_summary(
                        PendingCompaction {
                            covers,
                            tokens_before,
                            request: None,
                        },
                        call,
                    );
                }
                (Some(text), None) => text,
                _ => return self.summary_failed(error, Some((usage, cost))),
            },
        };
        let content = summary_message(&text, covers.first, covers.last, &self.state.goals);
        let tokens_after = self.tokens_with_summary(&content, covers);
        // Compare only the messages: the system prompt and the tools are the same before and after.
        let frame = self.state.fixed_tokens();
        let before = tokens_before.saturating_sub(frame);
        let after = tokens_after.saturating_sub(frame);
        if after > before - before / MIN_SAVING_DIVISOR {
            let mut error = saves_too_little(before, after);
            error.details = json!({ "tokens_after": tokens_after });
            return self.summary_failed(error, Some((usage, cost)));
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

    /// Records that a summary failed and continues the turn with the unchanged conversation.
    pub(crate) fn summary_failed(&mut self, error: ErrorInfo, used: Option<Used>) {
        let (usage, cost) = usage_and_cost(used);
        self.emit(ContextEvent::CompactionFailed { error, usage, cost });
        self.continue_or_halt();
    }

    /// Leaves out the oldest messages without a summary, for a context window of this size. Returns
    /// whether the prompt, which has `tokens`, gets shorter.
    pub(super) fn omit_oldest(&mut self, tokens: u64, window: u64) -> bool {
        let omission = self.plan_omission(tokens, window);
        let is_possible = omission.is_some();
        if let Some(omission) = omission {
            self.omit(omission, tokens);
        }
        is_possible
    }

    /// Prepares to leave out the oldest messages. Returns `None` if the prompt does not fit then
    /// either, if the last summaries gained too little, or if the run is a reflection, which must
    /// read all of them.
    fn plan_omission(&mut self, tokens: u64, window: u64) -> Option<Omission> {
        if self.state.reflection.is_some() || self.state.compaction.has_stopped(tokens) {
            return None;
        }
        let (covered, covers) = self.state.oldest_messages(1, window)?;
        let earlier = covered.first().filter(|entry| is_summary(&entry.message));
        let earlier = earlier.map(|entry| &*entry.message);
        let content = omitted_message(earlier, covers.first, covers.last, &self.state.goals);
        let tokens_after = self.tokens_with_summary(&content, covers);
        (tokens_after < tokens && tokens_after <= window).then_some(Omission {
            content,
            covers,
            tokens_after,
        })
    }

    fn omit(
        &mut self,
        Omission {
            content,
            covers,
            tokens_after,
        }: Omission,
        tokens_before: u64,
    ) {
        let sequence = self.add_summary(content, covers);
        let covered = (covers.first, covers.last);
        self.emit(ContextEvent::OldestOmitted {
            sequence,
            covered,
            tokens_before,
            tokens_after,
        });
    }

    /// Records a summary that an earlier incarnation requested as failed. Its usage is estimated
    /// (BUD-1a).
    pub(crate) fn close_lost_summary(&mut self) {
        let summary = &self.state.spec.auxiliary_models.summary;
        let prompt_tokens = self
            .state
            .compaction
            .tokens_before
            .min(summary.max_prompt_tokens);
        let prompt = summary.priced(Usage::estimate(prompt_tokens, 0));
        let (usage, cost) = self.used_by_lost_call(ModelCallKind::Summary, prompt);
        let error = ErrorInfo::new(ErrorCode::Interrupted, "the summary was interrupted");
        self.emit(ContextEvent::CompactionFailed {
            error,
            usage: Some(usage),
            cost,
        });
    }

    fn continue_or_halt(&mut self) {
        if self.state.end.ending.is_none() {
            self.call_model();
        }
    }

    /// Returns the size, in tokens, that the prompt would have with the summary. The conversation
    /// is restored afterwards.
    fn tokens_with_summary(&mut self, content: &str, covers: Covers) -> u64 {
        let summary = Arc::new(self.summary(content.to_owned(), covers));
        let conversation = self.state.conversation.clone();
        self.state.apply_summary(&summary, &covers);
        let tokens = self.prompt(&self.state.conversation).tokens;
        self.state.conversation = conversation;
        tokens
    }

    /// Adds a summary message that records which messages it replaces, and returns its sequence
    /// number. The message has no parent.
    fn add_summary(&mut self, content: String, covers: Covers) -> u64 {
        let message = self.summary(content, covers);
        let sequence = message.sequence;
        self.record(message, MessageEvent::added);
        sequence
    }

    fn summary(&self, content: String, covers: Covers) -> Message {
        let trace = self.state.spec.identity.trace_id.clone();
        let sequence = self.state.conversation.last_sequence + 1;
        let mut message =
            Message::new(trace, sequence, None, Role::User, content, self.context.now);
        message.description = format!("summary of messages {} to {}", covers.first, covers.last);
        message.covers = Some(covers);
        message
    }

    /// Retries with a shorter prompt after the provider rejected the prompt as too long, or once
    /// after it rejected a nearly full prompt for an unknown reason.
    ///
    /// Returns `false` for other errors, if the run is ending, and if the prompt cannot be
    /// shortened further.
    pub(crate) fn retry_with_compaction(&mut self, error: &ErrorInfo) -> bool {
        let is_too_long = error.code == ErrorCode::PromptTooLong;
        let may_be_too_long = self.state.is_rejected_when_nearly_full(error)
            && !self.state.compaction.follows_rejection;
        if !(is_too_long || may_be_too_long) || self.state.end.ending.is_some() {
            return false;
        }
        let attempt = self.state.turn.attempt;
        let retries_reflection =
            is_too_long && self.state.reflection.is_some() && attempt <= MAX_COMPACTION_ATTEMPTS;
        // The summary must fit into the smaller window that the event leads to. Without a summary
        // there is no retry, and no event.
        let conversation = &self.state.conversation;
        let tokens = conversation.prompt_tokens;
        let window = conversation.reduced_window(error);
        let plan = self.plan_summary(tokens, window);
        let omission = if is_too_long && plan.is_none() {
            self.plan_omission(tokens, window)
        } else {
            None
        };
        if plan.is_none() && omission.is_none() && !retries_reflection {
            return false;
        }
        self.emit(ModelEvent::Retrying {
            attempt,
            error: error.clone(),
            wait_ms: 0,
            usage: None,
            cost: None,
        });
        match (plan, omission) {
            (Some(plan), _) => self.request_plan(plan),
            (None, Some(omission)) => {
                self.omit(omission, tokens);
                self.call_model();
            }
            // The window was reduced, so the next prompt includes less of the conversation under
            // review.
            (None, None) => self.call_model(),
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_small_gains_in_a_row_stop_summaries_until_the_prompt_has_grown() {
        let mut compaction = CompactionState::default();
        compaction.record_gain(1_000, 950, 1_200);
        assert!(!compaction.has_stopped(1_000), "one small gain");
        compaction.record_gain(1_000, 500, 1_200);
        compaction.record_gain(1_000, 910, 1_200);
        assert!(
            !compaction.has_stopped(1_000),
            "a large gain is between them"
        );
        compaction.record_gain(1_000, 1_010, 1_200);
        for (prompt_tokens, has_stopped) in [(1_000, true), (1_300, true), (1_301, false)] {
            assert_eq!(
                compaction.has_stopped(prompt_tokens),
                has_stopped,
                "{prompt_tokens}"
            );
        }
        compaction.record_gain(1_301, 600, 1_200);
        assert!(!compaction.has_stopped(1_000), "a large gain ends it");
    }
}
