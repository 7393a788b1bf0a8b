//! A runtime that has permanently lost an actor: every interface reports it, no request waits for
//! it, and its runs resume after a restart.

use reqwest::Method;
use serde_json::{Value, json};

use crate::{
    process::TIMEOUT,
    served::{Frames, SocketMessage, TestServer, answer},
    service::ManualModelService,
};

/// Crashes a gateway until it is no longer restarted.
async fn crash_gateway(served: &TestServer, profile: &str) {
    let request = served.request(
        Method::POST,
        &format!("/api/tree/model_gateway:{profile}/kill"),
    );
    let crashing = async {
        while !served
            .get("/api/tree")
            .await
            .to_string()
            .contains(r#""state":"failed""#)
        {
            answer(request.try_clone().unwrap()).await;
        }
    };
    tokio::time::timeout(TIMEOUT, crashing)
        .await
        .expect("the gateway is given up");
}

async fn ready(served: &TestServer) -> (u16, Value) {
    let (status, body) = answer(served.open(Method::GET, "/health/ready")).await;
    (status.as_u16(), body)
}

/// Waits until the server reports that it is not ready, and returns the error.
async fn failed(served: &TestServer) -> Value {
    let failed = async {
        loop {
            match ready(served).await {
                (200, _) => tokio::task::yield_now().await,
                (status, body) => return (status, body),
            }
        }
    };
    let (status, body) = tokio::time::timeout(TIMEOUT, failed)
        .await
        .expect("it is not ready");
    assert_eq!(
        (status, &body["error"]["code"]),
        (503, &json!("runtime_failed")),
        "{body}"
    );
    body["error"].clone()
}

#[tokio::test]
async fn failed_gateway_interrupts_its_runs_and_ends_their_streams() {
    let service = ManualModelService::new();
    let mut served = TestServer::new(&format!(
        "[model]\nbase_url = \"{}\"\nname = \"m\"\n",
        service.address
    ));
    let (_, run) = served
        .post(
            "/api/traces",
            json!({ "prompt": "Work.", "session_id": "s" }),
        )
        .await;
    let (_, other) = served
        .post(
            "/api/traces",
            json!({ "prompt": "Stop.", "session_id": "t" }),
        )
        .await;
    let follower = served.world.start(&["run", "--session", "u", "Follow."]);
    let requests = service.take(3);
    let mut socket = served.watch(&served.token(), "/api/traces/s/watch").await;
    let mut frames =
        Frames::open(served.request(Method::GET, "/api/traces/s/events?tree=true")).await;
    crash_gateway(&served, "default").await;
    let error = failed(&served).await;
    let reason = error["message"].as_str().unwrap();
    assert!(
        reason.contains("the model gateway of profile \"default\" exceeded its restart limit"),
        "{reason}"
    );
    // The interrupted model calls are retried and find no gateway.
    drop(requests);

    let mut last = Value::Null;
    loop {
        match socket.next().await {
            SocketMessage::Event(event) => last = event,
            received => {
                break assert!(
                    matches!(received, SocketMessage::Closed(1011)),
                    "{received:?}"
                );
            }
        }
    }
    assert_eq!(
        (&last["event"], &last["data"]["error"]["code"]),
        (&json!("error"), &json!("runtime_failed"))
    );
    let mut last = None;
    while let Some(frame) = frames.next().await {
        last = Some(frame);
    }
    let last = last.unwrap();
    assert_eq!(
        (last.name.as_deref(), &last.data["error"]["message"]),
        (Some("error"), &json!(reason))
    );
    follower
        .finish()
        .expect_code(1)
        .expect_stderr(&["the model gateway of profile"]);

    let run = run["run_id"].as_str().unwrap();
    assert_eq!(
        served.get(&format!("/api/runs/{run}")).await["status"],
        "interrupted"
    );
    assert_eq!(
        served.get("/api/traces/s").await["trace"]["status"],
        "interrupted"
    );
    let listed = async |status: &str| {
        served.get(&format!("/api/traces?status={status}")).await["traces"].clone()
    };
    let all = async { while listed("interrupted").await.as_array().unwrap().len() < 3 {} };
    tokio::time::timeout(TIMEOUT, all)
        .await
        .expect("all sessions are interrupted");
    assert_eq!(listed("running").await, json!([]));
    // Streams opened now return the stored events, and then end in the same way.
    let mut frames = Frames::open(served.request(Method::GET, "/api/traces/s/events")).await;
    let mut late = Vec::new();
    while let Some(frame) = tokio::time::timeout(TIMEOUT, frames.next())
        .await
        .expect("it ends")
    {
        late.push(frame);
    }
    assert!(late.len() > 1, "stored events come first");
    assert_eq!(late.pop().unwrap().data["error"]["message"], json!(reason));
    let mut socket = served.watch(&served.token(), "/api/traces/s/watch").await;
    while let SocketMessage::Event(_) = tokio::time::timeout(TIMEOUT, socket.next())
        .await
        .expect("it ends")
    {}
    let (status, refused) = served
        .post("/api/traces", json!({ "prompt": "More." }))
        .await;
    assert_eq!(
        (status.as_u16(), &refused["error"]["message"]),
        (503, &json!(reason))
    );
    let examined = served.world.run(&["doctor"]).expect_code(1).out;
    assert!(
        examined.contains("does not accept runs: the model gateway of profile"),
        "{examined}"
    );
    served
        .world
        .run(&["traces", "events", "s", "--follow"])
        .expect_code(1)
        .expect_stderr(&["trace s was interrupted"]);
    let (status, stopped) = served.post("/api/traces/t/stop", json!({})).await;
    assert_eq!(
        (status.as_u16(), &stopped["run_id"]),
        (202, &other["run_id"])
    );
    assert_eq!(
        served.get("/api/traces/t").await["trace"]["status"],
        "stopped"
    );

    served.kill();
    assert!(
        served
            .world
            .run(&["traces", "list"])
            .expect_code(0)
            .out
            .contains("interrupted")
    );
    served.restart();
    for _ in 0..2 {
        service.next().answer("done");
    }
    assert_eq!(
        served.ended_run(&served.token(), run).await["status"],
        "completed"
    );
    assert_eq!(ready(&served).await.0, 200);
}

#[tokio::test]
async fn failed_gateway_affects_no_other_profile() {
    let service = ManualModelService::new();
    let config = format!(
        "[model]\nbase_url = \"{0}\"\nname = \"m\"\n[model_profiles.other]\nbase_url = \"{0}\"\nname = \"o\"\n",
        service.address
    );
    let served = TestServer::new(&config);
    let (_, healthy) = served
        .post(
            "/api/traces",
            json!({ "prompt": "Work.", "session_id": "s" }),
        )
        .await;
    let of_healthy = service.next();
    let (_, lost) = served
        .post(
            "/api/traces",
            json!({ "prompt": "Fail.", "session_id": "t", "model": "other" }),
        )
        .await;
    let of_lost = service.next();
    let mut socket = served.watch(&served.token(), "/api/traces/t/watch").await;
    crash_gateway(&served, "other").await;
    drop(of_lost);
    while !matches!(socket.next().await, SocketMessage::Closed(1011)) {}
    assert_eq!(
        served
            .get(&format!("/api/runs/{}", lost["run_id"].as_str().unwrap()))
            .await["status"],
        "interrupted"
    );
    let request = json!({ "prompt": "More.", "model": "other" });
    let (status, refused) = served.post("/api/traces", request).await;
    assert_eq!(
        (status.as_u16(), &refused["error"]["code"]),
        (503, &json!("runtime_failed"))
    );
    let (status, body) = ready(&served).await;
    assert_eq!((status, &body["failed_profiles"]), (200, &json!(["other"])));

    of_healthy.answer("done");
    let ended = served
        .ended_run(&served.token(), healthy["run_id"].as_str().unwrap())
        .await;
    assert_eq!(ended["status"], "completed");
    let (status, next) = served
        .post(
            "/api/traces",
            json!({ "prompt": "Again.", "session_id": "s" }),
        )
        .await;
    assert_eq!(status, 202, "{next}");
    service.next().answer("done");
    served
        .ended_run(&served.token(), next["run_id"].as_str().unwrap())
        .await;
}

#[tokio::test]
async fn server_is_not_ready_until_the_disk_accepts_writes() {
    let served = TestServer::with(
        crate::served::OFFLINE,
        &[("SOONG_FAULTS", "before_commit@1..=fail")],
    );
    assert_eq!(ready(&served).await.0, 200);
    let (status, refused) = served
        .post("/api/traces", json!({ "prompt": "hello" }))
        .await;
    assert_eq!(
        (status.as_u16(), &refused["error"]["code"]),
        (503, &json!("storage_error"))
    );
    let (status, body) = ready(&served).await;
    assert_eq!(
        (status, &body["error"]["code"]),
        (503, &json!("storage_error")),
        "{body}"
    );
    served.world.run(&["sessions", "list"]).expect_code(0);

    let served = TestServer::with(
        crate::served::OFFLINE,
        &[("SOONG_FAULTS", "before_commit@1=fail")],
    );
    assert_eq!(
        served
            .post("/api/traces", json!({ "prompt": "hello" }))
            .await
            .0,
        503
    );
    assert_eq!(
        ready(&served).await.0,
        200,
        "there is room again: a check notices it"
    );
}

#[tokio::test]
async fn server_is_not_ready_while_files_of_artifacts_are_rejected() {
    let upload = async |served: &TestServer| {
        let path = "/api/sessions/s/artifacts/content?name=a.md";
        let (status, body) = answer(
            served
                .request(Method::PUT, path)
                .header("content-type", "text/markdown")
                .body("a"),
        )
        .await;
        assert_eq!(
            (status.as_u16(), &body["error"]["code"]),
            (503, &json!("storage_error")),
            "{body}"
        );
    };
    let served = TestServer::with(
        crate::served::OFFLINE,
        &[("SOONG_FAULTS", "before_blob@1..=fail")],
    );
    let (status, _) = served
        .post("/api/sessions", json!({ "session_id": "s" }))
        .await;
    assert_eq!(status, 201);
    assert_eq!(ready(&served).await.0, 200);
    upload(&served).await;
    let (status, body) = ready(&served).await;
    assert_eq!(
        (status, &body["error"]["code"]),
        (503, &json!("storage_error")),
        "{body}"
    );

    let served = TestServer::with(
        crate::served::OFFLINE,
        &[("SOONG_FAULTS", "before_blob@1=fail")],
    );
    let (status, _) = served
        .post("/api/sessions", json!({ "session_id": "s" }))
        .await;
    assert_eq!(status, 201);
    upload(&served).await;
    assert_eq!(
        ready(&served).await.0,
        200,
        "there is room again: a check notices it"
    );
}
