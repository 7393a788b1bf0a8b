//! Tests of the search services, against servers on this machine.

use std::sync::{Arc, Mutex};

use futures::FutureExt;
use tokio::io::AsyncWriteExt;

use super::*;
use crate::tests::server::{Server, page, path_of, redirect, response};

const KEY: &str = "key-that-nobody-may-see";

fn service(provider: SearchProvider, base_url: &str) -> SearchService {
    let config = WebSearchConfig {
        provider,
        base_url: Some(base_url.to_owned()),
        api_key_env: Some("SEARCH_KEY".to_owned()),
    };
    SearchService::new(&config, &Environment::of([("SEARCH_KEY", KEY)])).unwrap()
}

/// Returns a server that sends the same response to every request, and the requests that it
/// received.
async fn recording_server(raw: Vec<u8>) -> (Server, Arc<Mutex<Vec<String>>>) {
    let requests = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&requests);
    let server = Server::at("127.0.0.1:0", move |head, mut stream| {
        seen.lock().unwrap().push(head);
        let raw = raw.clone();
        async move {
            let _ = stream.write_all(&raw).await;
            // Unread request data after the head would reset the connection.
            let _ = stream.shutdown().await;
            let _ = tokio::io::AsyncReadExt::read(&mut stream, &mut [0; 4096]).await;
        }
        .boxed()
    })
    .await;
    (server, requests)
}

fn hit(title: &str, url: &str, snippet: &str) -> SearchHit {
    SearchHit {
        title: title.to_owned(),
        url: url.to_owned(),
        snippet: snippet.to_owned(),
    }
}

#[tokio::test]
async fn each_provider_uses_its_own_request_and_answer_format() {
    let searxng = r#"{"query": "q", "results": [{"url": "https://a.example/", "title": "A", "content": "a", "engine": "x"},
        {"url": "https://b.example/", "title": null}, {"url": "https://c.example/", "title": "C"}]}"#;
    let tavily = r#"{"results": [{"title": "A", "url": "https://a.example/", "content": "a", "score": 0.5},
        {"url": "https://b.example/"}], "response_time": 1.0}"#;
    let brave = r#"{"type": "search", "web": {"results": [{"title": "<strong>A</strong>", "url": "https://a.example/",
        "description": "a"}, {"title": "", "url": "https://b.example/"}]}}"#;
    for (provider, answer, request, key) in [
        (
            SearchProvider::Searxng,
            searxng,
            "GET /below/search?q=two+w%C3%B6rds%26a%3Db&format=json ",
            "authorization: Bearer ",
        ),
        (
            SearchProvider::Tavily,
            tavily,
            "POST /below/search ",
            "authorization: Bearer ",
        ),
        (
            SearchProvider::Brave,
            brave,
            "GET /below/res/v1/web/search?q=two+w%C3%B6rds%26a%3Db&count=2 ",
            "x-subscription-token: ",
        ),
    ] {
        for base in ["/below", "/below/", "/below/?a=b#c"] {
            let (server, requests) =
                recording_server(page("application/json", answer.as_bytes())).await;
            let service = service(provider, &format!("http://{}{base}", server.address));
            let hits = service.search("two wörds&a=b", 2).await.unwrap();
            assert_eq!(
                hits,
                [
                    hit("A", "https://a.example/", "a"),
                    hit("", "https://b.example/", "")
                ],
                "{provider:?}"
            );
            let received = requests.lock().unwrap().concat();
            assert!(
                received.starts_with(request),
                "{provider:?} {base}: {received}"
            );
            assert!(
                received.starts_with(service.method().as_str()),
                "{provider:?}: {received}"
            );
            assert!(
                received.contains(&format!("{key}{KEY}\r\n")),
                "{provider:?}: {received}"
            );
        }
    }
}

#[tokio::test]
async fn service_error_gives_advice_and_never_the_key() {
    let body = format!("your key {KEY} is wrong");
    let huge = vec![b' '; 3 * 1024 * 1024];
    for (what, raw, code, want, is_retryable) in [
        (
            "401",
            response("401 No", "", body.as_bytes()),
            ErrorCode::ProviderAuthFailed,
            "variable SEARCH_KEY",
            false,
        ),
        (
            "403",
            response("403 No", "", body.as_bytes()),
            ErrorCode::ProviderAuthFailed,
            "HTTP 403",
            false,
        ),
        (
            "429",
            response("429 No", "Retry-After: 9\r\n", b""),
            ErrorCode::ProviderRateLimited,
            "after 9",
            true,
        ),
        (
            "429 without time",
            response("429 No", "", b""),
            ErrorCode::ProviderRateLimited,
            "again later",
            true,
        ),
        (
            "400",
            response("400 No", "", body.as_bytes()),
            ErrorCode::ProviderError,
            "your key [key] is wrong",
            false,
        ),
        (
            "500",
            response("500 No", "", b"\x1b[2Jdown"),
            ErrorCode::ProviderError,
            "it says: [2Jdown",
            true,
        ),
        (
            "redirect",
            redirect(&format!("http://127.0.0.1:1/{KEY}")),
            ErrorCode::ProviderError,
            "base_url",
            false,
        ),
        (
            "no JSON",
            page("text/html", b"<html>"),
            ErrorCode::ProviderError,
            "no JSON, line 1 column 1",
            false,
        ),
        (
            "cut JSON",
            page("application/json", b"{\"results\": ["),
            ErrorCode::ProviderError,
            "no JSON",
            false,
        ),
        (
            "other JSON",
            page("application/json", b"{\"results\": 1}"),
            ErrorCode::ProviderError,
            "unexpected JSON",
            false,
        ),
        (
            "empty",
            page("application/json", b""),
            ErrorCode::ProviderError,
            "no JSON",
            false,
        ),
        (
            "too much",
            page("application/json", &huge),
            ErrorCode::ProviderError,
            "more than 2097152 bytes",
            false,
        ),
        (
            "nothing",
            Vec::new(),
            ErrorCode::ProviderError,
            "broke off",
            true,
        ),
        (
            "no HTTP",
            b"no HTTP\r\n\r\n".to_vec(),
            ErrorCode::ProviderError,
            "broke off",
            true,
        ),
    ] {
        for provider in [SearchProvider::Searxng, SearchProvider::Tavily] {
            let (server, requests) = recording_server(raw.clone()).await;
            let error = service(provider, &format!("http://{}", server.address))
                .search("q", 5)
                .await
                .unwrap_err();
            assert_eq!(
                (error.code, error.retryable),
                (code, is_retryable),
                "{what}: {error}"
            );
            assert!(
                error.message.contains(want) && !error.message.contains(KEY),
                "{what}: {error}"
            );
            assert_eq!(requests.lock().unwrap().len(), 1, "{what}");
        }
    }
}

#[tokio::test]
async fn unresponsive_service_times_out() {
    let server = Server::at("127.0.0.1:0", |head, mut stream| {
        async move {
            if path_of(&head).contains("begins") {
                let _ = stream
                    .write_all(b"HTTP/1.1 200 OK\r\n\r\n{\"results\"")
                    .await;
            }
            let _ = tokio::io::AsyncReadExt::read(&mut stream, &mut [0; 16]).await;
        }
        .boxed()
    })
    .await;
    for path in ["silent", "begins"] {
        let service = service(
            SearchProvider::Searxng,
            &format!("http://{}/{path}", server.address),
        );
        let error = service
            .within(Duration::from_millis(200))
            .search("q", 5)
            .await
            .unwrap_err();
        assert_eq!(error.code, ErrorCode::ProviderTimeout, "{path}: {error}");
    }
    let gone = format!("http://127.0.0.1:{}", Server::of(&[]).await.port());
    let error = service(SearchProvider::Brave, &gone)
        .search("q", 5)
        .await
        .unwrap_err();
    assert!(
        error.message.contains("could not be connected to"),
        "{error}"
    );
}

#[tokio::test]
async fn key_is_redacted_in_results() {
    let answer = format!(
        r#"{{"results": [{{"title": "{KEY}", "url": "https://a.example/{KEY}", "content": "a {KEY}"}}]}}"#
    );
    let (server, _) = recording_server(page("application/json", answer.as_bytes())).await;
    let service = service(
        SearchProvider::Tavily,
        &format!("http://{}", server.address),
    );
    let hits = service.search("q", 5).await.unwrap();
    assert_eq!(hits, [hit("[key]", "https://a.example/[key]", "a [key]")]);
}

#[test]
fn missing_or_invalid_setting_is_named() {
    let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    for (provider, base_url, variable, key, want) in [
        (
            SearchProvider::None,
            "",
            "",
            "",
            Some("tools.web_search.provider"),
        ),
        (
            SearchProvider::Searxng,
            "",
            "",
            "",
            Some("tools.web_search.base_url"),
        ),
        (
            SearchProvider::Searxng,
            "http://127.0.0.1:8888",
            "",
            "",
            None,
        ),
        (
            SearchProvider::Searxng,
            "not a url",
            "",
            "",
            Some("base_url is not a valid URL"),
        ),
        (
            SearchProvider::Searxng,
            "ftp://a.example",
            "",
            "",
            Some("neither http nor https"),
        ),
        (
            SearchProvider::Searxng,
            "http://a:b@c.example",
            "",
            "",
            Some("name or password"),
        ),
        (
            SearchProvider::Searxng,
            "http://a.example",
            "K",
            "",
            Some("variable K is not set"),
        ),
        (
            SearchProvider::Tavily,
            "",
            "",
            "",
            Some("tools.web_search.api_key_env"),
        ),
        (
            SearchProvider::Tavily,
            "",
            "K",
            "",
            Some("variable K is not set"),
        ),
        (
            SearchProvider::Tavily,
            "",
            "K",
            " ",
            Some("variable K does not contain a valid key"),
        ),
        (
            SearchProvider::Tavily,
            "",
            "K",
            "a\nb",
            Some("variable K does not contain a valid key"),
        ),
        (SearchProvider::Tavily, "", "K", "value", None),
        (SearchProvider::Brave, "", "K", "value", None),
    ] {
        let config = WebSearchConfig {
            provider,
            base_url: some(base_url),
            api_key_env: some(variable),
        };
        let environment = Environment::of([("K", key)]);
        match (SearchService::new(&config, &environment), want) {
            (Ok(service), None) => {
                assert!(service.base_url().path().ends_with('/'), "{provider:?}")
            }
            (Err(why), Some(want)) => assert!(why.contains(want), "{provider:?}: {why}"),
            (got, want) => panic!("{provider:?} {want:?}: {:?}", got.err()),
        }
    }
}
