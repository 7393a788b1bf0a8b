//! HTTP services of models, whatever their API.
//!
//! [`Service`] makes one attempt per call and always streams. An [`Api`] writes the requests and
//! reads the answers; all else is shared: `http` sends a request with the `headers` of the profile,
//! `answer` reads the response (`events`), `failure` builds the errors (`prompt_length` recognizes
//! those about a prompt that is too long), `names` renames tools.
//!
//! Architecture invariant: a service does not retry failures. A request is only repeated if the
//! model rejects one of its parts, without that part.
//!
//! Elsewhere: waiting, limits and backoff (`actors/src/gateway.rs`, `retry.rs`).

pub(crate) mod answer;
pub(crate) mod cache_breakpoint;
pub(crate) mod calls;
pub(crate) mod conversation;
pub(crate) mod draft;
pub(crate) mod events;
pub(crate) mod failure;
pub(crate) mod headers;
pub(crate) mod http;
pub(crate) mod lenient;
pub(crate) mod names;
pub(crate) mod parts;
mod prompt_length;
mod result_order;
pub(crate) mod surrogates;
#[cfg(test)]
pub(crate) mod testing;
mod think_tags;

use std::{
    collections::HashMap,
    marker::PhantomData,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures::future::BoxFuture;
use reqwest::{Url, header::HeaderMap};
use serde::Serialize;
use serde_json::{Map, Value};
use soong_protocol::{
    Delta, Effort, InputKind, Message, ModelConfig, ModelSource, Provider, ProviderData,
    ProviderItem, Role, Timestamp, TraceId,
};
use soong_text::{Environment, Redactor};

use self::{
    answer::AnswerFormat,
    failure::{ErrorBody, ServiceInfo},
    headers::Headers,
    http::{BaseUrl, HttpClient, RecordedResponse, error_body},
    names::ToolNames,
    result_order::in_call_order,
    think_tags::{ThinkTagSink, move_reasoning},
};
use super::{
    AnswerProgress, Completion, DeltaSink, Failure, Model, ModelCatalog, ModelError, ModelRequest,
    limits::AnswerLimits,
    params::{REASONING_EFFORT, ReasoningParams},
    reasoning::ReasoningSupport,
};

/// Maximum number of adaptations in one call: one per part that can be rejected.
pub(crate) const MAX_ADAPTATIONS: usize = 8;
/// Finish reason of an answer that the service paused, to be continued by another request.
const PAUSED: &str = "pause_turn";
/// Maximum number of continuations of an answer.
const MAX_CONTINUATIONS: usize = 8;

/// An API of model services: how its requests are written and its answers are read.
pub(crate) trait Api: Send + Sync + 'static {
    /// The provider of profiles that use this API.
    const PROVIDER: Provider;
    /// Whether a model that rejects data of earlier answers is assumed to reject it always.
    const LEARNS_REJECTED_DATA: bool = false;
    /// Parameters that the API rejects, and the header with which a profile selects a version that
    /// accepts them.
    const REJECTED_PARAMS: (&'static [&'static str], &'static str) = (&[], "");
    /// End of the URL of requests. A base URL may end with it, because users copy it from manuals.
    const ENDPOINT: &'static str;
    /// Which services take the key of a cache.
    const CACHE_KEY: CacheKeySupport = CacheKeySupport::None;
    /// Kinds of content that messages may have.
    const INPUTS: &'static [InputKind];
    /// An answer in progress.
    type Answer: AnswerFormat + Send;

    /// Returns the headers of each request. `key` can be sent in a header; `none` if there is no
    /// key.
    fn headers(key: &str, base: &BaseUrl) -> HeaderMap;

    /// Returns the path that is appended to the base URL, and its query parameters.
    fn path(base: &BaseUrl, model: &str) -> String;

    /// Returns the body of a request.
    fn body(call: Call<'_>) -> impl Serialize;

    /// Returns the adaptation for another request after the service rejected a part of this one.
    /// `None` if it failed for another reason.
    fn next_adaptation(call: &Call<'_>, error: &ErrorBody) -> Option<Adaptation>;

    /// Returns what a model accepts about its reasoning.
    fn reasoning(model: &str) -> ReasoningSupport;

    /// Creates an answer without content.
    fn answer(limits: AnswerLimits) -> Self::Answer;
}

/// Which services with an API take the key of a cache.
#[derive(Debug, Clone, Copy)]
pub(crate) enum CacheKeySupport {
    None,
    /// Other services may reject parameters that they do not know.
    VendorOnly,
    All,
}

/// Parts of requests that a model rejects or expects under another name.
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is rejected independently of the others"
)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Adaptation {
    /// The output limit is called `max_completion_tokens`.
    pub(crate) uses_max_completion_tokens: bool,
    /// `temperature` is omitted.
    pub(crate) no_temperature: bool,
    /// `stream_options` is omitted, so no usage is reported.
    pub(crate) no_stream_options: bool,
    /// Data of earlier answers is omitted.
    pub(crate) no_provider_data: bool,
    /// Settings of the reasoning that nobody configured are omitted.
    pub(crate) no_reasoning: bool,
    /// No summary of the reasoning is requested.
    pub(crate) no_summary: bool,
    /// The request has no cache key, options and breakpoints.
    pub(crate) no_cache_control: bool,
    /// The schema of the answer is omitted; the run checks the answer in any case.
    pub(crate) no_output_schema: bool,
    /// Calls and results have no ids.
    pub(crate) no_call_ids: bool,
}

/// Everything that a request is made of. Borrows all of it.
#[derive(Clone, Copy)]
pub(crate) struct Call<'a> {
    pub(crate) model: &'a str,
    /// `None`: as many as the service allows.
    pub(crate) max_output_tokens: Option<u64>,
    pub(crate) temperature: Option<f64>,
    pub(crate) effort: Option<Effort>,
    pub(crate) reasoning_budget_tokens: Option<u64>,
    pub(crate) request: &'a ModelRequest,
    /// Parameters of the profile. Those of the request override them.
    pub(crate) params: &'a Map<String, Value>,
    pub(crate) names: &'a ToolNames,
    /// Parameters that the API rejects, and those that the model rejects. They are not sent.
    pub(crate) rejected_params: RejectedParams,
    /// The service, without a model.
    pub(crate) source: &'a ModelSource,
    pub(crate) adaptation: Adaptation,
    /// Key of the cache, if the service takes one.
    pub(crate) cache_key: Option<&'a str>,
}

/// Fields that each API sets itself, and that parameters cannot set.
const OWN_FIELDS: [&str; 13] = [
    "model",
    "messages",
    "input",
    "contents",
    "system",
    "systemInstruction",
    "tools",
    "stream",
    "store",
    "max_tokens",
    "max_completion_tokens",
    "max_output_tokens",
    "maxOutputTokens",
];

impl<'a> Call<'a> {
    /// Returns whether a level or a number of tokens is configured for the reasoning.
    pub(crate) fn has_reasoning_settings(&self) -> bool {
        self.effort.is_some() || self.reasoning_budget_tokens.is_some()
    }

    /// Returns whether a parameter sets a field, which the request then does not set itself.
    pub(crate) fn is_param(&self, name: &str) -> bool {
        self.params.contains_key(name) || self.request.params.contains_key(name)
    }

    /// Returns the adaptation that says nothing about the cache, if the service rejects that.
    pub(crate) fn without_rejected_cache_control(&self, error: &ErrorBody) -> Option<Adaptation> {
        let is_rejected = !self.adaptation.no_cache_control && error.mentions(&["prompt_cache"]);
        is_rejected.then_some(Adaptation {
            no_cache_control: true,
            ..self.adaptation
        })
    }

    /// Returns the schema of the answer, if the service accepts it.
    pub(crate) fn output_schema(&self) -> Option<&'a Value> {
        self.request
            .output_schema
            .as_deref()
            .filter(|_| !self.adaptation.no_output_schema)
    }

    /// Returns the adaptation without the schema of the answer, if the service rejects that.
    pub(crate) fn without_rejected_schema(&self, error: &ErrorBody) -> Option<Adaptation> {
        const NAMES: [&str; 5] = [
            "schema",
            "response_format",
            "output_config.format",
            "text.format",
            "mime type",
        ];
        let is_rejected = self.output_schema().is_some() && error.mentions(&NAMES);
        is_rejected.then_some(Adaptation {
            no_output_schema: true,
            ..self.adaptation
        })
    }

    /// Returns the parameters of the profile and the request.
    pub(crate) fn all_params(&self) -> impl Iterator<Item = (&'a String, &'a Value)> + use<'a> {
        let of_profile = self.params;
        let of_request = &self.request.params;
        let rejected = self.rejected_params;
        let all = of_profile
            .iter()
            .filter(|(name, _)| !of_request.contains_key(*name))
            .chain(of_request);
        all.filter(move |(name, _)| {
            !rejected.contains(name) && !OWN_FIELDS.contains(&name.as_str())
        })
    }
}

/// Parameters that are not sent, because the API or the model rejects them.
#[derive(Clone, Copy)]
pub(crate) struct RejectedParams {
    by_api: &'static [&'static str],
    by_model: &'static [String],
}

impl RejectedParams {
    fn contains(self, name: &str) -> bool {
        self.by_api.contains(&name) || self.by_model.iter().any(|rejected| rejected == name)
    }
}

/// A model service with one API.
pub(crate) struct Service<A> {
    name: String,
    max_output_tokens: Option<u64>,
    temperature: Option<f64>,
    effort: Option<Effort>,
    reasoning_budget_tokens: Option<u64>,
    /// Whether text between `<think>` and `</think>` at the beginning of an answer is reasoning.
    think_tags: bool,
    /// Parameters that the API rejects. They are not sent.
    rejected_by_api: &'static [&'static str],
    /// Parameters of the profile, without those that have a field here.
    params: Map<String, Value>,
    limits: AnswerLimits,
    /// The service, without a model.
    source: ModelSource,
    base_url: BaseUrl,
    http: HttpClient,
    info: ServiceInfo,
    /// Adaptations by model name: one service may serve different kinds of models.
    adaptations: Mutex<HashMap<String, Adaptation>>,
    api: PhantomData<fn() -> A>,
}

/// Receives an answer that arrives in several parts, as one.
struct AnswerParts<'a> {
    sink: &'a mut dyn DeltaSink,
    /// Progress of the parts that are complete.
    earlier: AnswerProgress,
}

impl DeltaSink for AnswerParts<'_> {
    fn push(&mut self, delta: Delta) {
        self.sink.push(delta);
    }

    fn progress(&mut self, progress: AnswerProgress) {
        let usage = match (self.earlier.usage, progress.usage) {
            (Some(earlier), Some(usage)) => Some(earlier.plus(usage)),
            (earlier, usage) => earlier.or(usage),
        };
        let argument_bytes = self.earlier.argument_bytes + progress.argument_bytes;
        self.sink.progress(AnswerProgress {
            argument_bytes,
            usage,
            is_complete: progress.is_complete,
        });
    }
}

impl<A: Api> Service<A> {
    /// Creates the service of a profile. Does not connect. The key, the base URL if the profile has
    /// none, and the values of `header_env` come from the environment.
    ///
    /// # Errors
    /// An address, key or header that cannot be sent; a variable of `header_env` that is not set.
    pub(crate) fn new(config: &ModelConfig, environment: &Environment) -> Result<Self, ModelError> {
        let base_url = BaseUrl::parse(config, A::PROVIDER, A::ENDPOINT, environment)?;
        let key = headers::read_key(config, environment)?;
        let headers = Headers::of(config, environment)?;
        let mut request_headers = A::headers(key.unwrap_or("none"), &base_url);
        headers.apply(&mut request_headers);
        let timeout = Duration::from_millis(config.timeout_ms);
        let first_byte_timeout = match config.first_byte_timeout_ms {
            Some(ms) => Duration::from_millis(ms),
            None if base_url.is_local_network() => {
                timeout.saturating_mul(ModelConfig::LOCAL_FIRST_BYTE_TIMEOUTS)
            }
            None => timeout,
        };
        let mut params = config.params.clone();
        let (rejected, version_header) = A::REJECTED_PARAMS;
        let has_version = headers.contains(version_header);
        let rejected_by_api = if has_version { &[][..] } else { rejected };
        let effort = ReasoningParams::of_profile(config).effort;
        if effort.is_some() {
            params.remove(REASONING_EFFORT);
        }
        let own_temperature = params
            .remove("temperature")
            .and_then(|value| value.as_f64());
        Ok(Self {
            name: config.model_name().to_owned(),
            max_output_tokens: config.max_output_tokens,
            temperature: config.temperature.or(own_temperature),
            effort,
            think_tags: config.think_tags,
            rejected_by_api,
            reasoning_budget_tokens: config.reasoning_budget_tokens,
            params,
            limits: AnswerLimits::of(config),
            source: ModelSource {
                dialect: A::PROVIDER.as_str().to_owned(),
                base_url: base_url.address().to_owned(),
                api_key_env: config.api_key_env().to_owned(),
                model: String::new(),
            },
            info: ServiceInfo {
                host: base_url.host(),
                is_local: base_url.is_loopback(),
                has_key: key.is_some() || headers.carries_key(),
                redactor: Redactor::from_keys(key.into_iter().chain(headers.secrets())),
                key_env: config.api_key_env().to_owned(),
                timeout,
                first_byte_timeout,
            },
            http: HttpClient::new(&base_url, request_headers, timeout.max(first_byte_timeout))?,
            base_url,
            adaptations: Mutex::default(),
            api: PhantomData,
        })
    }

    /// Completes a request. An answer that the service paused is continued.
    async fn attempt(
        &self,
        request: &ModelRequest,
        deltas: &mut dyn DeltaSink,
    ) -> Result<Completion, ModelError> {
        let mut request = in_call_order(request);
        let mut parts = AnswerParts {
            sink: deltas,
            earlier: AnswerProgress::default(),
        };
        let mut completion = self.one_answer(&request, &mut parts).await?;
        let mut continuations = 0;
        // It precedes the answer that is continued.
        let context = request.context_update.as_deref().map(str::to_owned);
        while completion.finish_reason == PAUSED && continuations < MAX_CONTINUATIONS {
            request.to_mut().context_update = None;
            let messages = &mut request.to_mut().messages;
            if continuations > 0 {
                messages.pop(); // the shorter answer
            }
            let mut message = answer_message(&completion);
            message.context_update = context.clone();
            messages.push(Arc::new(message));
            continuations += 1;
            parts.earlier = AnswerProgress {
                argument_bytes: completion.argument_bytes(),
                usage: completion.usage,
                is_complete: false,
            };
            let rest = self.one_answer(&request, &mut parts).await?;
            completion.append(rest);
        }
        Ok(completion)
    }

    async fn one_answer(
        &self,
        request: &ModelRequest,
        deltas: &mut dyn DeltaSink,
    ) -> Result<Completion, ModelError> {
        let model = request.model.as_deref().unwrap_or(&self.name);
        let endpoint = self.endpoint(model)?;
        let known = self.adaptation(model);
        let names = ToolNames::of(request);
        let entry = ModelCatalog::built_in().find(model);
        let rejected_params = RejectedParams {
            by_api: self.rejected_by_api,
            by_model: entry.map_or(&[][..], |entry| &entry.rejected_params[..]),
        };
        let mut call = Call {
            model,
            max_output_tokens: [request.max_output_tokens, self.max_output_tokens]
                .into_iter()
                .flatten()
                .min(),
            temperature: request
                .temperature
                .or(self.temperature)
                .filter(|_| !rejected_params.contains("temperature")),
            rejected_params,
            effort: request.effort.or_else(|| {
                self.effort
                    .filter(|_| request.reasoning_budget_tokens.is_none())
            }),
            reasoning_budget_tokens: request.reasoning_budget_tokens.or_else(|| {
                self.reasoning_budget_tokens
                    .filter(|_| request.effort.is_none())
            }),
            request,
            params: &self.params,
            names: &names,
            source: &self.source,
            adaptation: known,
            cache_key: request
                .cache
                .key
                .as_deref()
                .filter(|_| self.takes_cache_key()),
        };
        let mut changes = 0;
        loop {
            let body = json(&A::body(call))?;
            let response = self
                .http
                .send(&endpoint, body, &self.info, request.exchanges.as_deref())
                .await?;
            if response.status().is_success() {
                self.learn(&call, known);
                let (mut completion, items) = self.read_answer(response, deltas).await?;
                names.restore(&mut completion.tool_calls);
                completion.provider_data_rejected =
                    call.adaptation.no_provider_data && !known.no_provider_data;
                if !items.is_empty() {
                    let source = ModelSource {
                        model: model.to_owned(),
                        ..self.source.clone()
                    };
                    completion.provider_data = Some(Box::new(ProviderData { source, items }));
                }
                if self.think_tags {
                    move_reasoning(&mut completion);
                }
                return Ok(completion);
            }
            let status = response.status().as_u16();
            let headers = response.headers().clone();
            let error = ErrorBody::read(&error_body(response).await);
            let is_rejected = matches!(status, 400 | 422)
                && !error.is_about_length()
                && changes < MAX_ADAPTATIONS;
            match A::next_adaptation(&call, &error).filter(|_| is_rejected) {
                Some(adaptation) => call.adaptation = adaptation,
                None => return Err(self.info.status_error(status, &headers, &error)),
            }
            changes += 1;
        }
    }

    /// Reads an answer to its end. Also returns its parts for the service.
    async fn read_answer(
        &self,
        response: RecordedResponse<'_>,
        deltas: &mut dyn DeltaSink,
    ) -> Result<(Completion, Vec<ProviderItem>), ModelError> {
        let answer = A::answer(self.limits);
        if !self.think_tags {
            return answer::read(response, &self.info, self.limits, answer, deltas).await;
        }
        let mut sink = ThinkTagSink::new(deltas);
        let outcome = answer::read(response, &self.info, self.limits, answer, &mut sink).await;
        sink.finish();
        outcome
    }

    /// Returns the URL of requests to a model.
    pub(crate) fn endpoint(&self, model: &str) -> Result<Url, ModelError> {
        self.base_url.endpoint(&A::path(&self.base_url, model))
    }

    fn takes_cache_key(&self) -> bool {
        match A::CACHE_KEY {
            CacheKeySupport::None => false,
            CacheKeySupport::VendorOnly => self.base_url.is_vendor(),
            CacheKeySupport::All => true,
        }
    }

    fn adaptation(&self, model: &str) -> Adaptation {
        // The map stays valid even if another thread panicked while holding the lock.
        let adaptations = self
            .adaptations
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        adaptations.get(model).copied().unwrap_or_default()
    }

    /// Remembers the adaptation of a call that succeeded.
    fn learn(&self, call: &Call<'_>, known: Adaptation) {
        // Without calls, a service may reject data that it requires with calls.
        let has_calls = call
            .request
            .messages
            .iter()
            .any(|message| !message.tool_calls.is_empty());
        let no_provider_data = A::LEARNS_REJECTED_DATA
            && call.adaptation.no_provider_data
            && (has_calls || known.no_provider_data);
        // Another schema may be accepted.
        let learned = Adaptation {
            no_provider_data,
            no_output_schema: known.no_output_schema,
            ..call.adaptation
        };
        if learned != known {
            let model = call.model;
            tracing::warn!(model, adaptation = ?learned, "the model rejects a parameter; later requests are adapted");
            self.adaptations
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .insert(model.to_owned(), learned);
        }
    }
}

/// Returns an answer as a message of the conversation.
fn answer_message(completion: &Completion) -> Message {
    let text = completion.text.as_str();
    Message {
        reasoning: completion.reasoning.clone(),
        tool_calls: completion.tool_calls.clone(),
        provider_data: completion.provider_data.clone(),
        ..Message::new(
            TraceId::new(""),
            0,
            None,
            Role::Assistant,
            text,
            Timestamp::default(),
        )
    }
}

fn json(body: &impl Serialize) -> Result<Vec<u8>, ModelError> {
    serde_json::to_vec(body).map_err(|error| {
        ModelError::new(
            Failure::Rejected,
            format!("could not serialize the request: {error}"),
        )
    })
}

impl<A: Api> Model for Service<A> {
    fn name(&self) -> &str {
        &self.name
    }

    fn inputs(&self) -> &[InputKind] {
        A::INPUTS
    }

    fn reasoning(&self, model: &str) -> ReasoningSupport {
        A::reasoning(model)
    }

    fn complete<'a>(
        &'a self,
        request: &'a ModelRequest,
        deltas: &'a mut dyn DeltaSink,
    ) -> BoxFuture<'a, Result<Completion, ModelError>> {
        Box::pin(self.attempt(request, deltas))
    }
}
