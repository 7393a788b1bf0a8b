//! Conditional changes of artifacts (`ETag`, `If-Match`, `If-None-Match`), and bodies with an
//! encoding.

use reqwest::{Method, RequestBuilder, header};
use serde_json::json;

use crate::served::{OFFLINE, TestServer, answer, code};

const ARTIFACT: &str = "/api/sessions/s/artifacts/a.txt";

async fn server() -> TestServer {
    let served = TestServer::new(OFFLINE);
    assert_eq!(
        served
            .post("/api/sessions", json!({ "session_id": "s" }))
            .await
            .0,
        201
    );
    served
}

fn put(served: &TestServer, text: &'static str) -> RequestBuilder {
    served
        .request(Method::PUT, ARTIFACT)
        .header("content-type", "text/plain")
        .body(text)
}

fn edit(served: &TestServer, old: &str, new: &str) -> RequestBuilder {
    served
        .request(Method::PATCH, ARTIFACT)
        .json(&json!({ "old": old, "new": new }))
}

async fn content(served: &TestServer) -> String {
    served
        .request(Method::GET, &format!("{ARTIFACT}/content"))
        .send()
        .await
        .unwrap()
        .text()
        .await
        .unwrap()
}

/// Sends a request that must fail because of its condition. Returns the current version according
/// to the error.
async fn refused(request: RequestBuilder) -> serde_json::Value {
    let (status, body) = answer(request).await;
    assert_eq!(
        (status.as_u16(), code(&body)),
        (412, "precondition_failed"),
        "{body}"
    );
    body["error"]["details"]["version"].clone()
}

#[tokio::test]
async fn change_with_an_unmet_condition_changes_nothing() {
    let served = server().await;
    assert_eq!(
        refused(put(&served, "x").header(header::IF_MATCH, "\"1\"")).await,
        json!(null)
    );
    assert_eq!(
        refused(put(&served, "x").header(header::IF_MATCH, "*")).await,
        json!(null)
    );
    let created = put(&served, "one")
        .header(header::IF_NONE_MATCH, "*")
        .send()
        .await
        .unwrap();
    assert_eq!(
        (created.status().as_u16(), &created.headers()[header::ETAG]),
        (201, &"\"1\"".parse().unwrap())
    );
    assert_eq!(
        refused(put(&served, "x").header(header::IF_NONE_MATCH, "*")).await,
        json!(1)
    );

    let second = put(&served, "two")
        .header(header::IF_MATCH, "\"1\"")
        .send()
        .await
        .unwrap();
    assert_eq!(
        (second.status().as_u16(), &second.headers()[header::ETAG]),
        (200, &"\"2\"".parse().unwrap())
    );
    for request in [
        put(&served, "x").header(header::IF_MATCH, "\"1\""),
        edit(&served, "two", "x").header(header::IF_MATCH, "\"1\""),
        served
            .request(Method::DELETE, ARTIFACT)
            .header(header::IF_MATCH, "\"1\""),
        served
            .request(Method::DELETE, ARTIFACT)
            .header(header::IF_NONE_MATCH, "\"2\""),
    ] {
        assert_eq!(refused(request).await, json!(2));
    }
    assert_eq!(content(&served).await, "two");
    let third = edit(&served, "two", "three")
        .header(header::IF_MATCH, "\"1\", \"2\"")
        .send()
        .await
        .unwrap();
    assert_eq!(
        (third.status().as_u16(), &third.headers()[header::ETAG]),
        (200, &"\"3\"".parse().unwrap())
    );

    // The record also lists stored versions, which change without a new version.
    let record = served
        .request(Method::GET, ARTIFACT)
        .header(header::IF_NONE_MATCH, "\"3\"")
        .send()
        .await
        .unwrap();
    assert_eq!(
        (record.status().as_u16(), &record.headers()[header::ETAG]),
        (200, &"\"3\"".parse().unwrap())
    );
    for path in [
        format!("{ARTIFACT}/content"),
        format!("{ARTIFACT}/content?version=3"),
    ] {
        let get = |known: &str| {
            served
                .request(Method::GET, &path)
                .header(header::IF_NONE_MATCH, known)
                .send()
        };
        let changed = get("\"2\"").await.unwrap();
        assert_eq!(
            (changed.status().as_u16(), &changed.headers()[header::ETAG]),
            (200, &"\"3\"".parse().unwrap())
        );
        let known = get("W/\"3\"").await.unwrap();
        assert_eq!(
            (known.status().as_u16(), known.text().await.unwrap()),
            (304, String::new()),
            "{path}"
        );
    }
    let (status, body) = answer(put(&served, "x").header(header::IF_MATCH, "3")).await;
    assert_eq!(
        (status.as_u16(), code(&body)),
        (400, "validation_error"),
        "{body}"
    );
    let deleted = served
        .request(Method::DELETE, ARTIFACT)
        .header(header::IF_MATCH, "\"3\"")
        .send()
        .await
        .unwrap();
    assert_eq!(deleted.status(), 204);
}

#[tokio::test]
async fn one_of_concurrent_changes_of_a_version_wins() {
    let served = server().await;
    assert_eq!(put(&served, "0").send().await.unwrap().status(), 201);
    for version in 1..=5 {
        let tag = format!("\"{version}\"");
        let writes = (0..4).map(|_| put(&served, "next").header(header::IF_MATCH, &tag).send());
        let answers = futures::future::join_all(writes).await;
        let statuses: Vec<u16> = answers
            .into_iter()
            .map(|answer| answer.unwrap().status().as_u16())
            .collect();
        assert_eq!(
            statuses.iter().filter(|status| **status == 200).count(),
            1,
            "{statuses:?}"
        );
        assert!(
            statuses.iter().all(|status| matches!(status, 200 | 412)),
            "{statuses:?}"
        );
    }
}

#[tokio::test]
async fn body_with_an_encoding_is_refused() {
    let served = server().await;
    let form = || {
        let headers =
            header::HeaderMap::from_iter([(header::CONTENT_ENCODING, "gzip".parse().unwrap())]);
        let part = reqwest::multipart::Part::bytes(b"\x1f\x8b".to_vec())
            .file_name("b.txt")
            .headers(headers);
        reqwest::multipart::Form::new().part("file", part)
    };
    for request in [
        put(&served, "\x1f").header(header::CONTENT_ENCODING, "gzip"),
        edit(&served, "a", "b").header(header::CONTENT_ENCODING, "br"),
        served
            .request(Method::POST, "/api/traces")
            .json(&json!({ "prompt": "x" }))
            .header("content-encoding", "deflate"),
        served
            .request(Method::POST, "/api/sessions/s/artifacts/upload")
            .multipart(form()),
    ] {
        let (status, body) = answer(request).await;
        assert_eq!(
            (status.as_u16(), code(&body)),
            (415, "unsupported_media"),
            "{body}"
        );
    }
    let listed = served.get("/api/sessions/s/artifacts").await;
    assert!(
        listed["artifacts"].as_array().unwrap().is_empty(),
        "{listed}"
    );
    assert_eq!(
        put(&served, "plain")
            .header(header::CONTENT_ENCODING, "identity")
            .send()
            .await
            .unwrap()
            .status(),
        201
    );
}
