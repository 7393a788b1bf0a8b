//! Fallbacks: other models make a call if the model of the run cannot.
//!
//! A failure of the service concerns all runs of the process: for a while, none of them calls it. A failure that concerns
//! the request keeps only its own run from calling the model. After this cool-down, the model is tried again.
//!
//! Elsewhere: retries with the same model, and the time for which a call waits for it (the gateway).

use soong_model::Completion;
use soong_protocol::{ErrorCode, ErrorInfo, FallbackReason, ModelEvent, Usage};

use crate::{
    gateway::{CallSink, Gateway, fallback_reason},
    run::{
        machine::spec::{Fallback, RunSpec},
        tasks::model_call::{CallObserver, ModelCaller, Prompt},
    },
};

/// A call that failed, or was refused. The next fallback for the reason is tried.
struct FailedCall {
    reason: FallbackReason,
    error: Option<ErrorInfo>,
    usage: Option<Usage>,
}

impl FailedCall {
    /// Returns the failure; `None` if the call succeeded, or if a fallback would fail too. `is_fallback`: the call was made
    /// with a fallback, so a rejected key or request concerns only that.
    fn of(outcome: &Result<Completion, ErrorInfo>, is_fallback: bool) -> Option<Self> {
        match outcome {
            Ok(completion) if completion.is_refused() => {
                Some(Self { reason: FallbackReason::Refused, error: None, usage: completion.usage })
            }
            Ok(_) => None,
            Err(error) => {
                let rejected = || (is_fallback && !is_of_run(error)).then_some(FallbackReason::Down);
                let reason = fallback_reason(error).or_else(rejected)?;
                Some(Self { reason, error: Some(error.clone()), usage: None })
            }
        }
    }
}

/// Returns whether the run is the reason of an error, whichever model is called.
fn is_of_run(error: &ErrorInfo) -> bool {
    matches!(error.code, ErrorCode::Cancelled | ErrorCode::BudgetExceeded)
}

impl ModelCaller {
    /// Makes the call with the first model that can.
    pub(super) async fn call_with_fallbacks(
        &self,
        spec: &RunSpec,
        prompt: &Prompt,
        observer: &mut CallObserver,
    ) -> Result<Completion, ErrorInfo> {
        // The model that the recorded events name.
        let mut recorded = prompt.call.fallback;
        let mut current = None;
        if let Some(reason) = self.cooling(spec, None, observer)
            && let Some(next) = self.next_model(spec, prompt, (None, reason), observer)
        {
            current = Some(next);
            if current != recorded {
                let skipped = FailedCall { reason, error: None, usage: None };
                observer.record(fallback_event(spec, None, next, skipped));
                recorded = current;
            }
        }
        let mut error_of_first = None;
        loop {
            observer.fallback = current;
            let reasons: Vec<FallbackReason> = FallbackReason::DEFAULT
                .into_iter()
                .filter(|reason| self.next_model(spec, prompt, (current, *reason), observer).is_some())
                .collect();
            let outcome = self.call_one(spec, prompt, (current, &reasons), observer).await;
            let failed = FailedCall::of(&outcome, current.is_some()).and_then(|failed| {
                let next = self.next_model(spec, prompt, (current, failed.reason), observer)?;
                Some((failed, next))
            });
            let Some((failed, next)) = failed else {
                if outcome.is_ok() && current.is_none() && recorded.is_some() {
                    observer.record(ModelEvent::FallbackEnded { model: spec.model.name.clone() });
                }
                // The error of a fallback would hide why it was tried.
                return outcome.map_err(|error| error_of_first.filter(|_| !is_of_run(&error)).unwrap_or(error));
            };
            self.cool_down(spec, (current, failed.reason), observer);
            error_of_first = error_of_first.or_else(|| failed.error.clone());
            observer.record(fallback_event(spec, current, next, failed));
            observer.start_over();
            (recorded, current) = (Some(next), Some(next));
        }
    }

    /// Returns the next fallback for this reason that is not cooling down and whose context window takes the prompt.
    fn next_model(
        &self,
        spec: &RunSpec,
        prompt: &Prompt,
        (current, reason): (Option<usize>, FallbackReason),
        observer: &CallObserver,
    ) -> Option<usize> {
        let first = current.map_or(0, |index| index + 1);
        (first..spec.fallbacks.entries.len()).find(|index| {
            let Fallback { reasons, model, .. } = &spec.fallbacks.entries[*index];
            reasons.contains(&reason)
                && model.takes_prompt(prompt.tokens)
                && self.cooling(spec, Some(*index), observer).is_none()
        })
    }

    /// Returns why the model is not called at the moment, if it is not.
    fn cooling(&self, spec: &RunSpec, model: Option<usize>, observer: &CallObserver) -> Option<FallbackReason> {
        if spec.fallbacks.entries.is_empty() {
            return None;
        }
        let of_service = || self.gateway_of(spec, model)?.cooling(&spec.model_or_fallback(model).name);
        observer.run().cool_downs.reason(&model).or_else(of_service)
    }

    fn cool_down(&self, spec: &RunSpec, (model, reason): (Option<usize>, FallbackReason), observer: &CallObserver) {
        let time = spec.fallbacks.cooldown;
        if !reason.is_of_service() {
            observer.run().cool_downs.start(model, reason, time);
        } else if let Some(gateway) = self.gateway_of(spec, model) {
            gateway.cool_down(&spec.model_or_fallback(model).name, reason, time);
        }
    }

    fn gateway_of(&self, spec: &RunSpec, model: Option<usize>) -> Option<Gateway> {
        let (profile, _) = self.models.split_model(spec.configured_name(model)).ok()?;
        self.models.get(profile)
    }
}

fn fallback_event(spec: &RunSpec, from: Option<usize>, to: usize, failed: FailedCall) -> ModelEvent {
    let prices = spec.model_or_fallback(from).prices;
    ModelEvent::Fallback {
        from: from.map_or(spec.model.name.as_str(), |_| spec.configured_name(from)).to_owned(),
        to: spec.configured_name(Some(to)).to_owned(),
        reason: failed.reason.as_str().to_owned(),
        error: failed.error.map(|error| spec.redactor.redact_error(error)),
        usage: failed.usage,
        cost: failed.usage.and_then(|usage| Some(prices?.cost(&usage))),
    }
}
