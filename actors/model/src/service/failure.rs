//! Errors of failed calls: turns status, headers and error body into a [`ModelError`].
//!
//! Pure. Messages are one line, contain advice, and never contain the key.
//!
//! Elsewhere: whether and when a call is retried (`retry.rs`, the gateway).

use std::{
    io::ErrorKind,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use chrono::DateTime;
use reqwest::header::{HeaderMap, LOCATION, RETRY_AFTER};
use serde_json::Value;
use soong_text::Redactor;

use super::prompt_length::{is_about_prompt_length, stated_window};
use crate::{Failure, ModelError};

/// Maximum length of an error message, in characters.
const MAX_MESSAGE_CHARS: usize = 500;
/// Maximum length of the service's own message within it, in characters, so that the advice is
/// never cut off.
const MAX_SERVICE_MESSAGE_CHARS: usize = 280;

/// Texts of errors about a model that does not exist.
const NO_MODEL: [&str; 4] = ["not exist", "not found", "unknown model", "invalid model"];

/// Description of the service, for error messages.
pub(crate) struct ServiceInfo {
    /// Host and port.
    pub(crate) host: String,
    /// Whether the service runs on this machine.
    pub(crate) is_local: bool,
    /// Whether a key is sent.
    pub(crate) has_key: bool,
    /// Removes the key from messages.
    pub(crate) redactor: Redactor,
    /// Name of the environment variable that holds the key.
    pub(crate) key_env: String,
    /// Maximum time without a byte from the service.
    pub(crate) timeout: Duration,
    /// Maximum time until the first byte of an answer.
    pub(crate) first_byte_timeout: Duration,
}

/// Contents of an error body.
#[derive(Debug, Default)]
pub(crate) struct ErrorBody {
    message: String,
    /// `code`, `type`, `param` and `status`, in lower case.
    codes: String,
    /// The `code`, if it is an HTTP status.
    status: Option<u16>,
    /// Delay that the body asks for, in milliseconds.
    retry_after_ms: Option<u64>,
    /// Context window in tokens that an error about the length of the prompt states.
    context_window: Option<u64>,
}

impl ErrorBody {
    /// Parses a body if it is an error: `{"error":…}`, or, without choices, `{"object":"error",…}`,
    /// `{"detail":…}` or `{"message":…,"code":…}`, or a list that starts with one of them.
    pub(crate) fn parse(json: &[u8]) -> Option<Self> {
        let value = serde_json::from_slice::<Value>(json).ok()?;
        let value = value.get(0).unwrap_or(&value);
        let has = |name: &str| value.get(name).is_some_and(|field| !field.is_null());
        let is_error = has("error")
            || (!has("choices")
                && (value["object"] == "error"
                    || has("detail")
                    || (has("message") && has("code"))));
        is_error.then(|| Self::read(json))
    }

    /// Parses any error body: of OpenAI, FastAPI, Ollama, a gateway, or an HTML page.
    pub(crate) fn read(body: &[u8]) -> Self {
        let mut error = Self::read_words(body);
        if error.is_about_length() {
            error.context_window =
                stated_window(&String::from_utf8_lossy(body).to_ascii_lowercase());
        }
        error
    }

    fn read_words(body: &[u8]) -> Self {
        let text = || Self {
            message: String::from_utf8_lossy(body).into_owned(),
            ..Self::default()
        };
        let Ok(mut value) = serde_json::from_slice::<Value>(body) else {
            return text();
        };
        if let Some(first) = value.get_mut(0) {
            value = first.take(); // Gemini wraps its errors in a list
        }
        let error = match value.get("error") {
            Some(error) if !error.is_null() => error,
            _ => &value,
        };
        let word = |name: &str| match &error[name] {
            Value::String(text) => text.clone(),
            Value::Number(number) => number.to_string(),
            _ => String::new(),
        };
        let mut message = match (error, &error["message"], &value["detail"]) {
            (Value::String(message), ..) | (_, Value::String(message), _) => message.clone(),
            (_, _, Value::String(detail)) => detail.clone(),
            (_, _, Value::Null) => {
                return Self {
                    message: value.to_string(),
                    ..Self::default()
                };
            }
            (_, _, detail) => detail.to_string(),
        };
        // OpenRouter forwards the message of its upstream provider.
        if let Some(raw) = error["metadata"]["raw"].as_str() {
            message = format!("{message}: {raw}");
        }
        let status = word("code")
            .parse()
            .ok()
            .filter(|status| (300..600).contains(status));
        let words = [word("code"), word("type"), word("param"), word("status")]
            .join(" ")
            .to_ascii_lowercase();
        let delays = error["details"]
            .as_array()
            .map(Vec::as_slice)
            .unwrap_or_default();
        // Google's services send the delay as text, such as `3.7s`.
        let delay = delays.iter().find_map(|detail| {
            detail["retryDelay"]
                .as_str()?
                .strip_suffix('s')?
                .parse()
                .ok()
        });
        let retry_after_ms = delay
            .filter(|seconds: &f64| *seconds >= 0.0)
            .map(|seconds| (seconds * 1000.0).ceil() as u64);
        Self {
            message,
            codes: words,
            status,
            retry_after_ms,
            context_window: None,
        }
    }

    /// Returns the HTTP status that matches an error that arrived without one.
    fn implied_status(&self) -> u16 {
        let says = |words: &[&str]| words.iter().any(|word| self.codes.contains(word));
        match self.status {
            Some(status) => status,
            None if says(&[
                "rate_limit",
                "too_many_requests",
                "resource_exhausted",
                "quota",
            ]) =>
            {
                429
            }
            None if says(&["auth", "api_key", "permission"]) => 401,
            None if says(&["not_found"]) => 404,
            None if says(&["timeout", "deadline"]) => 408,
            None if says(&["overloaded"]) => 529,
            None if says(&["billing"]) => 402,
            None if says(&["policy", "image"]) => 400,
            None if says(&["context_length", "request_too_large"]) => 413,
            None if says(&["invalid", "bad_request", "unsupported"]) => 400,
            None => 502,
        }
    }

    pub(crate) fn is_about_length(&self) -> bool {
        is_about_prompt_length(&self.message.to_ascii_lowercase(), &self.codes)
    }

    /// Returns whether the account has used up its credit or its spending limit. Waiting does not
    /// help.
    fn is_about_credit(&self) -> bool {
        const CODES: [&str; 4] = [
            "insufficient_quota",
            "credit_balance",
            "spend_limit",
            "usage_limit_exceeded",
        ];
        CODES.iter().any(|code| self.codes.contains(code))
    }

    /// Returns whether the error is about an image or a file of the request. A request without
    /// files gets none.
    fn is_about_file(&self) -> bool {
        const WORDS: [&str; 11] = [
            "image",
            "pdf",
            "document",
            "audio",
            "file",
            "media",
            "attachment",
            "base64",
            "mime",
            "decode",
            "inline_data",
        ];
        self.mentions(&WORDS)
    }

    /// Returns whether a server says that it is still loading the model: llama.cpp, Ollama, LM
    /// Studio, TGI.
    fn is_about_loading(&self) -> bool {
        self.mentions(&[
            "loading model",
            "model is loading",
            "is currently loading",
            "model is being loaded",
        ])
    }

    /// Returns the error of a response with this status and body, with the details that the body
    /// states.
    fn with_details(&self, error: ModelError, status: u16) -> ModelError {
        let is_about_file = matches!(status, 400 | 415 | 422) && self.is_about_file();
        let context_window = self
            .context_window
            .filter(|_| error.failure == Failure::PromptTooLong);
        let is_loading = status == 503 && self.is_about_loading();
        ModelError {
            status: Some(status),
            context_window,
            is_about_file,
            is_loading,
            ..error
        }
    }

    fn is_about_tools(&self) -> bool {
        let message = self.message.to_ascii_lowercase();
        const PATTERNS: [&str; 5] = [
            "not support tool",
            "support tool use",
            "not support function call",
            "tools is not supported",
            "requires --jinja", // llama.cpp without its templates
        ];
        PATTERNS.iter().any(|pattern| message.contains(pattern))
    }

    /// Returns whether the message or the codes contain one of these texts, which are in lower
    /// case.
    pub(crate) fn mentions(&self, texts: &[&str]) -> bool {
        let text = format!("{} {}", self.message.to_ascii_lowercase(), self.codes);
        texts.iter().any(|part| text.contains(part))
    }

    /// Returns whether a parameter itself was rejected, not only its value.
    pub(crate) fn rejects_parameter(&self, parameter: &str) -> bool {
        const WORDS: [&str; 11] = [
            "unsupported",
            "not support", // "does not support", "not supported"
            "unrecognized",
            "unknown",
            "unexpected",
            "not permitted",
            "not allowed",
            "no longer",
            "extra fields",
            "deprecated",
            "only the default",
        ];
        self.mentions(&[parameter]) && self.mentions(&WORDS)
    }

    fn failure(&self, status: u16, retry_after_ms: Option<u64>) -> Failure {
        match status {
            401 | 403 => Failure::Unauthorized,
            402 => Failure::Rejected,
            408 => Failure::Timeout,
            409 | 425 | 429 if self.is_about_credit() => Failure::Rejected,
            409 | 425 | 429 => Failure::RateLimited { retry_after_ms },
            413 => Failure::PromptTooLong,
            _ if self.is_about_length() => Failure::PromptTooLong,
            _ if self.is_about_tools() => Failure::Unsupported,
            500.. => Failure::Unavailable,
            _ => Failure::Rejected,
        }
    }
}

impl ServiceInfo {
    /// Returns the error for a response whose status is not a success.
    pub(crate) fn status_error(
        &self,
        status: u16,
        headers: &HeaderMap,
        error_body: &ErrorBody,
    ) -> ModelError {
        let retry_after_ms =
            retry_after_ms(headers, SystemTime::now()).or(error_body.retry_after_ms);
        let failure = error_body.failure(status, retry_after_ms);
        let what = format!("{} answered with HTTP {status}", self.host);
        let mut advice = match headers.get(LOCATION).and_then(|value| value.to_str().ok()) {
            Some(target) if (300..400).contains(&status) => {
                format!(
                    "; set `model.base_url` to the redirect target: {}",
                    clip(target, 80)
                )
            }
            _ => self.advice(failure, status, error_body),
        };
        if let Some(ms) = retry_after_ms {
            advice.push_str(&format!("; it requests a delay of {} s", ms.div_ceil(1000)));
            if u128::from(ms) > self.timeout.as_millis() {
                advice.push_str(", longer than the call timeout (`model.timeout_ms`)");
            }
        }
        let error = self.error(failure, &what, &error_body.message, &advice);
        error_body.with_details(error, status)
    }

    /// Returns the error that a service reported inside a stream.
    pub(crate) fn stream_error(&self, error_body: &ErrorBody) -> ModelError {
        let status = error_body.implied_status();
        let failure = error_body.failure(status, error_body.retry_after_ms);
        let what = format!("{} reported an error instead of an answer", self.host);
        let error = self.error(
            failure,
            &what,
            &error_body.message,
            &self.advice(failure, status, error_body),
        );
        error_body.with_details(error, status)
    }

    /// Returns the error for a failed connection.
    pub(crate) fn transport_error(&self, error: &reqwest::Error) -> ModelError {
        let cause = root_cause(error);
        if error.is_connect() {
            let what = format!("could not connect to {}", self.host);
            return self.error(
                Failure::Unavailable,
                &what,
                &cause,
                self.connect_advice(error),
            );
        }
        if error.is_timeout() {
            return self.silence_error(false);
        }
        if error.is_builder() {
            return self.error(
                Failure::Rejected,
                "could not build the request",
                &cause,
                "; check `model.base_url`",
            );
        }
        if error.is_request() {
            let what = format!("{} closed the connection before it answered", self.host);
            return self.error(Failure::Unavailable, &what, &cause, "");
        }
        self.error(
            Failure::InvalidResponse,
            &format!("the answer of {} was cut off", self.host),
            &cause,
            "",
        )
    }

    /// Returns the error for a service that has been silent for too long. `has_begun`: after the
    /// first byte of its answer.
    pub(crate) fn silence_error(&self, has_begun: bool) -> ModelError {
        let limit = if has_begun {
            self.timeout
        } else {
            self.first_byte_timeout
        };
        let setting = if has_begun {
            "model.timeout_ms"
        } else {
            "model.first_byte_timeout_ms"
        };
        let what = format!("{} sent no data for {} ms", self.host, limit.as_millis());
        let advice = format!("; raise `{setting}` if the model needs longer");
        self.error(Failure::Timeout, &what, "", &advice)
    }

    /// Returns the error for a response that cannot be parsed. `body` is what arrived instead.
    pub(crate) fn invalid_response(&self, what: &str, body: &[u8]) -> ModelError {
        let what = format!("the answer of {} {what}", self.host);
        let is_page = body.trim_ascii_start().starts_with(b"<");
        let advice = if is_page {
            "; check `model.base_url`: it returned a web page"
        } else {
            ""
        };
        self.error(
            Failure::InvalidResponse,
            &what,
            &String::from_utf8_lossy(body),
            advice,
        )
    }

    /// Returns advice about a connection that could not be made, by its cause.
    fn connect_advice(&self, error: &reqwest::Error) -> &'static str {
        let causes: Vec<&(dyn std::error::Error + 'static)> =
            std::iter::successors(Some(error as &(dyn std::error::Error + 'static)), |error| {
                error.source()
            })
            .collect();
        let is = |kind: ErrorKind| {
            causes.iter().any(|cause| {
                cause
                    .downcast_ref::<std::io::Error>()
                    .is_some_and(|error| error.kind() == kind)
            })
        };
        let says = |word: &str| causes.iter().any(|cause| cause.to_string().contains(word));
        if is(ErrorKind::ConnectionRefused) {
            return if self.is_local {
                "; is the server running there? (Ollama: `ollama serve`)"
            } else {
                "; connection refused: check that the service is running"
            };
        }
        match () {
            () if says("dns error") => "; check `model.base_url` and the network",
            () if says("certificate") => {
                "; check `model.base_url`, and the certificates that this machine trusts"
            }
            () if says("corrupt message") => {
                "; check `model.base_url`: the server may speak http, not https"
            }
            () => "; check the network",
        }
    }

    /// Returns what to do about an error. It names the setting to change.
    fn advice(&self, failure: Failure, status: u16, error_body: &ErrorBody) -> String {
        let env = &self.key_env;
        match (failure, status) {
            (Failure::Unauthorized, _) if !self.has_key => {
                format!(
                    "; no key was sent: set the environment variable {env} (`model.api_key_env`)"
                )
            }
            (Failure::Unauthorized, _) => {
                format!(
                    "; check the key in the environment variable {env} (`model.api_key_env`) and its permissions"
                )
            }
            (Failure::Rejected, 400 | 404)
                if error_body.mentions(&["use /v1/responses", "responses api"]) =>
            {
                "; set `model.provider` to \"openai-responses\"".to_owned()
            }
            (Failure::Rejected, 404 | 405) => {
                "; check `model.name`, `model.base_url` and `model.provider`".to_owned()
            }
            (Failure::Rejected, 400 | 422)
                if error_body.mentions(&[
                    "effort",
                    "thinking.type",
                    "thinking level",
                    "thinking budget",
                ]) =>
            {
                "; check `model.effort`".to_owned()
            }
            (Failure::Rejected, 400 | 422)
                if error_body.mentions(&["model"]) && error_body.mentions(&NO_MODEL) =>
            {
                "; check `model.name`".to_owned()
            }
            (Failure::Rejected, 402 | 429) => {
                "; the account has no credit left: top it up or use another key".to_owned()
            }
            (Failure::PromptTooLong, _) => {
                "; send less, or use a model with a larger context window".to_owned()
            }
            (Failure::Unsupported, _) if error_body.mentions(&["--jinja"]) => {
                "; start the server of llama.cpp with `--jinja`".to_owned()
            }
            (Failure::Unsupported, _) => "; use a model that supports tools".to_owned(),
            _ => String::new(),
        }
    }

    fn error(&self, failure: Failure, what: &str, error_body: &str, advice: &str) -> ModelError {
        // Redact before clipping: half a key would not be recognized.
        let error_body = clip(&self.redactor.text(error_body), MAX_SERVICE_MESSAGE_CHARS);
        let colon = if error_body.is_empty() { "" } else { ": " };
        let message = format!("{what}{colon}{error_body}{advice}");
        ModelError::new(
            failure,
            clip(&self.redactor.text(&message), MAX_MESSAGE_CHARS),
        )
    }
}

/// Returns the delay that `Retry-After` or `retry-after-ms` asks for, in milliseconds.
pub(crate) fn retry_after_ms(headers: &HeaderMap, now: SystemTime) -> Option<u64> {
    let text = |name: &str| {
        headers
            .get(name)
            .and_then(|value| value.to_str().ok())
            .map(str::trim)
    };
    let number = |text: &str| {
        text.parse::<f64>()
            .ok()
            .filter(|number| number.is_finite() && *number >= 0.0)
    };
    if let Some(ms) = text("retry-after-ms").and_then(number) {
        return Some(ms.ceil() as u64);
    }
    let after = text(RETRY_AFTER.as_str())?;
    if let Some(seconds) = number(after) {
        return Some((seconds * 1000.0).ceil() as u64);
    }
    let then_ms = DateTime::parse_from_rfc2822(after).ok()?.timestamp_millis();
    let now_ms = i64::try_from(now.duration_since(UNIX_EPOCH).ok()?.as_millis()).ok()?;
    Some(u64::try_from(then_ms.saturating_sub(now_ms)).unwrap_or(0))
}

/// Returns the innermost cause of an error; the outer ones repeat the URL.
fn root_cause(error: &reqwest::Error) -> String {
    let mut cause = std::error::Error::source(error);
    while let Some(below) = cause.and_then(std::error::Error::source) {
        cause = Some(below);
    }
    cause.map(ToString::to_string).unwrap_or_default()
}

/// Returns the text on one line without control characters, at most `max_chars` long.
fn clip(text: &str, max_chars: usize) -> String {
    let mut line = String::new();
    let mut length = 0;
    for word in text
        .split(|c: char| c.is_whitespace() || c.is_control())
        .filter(|word| !word.is_empty())
    {
        let space = usize::from(!line.is_empty());
        if space == 1 {
            line.push(' ');
        }
        for c in word.chars() {
            if length + space + 1 >= max_chars {
                line.push('…');
                return line;
            }
            line.push(c);
            length += 1;
        }
        length += space;
    }
    line
}
