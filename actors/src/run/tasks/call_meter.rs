//! Counts what a model call has used while it has no outcome.
//!
//! A call that is cut off is charged for its prompt and for what has arrived of the answer, at most
//! for what was reserved. A long call reports this count once a second, so that it is known after a
//! crash (BUD-1a).
//!
//! Elsewhere: charging a call that was lost with its actor or process (`machine/lost_calls.rs`).

use std::time::Duration;

use soong_model::{AnswerProgress, tokens::TokenCounter};
use soong_protocol::{ErrorCode, ErrorInfo, ModelCallKind, OpenModelCall, Usage};
use tokio::time::Instant;

use crate::{
    budget::ReserveRequest,
    run::machine::auxiliary_call::{Used, add_used},
};

/// Minimum time between the start of a call and its first report, and between two reports.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);
/// Bytes of the arguments of tool calls per token: JSON text has about so many.
const ARGUMENT_BYTES_PER_TOKEN: usize = 4;

/// Counts what one model call has used.
pub(super) struct CallMeter {
    kind: ModelCallKind,
    counter: TokenCounter,
    /// Size of the prompt, maximum length of the answer, and prices. `None` before a model is
    /// chosen.
    request: Option<ReserveRequest>,
    was_sent: bool,
    /// Tokens of the text and the reasoning, without `uncounted`.
    text_tokens: u64,
    /// Text and reasoning that arrived since the last count.
    uncounted: String,
    progress: AnswerProgress,
    /// Usage of attempts that were discarded and are not charged by an event of their own.
    discarded: Option<Used>,
    /// Usage of answered calls that the outcome of this one includes.
    answered: Option<Used>,
    last_report: Instant,
}

impl CallMeter {
    pub(super) fn new(kind: ModelCallKind, counter: TokenCounter) -> Self {
        Self {
            kind,
            counter,
            request: None,
            was_sent: false,
            text_tokens: 0,
            uncounted: String::new(),
            progress: AnswerProgress::default(),
            discarded: None,
            answered: None,
            last_report: Instant::now(),
        }
    }

    pub(super) fn kind(&self) -> ModelCallKind {
        self.kind
    }

    /// Sets the request that is made next.
    pub(super) fn set_request(&mut self, request: ReserveRequest) {
        self.request = Some(request);
    }

    /// Limits the answer to the reserved length.
    pub(super) fn limit_output(&mut self, max_output_tokens: u64) {
        if let Some(request) = &mut self.request {
            request.max_output_tokens = request.max_output_tokens.min(max_output_tokens);
        }
    }

    pub(super) fn request_sent(&mut self) {
        self.was_sent = true;
        self.last_report = Instant::now();
    }

    /// Counts a piece of the text or the reasoning.
    pub(super) fn add_text(&mut self, text: &str) {
        if self.was_sent {
            self.uncounted.push_str(text);
        }
    }

    pub(super) fn set_progress(&mut self, progress: AnswerProgress) {
        if self.was_sent {
            self.progress = progress;
        }
    }

    /// Forgets the attempt: it has an outcome, and is charged elsewhere.
    pub(super) fn reset(&mut self) {
        self.was_sent = false;
        self.text_tokens = 0;
        self.uncounted.clear();
        self.progress = AnswerProgress::default();
    }

    /// Forgets the attempt; its outcome is discarded. What it has used belongs to the outcome of
    /// the next attempt.
    pub(super) fn discard(&mut self) {
        if let Some(used) = self.used_by_answer() {
            self.discarded = Some(add_used(self.discarded, used));
        }
        self.reset();
    }

    /// Adds an answered call that has no outcome of its own to the reports.
    pub(super) fn add_answered(&mut self, used: Used) {
        self.answered = Some(add_used(self.answered, used));
        self.reset();
    }

    /// Returns the usage of discarded attempts, which is then forgotten.
    pub(super) fn take_discarded(&mut self) -> Option<Used> {
        self.discarded.take()
    }

    /// Returns what a failed call is charged. A call whose service failed before it answered is
    /// free.
    pub(super) fn used_by_failure(&mut self, error: &ErrorInfo) -> Option<Used> {
        let was_cut_off = matches!(error.code, ErrorCode::Cancelled | ErrorCode::Timeout);
        let used = if was_cut_off {
            self.used()
        } else {
            self.used_by_answer()
        };
        match used {
            Some(used) => Some(add_used(self.discarded, used)),
            None => self.discarded,
        }
    }

    /// Returns what the attempt has used, if something of the answer has arrived.
    pub(super) fn used_by_answer(&mut self) -> Option<Used> {
        if self.has_answer() { self.used() } else { None }
    }

    /// Returns the count if it is time to report it.
    pub(super) fn due_report(&mut self) -> Option<OpenModelCall> {
        if !self.has_answer() || self.last_report.elapsed() < REPORT_INTERVAL {
            return None;
        }
        self.last_report = Instant::now();
        let mut used = self.used()?;
        for earlier in [self.discarded, self.answered] {
            used = add_used(earlier, used);
        }
        let (usage, cost) = used;
        Some(OpenModelCall {
            kind: self.kind,
            usage,
            cost,
        })
    }

    fn has_answer(&self) -> bool {
        self.text_tokens > 0
            || !self.uncounted.is_empty()
            || self.progress.argument_bytes > 0
            || self.progress.usage.is_some()
    }

    /// Returns what the attempt has used. `None` if no request was sent.
    fn used(&mut self) -> Option<Used> {
        let request = self.request.filter(|_| self.was_sent)?;
        let usage = match self.progress.usage {
            Some(usage) if self.progress.is_complete => usage,
            reported => self.estimate(&request, reported.unwrap_or_default()),
        };
        let cost = request.prices.map(|prices| prices.cost(&usage));
        Some((usage, cost))
    }

    /// Estimates the usage of an answer that is not complete. `reported`: what the service has
    /// reported so far.
    fn estimate(&mut self, request: &ReserveRequest, reported: Usage) -> Usage {
        self.text_tokens += self.counter.count_text(&self.uncounted);
        self.uncounted.clear();
        let argument_tokens = (self.progress.argument_bytes / ARGUMENT_BYTES_PER_TOKEN) as u64;
        let arrived_tokens = (self.text_tokens + argument_tokens).min(request.max_output_tokens);
        let prompt_tokens = if reported.prompt_tokens > 0 {
            reported.prompt_tokens
        } else {
            request.prompt_tokens
        };
        Usage {
            prompt_tokens,
            completion_tokens: reported.completion_tokens.max(arrived_tokens),
            estimated: true,
            ..reported
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meter(max_output_tokens: u64) -> CallMeter {
        let mut meter = CallMeter::new(ModelCallKind::Turn, TokenCounter::for_model("m"));
        meter.set_request(ReserveRequest {
            prompt_tokens: 100,
            max_output_tokens,
            prices: None,
            is_long_cached: false,
        });
        meter.request_sent();
        meter
    }

    fn cancelled() -> ErrorInfo {
        ErrorInfo::new(ErrorCode::Cancelled, "cancelled")
    }

    #[test]
    fn call_that_is_cut_off_costs_its_prompt_and_what_arrived() {
        let words = "word ".repeat(50);
        let reported = |completion_tokens, is_complete| AnswerProgress {
            argument_bytes: 400,
            usage: Some(Usage {
                prompt_tokens: 120,
                completion_tokens,
                cached_tokens: 7,
                ..Usage::default()
            }),
            is_complete,
        };
        let arguments = AnswerProgress {
            argument_bytes: 400,
            ..AnswerProgress::default()
        };
        for (text, progress, max_output_tokens, expected) in [
            ("", AnswerProgress::default(), 1_000, (100, 0, true)),
            (&*words, AnswerProgress::default(), 1_000, (100, 50, true)),
            ("", arguments, 1_000, (100, 100, true)),
            ("", arguments, 60, (100, 60, true)), // never more than reserved
            ("", reported(1, false), 1_000, (120, 100, true)),
            ("", reported(300, false), 1_000, (120, 300, true)),
            ("", reported(30, true), 1_000, (120, 30, false)),
        ] {
            let mut meter = meter(max_output_tokens);
            meter.add_text(text);
            meter.set_progress(progress);
            let (usage, cost) = meter.used_by_failure(&cancelled()).unwrap();
            assert_eq!(
                (
                    usage.prompt_tokens,
                    usage.completion_tokens,
                    usage.estimated
                ),
                expected,
                "{progress:?}"
            );
            assert_eq!(cost, None);
        }
    }

    #[test]
    fn call_that_failed_before_it_answered_is_free() {
        let failed = ErrorInfo::new(ErrorCode::ProviderError, "status 500");
        let mut meter = meter(1_000);
        assert_eq!(meter.used_by_failure(&failed), None);
        meter.add_text("word");
        assert_eq!(
            meter.used_by_failure(&failed).unwrap().0.completion_tokens,
            1
        );
        meter.reset();
        assert_eq!(
            meter.used_by_failure(&cancelled()),
            None,
            "no request was sent"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn count_is_reported_at_most_once_a_second() {
        let mut meter = meter(1_000);
        meter.add_text("word");
        assert_eq!(meter.due_report(), None);
        tokio::time::advance(REPORT_INTERVAL).await;
        let report = meter.due_report().unwrap();
        assert_eq!(
            (report.kind, report.usage.completion_tokens),
            (ModelCallKind::Turn, 1)
        );
        meter.add_text(" word");
        assert_eq!(meter.due_report(), None);
        meter.discard();
        meter.request_sent();
        tokio::time::advance(REPORT_INTERVAL).await;
        assert_eq!(
            meter.due_report(),
            None,
            "nothing of the second attempt has arrived"
        );
        meter.add_text("again");
        // Two prompts, and the text of both attempts.
        let usage = meter.due_report().unwrap().usage;
        assert_eq!((usage.prompt_tokens, usage.completion_tokens), (200, 3));
    }
}
