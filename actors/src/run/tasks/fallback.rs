//! Fallbacks: other models make a call if the model of the run cannot.
//!
//! A failure of the service concerns all runs of the process: for a while, none of them calls it. A failure that concerns
//! the request keeps only its own run from calling the model. After this cool-down, the model is tried again.
//!
//! Elsewhere: retries with the same model, and the time for which a call waits for it (the gateway).

use soong_model::Completion;
use soong_protocol::{ErrorCode, ErrorInfo, FallbackReason, ModelEvent, Usage};

use crate::{
    gateway::{CallSink, Gateway},
    run::{
        machine::spec::{Fallback, RunSpec},
        tasks::model_call::{CallObserver, ModelCaller, Prompt, configured_name},
    },
};

/// HTTP statuses of a service that has too many requests: unavailable, and overloaded.
const OVERLOADED: [u64; 2] = [503, 529];

/// A call that failed, or was refused.
struct FailedCall {
    reason: FallbackReason,
    error: Option<ErrorInfo>,
    usage: Option<Usage>,
}

impl FailedCall {
    /// Returns why another model may succeed; `None` if the call succeeded, or if no other model would.
    fn of(outcome: &Result<Completion, ErrorInfo>) -> Option<Self> {
        match outcome {
            Ok(completion) if completion.is_refused() => {
                Some(Self { reason: FallbackReason::Refused, error: None, usage: completion.usage })
            }
            Ok(_) => None,
            Err(error) => reason(error).map(|reason| Self { reason, error: Some(error.clone()), usage: None }),
        }
    }
}

/// Returns why another model may succeed. `None`: the request itself, or its key, was rejected.
fn reason(error: &ErrorInfo) -> Option<FallbackReason> {
    let status = error.details.get("status").and_then(serde_json::Value::as_u64);
    match error.code {
        ErrorCode::ProviderRateLimited => Some(FallbackReason::RateLimited),
        ErrorCode::ProviderTimeout => Some(FallbackReason::Down),
        ErrorCode::ProviderError if status.is_some_and(|status| OVERLOADED.contains(&status)) => {
            Some(FallbackReason::Overloaded)
        }
        ErrorCode::ProviderError if error.retryable => Some(FallbackReason::Down),
        ErrorCode::PromptTooLong => Some(FallbackReason::ContextTooLong),
        _ => None,
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
        // The model that makes the calls, as the events of the run have it.
        let mut recorded = prompt.call.fallback;
        let mut current = None;
        if let Some(reason) = self.cooling(spec, None, observer)
            && let Some(next) = self.next_model(spec, prompt, (None, reason), observer)
        {
            current = Some(next);
            if current != recorded {
                let skipped = FailedCall { reason, error: None, usage: None };
                observer.record(fallback_event(spec, recorded, next, skipped));
                recorded = current;
            }
        }
        loop {
            observer.fallback = current;
            let has_next = FallbackReason::DEFAULT
                .into_iter()
                .any(|reason| self.next_model(spec, prompt, (current, reason), observer).is_some());
            let max_service_wait = has_next.then_some(spec.fallbacks.after);
            let outcome = self.call_one(spec, prompt, (current, max_service_wait), observer).await;
            let failed = FailedCall::of(&outcome).and_then(|failed| {
                let next = self.next_model(spec, prompt, (current, failed.reason), observer)?;
                Some((failed, next))
            });
            let Some((failed, next)) = failed else {
                if outcome.is_ok() && current.is_none() && recorded.is_some() {
                    observer.record(ModelEvent::FallbackEnded { model: spec.model.name.clone() });
                }
                return outcome;
            };
            self.cool_down(spec, (current, failed.reason), observer);
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
                && prompt.tokens <= model.context_window.saturating_sub(model.answer_room)
                && self.cooling(spec, Some(*index), observer).is_none()
        })
    }

    /// Returns why the model is not called at the moment, if it is not.
    fn cooling(&self, spec: &RunSpec, model: Option<usize>, observer: &CallObserver) -> Option<FallbackReason> {
        if spec.fallbacks.entries.is_empty() {
            return None;
        }
        let of_service = || self.gateway_of(spec, model)?.cooling(&spec.model_or_fallback(model).name);
        observer.run().cool_downs.reason(model).or_else(of_service)
    }

    fn cool_down(&self, spec: &RunSpec, (model, reason): (Option<usize>, FallbackReason), observer: &CallObserver) {
        let time = spec.fallbacks.cooldown;
        if !reason.is_of_service() {
            observer.run().cool_downs.add(model, reason, time);
        } else if let Some(gateway) = self.gateway_of(spec, model) {
            gateway.cool_down(&spec.model_or_fallback(model).name, reason, time);
        }
    }

    fn gateway_of(&self, spec: &RunSpec, model: Option<usize>) -> Option<Gateway> {
        let (profile, _) = self.models.split_model(configured_name(spec, model)).ok()?;
        self.models.get(profile)
    }
}

fn fallback_event(spec: &RunSpec, from: Option<usize>, to: usize, failed: FailedCall) -> ModelEvent {
    let prices = spec.model_or_fallback(from).prices;
    ModelEvent::Fallback {
        from: from.map_or(&spec.model.name, |index| &spec.fallbacks.entries[index].name).clone(),
        to: spec.fallbacks.entries[to].name.clone(),
        reason: failed.reason.as_str().to_owned(),
        error: failed.error.map(|error| spec.redactor.redact_error(error)),
        usage: failed.usage,
        cost: failed.usage.and_then(|usage| Some(prices?.cost(&usage))),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn errors_of_the_request_have_no_fallback() {
        let error = |code, retryable: bool, status: Option<u16>| ErrorInfo {
            retryable,
            details: status.map_or(serde_json::Value::Null, |status| json!({"status": status})),
            ..ErrorInfo::new(code, "x")
        };
        for (error, expected) in [
            (error(ErrorCode::ProviderRateLimited, true, Some(429)), Some(FallbackReason::RateLimited)),
            (error(ErrorCode::ProviderError, true, Some(529)), Some(FallbackReason::Overloaded)),
            (error(ErrorCode::ProviderError, true, Some(503)), Some(FallbackReason::Overloaded)),
            (error(ErrorCode::ProviderError, true, Some(500)), Some(FallbackReason::Down)),
            (error(ErrorCode::ProviderError, true, None), Some(FallbackReason::Down)),
            (error(ErrorCode::ProviderTimeout, true, None), Some(FallbackReason::Down)),
            (error(ErrorCode::PromptTooLong, false, Some(400)), Some(FallbackReason::ContextTooLong)),
            (error(ErrorCode::ProviderError, false, Some(400)), None),
            (error(ErrorCode::ProviderAuthFailed, false, Some(401)), None),
            (error(ErrorCode::BudgetExceeded, false, None), None),
            (error(ErrorCode::Cancelled, false, None), None),
        ] {
            assert_eq!(reason(&error), expected, "{error:?}");
        }
    }
}
