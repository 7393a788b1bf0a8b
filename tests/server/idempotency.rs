//! Requests with an `Idempotency-Key`: a repeated request has no second effect, also after `kill
//! -9`.

use std::collections::HashSet;

use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};

use crate::{
    served::{BOB, EVE, Frame, Frames, OFFLINE, TestServer, answer, code},
    service::ManualModelService,
};

const KEY: &str = "idempotency-key";

fn keyed(served: &TestServer, path: &str, key: &str, body: &Value) -> RequestBuilder {
    served
        .request(Method::POST, path)
        .header(KEY, key)
        .json(body)
}

fn start(prompt: &str) -> Value {
    json!({ "prompt": prompt, "session_id": "s" })
}

#[tokio::test]
async fn repeated_start_names_the_same_run() {
    let service = ManualModelService::new();
    let config = format!(
        "[model]\nbase_url = \"{}\"\nname = \"m\"\n",
        service.address
    );
    let mut served = TestServer::with(&config, &[("SOONG_FAULTS", "before_commit=delay:20")]);
    // A client that repeats its request before the first one is answered.
    let attempts = (0..5).map(|_| answer(keyed(&served, "/api/traces", "k", &start("pay"))));
    let answers = futures::future::join_all(attempts).await;
    let runs: HashSet<&str> = answers
        .iter()
        .map(|(_, body)| body["run_id"].as_str().unwrap())
        .collect();
    assert_eq!(runs.len(), 1, "{answers:?}");
    assert!(
        answers
            .iter()
            .all(|(status, body)| *status == 202 && body["status"] == "started"),
        "{answers:?}"
    );
    let run = answers[0].1["run_id"].clone();

    // The answer is stored, or found by the run that is stored with the request.
    served.kill();
    served.restart();
    let repeated = keyed(&served, "/api/traces", "k", &start("pay"))
        .send()
        .await
        .unwrap();
    assert_eq!(repeated.headers()["idempotency-replayed"], "true");
    assert_eq!(repeated.json::<Value>().await.unwrap()["run_id"], run);

    let (status, other) = answer(keyed(&served, "/api/traces", "k", &start("pay twice"))).await;
    assert_eq!(
        (status.as_u16(), code(&other)),
        (409, "idempotency_conflict"),
        "{other}"
    );
    let (status, other) = answer(keyed(&served, "/api/traces/s/run", "k", &start("pay"))).await;
    assert_eq!(
        (status.as_u16(), code(&other)),
        (409, "idempotency_conflict"),
        "{other}"
    );
    let traces = served.get("/api/traces").await;
    assert_eq!(traces["traces"].as_array().unwrap().len(), 1, "{traces}");
    let messages = served.get("/api/traces/s/messages").await;
    let of_user = messages["messages"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|message| message["role"] == "user");
    assert_eq!(of_user.count(), 1, "{messages}");
}

#[tokio::test]
async fn repeated_start_streams_the_same_run() {
    let mut served = TestServer::new(OFFLINE);
    let streamed = |served: &TestServer| {
        keyed(served, "/api/traces", "k", &start("hello")).header("accept", "text/event-stream")
    };
    let first = accepted(Frames::open(streamed(&served)).await).await;
    // Nothing but the run is stored of the request.
    served.kill();
    served.restart();
    served
        .ended_run(&served.token(), first["run_id"].as_str().unwrap())
        .await;
    let mut frames = Frames::open(streamed(&served)).await;
    let Some(Frame { data, .. }) = frames.next().await else {
        panic!("the stream is empty")
    };
    assert_eq!(data["run_id"], first["run_id"]);
    let next = frames.next().await.unwrap();
    assert_eq!(
        next.data["run_id"], first["run_id"],
        "the events of the run from the first one on: {:?}",
        next.data
    );
    let (status, repeated) = answer(keyed(&served, "/api/traces", "k", &start("hello"))).await;
    assert_eq!(
        (status.as_u16(), &repeated["run_id"]),
        (202, &first["run_id"])
    );
}

async fn accepted(mut frames: Frames) -> Value {
    frames.next().await.unwrap().data
}

#[tokio::test]
async fn repeated_requests_of_all_routes_have_one_effect() {
    let mut served = TestServer::new(OFFLINE);
    let (_, first) = answer(keyed(&served, "/api/traces", "start", &start("hello"))).await;
    served
        .ended_run(&served.token(), first["run_id"].as_str().unwrap())
        .await;
    let mut answers = Vec::new();
    for restarts in [false, true] {
        if restarts {
            served.kill();
            served.restart();
        }
        let (created, session) =
            answer(keyed(&served, "/api/sessions", "create", &json!({}))).await;
        let (forked, copy) =
            answer(keyed(&served, "/api/sessions/s/fork", "fork", &json!({}))).await;
        assert_eq!(
            (created.as_u16(), forked.as_u16()),
            (201, 201),
            "{session} {copy}"
        );
        let call = json!({ "prompt": "hello" });
        let (called, body) = answer(keyed(&served, "/api/calls", "call", &call)).await;
        assert!(called.is_success(), "{body}");
        answers.push([
            session["session"]["session_id"].clone(),
            copy["session"]["session_id"].clone(),
            body,
        ]);
    }
    assert_eq!(answers[0], answers[1]);
    let sessions = served.get("/api/sessions").await;
    // The first one, the new one and the copy. The session of a call is not listed.
    assert_eq!(
        sessions["sessions"].as_array().unwrap().len(),
        3,
        "{sessions}"
    );
    // A request that failed has no effect, so it is executed again.
    let (refused, _) = answer(keyed(
        &served,
        "/api/sessions/none/fork",
        "late",
        &json!({}),
    ))
    .await;
    let (created, _) = answer(keyed(
        &served,
        "/api/sessions",
        "name",
        &json!({ "session_id": "none" }),
    ))
    .await;
    assert_eq!((refused.as_u16(), created.as_u16()), (404, 201));
    let (repeated_status, body) = answer(keyed(
        &served,
        "/api/sessions/none/fork",
        "late",
        &json!({}),
    ))
    .await;
    assert_eq!(
        repeated_status.as_u16(),
        400,
        "the session exists now, and has no messages: {body}"
    );
}

/// The process is killed when the children are recorded, before the request is answered.
#[tokio::test]
async fn children_of_a_repeated_request_are_added_once() {
    let service = ManualModelService::new();
    let config = format!(
        "[model]\nbase_url = \"{}\"\nname = \"m\"\n",
        service.address
    );
    let mut served = TestServer::with(&config, &[("SOONG_FAULTS", "start_children@1=kill")]);
    let (_, run) = answer(keyed(&served, "/api/traces", "k", &start("wait"))).await;
    let children_path = format!("/api/runs/{}/children", run["run_id"].as_str().unwrap());
    let add =
        |served: &TestServer, key: &str, body: &Value| keyed(served, &children_path, key, body);
    let body = json!({ "tasks": ["one", "two"] });
    // A request that failed is forgotten.
    let (status, refused) = answer(add(&served, "c", &json!({}))).await;
    assert_eq!(
        (status.as_u16(), code(&refused)),
        (400, "validation_error"),
        "{refused}"
    );
    add(&served, "c", &body).send().await.unwrap_err();
    served.kill();
    served.restart_without_variables();
    let (status, repeated) = answer(add(&served, "c", &body)).await;
    assert_eq!(
        (status.as_u16(), code(&repeated)),
        (409, "idempotency_conflict"),
        "{repeated}"
    );
    let (status, added) = answer(add(&served, "d", &json!({ "task": "three" }))).await;
    assert_eq!(status.as_u16(), 202, "{added}");
    let (status, repeated) = answer(add(&served, "d", &json!({ "task": "three" }))).await;
    assert_eq!((status.as_u16(), &repeated), (202, &added));
    // A queued run accepts children at once; they wait for it.
    let (_, queued) = answer(keyed(&served, "/api/traces", "q", &start("later"))).await;
    assert_eq!(queued["status"], "queued");
    let of_queued = format!("/api/runs/{}/children", queued["run_id"].as_str().unwrap());
    let (status, added) = answer(keyed(&served, &of_queued, "e", &json!({ "task": "four" }))).await;
    assert_eq!(
        (status.as_u16(), &added["children"][0]["status"]),
        (202, &json!("queued")),
        "{added}"
    );
    let trace = served.get("/api/traces/s").await;
    assert_eq!(trace["sub_traces"].as_array().unwrap().len(), 4, "{trace}");
}

#[tokio::test]
async fn repeated_upload_with_another_boundary_is_the_same_request() {
    let served = TestServer::new(OFFLINE);
    answer(keyed(
        &served,
        "/api/sessions",
        "s",
        &json!({ "session_id": "s" }),
    ))
    .await;
    let upload = |text: &'static str| {
        let part = reqwest::multipart::Part::bytes(text.as_bytes()).file_name("a.txt");
        let form = reqwest::multipart::Form::new().part("file", part);
        let path = "/api/sessions/s/artifacts/upload";
        answer(
            served
                .request(Method::POST, path)
                .header(KEY, "k")
                .multipart(form),
        )
    };
    let (status, stored) = upload("hello").await;
    assert!(status.is_success(), "{stored}");
    assert_eq!(upload("hello").await, (status, stored));
    let (status, other) = upload("hallo").await;
    assert_eq!(
        (status.as_u16(), code(&other)),
        (409, "idempotency_conflict"),
        "{other}"
    );
    let artifacts = served.get("/api/sessions/s/artifacts").await;
    assert_eq!(
        artifacts["artifacts"].as_array().unwrap().len(),
        1,
        "{artifacts}"
    );
}

/// A resumed run is not created by the request; it is named again nevertheless, and not continued
/// by another run.
#[tokio::test]
async fn repeated_resume_names_the_same_run() {
    let service = ManualModelService::new();
    let config = format!(
        "[model]\nbase_url = \"{}\"\nname = \"m\"\n[runtime]\nrecovery = \"none\"\n",
        service.address
    );
    let mut served = TestServer::new(&config);
    let (_, run) = answer(keyed(&served, "/api/traces", "k", &start("wait"))).await;
    let interrupted_request = service.next();
    served.kill();
    drop(interrupted_request);
    served.restart();
    let resume = || {
        keyed(&served, "/api/traces", "r", &json!({ "session_id": "s" }))
            .header("accept", "text/event-stream")
    };
    let first = accepted(Frames::open(resume()).await).await;
    assert_eq!(first["run_id"], run["run_id"]);
    service.next().answer("done");
    served
        .ended_run(&served.token(), first["run_id"].as_str().unwrap())
        .await;
    let resumed = accepted(Frames::open(resume()).await).await;
    assert_eq!(resumed["run_id"], run["run_id"]);
}

#[tokio::test]
async fn keys_belong_to_their_user_and_to_a_session() {
    let served = TestServer::with_users(OFFLINE);
    let create = |token: &str, session: &str| {
        let body = json!({ "session_id": session });
        answer(
            served
                .request_as(token, Method::POST, "/api/sessions")
                .header(KEY, "k")
                .json(&body),
        )
    };
    assert_eq!(create(BOB, "bobs").await.0, 201);
    assert_eq!(create(EVE, "eves").await.0, 201, "the key of another user");
    // The stored answer is deleted with the session that it names. The request is not executed
    // again.
    let deleted = served
        .request_as(BOB, Method::DELETE, "/api/sessions/bobs")
        .send()
        .await
        .unwrap();
    assert_eq!(deleted.status(), 204);
    let (status, response_body) = create(BOB, "bobs").await;
    assert_eq!(
        (status.as_u16(), code(&response_body)),
        (404, "session_not_found"),
        "{response_body}"
    );
    for key in ["", "two words", "é", &"x".repeat(256)] {
        let request = served
            .request_as(BOB, Method::POST, "/api/sessions")
            .header(KEY, key.as_bytes())
            .json(&json!({}));
        let (status, response_body) = answer(request).await;
        assert_eq!(
            (status.as_u16(), code(&response_body)),
            (400, "validation_error"),
            "{key:?}: {response_body}"
        );
    }
}
