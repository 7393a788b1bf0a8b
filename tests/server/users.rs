//! Two users: each can access their own data, and nothing of the other user.

use std::collections::BTreeMap;

use reqwest::Method;
use serde_json::{Value, json};
use soong::protocol::api::operation::{AllowedCaller, ENDPOINTS};

use crate::{
    routes::operations,
    served::{BOB, EVE, Frames, OFFLINE, SocketMessage, TestServer, answer, code},
    service::ManualModelService,
};

/// Ids of a user's objects, by path parameter.
struct Ids(BTreeMap<&'static str, String>);

impl Ids {
    /// Replaces the parameters of a documented path with ids.
    fn path(&self, path: &str) -> String {
        let mut path = path.to_owned();
        for (name, id) in &self.0 {
            path = path.replace(
                &format!("{{{name}}}"),
                &id.replace('@', "%40").replace(':', "%3A"),
            );
        }
        assert!(!path.contains('{'), "{path}");
        path
    }
}

/// Returns a body that would be accepted from the owner of the object.
fn body(operation: &str) -> Option<Value> {
    Some(match operation {
        "POST /api/traces/{trace_id}/run" => json!({ "prompt": "mine now" }),
        "POST /api/sessions/{session_id}/head" => json!({ "sequence": 1 }),
        "POST /api/sessions/{session_id}/permission-mode" => json!({ "permission_mode": "all" }),
        "POST /api/runs/{run_id}/children" => json!({ "task": "mine now" }),
        "POST /api/permissions/{permission_id}" => json!({ "decision": "allow_once" }),
        "POST /api/questions/{question_id}" => json!({ "answer": "mine now" }),
        "PATCH /api/sessions/{session_id}/artifacts/{name}" => {
            json!({ "old": "secret", "new": "mine now" })
        }
        "POST /api/traces" => json!({ "prompt": "mine now", "session_id": "bobs" }),
        "POST /api/sessions" => json!({ "session_id": "bobs" }),
        "POST /api/cleanup/artifacts" => json!({ "session_id": "bobs" }),
        _ => return None,
    })
}

#[tokio::test]
async fn objects_of_another_user_are_not_found() {
    let service = ManualModelService::new();
    let served = TestServer::with_users(&format!(
        "[model]\nbase_url = \"{}\"\nname = \"m\"\n",
        service.address
    ));
    // Bob has a run that waits for permission, a question, and an artifact.
    let run_request = json!({ "prompt": "Bob's secret task", "session_id": "bobs" });
    let (status, accepted) = answer(
        served
            .request_as(BOB, Method::POST, "/api/traces")
            .json(&run_request),
    )
    .await;
    assert_eq!(status, 202, "{accepted}");
    let mut model_request = service.next();
    model_request.call(
        "write",
        &json!({ "path": "secret.txt", "content": "secret" }),
    );
    model_request.call("ask_human", &json!({ "question": "What is the secret?" }));
    model_request.end();
    let path = "/api/sessions/bobs/artifacts/secret.md";
    let put = served
        .request_as(BOB, Method::PUT, path)
        .header("content-type", "text/markdown")
        .body("secret");
    assert_eq!(answer(put).await.0, 201);
    let permission = loop {
        let (_, found) = answer(served.request_as(BOB, Method::GET, "/api/permissions")).await;
        if let Some(first) = found["permissions"].as_array().unwrap().first() {
            break first["permission_id"].as_str().unwrap().to_owned();
        }
    };
    let run = accepted["run_id"].as_str().unwrap().to_owned();
    let ids = Ids(BTreeMap::from([
        ("session_id", "bobs".to_owned()),
        ("trace_id", "bobs".to_owned()),
        ("run_id", run.clone()),
        ("permission_id", permission),
        ("question_id", "bobs-3".to_owned()),
        ("name", "secret.md".to_owned()),
        ("version", "1".to_owned()),
        ("actor_id", format!("run:{run}")),
    ]));
    let document = served.get("/openapi.json").await;
    for token in [EVE.to_owned(), served.token()] {
        for operation in operations(&document) {
            let (method, path) = operation.split_once(' ').unwrap();
            if path.ends_with("/watch") {
                continue;
            }
            let is_of_one = path.contains('{');
            let mut path = ids.path(path);
            if path.ends_with("/export") {
                path.push_str("?format=docx");
            }
            let mut request = served.request_as(&token, method.parse().unwrap(), &path);
            if let Some(body) = body(&operation) {
                request = request.json(&body);
            }
            let (status, response_body) = answer(request).await;
            let what = format!("{operation}: {status} {response_body}");
            match operation.as_str() {
                // Session ids are unique in the whole home. The response reveals only that the id
                // is taken.
                "POST /api/sessions" => {
                    assert_eq!(code(&response_body), "validation_error", "{what}")
                }
                "POST /api/traces" | "POST /api/cleanup/artifacts" => {
                    assert_eq!(status, 404, "{what}")
                }
                // The crash route does not reveal that the actor exists.
                "POST /api/tree/{actor_id}/kill" => {
                    assert_eq!(code(&response_body), "actor_not_found", "{what}")
                }
                _ if is_of_one => assert_eq!(status, 404, "{what}"),
                _ => assert!(
                    !response_body.to_string().contains("secret")
                        && !response_body.to_string().contains("bobs"),
                    "{what}"
                ),
            }
        }
        let watched = format!("Bearer {token}");
        let mut socket = served
            .try_watch(
                "/api/traces/bobs/watch?tree=true",
                &[("authorization", &watched)],
            )
            .await
            .unwrap();
        assert_eq!(code(&socket.event().await["data"]), "trace_not_found");
        assert!(matches!(socket.next().await, SocketMessage::Closed(4404)));
        let mut tree = served.watch(&token, "/api/tree/watch").await;
        let first = tree.event().await.to_string();
        assert!(
            first.contains("tree_snapshot") && !first.contains("bobs") && !first.contains(&run),
            "{first}"
        );
    }
    // Bob's data is unchanged.
    let (status, tree) = answer(served.request_as(BOB, Method::GET, "/api/tree")).await;
    assert!(status == 200 && tree.to_string().contains(&run), "{tree}");
    let (_, messages) =
        answer(served.request_as(BOB, Method::GET, "/api/traces/bobs/messages")).await;
    assert_eq!(
        messages["messages"].as_array().unwrap().len(),
        3,
        "{messages}"
    );
    let (_, shown) = answer(served.request_as(BOB, Method::GET, path)).await;
    assert_eq!(shown["content"], "secret");
    let mut bobs = served.watch(BOB, "/api/tree/watch").await;
    let mut eves = served.watch(EVE, "/api/tree/watch").await;
    assert!(
        bobs.event().await["event"] == "tree_snapshot"
            && eves.event().await["event"] == "tree_snapshot"
    );
    let (status, _) = answer(served.request_as(BOB, Method::POST, "/api/traces/bobs/stop")).await;
    assert_eq!(status, 202);
    served.ended_run(BOB, &run).await;
    let ended = loop {
        let mut change = bobs.event().await;
        if let Some(ended) = change["data"]["ended"]
            .as_array_mut()
            .filter(|ended| !ended.is_empty())
        {
            break ended.remove(0);
        }
    };
    assert_eq!(
        (ended["run_id"].as_str(), ended["status"].as_str()),
        (Some(&*run), Some("cancelled")),
        "{ended}"
    );
    // Changes are delivered in order: a leaked change of Bob's run would arrive before the change
    // of Eve's own run.
    let run_request = json!({ "prompt": "hello", "session_id": "eves" });
    assert_eq!(
        answer(
            served
                .request_as(EVE, Method::POST, "/api/traces")
                .json(&run_request)
        )
        .await
        .0,
        202
    );
    let mut received = String::new();
    while !received.contains("session:eves") {
        received.push_str(&eves.event().await.to_string());
    }
    assert!(
        !received.contains("bobs") && !received.contains(&run),
        "{received}"
    );
}

#[tokio::test]
async fn user_gets_only_tree_changes_of_their_own_runs() {
    let served = TestServer::with_users(OFFLINE);
    let mut bobs = served.watch(BOB, "/api/tree/watch").await;
    let mut eves = served.watch(EVE, "/api/tree/watch").await;
    assert_eq!(bobs.event().await["event"], "tree_snapshot");
    assert_eq!(eves.event().await["event"], "tree_snapshot");
    served.run_to_end(BOB, "bobs", "hello").await;
    served.run_to_end(EVE, "eves", "hello").await;
    for (socket, own, foreign) in [(&mut bobs, "bobs", "eves"), (&mut eves, "eves", "bobs")] {
        let mut received = String::new();
        while !received.contains(own) {
            let change = socket.event().await;
            assert_eq!(
                (&change["event"], &change["data"]["dropped"]),
                (&json!("tree_changed"), &json!(0))
            );
            received.push_str(&change.to_string());
        }
        assert!(!received.contains(foreign), "{received}");
    }
}

#[tokio::test]
async fn operator_endpoints_require_the_home_token() {
    let served = TestServer::with_users(OFFLINE);
    let of_operator = ENDPOINTS
        .iter()
        .filter(|endpoint| endpoint.caller == AllowedCaller::Operator);
    let mut requests: Vec<(&str, &str)> = of_operator
        .map(|endpoint| (endpoint.method.as_str(), endpoint.path))
        .collect();
    assert!(requests.contains(&("GET", "/metrics")), "{requests:?}");
    let heads: Vec<&str> = requests
        .iter()
        .filter(|(method, _)| *method == "GET")
        .map(|(_, path)| *path)
        .collect();
    for path in heads {
        let request = served.request_as(BOB, Method::HEAD, path);
        assert_eq!(answer(request).await.0, 403, "HEAD {path}");
    }
    // Each user may crash actors of their own runs, but not one that all users share.
    requests.push(("POST", "/api/tree/model_gateway:default/kill"));
    for (method, path) in requests {
        let request = served.request_as(BOB, method.parse().unwrap(), path);
        let (status, response_body) = answer(request).await;
        assert_eq!(
            (status.as_u16(), code(&response_body)),
            (403, "forbidden"),
            "{method} {path}: {response_body}"
        );
    }
}

#[tokio::test]
async fn users_have_separate_artifact_names_and_memory() {
    let served = TestServer::with_users(OFFLINE);
    for (token, text) in [(BOB, "Bob's"), (EVE, "Eve's")] {
        let put = served
            .request_as(
                token,
                Method::PUT,
                "/api/sessions/-/artifacts/user%3Anotes.md",
            )
            .body(text);
        assert_eq!(answer(put).await.0, 201);
    }
    for (token, text) in [(BOB, "Bob's"), (EVE, "Eve's")] {
        let path = "/api/sessions/-/artifacts/user%3Anotes.md/content";
        assert_eq!(
            answer(served.request_as(token, Method::GET, path)).await.1,
            text
        );
    }
    let folder = served.world.home().join("users/bob/memory");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(
        folder.join("experiences.md"),
        "---\nid: ex_001\n---\nAsk Bob.\n",
    )
    .unwrap();
    for (token, count) in [(BOB, 1), (EVE, 0)] {
        let request = served
            .request_as(token, Method::GET, "/api/experiences")
            .header("accept", "application/json");
        let known = answer(request).await.1;
        assert_eq!(
            known["experiences"].as_array().unwrap().len(),
            count,
            "{known}"
        );
    }
}

#[tokio::test]
async fn user_cannot_stream_traces_of_another_user() {
    let served = TestServer::with_users(OFFLINE);
    let run = served.run_to_end(BOB, "bobs", "hello").await;
    let mut frames =
        Frames::open(served.request_as(BOB, Method::GET, "/api/traces/bobs/events")).await;
    assert_eq!(frames.next().await.unwrap().data["run_id"], run["run_id"]);
    let foreign = served
        .request_as(EVE, Method::GET, "/api/traces/bobs/events")
        .header("accept", "text/event-stream");
    assert_eq!(answer(foreign).await.0, 404);
    let run_request = json!({ "prompt": "x", "session_id": "bobs" });
    let start = served
        .request_as(EVE, Method::POST, "/api/traces")
        .header("accept", "text/event-stream")
        .json(&run_request);
    assert_eq!(answer(start).await.0, 404, "not even by a start");
}
