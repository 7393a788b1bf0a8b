//! Tests of what a profile adds to each request: headers, query, parameters.

use std::collections::BTreeMap;

use super::*;

fn table(entries: &[(&str, &str)]) -> BTreeMap<String, String> {
    entries
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect()
}

#[tokio::test]
async fn a_profile_adds_headers_query_and_parameters() {
    let server = ScriptedServer::start(|_| Reply::answer("ok"));
    let params = json!({"seed": 7, "top_p": 0.5, "temperature": 0.25, "stream_options": {"include_usage": false}});
    let config = ModelConfig {
        headers: table(&[("X-Team", "blue")]),
        header_env: table(&[("api-key", "AZURE_KEY")]),
        query: table(&[("api-version", "2026-01-01"), ("b", "2")]),
        params: serde_json::from_value(params).unwrap(),
        ..config(format!("{}?api-version=old&a=1", server.base_url()))
    };
    let environment = Environment::of([("AZURE_KEY", "azure-secret-1"), ("OPENAI_API_KEY", KEY)]);
    let provider = OpenAi::new(&config, &environment).unwrap();
    let mut model_request = request();
    model_request.params.insert("top_p".into(), json!(0.9));
    ask(&provider, &model_request).await.unwrap();
    let sent_request = &server.requests()[0];
    assert_eq!(
        sent_request.path,
        "/v1/chat/completions?a=1&api-version=2026-01-01&b=2"
    );
    assert_eq!(
        (
            sent_request.headers["x-team"].as_str(),
            sent_request.headers["api-key"].as_str()
        ),
        ("blue", "azure-secret-1")
    );
    assert!(
        !sent_request.headers.contains_key("authorization"),
        "the other header carries the key: {sent_request:?}"
    );
    let sent = |name: &str| sent_request.body[name].clone();
    assert_eq!(
        (sent("seed"), sent("top_p"), sent("temperature")),
        (json!(7), json!(0.9), json!(0.25))
    );
    assert_eq!(sent("stream_options"), json!({"include_usage": false}));
}

#[tokio::test]
async fn header_value_from_environment_is_redacted_in_errors() {
    let server = ScriptedServer::start(|request| {
        Reply::status(400, format!("bad header {}", request.headers["x-token"]))
    });
    let config = ModelConfig {
        header_env: table(&[("x-token", "TOKEN_OF_PROXY")]),
        ..config(server.base_url())
    };
    let environment = Environment::of([("TOKEN_OF_PROXY", "proxy-secret-12345")]);
    let provider = OpenAi::new(&config, &environment).unwrap();
    let error = ask(&provider, &request()).await.unwrap_err();
    assert!(
        error
            .message
            .ends_with("answered with HTTP 400: bad header [key]"),
        "{error}"
    );
    let refused = open_ai(&config, None)
        .err()
        .map(|error| error.message)
        .unwrap_or_default();
    assert!(
        refused.contains("TOKEN_OF_PROXY") && refused.contains("is not set"),
        "{refused}"
    );
}

#[tokio::test]
async fn connection_error_advice_depends_on_cause() {
    let nobody = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    for (base_url, part) in [
        (
            format!("http://{nobody}/v1"),
            "is the server running there? (Ollama: `ollama serve`)",
        ),
        (
            "http://no-such-host.invalid/v1".to_owned(),
            "check `model.base_url` and the network",
        ),
    ] {
        let error = ask(&open_ai(&config(base_url), None).unwrap(), &request())
            .await
            .unwrap_err();
        assert!(error.message.contains(part), "{error}");
    }
}
