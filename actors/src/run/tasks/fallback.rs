//! Fallbacks: other models make a call if the model of the run cannot.
//!
//! A failure of the service concerns all runs of the process: for a while, none of them calls it. A
//! failure that concerns the request keeps only its own run from calling the model. After this
//! cool-down, the model is tried again.
//!
//! Elsewhere: retries with the same model, and the time for which a call waits for it (the
//! gateway).

use std::sync::Arc;

use soong_model::Completion;
use soong_protocol::{ErrorCode, ErrorInfo, FallbackReason, ModelEvent, Usage};

use crate::{
    gateway::{CallSink, CoolDowns, Gateway, fallback_reason},
    gateways::ModelGateways,
    run::{
        machine::spec::{Fallback, Fallbacks, RunSpec},
        tasks::model_call::{CallObserver, ModelCaller, Prompt},
    },
};

/// A call that failed, or was refused. The next fallback for the reason is tried.
pub(super) struct FailedCall {
    pub(super) reason: FallbackReason,
    pub(super) error: Option<ErrorInfo>,
    usage: Option<Usage>,
}

impl FailedCall {
    /// Returns the failure; `None` if the call succeeded, or if a fallback would fail too.
    /// `is_fallback`: the call was made with a fallback, so a rejected key or request concerns only
    /// that.
    pub(super) fn of(outcome: &Result<Completion, ErrorInfo>, is_fallback: bool) -> Option<Self> {
        match outcome {
            Ok(completion) if completion.is_refused() => Some(Self {
                reason: FallbackReason::Refused,
                error: None,
                usage: completion.usage,
            }),
            Ok(_) => None,
            Err(error) => {
                let rejected =
                    || (is_fallback && !is_of_run(error)).then_some(FallbackReason::Down);
                let reason = fallback_reason(error).or_else(rejected)?;
                Some(Self {
                    reason,
                    error: Some(error.clone()),
                    usage: None,
                })
            }
        }
    }
}

/// Returns whether the run is the reason of an error, whichever model is called.
pub(super) fn is_of_run(error: &ErrorInfo) -> bool {
    matches!(
        error.code,
        ErrorCode::Cancelled | ErrorCode::BudgetExceeded | ErrorCode::CallbackFailed
    )
}

/// The models that may make a call: the first one, then its fallbacks. `None` is the index of the
/// first.
pub(super) struct Candidates<'a> {
    pub(super) models: &'a ModelGateways,
    /// Configured name of the first: a profile or a model name.
    pub(super) first: &'a str,
    pub(super) fallbacks: &'a Fallbacks,
    pub(super) prompt_tokens: u64,
    /// Cool-downs that hold for the run only.
    pub(super) of_run: Option<&'a CoolDowns<Option<usize>>>,
}

impl Candidates<'_> {
    fn name(&self, index: Option<usize>) -> &str {
        index
            .and_then(|index| self.fallbacks.entries.get(index))
            .map_or(self.first, |fallback| &fallback.name)
    }

    /// Returns the next fallback for this reason that is not cooling down and whose context window
    /// takes the prompt.
    pub(super) fn next(&self, current: Option<usize>, reason: FallbackReason) -> Option<usize> {
        let first = current.map_or(0, |index| index + 1);
        (first..self.fallbacks.entries.len()).find(|index| {
            let Fallback { reasons, model, .. } = &self.fallbacks.entries[*index];
            reasons.contains(&reason)
                && model.takes_prompt(self.prompt_tokens)
                && self.cooling(Some(*index)).is_none()
        })
    }

    /// Returns the failures of a service after which the call is made with another model.
    pub(super) fn reasons_with_next(&self, current: Option<usize>) -> Vec<FallbackReason> {
        FallbackReason::DEFAULT
            .into_iter()
            .filter(|reason| self.next(current, *reason).is_some())
            .collect()
    }

    /// Returns why a model is not called at the moment, if it is not.
    pub(super) fn cooling(&self, index: Option<usize>) -> Option<FallbackReason> {
        if self.fallbacks.entries.is_empty() {
            return None;
        }
        let of_service = || {
            let (gateway, model) = self.service(index)?;
            gateway.cooling(&model)
        };
        self.of_run
            .and_then(|cool_downs| cool_downs.reason(&index))
            .or_else(of_service)
    }

    /// Starts the cool-down of a model that has failed.
    pub(super) fn cool_down(&self, index: Option<usize>, reason: FallbackReason) {
        let time = self.fallbacks.cooldown;
        if !reason.is_of_service() {
            if let Some(cool_downs) = self.of_run {
                cool_downs.start(index, reason, time);
            }
        } else if let Some((gateway, model)) = self.service(index) {
            gateway.cool_down(&model, reason, time);
        }
    }

    /// Returns the gateway of a model and the model's name; `None` if the gateway was never used.
    fn service(&self, index: Option<usize>) -> Option<(Gateway, String)> {
        let (profile, name) = self.models.split_model(self.name(index)).ok()?;
        Some((
            self.models.get(profile)?,
            self.models.model_name(profile, name),
        ))
    }
}

impl ModelCaller {
    /// Makes the call with the first model that can.
    pub(super) async fn call_with_fallbacks(
        &self,
        spec: &RunSpec,
        prompt: &Prompt,
        observer: &mut CallObserver,
    ) -> Result<Completion, ErrorInfo> {
        let run = Arc::clone(observer.run());
        let candidates = Candidates {
            models: &self.models,
            first: spec.configured_name(None),
            fallbacks: &spec.fallbacks,
            prompt_tokens: prompt.tokens,
            of_run: Some(&run.models.cool_downs),
        };
        // The model that the recorded events name.
        let mut recorded = prompt.call.fallback;
        let mut current = None;
        if let Some(reason) = candidates.cooling(None)
            && let Some(next) = candidates.next(None, reason)
        {
            current = Some(next);
            if current != recorded {
                let skipped = FailedCall {
                    reason,
                    error: None,
                    usage: None,
                };
                observer.record(fallback_event(spec, None, next, skipped));
                recorded = current;
            }
        }
        let mut error_of_first = None;
        loop {
            observer.fallback = current;
            let reasons = candidates.reasons_with_next(current);
            let outcome = self
                .call_one(spec, prompt, current, &reasons, observer)
                .await;
            let failed = FailedCall::of(&outcome, current.is_some())
                .and_then(|failed| Some((candidates.next(current, failed.reason)?, failed)));
            let Some((next, failed)) = failed else {
                if outcome.is_ok() && current.is_none() && recorded.is_some() {
                    observer.record(ModelEvent::FallbackEnded {
                        model: spec.model.name.clone(),
                    });
                }
                // The error of a fallback would hide why it was tried.
                return outcome.map_err(|error| {
                    error_of_first
                        .filter(|_| !is_of_run(&error))
                        .unwrap_or(error)
                });
            };
            candidates.cool_down(current, failed.reason);
            error_of_first = error_of_first.or_else(|| failed.error.clone());
            observer.record(fallback_event(spec, current, next, failed));
            observer.start_over();
            recorded = Some(next);
            current = Some(next);
        }
    }
}

fn fallback_event(
    spec: &RunSpec,
    from: Option<usize>,
    to: usize,
    failed: FailedCall,
) -> ModelEvent {
    let prices = spec.model_or_fallback(from).prices;
    ModelEvent::Fallback {
        from: from
            .map_or(spec.model.name.as_str(), |_| spec.configured_name(from))
            .to_owned(),
        to: spec.configured_name(Some(to)).to_owned(),
        reason: failed.reason.as_str().to_owned(),
        error: failed.error.map(|error| spec.redactor.redact_error(error)),
        usage: failed.usage,
        cost: failed.usage.and_then(|usage| Some(prices?.cost(&usage))),
    }
}
