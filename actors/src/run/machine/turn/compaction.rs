//! Compaction: whether the older part of the conversation is replaced with a summary before the next
//! model call, and which part (CTX-2, CTX-3).
//!
//! A summary is due when `call_model` (`turn.rs`) finds the prompt too long, when the caller asks for
//! it, or after a service has rejected the prompt (`retry_with_compaction`). It is stored as a message of the user with `covers`
//! (`add_summary`). If the prompt does not fit after a failed summary, its oldest messages are left
//! out without one.
//!
//! Pure; part of the run state machine. Elsewhere: the summary (`machine/jobs/summarize.rs`), the
//! text of its request (`context/`).

use std::sync::Arc;

use soong_protocol::{
    ContextEvent, Covers, ErrorCode, ErrorInfo, Message, MessageEvent, ModelEvent, Role,
};

use crate::{
    context::{SizedMessage, is_summary, omitted_message, plan_compaction, summary_request},
    run::machine::{
        RunState, Transition,
        auxiliary_call::AuxiliaryCall,
        inline::InlineLimits,
        jobs::{reflect::Reflect, summarize::Summarize},
    },
};

/// Maximum number of retries of a reflection whose prompt is too long.
const MAX_REFLECTION_RETRIES: u32 = 3;
/// Share of the size above which prompts are summarized: a longer prompt that a service rejects for
/// an unknown reason is probably too long.
const NEARLY_FULL_RATIO: f64 = 0.8;

/// A summary that may be requested.
struct SummaryPlan {
    summary: Summarize,
    /// The reflection on the messages that precedes it, if one is due.
    reflection: Option<Reflect>,
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
    /// Updates the usage and the conversation from a context event.
    pub(crate) fn apply_context(&mut self, event: &ContextEvent) {
        self.usage.own.add_context_event(event);
        match event {
            ContextEvent::FilesOmitted {
                sequence, rejected, ..
            } if rejected.is_empty() => {
                self.conversation.files_omitted_to = *sequence;
            }
            ContextEvent::FilesOmitted { rejected, .. } => {
                self.conversation.reject_files(&self.spec, rejected);
                self.conversation.are_changes_recorded = false;
            }
            ContextEvent::CompactionStarted { .. }
            | ContextEvent::CompactionCompleted { .. }
            | ContextEvent::CompactionFailed { .. }
            | ContextEvent::OldestOmitted { .. } => {}
        }
    }

    /// Returns whether a service has rejected the last prompt probably because of its length: the
    /// prompt is nearly long enough for a summary, and the error states no other reason.
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
        self.spec.settings.compacts && self.turn.number == 0 && !self.summary_attempts().has_any()
    }
}

impl Transition<'_, '_> {
    /// Requests a summary of the older part of the conversation, if one is possible. Returns
    /// whether it is.
    pub(super) fn begin_compaction(&mut self, tokens: u64) -> bool {
        let Some(plan) = self.plan_summary(tokens, self.state.conversation.window) else {
            return false;
        };
        self.follow_plan(plan);
        true
    }

    /// Prepares a summary of the older part of the conversation for a context window of this size.
    /// Returns `None` if nothing can be summarized, the request has too little room for the
    /// conversation, the run is a reflection, the turn may request no other summary, or the last
    /// summaries gained too little.
    fn plan_summary(&self, tokens: u64, window: u64) -> Option<SummaryPlan> {
        let state = &*self.state;
        // A reflection must not compact the conversation that it reviews.
        let attempts = state.summary_attempts();
        if state.reflection.is_some() || attempts.are_used_up() || attempts.have_stopped(tokens) {
            return None;
        }
        let keep_recent = if state.is_compaction_requested() {
            1
        } else {
            // After each completed summary, the next one keeps only a quarter as many recent
            // messages.
            state.spec.context.keep_recent_messages >> (2 * attempts.completed())
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
            summary_request(covered, &state.goals, max_tokens >> attempts.failed())?;
        // Not with the last part of a budget.
        let reflection = self
            .plan_reflection(covered, max_tokens)
            .filter(|_| self.nearly_used().is_empty());
        Some(SummaryPlan {
            summary: Summarize {
                covers,
                tokens_before: tokens,
                call: AuxiliaryCall { system, user },
                is_correction: false,
            },
            reflection,
        })
    }

    fn follow_plan(&mut self, plan: SummaryPlan) {
        match plan.reflection {
            Some(reflection) => self.request_reflection(reflection, plan.summary),
            None => self.request_summary(plan.summary),
        }
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
    fn plan_omission(&self, tokens: u64, window: u64) -> Option<Omission> {
        if self.state.reflection.is_some() || self.state.summary_attempts().have_stopped(tokens) {
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

    /// Returns the size, in tokens, that the prompt would have with the summary.
    pub(in crate::run::machine) fn tokens_with_summary(
        &self,
        content: &str,
        covers: Covers,
    ) -> u64 {
        let summary = Arc::new(self.summary(content.to_owned(), covers));
        let mut conversation = self.state.conversation.clone();
        let entry = self.state.entry(&summary);
        conversation.replace_with_summary(&self.state.spec, entry, &covers);
        self.prompt(&conversation).tokens
    }

    /// Adds a summary message that records which messages it replaces, and returns its sequence
    /// number. The message has no parent.
    pub(in crate::run::machine) fn add_summary(&mut self, content: String, covers: Covers) -> u64 {
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
            && !self.state.summary_attempts().follows_rejection();
        if !(is_too_long || may_be_too_long) || self.state.end.ending.is_some() {
            return false;
        }
        let attempt = self.state.turn.attempt;
        let retries_reflection =
            is_too_long && self.state.reflection.is_some() && attempt <= MAX_REFLECTION_RETRIES;
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
            (Some(plan), _) => self.follow_plan(plan),
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
