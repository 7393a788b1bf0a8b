//! Tests of `web_search` as models see it.

use serde_json::json;
use soong_protocol::{NetworkPolicy, Scope, SearchProvider, ToolsConfig, WebSearchConfig};
use soong_text::Environment;
use soong_tool::{ToolRegistry, testing::TestProject};

use super::*;
use crate::{
    tests::server::{Server, page},
    webfetch::WebFetch,
};

fn tool_environment(
    base_url: Option<String>,
    network: NetworkPolicy,
    allowed: &[&str],
) -> ToolEnvironment {
    let provider = if base_url.is_some() {
        SearchProvider::Searxng
    } else {
        SearchProvider::None
    };
    let allowed_hosts = allowed.iter().map(|host| (*host).to_owned()).collect();
    ToolEnvironment {
        tools: ToolsConfig {
            web_search: WebSearchConfig {
                provider,
                base_url,
                api_key_env: None,
            },
            ..ToolsConfig::default()
        },
        permissions: PermissionsConfig {
            network,
            allowed_hosts,
            ..PermissionsConfig::default()
        },
        environment: Environment::default(),
        ..ToolEnvironment::default()
    }
}

#[tokio::test]
async fn results_are_listed_as_untrusted() {
    let answer = json!({"results": [
        {"url": "https://a.example/", "title": "One\n# not a heading \u{1b}[31m", "content": "first\n\n2. forged"},
        {"url": "https://b.example/", "title": ""},
        {"url": "https://c.example/", "title": "Three", "content": "x".repeat(2_000)},
    ]});
    let raw = page("application/json", answer.to_string().as_bytes());
    let empty = page("application/json", br#"{"results": []}"#);
    let server = Server::of(&[
        ("/search?q=what+is&format=json", raw),
        ("/search?q=none&format=json", empty),
    ])
    .await;
    let base = format!("http://{}", server.address);
    let tool = WebSearch::new(&tool_environment(Some(base), NetworkPolicy::Ask, &[]));
    let project = TestProject::new(&[]);
    let text = project
        .call(&tool, json!({"query": " what is ", "limit": 2}))
        .await
        .unwrap();
    let want = format!(
        "2 results for: what is\n{UNTRUSTED_NOTICE}\n\n1. One # not a heading [31m\n   https://a.example/\n   first 2. forged\n\n2. \
         https://b.example/\n   https://b.example/\n"
    );
    assert_eq!(text, want);
    let output = tool
        .call(project.context(), json!({"query": "what is"}))
        .await
        .unwrap();
    let all = output.output;
    assert!(
        all.contains("3. Three") && all.ends_with("x…\n") && all.len() < 1_500,
        "{all}"
    );
    let line = "[3 results for: what is]";
    assert_eq!(
        (
            output.include_output_only_once,
            output.long_term_memory.as_deref()
        ),
        (true, Some(line))
    );
    let none = project.call(&tool, json!({"query": "none"})).await.unwrap();
    assert!(none.contains("Nothing was found"), "{none}");
    let blank = project
        .call(&tool, json!({"query": " \n"}))
        .await
        .unwrap_err();
    assert_eq!(blank.code, ErrorCode::ValidationError);
}

#[test]
fn tool_is_offered_only_if_service_is_configured() {
    let without = WebSearch::new(&ToolEnvironment::default());
    assert!(
        without
            .missing_requirement()
            .unwrap()
            .contains("tools.web_search.provider")
    );
    let base = Some("http://127.0.0.1:8888/".to_owned());
    assert_eq!(
        WebSearch::new(&tool_environment(base, NetworkPolicy::Ask, &[])).missing_requirement(),
        None
    );
    let context = TestProject::new(&[]).context();
    let error = without
        .required_access(&context, &json!({"query": "q"}))
        .unwrap_err();
    assert_eq!(error.code, ErrorCode::ConfigError);
}

#[test]
fn permission_for_service_host_follows_settings() {
    let context = TestProject::new(&[]).context();
    for (network, allowed, want) in [
        (NetworkPolicy::Ask, "", Ok(Some("search.example:8888"))),
        (NetworkPolicy::Ask, "search.example", Ok(None)),
        (NetworkPolicy::Allow, "", Ok(None)),
        (NetworkPolicy::Deny, "", Err(ErrorCode::PermissionDenied)),
        (NetworkPolicy::Deny, "*.example", Ok(None)),
    ] {
        let base = Some("http://Search.example:8888/below".to_owned());
        let tool = WebSearch::new(&tool_environment(base, network, &[allowed]));
        let got = tool
            .required_access(&context, &json!({"query": "q"}))
            .map(|access| access.map(|access| access.scope));
        let want = want.map(|host| {
            host.map(|host| Scope::Host {
                host: host.to_owned(),
            })
        });
        assert_eq!(
            got.map_err(|error| error.code),
            want,
            "{network:?} {allowed}"
        );
    }
}

#[test]
fn arguments_are_validated_by_schema() {
    let base = Some("http://127.0.0.1:8888/".to_owned());
    let tool_environment = tool_environment(base, NetworkPolicy::Ask, &[]);
    let mut registry = ToolRegistry::new();
    registry
        .register(Arc::new(WebSearch::new(&tool_environment)))
        .unwrap();
    registry
        .register(Arc::new(WebFetch::new(&tool_environment)))
        .unwrap();
    for (tool, raw, fits) in [
        ("web_search", r#"{"query": "q"}"#, true),
        ("web_search", r#"{"query": "q", "limit": 20}"#, true),
        ("web_search", r#"{"query": "q", "limit": 0}"#, false),
        ("web_search", r#"{"query": "q", "limit": 21}"#, false),
        ("web_search", r#"{"query": ""}"#, false),
        ("web_search", r#"{"query": "q", "more": 1}"#, false),
        ("web_search", "{}", false),
        ("webfetch", r#"{"url": "https://example.org"}"#, true),
        ("webfetch", r#"{"url": ""}"#, false),
        ("webfetch", r#"{"url": 1}"#, false),
        (
            "webfetch",
            r#"{"url": "https://example.org", "method": "POST"}"#,
            false,
        ),
    ] {
        assert_eq!(
            registry.check_arguments(tool, raw).is_ok(),
            fits,
            "{tool} {raw}"
        );
    }
}
