//! Acknowledged requests survive `kill -9`, whatever the request.
//!
//! Each commit is delayed here, so that a response sent before its commit is always detected.

use reqwest::Method;
use serde_json::{Value, json};

use crate::{
    process::TIMEOUT,
    served::{TestServer, answer},
    service::ManualModelService,
};

const SLOW_COMMITS: &[(&str, &str)] = &[("SOONG_FAULTS", "before_commit=delay:40")];

fn served(service: &ManualModelService) -> TestServer {
    TestServer::with(
        &format!(
            "[model]\nbase_url = \"{}\"\nname = \"m\"\n",
            service.address
        ),
        SLOW_COMMITS,
    )
}

/// Sends a request, kills the server as soon as the response arrives, and restarts it. Returns the
/// body of the response.
async fn ask_and_kill(
    served: &mut TestServer,
    method: Method,
    path: &str,
    body: Option<Value>,
    status: u16,
) -> Value {
    let request = served.request(method, path);
    let request = match body {
        Some(body) => request.json(&body),
        None => request,
    };
    let response = request.send().await.unwrap();
    served.kill();
    assert_eq!(response.status(), status, "{path}");
    let body = response.bytes().await.unwrap_or_default();
    served.restart();
    serde_json::from_slice(&body).unwrap_or_default()
}

async fn start(served: &TestServer, session: &str, prompt: &str) -> Value {
    let (status, run) = served
        .post(
            "/api/traces",
            json!({ "prompt": prompt, "session_id": session }),
        )
        .await;
    assert_eq!(status, 202, "{run}");
    run
}

#[tokio::test]
async fn acknowledged_cancel_holds_for_active_queued_and_child_runs() {
    for (what, path) in [
        ("a run at work", "/api/runs/RUN/cancel"),
        ("a trace", "/api/traces/s/stop"),
        ("a queued run", "/api/runs/QUEUED/cancel"),
        ("a child", "/api/runs/CHILD/cancel"),
    ] {
        let service = ManualModelService::new();
        let mut served = served(&service);
        let run = start(&served, "s", "Divide.").await;
        let queued = start(&served, "s", "Then this.").await;
        let mut request = service.next();
        request.call("agent", &json!({ "task": ["left", "right"] }));
        request.end();
        let of_children = service.take(2);
        let events = served.get("/api/traces/s/events").await;
        let mut children = events["events"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|event| event["event"] == "sub_trace_started");
        let child = children.next().unwrap()["data"]["run_id"].as_str().unwrap();
        let path = path.replace("RUN", run["run_id"].as_str().unwrap());
        let path = path
            .replace("QUEUED", queued["run_id"].as_str().unwrap())
            .replace("CHILD", child);
        let accepted = ask_and_kill(&mut served, Method::POST, &path, None, 202).await;
        drop(of_children);
        let ended = served
            .ended_run(&served.token(), accepted["run_id"].as_str().unwrap())
            .await;
        assert_eq!(ended["status"], "cancelled", "{what}: {ended}");
    }
}

#[tokio::test]
async fn run_resumes_with_the_acknowledged_decision_and_answer() {
    let service = ManualModelService::new();
    let mut served = served(&service);
    start(&served, "s", "Work.").await;
    let mut request = service.next();
    request.call("write", &json!({ "path": "x.txt", "content": "x" }));
    request.end();
    let permission = served
        .wait_for("/api/permissions?status=pending", "permissions")
        .await;
    let path = format!(
        "/api/permissions/{}",
        permission["permission_id"]
            .as_str()
            .unwrap()
            .replace('@', "%40")
    );
    let body = json!({ "decision": "deny", "reason": "not today" });
    ask_and_kill(&mut served, Method::POST, &path, Some(body), 200).await;
    let mut request = service.next();
    assert!(
        request.last_message().contains("not today"),
        "{}",
        request.last_message()
    );
    request.call("ask_human", &json!({ "question": "Which?" }));
    request.end();
    let question = served
        .wait_for("/api/questions?status=pending", "questions")
        .await;
    let path = format!(
        "/api/questions/{}",
        question["question_id"]
            .as_str()
            .unwrap()
            .replace('@', "%40")
    );
    ask_and_kill(
        &mut served,
        Method::POST,
        &path,
        Some(json!({ "answer": "The blue one." })),
        200,
    )
    .await;
    let request = service.next();
    assert!(
        request.last_message().contains("The blue one."),
        "{}",
        request.last_message()
    );
    request.answer("done");
}

#[tokio::test]
async fn acknowledged_session_and_artifact_changes_survive() {
    let service = ManualModelService::new();
    let mut served = served(&service);
    let run = start(&served, "s", "Say something.").await;
    service.next().answer("something");
    served
        .ended_run(&served.token(), run["run_id"].as_str().unwrap())
        .await;

    let post = Method::POST;
    let put = Method::PUT;
    ask_and_kill(
        &mut served,
        post.clone(),
        "/api/sessions",
        Some(json!({ "session_id": "new" })),
        201,
    )
    .await;
    served.get("/api/sessions/new").await;
    ask_and_kill(
        &mut served,
        post.clone(),
        "/api/sessions/s/fork",
        Some(json!({ "session_id": "copy" })),
        201,
    )
    .await;
    served.get("/api/sessions/copy").await;
    ask_and_kill(
        &mut served,
        post.clone(),
        "/api/sessions/s/head",
        Some(json!({ "sequence": 2 })),
        200,
    )
    .await;
    assert_eq!(
        served.get("/api/traces/s").await["trace"]["head_sequence"],
        2
    );
    let artifact = "/api/sessions/s/artifacts/notes.txt";
    ask_and_kill(&mut served, put, artifact, Some(json!("first")), 201).await;
    let versions = format!("{artifact}/versions");
    let count = |listed: Value| listed["versions"].as_array().unwrap().len();
    assert_eq!(count(served.get(&versions).await), 1);
    let edit = json!({ "old": "first", "new": "second" });
    ask_and_kill(&mut served, Method::PATCH, artifact, Some(edit), 200).await;
    assert_eq!(count(served.get(&versions).await), 2);
    ask_and_kill(&mut served, Method::DELETE, artifact, None, 204).await;
    assert_eq!(answer(served.request(Method::GET, artifact)).await.0, 404);
    ask_and_kill(&mut served, Method::DELETE, "/api/sessions/copy", None, 204).await;
    assert_eq!(
        answer(served.request(Method::GET, "/api/sessions/copy"))
            .await
            .0,
        404
    );

    let accepted = start(&served, "t", "Divide.").await;
    drop(service.next());
    let path = format!(
        "/api/runs/{}/children",
        accepted["run_id"].as_str().unwrap()
    );
    let children = ask_and_kill(
        &mut served,
        post,
        &path,
        Some(json!({ "tasks": ["one", "two"] })),
        202,
    )
    .await;
    for child in children["children"].as_array().unwrap() {
        served
            .get(&format!("/api/runs/{}", child["run_id"].as_str().unwrap()))
            .await;
    }
}

/// Answers the model calls of a run until it has completed, including calls that the killed process
/// made.
async fn completes(served: &TestServer, service: &ManualModelService, run: &Value, answer: &str) {
    let path = format!("/api/runs/{}", run["run_id"].as_str().unwrap());
    let completed = async {
        while served.get(&path).await["status"] != "completed" {
            if let Some(request) = service.poll() {
                request.answer(answer);
            }
        }
    };
    tokio::time::timeout(TIMEOUT, completed)
        .await
        .unwrap_or_else(|_| panic!("{run} does not complete"));
}

#[tokio::test]
async fn acknowledged_starts_are_resumed() {
    let service = ManualModelService::new();
    let mut served = served(&service);
    for (path, body, reply) in [
        (
            "/api/traces",
            json!({ "prompt": "One.", "session_id": "s" }),
            "one",
        ),
        ("/api/traces/s/run", json!({ "prompt": "Two." }), "two"),
        ("/api/traces/s/reflect", json!({}), "{\"experiences\": []}"),
    ] {
        let run = ask_and_kill(&mut served, Method::POST, path, Some(body), 202).await;
        completes(&served, &service, &run, reply).await;
    }
}

#[tokio::test]
async fn acknowledged_stop_of_an_interrupted_run_survives() {
    let service = ManualModelService::new();
    let mut served = served(&service);
    start(&served, "s", "Work.").await;
    drop(service.next());
    served.kill();
    let stop = served
        .world
        .command(&["traces", "stop", "s"])
        .env("SOONG_FAULTS", SLOW_COMMITS[0].1)
        .output()
        .unwrap();
    assert!(
        stop.status.success(),
        "{}",
        String::from_utf8_lossy(&stop.stderr)
    );
    served.restart();
    assert_eq!(
        served.get("/api/traces/s").await["trace"]["status"],
        "stopped"
    );
}

#[tokio::test]
async fn acknowledged_detached_run_is_resumed() {
    let service = ManualModelService::new();
    let mut served = served(&service);
    let ran = served
        .world
        .run(&["run", "--detach", "--session", "s", "--json", "Work."])
        .expect_code(0)
        .json();
    served.kill();
    served.restart();
    completes(&served, &service, &ran, "done").await;
}
