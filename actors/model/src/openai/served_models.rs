//! The models that a server offers, according to its list of models, and the context window with which it runs one.

use std::time::Duration;

use reqwest::Response;
use serde_json::Value;
use soong_protocol::{ModelConfig, Provider};
use soong_text::Environment;

use super::ChatCompletions;
use crate::{
    Failure, ModelError,
    service::{
        Api,
        headers::read_key,
        http::{BaseUrl, HttpClient},
    },
};

/// Maximum size of a list, in bytes.
const MAX_LIST_BYTES: usize = 4 * 1024 * 1024;
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

/// Maximum time that a server may take for the response, and for the body, of a route that states a window.
const ROUTE_TIMEOUT: Duration = Duration::from_millis(300);

/// A model that a server offers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServedModel {
    /// Name of the model.
    pub name: String,
    /// Context window in tokens with which the server runs the model, if it states one.
    pub context_window: Option<u64>,
}

/// Asks the server of a profile for its list of models (`GET BASE_URL/models`, of the API of OpenAI). Models for
/// other purposes, such as embeddings, speech and images, are left out. If the list lacks the context window of a model,
/// the routes of llama.cpp, Ollama and LM Studio that state it are requested too.
///
/// The key is sent as for chat completions. `timeout` applies to the connection and to each read.
///
/// # Errors
/// An address or key that cannot be sent; a server that cannot be reached, or whose answer is no list.
pub async fn served_models(
    config: &ModelConfig,
    environment: &Environment,
    timeout: Duration,
) -> Result<Vec<ServedModel>, ModelError> {
    let base_url = BaseUrl::parse(config, Provider::Openai, ChatCompletions::ENDPOINT, environment)?;
    let key = read_key(config, environment)?.unwrap_or("none");
    let http = HttpClient::new(&base_url, ChatCompletions::headers(key, &base_url), timeout)?;
    let host = base_url.host();
    let unreachable = |_| ModelError::new(Failure::Unavailable, format!("{host} cannot be reached"));
    let response = http.get(&base_url.endpoint("/models")?).await.map_err(unreachable)?;
    let no_list = || ModelError::new(Failure::Rejected, format!("{host} does not list its models"));
    if !response.status().is_success() {
        return Err(no_list());
    }
    let mut models = parse(&body(response).await.ok_or_else(no_list)?).ok_or_else(no_list)?;
    if models.iter().any(|model| model.context_window.is_none()) {
        add_windows(&mut models, &base_url, &http).await;
    }
    Ok(models)
}

/// Adds the context windows that the server states outside of its list: llama.cpp (`/props`), Ollama (`/api/ps`, for the
/// models that are loaded) and LM Studio (`/api/v0/models`). The routes are requested at the same time.
async fn add_windows(models: &mut [ServedModel], base_url: &BaseUrl, http: &HttpClient) {
    let ask = async |path: &str| {
        let url = base_url.root_endpoint(path)?;
        let response = tokio::time::timeout(ROUTE_TIMEOUT, http.get(&url)).await.ok()?.ok()?;
        tokio::time::timeout(ROUTE_TIMEOUT, json(response)).await.ok()?
    };
    let (props, running, loaded) = futures::join!(ask("/props"), ask("/api/ps"), ask("/api/v0/models"));
    let of_llama_cpp = props.and_then(|props| props["default_generation_settings"]["n_ctx"].as_u64());
    let running = running.unwrap_or_default();
    let loaded = loaded.unwrap_or_default();
    for model in models.iter_mut().filter(|model| model.context_window.is_none()) {
        let stated = |list: &Value, name: &str, window: &str| {
            list.as_array()?.iter().find(|entry| entry[name] == *model.name)?[window].as_u64()
        };
        let of_ollama = stated(&running["models"], "model", "context_length");
        let of_lm_studio = stated(&loaded["data"], "id", "loaded_context_length");
        model.context_window = of_llama_cpp.or(of_ollama).or(of_lm_studio).filter(|window| *window > 0);
    }
}

/// Reads a response as JSON. Returns `None` if it is an error or no JSON.
async fn json(response: Response) -> Option<Value> {
    let response = Some(response).filter(|response| response.status().is_success())?;
    serde_json::from_slice(&body(response).await?).ok()
}

/// Returns the context window in an entry of a list of models.
fn window_of(entry: &Value) -> Option<u64> {
    let places = [&entry["max_model_len"], &entry["context_length"], &entry["meta"]["n_ctx"]];
    places.into_iter().find_map(Value::as_u64).filter(|window| *window > 0)
}

/// Reads a response. Returns `None` if it breaks off or is too long.
async fn body(mut response: Response) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    while let Some(bytes) = response.chunk().await.ok()? {
        body.extend_from_slice(&bytes);
        if body.len() > MAX_LIST_BYTES {
            return None;
        }
    }
    Some(body)
}

/// Returns the models of a list that can be named in a configuration.
fn parse(body: &[u8]) -> Option<Vec<ServedModel>> {
    let list: Value = serde_json::from_slice(body).ok()?;
    let usable = list["data"].as_array()?.iter().filter_map(|model| {
        let name = model["id"].as_str().filter(|name| is_usable(name))?;
        Some(ServedModel { name: name.to_owned(), context_window: window_of(model) })
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
    use crate::service::testing::scripted::{Reply, ScriptedServer};

    #[test]
    fn lists_of_servers_are_parsed() {
        let model = |name: &str, context_window| ServedModel { name: name.to_owned(), context_window };
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
            (r#"{"data":[{"id":"x","meta":{"n_ctx":4096,"n_ctx_train":8192}}]}"#, Some(vec![model("x", Some(4_096))])),
            (
                r#"{"models":[{"name":"x"}],"object":"list","data":[{"id":"/m/x.gguf","meta":{"n_ctx_train":8192}}]}"#,
                Some(vec![model("/m/x.gguf", None)]),
            ),
            (r#"{"data":[{"id":"a\u001b[2J"},{"id":"two words"},{"id":""}]}"#, Some(vec![])),
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

    #[tokio::test]
    async fn window_is_read_from_the_routes_of_each_server() {
        let list = r#"{"data":[{"id":"m"}]}"#;
        for (server, answers, window) in [
            ("vLLM", vec![("/v1/models", r#"{"data":[{"id":"m","max_model_len":4096}]}"#)], Some(4_096)),
            (
                "llama.cpp",
                vec![("/v1/models", list), ("/props", r#"{"default_generation_settings":{"n_ctx":8192}}"#)],
                Some(8_192),
            ),
            (
                "Ollama",
                vec![
                    ("/v1/models", list),
                    ("/api/ps", r#"{"models":[{"model":"x"},{"model":"m","context_length":16384}]}"#),
                ],
                Some(16_384),
            ),
            (
                "LM Studio",
                vec![("/v1/models", list), ("/api/v0/models", r#"{"data":[{"id":"m","loaded_context_length":2048}]}"#)],
                Some(2_048),
            ),
            ("another one", vec![("/v1/models", list)], None),
        ] {
            let running = ScriptedServer::start(move |asked| {
                let answer = answers.iter().find(|(path, _)| *path == asked.path);
                answer.map_or_else(|| Reply::status(404, "none"), |(_, body)| Reply::status(200, *body))
            });
            let config = ModelConfig { base_url: Some(running.base_url()), ..ModelConfig::default() };
            let models = served_models(&config, &Environment::default(), Duration::from_secs(5)).await.unwrap();
            assert_eq!(models, [ServedModel { name: "m".to_owned(), context_window: window }], "{server}");
        }
    }
}
