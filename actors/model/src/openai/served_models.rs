//! The models that a server offers, according to its list of models.

use std::time::Duration;

use serde_json::Value;
use soong_protocol::{ModelConfig, Provider};
use soong_text::Environment;

use super::{
    ChatCompletions,
    server_routes::{body, http_client, window_of},
};
use crate::{
    Failure, ModelError,
    service::{Api, http::BaseUrl},
};

/// Parts of the names of models that do not answer messages.
const OTHER_KINDS: [&str; 12] = [
    "embed",
    "rerank",
    "moderation",
    "whisper",
    "transcribe",
    "tts",
    "realtime",
    "dall-e",
    "image",
    "sora",
    "babbage",
    "davinci",
];

/// A model that a server offers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServedModel {
    /// Name of the model.
    pub name: String,
    /// Context window in tokens with which the server runs the model, if the list states it.
    pub context_window: Option<u64>,
}

/// Asks the server of a profile for its list of models (`GET BASE_URL/models`, of the API of
/// OpenAI). Models for other purposes, such as embeddings, speech and images, are left out.
///
/// The key is sent as for chat completions. `timeout` applies to the connection and to each read.
///
/// # Errors
/// An address or key that cannot be sent; a server that cannot be reached, or whose answer is no
/// list.
pub async fn served_models(
    config: &ModelConfig,
    environment: &Environment,
    timeout: Duration,
) -> Result<Vec<ServedModel>, ModelError> {
    let base_url = BaseUrl::parse(
        config,
        Provider::Openai,
        ChatCompletions::ENDPOINT,
        environment,
    )?;
    let http = http_client(config, environment, &base_url, timeout)?;
    let host = base_url.host();
    let unreachable =
        |_| ModelError::new(Failure::Unavailable, format!("{host} cannot be reached"));
    let response = http
        .get(&base_url.endpoint("/models")?)
        .await
        .map_err(unreachable)?;
    let no_list = || {
        ModelError::new(
            Failure::Rejected,
            format!("{host} does not list its models"),
        )
    };
    if !response.status().is_success() {
        return Err(no_list());
    }
    let models = parse(&body(response).await.ok_or_else(no_list)?).ok_or_else(no_list)?;
    Ok(models)
}

/// Returns the models of a list that can be named in a configuration.
fn parse(body: &[u8]) -> Option<Vec<ServedModel>> {
    let list: Value = serde_json::from_slice(body).ok()?;
    let usable = list["data"].as_array()?.iter().filter_map(|model| {
        let name = model["id"].as_str().filter(|name| is_usable(name))?;
        Some(ServedModel {
            name: name.to_owned(),
            context_window: window_of(model),
        })
    });
    Some(usable.collect())
}

fn is_usable(name: &str) -> bool {
    let lower = name.to_ascii_lowercase();
    !name.is_empty()
        && !name.contains(|c: char| c.is_control() || c.is_whitespace())
        && !OTHER_KINDS.iter().any(|kind| lower.contains(kind))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_servers_are_parsed() {
        let model = |name: &str, context_window| ServedModel {
            name: name.to_owned(),
            context_window,
        };
        for (body, want) in [
            // Ollama
            (
                r#"{"object":"list","data":[{"id":"qwen3:8b","object":"model","created":1,"owned_by":"library"},
                    {"id":"nomic-embed-text:latest","object":"model"}]}"#,
                Some(vec![model("qwen3:8b", None)]),
            ),
            // vLLM
            (
                r#"{"object":"list","data":[{"id":"meta/llama","max_model_len":32768,"root":"meta/llama"}]}"#,
                Some(vec![model("meta/llama", Some(32_768))]),
            ),
            // llama.cpp
            (
                r#"{"data":[{"id":"x","meta":{"n_ctx":4096,"n_ctx_train":8192}}]}"#,
                Some(vec![model("x", Some(4_096))]),
            ),
            (
                r#"{"models":[{"name":"x"}],"object":"list","data":[{"id":"/m/x.gguf","meta":{"n_ctx_train":8192}}]}"#,
                Some(vec![model("/m/x.gguf", None)]),
            ),
            (
                r#"{"data":[{"id":"a\u001b[2J"},{"id":"two words"},{"id":""}]}"#,
                Some(vec![]),
            ),
            (
                r#"{"data":[{"id":"b","max_model_len":8,"context_length":9},{"name":"no id"},{"id":"c","context_length":1.5}]}"#,
                Some(vec![model("b", Some(8)), model("c", None)]),
            ),
            (r#"{"detail":"Not Found"}"#, None),
            ("<html></html>", None),
        ] {
            assert_eq!(parse(body.as_bytes()), want, "{body}");
        }
    }
}
