//! Chat completions, the API of OpenAI and of many compatible services: OpenRouter, Ollama, vLLM
//! and others.
//!
//! Parts: `request` writes the body (with the `content` of messages, and the data of earlier
//! answers that is `returned`), `assemble` reads the answer (`wire`). `served_models` lists the
//! models of a service, and `server_routes` asks it about one of them.

mod assemble;
mod content;
pub(crate) mod reasoning;
mod reasoning_details;
mod request;
mod returned;
pub(crate) mod served_models;
pub(crate) mod server_routes;
mod wire;

#[cfg(test)]
mod tests;

use async_openai::config::{Config, OpenAIConfig};
use reqwest::header::HeaderMap;
use serde::Serialize;
use soong_protocol::{InputKind, Provider};

use self::{
    assemble::Assembler,
    request::{RequestBody, limit_name},
};
use crate::{
    limits::AnswerLimits,
    reasoning::ReasoningSupport,
    service::{Adaptation, Api, CacheKeySupport, Call, failure::ErrorBody, http::BaseUrl},
};

/// Names of the data that services send with answers and expect back.
const PROVIDER_DATA: [&str; 5] = [
    "reasoning_content",
    "reasoning_details",
    "thought_signature",
    "thought signature",
    "extra_content",
];

/// The API of chat completions.
pub(crate) struct ChatCompletions;

impl Api for ChatCompletions {
    const PROVIDER: Provider = Provider::Openai;
    const LEARNS_REJECTED_DATA: bool = true;
    const ENDPOINT: &'static str = "/chat/completions";
    const CACHE_KEY: CacheKeySupport = CacheKeySupport::VendorOnly;
    const INPUTS: &'static [InputKind] = &[
        InputKind::Text,
        InputKind::Image,
        InputKind::Pdf,
        InputKind::Audio,
    ];
    type Answer = Assembler;

    fn headers(key: &str, _: &BaseUrl) -> HeaderMap {
        // Set every option, so that none is read from environment variables.
        OpenAIConfig::new()
            .with_api_key(key)
            .with_org_id("")
            .with_project_id("")
            .headers()
    }

    fn path(_: &BaseUrl, _: &str) -> String {
        Self::ENDPOINT.to_owned()
    }

    fn body(call: Call<'_>) -> impl Serialize {
        RequestBody(call)
    }

    fn next_adaptation(call: &Call<'_>, error: &ErrorBody) -> Option<Adaptation> {
        let now = call.adaptation;
        if error.rejects_parameter(limit_name(now)) {
            Some(Adaptation {
                uses_max_completion_tokens: !now.uses_max_completion_tokens,
                ..now
            })
        } else if call.temperature.is_some()
            && !now.no_temperature
            && error.rejects_parameter("temperature")
        {
            Some(Adaptation {
                no_temperature: true,
                ..now
            })
        } else if !now.no_provider_data && error.mentions(&PROVIDER_DATA) {
            Some(Adaptation {
                no_provider_data: true,
                ..now
            })
        } else if !now.no_stream_options && error.rejects_parameter("stream_options") {
            Some(Adaptation {
                no_stream_options: true,
                ..now
            })
        } else {
            call.without_rejected_cache_control(error)
                .or_else(|| call.without_rejected_schema(error))
        }
    }

    fn reasoning(model: &str) -> ReasoningSupport {
        reasoning::support(model)
    }

    fn answer(limits: AnswerLimits) -> Assembler {
        Assembler::new(limits)
    }
}
