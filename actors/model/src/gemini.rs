//! Google's Gemini API.
//!
//! Parts: `request` writes the body (with the `contents` of messages, and the `thinking` that the
//! model supports), `answer` reads the events.

mod answer;
mod contents;
mod request;
mod thinking;

#[cfg(test)]
mod tests;

use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderName};
use serde::Serialize;
use soong_protocol::{InputKind, Provider};

use self::{answer::GeminiAnswer, request::RequestBody};
use crate::{
    limits::AnswerLimits,
    reasoning::ReasoningSupport,
    service::{Adaptation, Api, Call, failure::ErrorBody, headers::key_value, http::BaseUrl},
};

/// Part of the host names of Vertex AI, which takes bearer tokens instead of keys.
const VERTEX: &str = "aiplatform";

/// Google's Gemini API.
pub(crate) struct Gemini;

impl Api for Gemini {
    const PROVIDER: Provider = Provider::Gemini;
    const ENDPOINT: &'static str = ":streamGenerateContent";
    const INPUTS: &'static [InputKind] = &[
        InputKind::Text,
        InputKind::Image,
        InputKind::Pdf,
        InputKind::Audio,
    ];
    type Answer = GeminiAnswer;

    fn headers(key: &str, base: &BaseUrl) -> HeaderMap {
        let mut headers = HeaderMap::new();
        let is_vertex = base.host().contains(VERTEX);
        if !is_vertex && let Some(value) = key_value(key) {
            headers.insert(HeaderName::from_static("x-goog-api-key"), value);
        }
        // Services behind another address read either header.
        if !base.is_vendor()
            && let Some(value) = key_value(&format!("Bearer {key}"))
        {
            headers.insert(AUTHORIZATION, value);
        }
        headers
    }

    fn path(base: &BaseUrl, model: &str) -> String {
        // The address of Vertex AI ends with the publisher of the model.
        let version = if base.ends_with_version() || base.host().contains(VERTEX) {
            ""
        } else {
            "/v1beta"
        };
        let folder = if model.starts_with("models/") || model.starts_with("tunedModels/") {
            ""
        } else {
            "models/"
        };
        format!("{version}/{folder}{model}{}?alt=sse", Self::ENDPOINT)
    }

    fn body(call: Call<'_>) -> impl Serialize {
        RequestBody(call)
    }

    fn next_adaptation(call: &Call<'_>, error: &ErrorBody) -> Option<Adaptation> {
        let now = call.adaptation;
        if !now.no_provider_data && error.mentions(&["thought signature", "thought_signature"]) {
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
            && error.mentions(&["thinking"])
        {
            Some(Adaptation {
                no_reasoning: true,
                ..now
            })
        } else if !now.no_call_ids && error.mentions(&["name \"id\" at"]) {
            Some(Adaptation {
                no_call_ids: true,
                ..now
            })
        } else {
            call.without_rejected_schema(error)
        }
    }

    fn reasoning(model: &str) -> ReasoningSupport {
        thinking::support(model)
    }

    fn answer(limits: AnswerLimits) -> GeminiAnswer {
        GeminiAnswer::new(limits)
    }
}
