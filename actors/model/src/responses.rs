//! OpenAI's Responses API, without stored state: every request contains the whole conversation.
//!
//! Parts: `request` writes the body (with the `items` of messages), `answer` reads the events.

mod answer;
mod items;
mod request;

#[cfg(test)]
mod tests;

use reqwest::header::HeaderMap;
use serde::Serialize;
use soong_protocol::{InputKind, Provider};

use self::{answer::ResponseAnswer, request::RequestBody};
use crate::{
    limits::AnswerLimits,
    openai::{ChatCompletions, reasoning},
    reasoning::ReasoningSupport,
    service::{Adaptation, Api, CacheKeySupport, Call, failure::ErrorBody, http::BaseUrl},
};

/// Texts of errors about reasoning that an earlier answer contained.
const REASONING_DATA: [&str; 5] = [
    "encrypted_content",
    "encrypted content",
    "of type 'reasoning'",
    "required 'reasoning' item",
    "items are not persisted",
];

/// OpenAI's Responses API.
pub(crate) struct Responses;

impl Api for Responses {
    const PROVIDER: Provider = Provider::OpenaiResponses;
    const ENDPOINT: &'static str = "/responses";
    const CACHE_KEY: CacheKeySupport = CacheKeySupport::All;
    const INPUTS: &'static [InputKind] = &[InputKind::Text, InputKind::Image, InputKind::Pdf];
    type Answer = ResponseAnswer;

    fn headers(key: &str, base: &BaseUrl) -> HeaderMap {
        ChatCompletions::headers(key, base)
    }

    fn path(_: &BaseUrl, _: &str) -> String {
        Self::ENDPOINT.to_owned()
    }

    fn body(call: Call<'_>) -> impl Serialize {
        RequestBody(call)
    }

    fn next_adaptation(call: &Call<'_>, error: &ErrorBody) -> Option<Adaptation> {
        let now = call.adaptation;
        let is_unsupported = error.mentions(&["encrypted content is not supported"]);
        if !now.no_summary && error.mentions(&["reasoning.summary", "reasoning summaries"]) {
            Some(Adaptation {
                no_summary: true,
                ..now
            })
        } else if !now.no_reasoning && (is_unsupported || error.rejects_parameter("include")) {
            Some(Adaptation {
                no_reasoning: true,
                ..now
            })
        } else if !now.no_provider_data && error.mentions(&REASONING_DATA) {
            Some(Adaptation {
                no_provider_data: true,
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
        } else if !now.no_reasoning
            && !call.has_reasoning_settings()
            && error.rejects_parameter("reasoning")
        {
            Some(Adaptation {
                no_reasoning: true,
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

    fn answer(limits: AnswerLimits) -> ResponseAnswer {
        ResponseAnswer::new(limits)
    }
}
