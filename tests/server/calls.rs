//! Single model calls, and runs on the trace of a sub-agent, over HTTP.

use reqwest::Method;
use serde_json::{Value, json};

use crate::{
    served::{TestServer, answer, code},
    service::ManualModelService,
};

fn start(service: &ManualModelService) -> TestServer {
    let retry = "[model.retry]\nmax_attempts = 1\n";
    TestServer::new(&format!(
        "[model]\nbase_url = \"{}\"\nname = \"m\"\n{retry}",
        service.address
    ))
}

/// Sends a call whose answer the client waits for.
fn ask(served: &TestServer, body: &Value) -> tokio::task::JoinHandle<(reqwest::StatusCode, Value)> {
    tokio::spawn(answer(
        served
            .request(Method::POST, "/api/calls?wait_s=30")
            .json(body),
    ))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn call_is_answered_with_its_record() {
    let service = ManualModelService::new();
    let served = start(&service);
    let messages =
        json!([{ "role": "system", "content": "Be terse." }, { "role": "user", "content": "hi" }]);
    let waiting = ask(&served, &json!({ "messages": messages }));
    let request = service.next();
    assert_eq!(request.last_message(), "hi");
    request.answer("hello");
    let (status, record) = waiting.await.unwrap();
    assert_eq!(status, 200, "{record}");
    let result = (&record["status"], &record["output"], &record["mode"]);
    assert_eq!(
        result,
        (&json!("completed"), &json!("hello"), &json!("call"))
    );
    assert_eq!(record["usage"]["model_calls"], 1);

    // A failure of the model's service is an error response.
    let waiting = ask(&served, &json!({ "prompt": "hi" }));
    drop(service.next());
    let (status, error) = waiting.await.unwrap();
    assert_eq!(
        (status.as_u16(), code(&error)),
        (502, "provider_error"),
        "{error}"
    );

    // A call that nobody waits for long enough continues.
    let (status, accepted) = served
        .post("/api/calls?wait_s=0", json!({ "prompt": "hi" }))
        .await;
    assert_eq!(
        (status.as_u16(), &accepted["status"]),
        (202, &json!("started"))
    );
    service.next().answer("later");
    let ended = served
        .ended_run(&served.token(), accepted["run_id"].as_str().unwrap())
        .await;
    assert_eq!(ended["output"], "later");

    let listed = served.get("/api/sessions").await;
    assert_eq!(listed["sessions"], json!([]), "lists leave calls out");
    let all = served.get("/api/sessions?all=true").await;
    assert!(
        all["sessions"]
            .as_array()
            .unwrap()
            .iter()
            .all(|session| session["kind"] == "call"),
        "{all}"
    );
    assert_eq!(all["sessions"].as_array().unwrap().len(), 3);
    assert_eq!(served.get("/api/traces").await["traces"], json!([]));
    assert_eq!(
        served.get("/api/traces?run_mode=call").await["traces"]
            .as_array()
            .unwrap()
            .len(),
        3
    );
}

#[tokio::test]
async fn invalid_calls_are_named() {
    let served = start(&ManualModelService::new());
    for (path, body, part) in [
        (
            "/api/calls?wait_s=121",
            json!({ "prompt": "x" }),
            "wait_s must be 0 to 120",
        ),
        (
            "/api/calls",
            json!({ "prompt": "x", "session_id": "s" }),
            "session_id",
        ),
        (
            "/api/calls",
            json!({ "prompt": "x", "mode": "orchestrator" }),
            "mode",
        ),
        (
            "/api/calls",
            json!({ "prompt": "x", "tools": ["read"] }),
            "tools",
        ),
        ("/api/calls", json!({}), "a message is required"),
    ] {
        let (status, body) = served.post(path, body).await;
        assert_eq!(
            (status.as_u16(), code(&body)),
            (400, "validation_error"),
            "{body}"
        );
        assert!(body.to_string().contains(part), "{body}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn trace_of_a_sub_agent_is_continued() {
    let service = ManualModelService::new();
    let served = start(&service);
    let (_, parent) = served
        .post(
            "/api/traces",
            json!({ "prompt": "Divide", "session_id": "s" }),
        )
        .await;
    let mut request = service.next();
    request.call("agent", &json!({ "task": "left" }));
    request.end();
    service.next().answer("left done");
    service.next().answer("all done");
    served
        .ended_run(&served.token(), parent["run_id"].as_str().unwrap())
        .await;
    let traces = served.get("/api/traces?parent_trace_id=s").await;
    let child = traces["traces"][0]["trace_id"].as_str().unwrap().to_owned();
    let run = format!("/api/traces/{}/run", child.replace('@', "%40"));
    let (status, accepted) = served.post(&run, json!({ "prompt": "more" })).await;
    assert_eq!(
        (status.as_u16(), &accepted["trace_id"]),
        (202, &json!(child)),
        "{accepted}"
    );
    let request = service.next();
    assert_eq!(request.last_message(), "more");
    request.answer("more is done");
    let ended = served
        .ended_run(&served.token(), accepted["run_id"].as_str().unwrap())
        .await;
    assert_eq!(
        (&ended["output"], &ended["session_id"]),
        (&json!("more is done"), &json!("s"))
    );
    let parent = served.get("/api/traces/s").await;
    let collaborator = &parent["trace"]["context"]["collaborators"][0];
    assert_eq!(
        (&collaborator["name"], &collaborator["summary"]),
        (&json!("left"), &json!("more is done")),
        "{parent}"
    );
    let (status, error) = served
        .post(&run, json!({ "prompt": "x", "agent_type": "orchestrator" }))
        .await;
    assert_eq!(
        (status.as_u16(), code(&error)),
        (400, "validation_error"),
        "{error}"
    );
    let reflect = run.replace("/run", "/reflect");
    let (status, accepted) = served.post(&reflect, json!({})).await;
    assert_eq!(
        (status.as_u16(), &accepted["trace_id"]),
        (202, &json!(child))
    );
    service.next().answer("{\"experiences\": []}");
    served
        .ended_run(&served.token(), accepted["run_id"].as_str().unwrap())
        .await;
}
