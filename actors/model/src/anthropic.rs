//! Anthropic's Messages API, and services that are compatible with it.
//!
//! Parts: `request` writes the body (with the `blocks` of messages, and the `thinking` that the
//! model supports), `answer` reads the events.

mod answer;
mod blocks;
mod request;
mod thinking;

#[cfg(test)]
mod tests;

use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use serde::Serialize;
use soong_protocol::{InputKind, Provider};

use self::{answer::MessageAnswer, request::RequestBody};
use crate::{
    limits::AnswerLimits,
    reasoning::ReasoningSupport,
    service::{Adaptation, Api, Call, failure::ErrorBody, headers::key_value, http::BaseUrl},
};

/// Version of the API that requests are made for. A profile can set another one in `headers`.
const VERSION: &str = "2026-10-21";
/// Prefix of OAuth tokens, which are sent as bearer tokens.
const TOKEN_START: &str = "sk-ant-oat";

/// Anthropic's Messages API.
pub(crate) struct Messages;

impl Api for Messages {
    const PROVIDER: Provider = Provider::Anthropic;
    const REJECTED_PARAMS: (&'static [&'static str], &'static str) =
        (&["temperature", "top_p", "top_k"], "anthropic-version");
    const ENDPOINT: &'static str = "/messages";
    const INPUTS: &'static [InputKind] = &[InputKind::Text, InputKind::Image, InputKind::Pdf];
    type Answer = MessageAnswer;

    fn headers(key: &str, base: &BaseUrl) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert("anthropic-version", HeaderValue::from_static(VERSION));
        // Services behind another address read either header; Anthropic rejects a token in
        // `x-api-key`.
        let is_token = key.starts_with(TOKEN_START);
        if !is_token && let Some(value) = key_value(key) {
            headers.insert(HeaderName::from_static("x-api-key"), value);
        }
        if (is_token || !base.is_vendor())
            && let Some(value) = key_value(&format!("Bearer {key}"))
        {
            headers.insert(AUTHORIZATION, value);
        }
        headers
    }

    fn path(base: &BaseUrl, _: &str) -> String {
        if base.ends_with_version() {
            Self::ENDPOINT.to_owned()
        } else {
            format!("/v1{}", Self::ENDPOINT)
        }
    }

    fn body(call: Call<'_>) -> impl Serialize {
        RequestBody(call)
    }

    fn next_adaptation(call: &Call<'_>, error: &ErrorBody) -> Option<Adaptation> {
        let now = call.adaptation;
        if !now.no_provider_data
            && error.mentions(&["`thinking` block", "redacted_thinking", "`signature`"])
        {
            Some(Adaptation {
                no_provider_data: true,
                ..now
            })
        } else if !now.no_reasoning
            && !call.has_reasoning_settings()
            && error.rejects_parameter("thinking")
        {
            Some(Adaptation {
                no_reasoning: true,
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
        } else {
            call.without_rejected_schema(error)
        }
    }

    fn answer(limits: AnswerLimits) -> MessageAnswer {
        MessageAnswer::new(limits)
    }

    fn reasoning(model: &str) -> ReasoningSupport {
        thinking::support(model)
    }
}
