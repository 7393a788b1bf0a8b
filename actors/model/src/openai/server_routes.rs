//! Asks a server about a model that it runs.
//!
//! Only llama.cpp, Ollama and LM Studio have routes for that, in addition to the list of models of
//! the API of OpenAI. Each is recognized by its own route; any other server states at most a
//! window, in its list.
//!
//! Elsewhere: when a server is asked, and where the facts are stored
//! (`actors/src/model_facts.rs`).

use std::time::Duration;

use reqwest::{Response, Url};
use serde_json::{Value, json};
use soong_protocol::{ModelConfig, Provider};
use soong_text::Environment;
use tokio::time::Instant;

use super::ChatCompletions;
use crate::{
    ModelError,
    server_facts::{ServerFacts, ServerProgram},
    service::{
        Api,
        headers::{Headers, read_key},
        http::{BaseUrl, HttpClient},
    },
};

/// Maximum time that a server may take for a route.
const ROUTE_TIMEOUT: Duration = Duration::from_millis(300);
/// Maximum size of an answer, in bytes.
const MAX_ANSWER_BYTES: usize = 4 * 1024 * 1024;

/// The answers of the routes that only some servers have. `Null`: no route, or no answer in time.
#[derive(Debug, Default)]
struct ServerRoutes {
    /// `/props` of llama.cpp.
    props: Value,
    /// `/api/ps` of Ollama: the models that are loaded.
    running: Value,
    /// `/api/v0/models` of LM Studio.
    lm_studio_models: Value,
}

impl ServerRoutes {
    /// Requests the routes at the same time. A route that is not answered within [`ROUTE_TIMEOUT`]
    /// is not known.
    async fn ask(base_url: &BaseUrl, http: &HttpClient) -> Self {
        let deadline = Instant::now() + ROUTE_TIMEOUT;
        let ask = async |path: &str| match base_url.root_endpoint(path) {
            Some(url) => until(deadline, get_json(http, &url))
                .await
                .unwrap_or_default(),
            None => Value::Null,
        };
        let (props, running, lm_studio_models) =
            futures::join!(ask("/props"), ask("/api/ps"), ask("/api/v0/models"));
        Self {
            props,
            running,
            lm_studio_models,
        }
    }

    /// Returns the context window with which the server runs a model.
    fn context_window(&self, model: &str) -> Option<u64> {
        let of_llama_cpp = self.props["default_generation_settings"]["n_ctx"].as_u64();
        let of_ollama =
            || entry(&self.running["models"], "model", model)?["context_length"].as_u64();
        let of_lm_studio = || {
            entry(&self.lm_studio_models["data"], "id", model)?["loaded_context_length"].as_u64()
        };
        of_llama_cpp
            .or_else(of_ollama)
            .or_else(of_lm_studio)
            .filter(|window| *window > 0)
    }

    fn program(&self) -> Option<ServerProgram> {
        if self.props["default_generation_settings"].is_object() {
            Some(ServerProgram::LlamaCpp)
        } else if self.running["models"].is_array() {
            Some(ServerProgram::Ollama)
        } else if self.has_lm_studio_entries() {
            Some(ServerProgram::LmStudio)
        } else {
            None
        }
    }

    /// Returns whether the entries of the list are those of LM Studio. Some servers answer any path
    /// with their list of models.
    fn has_lm_studio_entries(&self) -> bool {
        let entries = self.lm_studio_models["data"]
            .as_array()
            .map(Vec::as_slice)
            .unwrap_or_default();
        entries
            .iter()
            .any(|entry| entry["max_context_length"].is_u64())
    }

    fn slots(&self) -> Option<usize> {
        self.props["total_slots"]
            .as_u64()
            .and_then(|slots| usize::try_from(slots).ok())
    }

    fn takes_tools(&self, model: &str) -> Option<bool> {
        let of_lm_studio = || {
            let abilities =
                entry(&self.lm_studio_models["data"], "id", model)?["capabilities"].as_array()?;
            Some(abilities.iter().any(|ability| ability == "tool_use"))
        };
        self.props["chat_template_caps"]["supports_tools"]
            .as_bool()
            .or_else(of_lm_studio)
    }
}

/// Returns the entry of a model in a list. Ollama adds `:latest` to a name without a tag.
fn entry<'a>(list: &'a Value, name: &str, model: &str) -> Option<&'a Value> {
    let with_tag = format!("{model}:latest");
    list.as_array()?
        .iter()
        .find(|entry| entry[name] == model || entry[name] == *with_tag)
}

/// Returns the address of the server of a profile that is asked about its models, without user,
/// password and query. `None` if the service is the vendor's own, or has no usable address.
/// `is_known`: the model is in the table of models; then only a server of this network is asked,
/// because it may run the model with a smaller window.
pub fn server_address(
    config: &ModelConfig,
    environment: &Environment,
    is_known: bool,
) -> Option<String> {
    let base_url = base_url(config, environment)?;
    let is_asked = !base_url.is_vendor() && (base_url.is_local_network() || !is_known);
    is_asked.then(|| base_url.address().to_owned())
}

fn base_url(config: &ModelConfig, environment: &Environment) -> Option<BaseUrl> {
    let provider = config.provider();
    let lists_models = matches!(
        provider,
        Provider::Openai | Provider::OpenaiResponses | Provider::Anthropic
    );
    if !lists_models {
        return None;
    }
    // Users copy the address of an endpoint from manuals.
    let endpoint = match provider {
        Provider::Anthropic => "/v1/messages",
        Provider::OpenaiResponses => "/responses",
        _ => ChatCompletions::ENDPOINT,
    };
    BaseUrl::parse(config, provider, endpoint, environment).ok()
}

/// Creates a client for the routes of a server, with the key and the headers of its profile.
/// `timeout` applies to the connection and to each read.
///
/// # Errors
/// A key or header that cannot be sent; a variable of `header_env` that is not set.
pub(super) fn http_client(
    config: &ModelConfig,
    environment: &Environment,
    base_url: &BaseUrl,
    timeout: Duration,
) -> Result<HttpClient, ModelError> {
    let key = read_key(config, environment)?.unwrap_or("none");
    let mut headers = ChatCompletions::headers(key, base_url);
    Headers::of(config, environment)?.apply(&mut headers);
    HttpClient::new(base_url, headers, timeout)
}

/// Asks the server of a profile about one of its models. Takes at most 300 ms; what the server has
/// not answered by then is not known. A server in another network is asked only for its list of
/// models.
pub async fn server_facts(
    config: &ModelConfig,
    environment: &Environment,
    model: &str,
) -> ServerFacts {
    stated_facts(config, environment, model)
        .await
        .unwrap_or_default()
}

async fn stated_facts(
    config: &ModelConfig,
    environment: &Environment,
    model: &str,
) -> Option<ServerFacts> {
    let deadline = Instant::now() + ROUTE_TIMEOUT;
    let base_url = base_url(config, environment).filter(|base_url| !base_url.is_vendor())?;
    let http = http_client(config, environment, &base_url, ROUTE_TIMEOUT).ok()?;
    let has_version = base_url.ends_with_version() || config.provider() != Provider::Anthropic;
    let list_url = base_url
        .endpoint(if has_version { "/models" } else { "/v1/models" })
        .ok()?;
    let list = async {
        until(deadline, get_json(&http, &list_url))
            .await
            .unwrap_or_default()
    };
    if !base_url.is_local_network() {
        let list = list.await;
        return Some(ServerFacts {
            context_window: list_window(&list, model),
            ..ServerFacts::default()
        });
    }
    let (list, routes) = futures::join!(list, ServerRoutes::ask(&base_url, &http));
    let program = routes.program();
    let model_info = match base_url.root_endpoint("/api/show") {
        Some(url) if program == Some(ServerProgram::Ollama) => {
            let question = json!({ "model": model });
            until(deadline, post_json(&http, &url, &question))
                .await
                .unwrap_or_default()
        }
        _ => Value::Null,
    };
    let window = routes
        .context_window(model)
        .or_else(|| ollama_window(&model_info))
        .or_else(|| list_window(&list, model));
    Some(ServerFacts {
        program,
        context_window: window,
        slots: routes.slots(),
        takes_tools: routes
            .takes_tools(model)
            .or_else(|| ollama_tools(&model_info)),
    })
}

/// Returns the context window of a model in a list of models.
fn list_window(list: &Value, model: &str) -> Option<u64> {
    window_of(entry(&list["data"], "id", model)?)
}

/// Returns the context window in an entry of a list of models.
pub(super) fn window_of(entry: &Value) -> Option<u64> {
    let places = [
        &entry["max_model_len"],
        &entry["context_length"],
        &entry["meta"]["n_ctx"],
    ];
    places
        .into_iter()
        .find_map(Value::as_u64)
        .filter(|window| *window > 0)
}

/// Returns the window that the parameters of an Ollama model set: a line such as `num_ctx 8192`.
/// Without it, Ollama chooses a window when it loads the model.
fn ollama_window(model_info: &Value) -> Option<u64> {
    let mut lines = model_info["parameters"].as_str()?.lines();
    let value = lines.find_map(|line| line.trim().strip_prefix("num_ctx"))?;
    value.trim().parse().ok()
}

fn ollama_tools(model_info: &Value) -> Option<bool> {
    Some(
        model_info["capabilities"]
            .as_array()?
            .iter()
            .any(|ability| ability == "tools"),
    )
}

/// Waits for an answer until the deadline.
async fn until<T>(deadline: Instant, answer: impl Future<Output = Option<T>>) -> Option<T> {
    tokio::time::timeout_at(deadline, answer).await.ok()?
}

async fn get_json(http: &HttpClient, url: &Url) -> Option<Value> {
    json_of(http.get(url).await.ok()?).await
}

async fn post_json(http: &HttpClient, url: &Url, body: &Value) -> Option<Value> {
    json_of(http.post(url, body.to_string()).await.ok()?).await
}

/// Reads a response as JSON. Returns `None` if it is an error or no JSON.
async fn json_of(response: Response) -> Option<Value> {
    let response = Some(response).filter(|response| response.status().is_success())?;
    serde_json::from_slice(&body(response).await?).ok()
}

/// Reads a response. Returns `None` if it breaks off or is too long.
pub(super) async fn body(mut response: Response) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    while let Some(bytes) = response.chunk().await.ok()? {
        body.extend_from_slice(&bytes);
        if body.len() > MAX_ANSWER_BYTES {
            return None;
        }
    }
    Some(body)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::service::testing::scripted::{Reply, ScriptedServer};

    /// Starts a server with these routes.
    fn serve(routes: Vec<(&'static str, &'static str)>) -> ScriptedServer {
        ScriptedServer::start_with_routes(move |request| {
            let route = routes.iter().find(|(path, _)| *path == request.path);
            route.map_or_else(
                || Reply::status(404, "none"),
                |(_, body)| Reply::status(200, *body),
            )
        })
    }

    #[tokio::test]
    async fn facts_are_read_from_the_routes_of_each_server() {
        let list = r#"{"data":[{"id":"m","meta":{"n_ctx":4096}}]}"#;
        let facts = |program, context_window, slots, takes_tools| ServerFacts {
            program,
            context_window,
            slots,
            takes_tools,
        };
        let props = r#"{"default_generation_settings":{"n_ctx":8192},"total_slots":2,
            "chat_template_caps":{"supports_tools":false}}"#;
        for (server, routes, expected, concurrency) in [
            (
                "llama.cpp",
                vec![("/v1/models", list), ("/props", props)],
                facts(
                    Some(ServerProgram::LlamaCpp),
                    Some(8_192),
                    Some(2),
                    Some(false),
                ),
                Some(2),
            ),
            (
                "Ollama, loaded",
                vec![
                    (
                        "/api/ps",
                        r#"{"models":[{"model":"x"},{"model":"m:latest","context_length":16384}]}"#,
                    ),
                    (
                        "/api/show",
                        r#"{"parameters":"stop \"x\"\nnum_ctx    2048","capabilities":["tools"]}"#,
                    ),
                ],
                facts(Some(ServerProgram::Ollama), Some(16_384), None, Some(true)),
                Some(2),
            ),
            (
                "Ollama, not loaded",
                vec![
                    ("/api/ps", r#"{"models":[]}"#),
                    (
                        "/api/show",
                        r#"{"parameters":"num_ctx    2048","capabilities":["completion"]}"#,
                    ),
                ],
                facts(Some(ServerProgram::Ollama), Some(2_048), None, Some(false)),
                Some(2),
            ),
            (
                "LM Studio",
                vec![(
                    "/api/v0/models",
                    r#"{"data":[{"id":"m","max_context_length":4096,"loaded_context_length":2048,"capabilities":["tool_use"]}]}"#,
                )],
                facts(Some(ServerProgram::LmStudio), Some(2_048), None, Some(true)),
                Some(2),
            ),
            (
                "vLLM",
                vec![(
                    "/v1/models",
                    r#"{"data":[{"id":"m","max_model_len":32768}]}"#,
                )],
                facts(None, Some(32_768), None, None),
                None,
            ),
            ("another one", vec![], ServerFacts::default(), None),
            (
                "one that answers any path",
                vec![
                    ("/v1/models", r#"{"data":[{"id":"m"}]}"#),
                    ("/props", r#"{"data":[{"id":"m"}]}"#),
                    ("/api/ps", r#"{"data":[{"id":"m"}]}"#),
                    ("/api/v0/models", r#"{"data":[{"id":"m"}]}"#),
                ],
                ServerFacts::default(),
                None,
            ),
        ] {
            let running = serve(routes);
            for provider in [
                Provider::Openai,
                Provider::OpenaiResponses,
                Provider::Anthropic,
            ] {
                let mut base_url = running.base_url();
                if provider == Provider::Anthropic {
                    base_url = base_url.trim_end_matches("/v1").to_owned();
                }
                let config = ModelConfig {
                    base_url: Some(base_url),
                    provider: Some(provider),
                    ..ModelConfig::default()
                };
                let found = server_facts(&config, &Environment::default(), "m").await;
                assert_eq!(found, expected, "{server}, {provider:?}");
                assert_eq!(found.default_concurrency(), concurrency, "{server}");
            }
        }
    }

    #[tokio::test]
    async fn server_that_does_not_answer_is_asked_for_a_limited_time() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base_url = format!("http://{}/v1", listener.local_addr().unwrap());
        let config = ModelConfig {
            base_url: Some(base_url),
            ..ModelConfig::default()
        };
        let environment = Environment::default();
        let facts = server_facts(&config, &environment, "m");
        let limit = ROUTE_TIMEOUT * 20;
        assert_eq!(
            tokio::time::timeout(limit, facts).await,
            Ok(ServerFacts::default())
        );
    }

    #[test]
    fn servers_of_this_network_and_unknown_models_are_asked_about() {
        for (base_url, is_known, expected) in [
            (None, false, None),
            (Some("https://api.openai.com/v1/"), false, None),
            (Some("no address"), false, None),
            (
                Some("http://u:pw@nas:1/v1?key=x"),
                true,
                Some("http://nas:1/v1"),
            ),
            (Some("http://[::1]:8080"), true, Some("http://[::1]:8080")),
            (Some("https://gateway.example/v1"), true, None),
            (
                Some("https://gateway.example/v1"),
                false,
                Some("https://gateway.example/v1"),
            ),
        ] {
            let config = ModelConfig {
                base_url: base_url.map(str::to_owned),
                ..ModelConfig::default()
            };
            let address = server_address(&config, &Environment::default(), is_known);
            assert_eq!(address.as_deref(), expected, "{base_url:?}");
        }
        let gemini = ModelConfig {
            provider: Some(Provider::Gemini),
            ..ModelConfig::default()
        };
        assert_eq!(
            server_address(&gemini, &Environment::default(), false),
            None
        );
    }
}
