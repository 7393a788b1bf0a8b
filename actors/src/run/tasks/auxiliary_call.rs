//! Model calls besides the turns of a run: summaries, and the classification of tasks for recall.
//! They have no tools and are not part of the conversation.

use std::{sync::Arc, time::Duration};

use soong_model::{Completion, ModelRequest};
use soong_protocol::{ErrorInfo, FallbackReason, Message, Role};

use crate::{
    budget::{Reservation, ReserveRequest},
    clock::now,
    gateway::CallLimits,
    run::{
        machine::{
            auxiliary_call::AuxiliaryAnswer,
            spec::{AuxiliaryModel, RunSpec},
        },
        tasks::{
            fallback::{Candidates, FailedCall, is_of_run},
            model_call::{CallObserver, ModelCaller},
        },
    },
};

/// A request to an auxiliary model.
struct AuxiliaryRequest {
    system: Arc<str>,
    messages: Vec<Arc<Message>>,
    prompt_tokens: u64,
}

impl ModelCaller {
    /// Sends a system prompt and messages to an auxiliary model. If it cannot answer, its fallbacks
    /// are asked in turn.
    pub(crate) async fn call_auxiliary(
        &self,
        spec: &RunSpec,
        auxiliary: &AuxiliaryModel,
        system: String,
        messages: Vec<(Role, String)>,
        observer: &mut CallObserver,
    ) -> Result<AuxiliaryAnswer, ErrorInfo> {
        let count = |text: &str| spec.model.counter.count_text(text);
        let prompt_tokens =
            count(&system) + messages.iter().map(|(_, text)| count(text)).sum::<u64>();
        let messages = (1..).zip(messages).map(|(sequence, (role, text))| {
            Arc::new(Message::new(
                spec.identity.trace_id.clone(),
                sequence,
                None,
                role,
                text,
                now(),
            ))
        });
        let request = AuxiliaryRequest {
            system: system.into(),
            messages: messages.collect(),
            prompt_tokens,
        };
        let candidates = Candidates {
            models: &self.models,
            first: &auxiliary.name,
            fallbacks: &auxiliary.fallbacks,
            prompt_tokens,
            of_run: None,
        };
        let mut current = candidates
            .cooling(None)
            .and_then(|reason| candidates.next(None, reason));
        let mut error_of_first = None;
        loop {
            let reasons = candidates.reasons_with_next(current);
            let outcome = self
                .ask(spec, auxiliary, &request, current, &reasons, observer)
                .await;
            let next = FailedCall::of(&outcome, current.is_some())
                .and_then(|failed| Some((candidates.next(current, failed.reason)?, failed)));
            let Some((next, failed)) = next else {
                let fallback = current.and_then(|index| auxiliary.fallbacks.entries.get(index));
                let prices = fallback.map_or(auxiliary.prices, |fallback| fallback.model.prices);
                return match outcome {
                    Ok(completion) => {
                        let discarded = observer.meter.take_discarded();
                        Ok(AuxiliaryAnswer {
                            completion,
                            prompt_tokens,
                            prices,
                            discarded,
                        })
                    }
                    // `used_by_failure` charges the usage of discarded attempts together with the
                    // error.
                    Err(error) => Err(error_of_first
                        .filter(|_| !is_of_run(&error))
                        .unwrap_or(error)),
                };
            };
            candidates.cool_down(current, failed.reason);
            observer.meter.discard();
            error_of_first = error_of_first.or(failed.error);
            observer
                .reservation
                .take()
                .into_iter()
                .for_each(Reservation::settle);
            current = Some(next);
        }
    }

    /// Sends the request to the auxiliary model, or to the fallback of this index. `reasons`: the
    /// failures for which there is another fallback.
    async fn ask(
        &self,
        spec: &RunSpec,
        auxiliary: &AuxiliaryModel,
        request: &AuxiliaryRequest,
        fallback: Option<usize>,
        reasons: &[FallbackReason],
        observer: &mut CallObserver,
    ) -> Result<Completion, ErrorInfo> {
        let fallback = fallback.and_then(|index| auxiliary.fallbacks.entries.get(index));
        let (name, max_output_tokens, prices) = match fallback {
            Some(fallback) => (
                &fallback.name,
                fallback.model.reserved_output_tokens,
                fallback.model.prices,
            ),
            None => (
                &auxiliary.name,
                auxiliary.reserved_output_tokens,
                auxiliary.prices,
            ),
        };
        let (gateway, model) = self.models.open(name).await?;
        let prompt_tokens = request.prompt_tokens;
        let reserve = ReserveRequest {
            prompt_tokens,
            max_output_tokens,
            prices,
            is_long_cached: false,
        };
        let granted = observer.reserve(reserve).await?;
        let request = ModelRequest {
            system: vec![Arc::clone(&request.system)],
            messages: request.messages.clone(),
            tools: Arc::from([]),
            model: model.map(str::to_owned),
            max_output_tokens: granted,
            exchanges: self.exchange_log(),
            ..ModelRequest::default()
        };
        let limits = CallLimits {
            session: &spec.identity.session_id,
            estimated_tokens: prompt_tokens.saturating_add(granted.unwrap_or(max_output_tokens)),
            max_service_wait: if reasons.is_empty() {
                Duration::MAX
            } else {
                auxiliary.fallbacks.after
            },
            fallback_reasons: reasons,
        };
        let result = gateway.complete(limits, &request, observer).await;
        observer.waited_ms += result.waited_ms;
        if let Some(debug_artifacts) = &self.debug_artifacts {
            let purpose = "besides the turns";
            Box::pin(debug_artifacts.store_model_call(
                &spec.identity,
                purpose,
                name,
                &request,
                &result.outcome,
            ))
            .await;
        }
        result.outcome
    }
}
