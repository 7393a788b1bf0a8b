//! Every route: it works, the OpenAPI document contains it, and invalid requests are rejected.

use std::collections::BTreeSet;

use reqwest::{Method, multipart};
use serde_json::{Value, json};

use crate::{
    served::{OFFLINE, TestServer, answer, code},
    service::ManualModelService,
};

/// Returns the operations of a document, as `METHOD /path`.
pub(crate) fn operations(document: &Value) -> BTreeSet<String> {
    let paths = document["paths"].as_object().unwrap();
    let of = |(path, item): (&String, &Value)| {
        let methods: Vec<String> = item
            .as_object()
            .unwrap()
            .keys()
            .map(|method| method.to_uppercase())
            .collect();
        methods
            .into_iter()
            .map(|method| format!("{method} {path}"))
            .collect::<Vec<_>>()
    };
    paths.iter().flat_map(of).collect()
}

/// Sends requests and records which operations were used.
struct Walk<'a> {
    served: &'a TestServer,
    operations: BTreeSet<String>,
}

impl Walk<'_> {
    async fn ask(
        &mut self,
        operation: &str,
        path: &str,
        body: Option<Value>,
        status: u16,
    ) -> Value {
        let method: Method = operation.split(' ').next().unwrap().parse().unwrap();
        let mut request = self.served.request(method, path);
        if let Some(body) = body {
            request = request.json(&body);
        }
        self.take(operation, request, status).await
    }

    async fn take(
        &mut self,
        operation: &str,
        request: reqwest::RequestBuilder,
        status: u16,
    ) -> Value {
        let (got, body) = answer(request).await;
        assert_eq!(got, status, "{operation}: {body}");
        self.operations.insert(operation.to_owned());
        body
    }
}

#[tokio::test]
async fn every_documented_operation_works() {
    let service = ManualModelService::new();
    let config = format!(
        "[model]\nbase_url = \"{}\"\nname = \"m\"\n",
        service.address
    );
    let served = TestServer::new(&config);
    let mut walk = Walk {
        served: &served,
        operations: BTreeSet::new(),
    };
    let document = walk.served.get("/openapi.json").await;
    let get = |path: &str| format!("GET {path}");

    // A session with files, before its first run.
    let project = served.world.project();
    let spec = json!({ "session_id": "s", "project_dir": project, "name": "Mine" });
    let made = walk
        .ask("POST /api/sessions", "/api/sessions", Some(spec), 201)
        .await;
    assert_eq!(
        (&made["session"]["name"], &made["session"]["uid"]),
        (&json!("Mine"), &json!("local"))
    );
    let at = "/api/sessions/{session_id}/artifacts";
    let upload = multipart::Part::bytes(b"hello".to_vec())
        .file_name("a b.txt")
        .mime_str("text/plain")
        .unwrap();
    let form = multipart::Form::new().part("file", upload);
    let request = served
        .request(Method::POST, "/api/sessions/s/artifacts/upload")
        .multipart(form);
    let stored = walk.take(&format!("POST {at}/upload"), request, 201).await;
    assert_eq!(
        (&stored["name"], &stored["version"], &stored["size"]),
        (&json!("a b.txt"), &json!(1), &json!(5))
    );
    let put = |text: &'static str| {
        served
            .request(Method::PUT, "/api/sessions/s/artifacts/plan.md")
            .header("content-type", "text/markdown")
            .body(text)
    };
    let one = format!("{at}/{{name}}");
    assert_eq!(
        walk.take(&format!("PUT {one}"), put("# One\n"), 201).await["version"],
        1
    );
    assert_eq!(
        walk.take(&format!("PUT {one}"), put("# Two\n"), 200).await["version"],
        2
    );
    let edit = json!({ "old": "Two", "new": "Three" });
    let path = "/api/sessions/s/artifacts/plan.md";
    assert_eq!(
        walk.ask(&format!("PATCH {one}"), path, Some(edit), 200)
            .await["layer"],
        "exact"
    );
    let listed = walk
        .ask(&get(at), "/api/sessions/s/artifacts", None, 200)
        .await;
    assert_eq!(listed["artifacts"].as_array().unwrap().len(), 2);
    let shown = walk.ask(&get(&one), path, None, 200).await;
    assert_eq!(
        (
            &shown["content"],
            shown["versions"].as_array().unwrap().len()
        ),
        (&json!("# Three\n"), 3)
    );
    let content = walk
        .ask(
            &get(&format!("{one}/content")),
            &format!("{path}/content?version=1"),
            None,
            200,
        )
        .await;
    assert_eq!(content, "# One\n");
    walk.ask(
        &get(&format!("{one}/versions")),
        &format!("{path}/versions"),
        None,
        200,
    )
    .await;
    let version = walk
        .ask(
            &get(&format!("{one}/versions/{{version}}")),
            &format!("{path}/versions/2"),
            None,
            200,
        )
        .await;
    assert_eq!(version["version"], 2);
    let request = served.request(Method::GET, &format!("{path}/export?format=docx"));
    let docx = request.send().await.unwrap().bytes().await.unwrap();
    assert!(docx.starts_with(b"PK"), "a .docx is an archive");
    walk.operations.insert(get(&format!("{one}/export")));

    // A run whose model waits, with children added through the API.
    let start = json!({ "messages": [{ "role": "user", "content": "Work." }], "session_id": "s" });
    let accepted = walk
        .ask("POST /api/traces", "/api/traces", Some(start), 202)
        .await;
    assert_eq!(
        (&accepted["status"], &accepted["trace_id"]),
        (&json!("started"), &json!("s"))
    );
    let run = accepted["run_id"].as_str().unwrap().to_owned();
    let mut model_request = service.next();
    let children = json!({ "tasks": ["left", "right"] });
    let spawned = walk
        .ask(
            "POST /api/runs/{run_id}/children",
            &format!("/api/runs/{run}/children"),
            Some(children),
            202,
        )
        .await;
    let children = spawned["children"].as_array().unwrap();
    assert_eq!(children.len(), 2);
    assert!(
        children[0]["trace_id"]
            .as_str()
            .unwrap()
            .starts_with("s@explore-001")
    );
    let of_children = service.take(2);
    let running = walk
        .ask(
            &get("/api/traces/running"),
            "/api/traces/running?limit=2",
            None,
            200,
        )
        .await;
    assert_eq!(running["traces"].as_array().unwrap().len(), 2);
    assert!(running["next_cursor"].is_string());
    walk.ask(
        &get("/api/traces"),
        "/api/traces?parent_trace_id=s&status=running",
        None,
        200,
    )
    .await;
    let tree = walk.ask(&get("/api/tree"), "/api/tree", None, 200).await;
    assert_eq!(tree["kind"], "runtime_supervisor");
    let reject = json!({ "prompt": "x", "session_id": "s", "if_busy": "reject" });
    assert_eq!(
        code(&served.post("/api/traces", reject).await.1),
        "session_active"
    );
    let child = children[0]["trace_id"]
        .as_str()
        .unwrap()
        .replace('@', "%40");
    walk.ask(
        "POST /api/traces/{trace_id}/stop",
        &format!("/api/traces/{child}/stop"),
        None,
        202,
    )
    .await;
    let killed = walk
        .ask(
            "POST /api/tree/{actor_id}/kill",
            &format!("/api/tree/run:{run}/kill"),
            None,
            202,
        )
        .await;
    assert_eq!(killed["actor_id"], format!("run:{run}"));
    drop(model_request);
    drop(of_children);

    // The run restarts and repeats its model call. Then it requests permission and asks a question.
    // Its children repeat their calls as well.
    let next_with = |text: &str| loop {
        let request = service.next();
        if request.body["messages"].to_string().contains(text) {
            break request;
        }
    };
    model_request = next_with("Work.");
    model_request.call("write", &json!({ "path": "x.txt", "content": "x" }));
    model_request.end();
    let permission = served
        .wait_for("/api/permissions?status=pending", "permissions")
        .await;
    walk.ask(
        &get("/api/permissions"),
        "/api/permissions?status=pending&session_id=s",
        None,
        200,
    )
    .await;
    let id = permission["permission_id"]
        .as_str()
        .unwrap()
        .replace('@', "%40");
    let deny = json!({ "decision": "deny", "reason": "not now" });
    let decided = walk
        .ask(
            "POST /api/permissions/{permission_id}",
            &format!("/api/permissions/{id}"),
            Some(deny),
            200,
        )
        .await;
    assert_eq!(
        (&decided["status"], &decided["reason"]),
        (&json!("denied"), &json!("not now"))
    );
    let second_decision = served
        .post(
            &format!("/api/permissions/{id}"),
            json!({ "decision": "deny" }),
        )
        .await;
    assert_eq!(
        (second_decision.0.as_u16(), code(&second_decision.1)),
        (409, "already_decided")
    );
    let mut model_request = next_with("Work.");
    model_request.call("ask_human", &json!({ "question": "Which?" }));
    model_request.end();
    let question = served
        .wait_for("/api/questions?status=pending", "questions")
        .await;
    walk.ask(
        &get("/api/questions"),
        "/api/questions?session_id=s",
        None,
        200,
    )
    .await;
    let id = question["question_id"]
        .as_str()
        .unwrap()
        .replace('@', "%40");
    let body = Some(json!({ "answer": "This." }));
    walk.ask(
        "POST /api/questions/{question_id}",
        &format!("/api/questions/{id}"),
        body,
        200,
    )
    .await;
    let model_request = next_with("Work.");
    let mode = json!({ "permission_mode": "edits" });
    let operation = "POST /api/sessions/{session_id}/permission-mode";
    let set = walk
        .ask(
            operation,
            "/api/sessions/s/permission-mode",
            Some(mode.clone()),
            200,
        )
        .await;
    assert_eq!(set, mode);
    model_request.answer("Done.");
    // The other child still waits for its model.
    for child in children {
        let id = child["run_id"].as_str().unwrap();
        let (status, body) =
            answer(served.request(Method::POST, &format!("/api/runs/{id}/cancel"))).await;
        assert!(status == 202 || code(&body) == "nothing_running", "{body}");
    }
    walk.operations
        .insert("POST /api/runs/{run_id}/cancel".to_owned());
    let ended = served.ended_run(&served.token(), &run).await;
    assert_eq!(
        (&ended["status"], &ended["output"]),
        (&json!("completed"), &json!("Done."))
    );
    let record = walk
        .ask(
            &get("/api/runs/{run_id}"),
            &format!("/api/runs/{run}"),
            None,
            200,
        )
        .await;
    assert!(
        record["model_name"].is_string(),
        "the model and not only its profile: {record}"
    );

    // The records of the run.
    let shown = walk
        .ask(&get("/api/traces/{trace_id}"), "/api/traces/s", None, 200)
        .await;
    assert_eq!(shown["sub_traces"].as_array().unwrap().len(), 2);
    let goal = shown["goal_tree"]["goals"][0]["id"]
        .as_str()
        .unwrap()
        .to_owned();
    let messages = walk
        .ask(
            &get("/api/traces/{trace_id}/messages"),
            "/api/traces/s/messages?mode=all",
            None,
            200,
        )
        .await;
    let messages = messages["messages"].as_array().unwrap();
    assert_eq!(messages[1]["content"], "Work.");
    let of_goal = served
        .get(&format!("/api/traces/s/messages?goal_id={goal}"))
        .await;
    let of_goal = of_goal["messages"].as_array().unwrap();
    assert!(!of_goal.is_empty() && of_goal.len() < messages.len());
    let page = walk
        .ask(
            &get("/api/traces/{trace_id}/events"),
            "/api/traces/s/events?limit=3",
            None,
            200,
        )
        .await;
    let numbers: Vec<u64> = page["events"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|e| e["event_id"].as_u64())
        .collect();
    assert_eq!(numbers, [1, 2, 3]);
    walk.ask(&get("/api/usage"), "/api/usage?by=model", None, 200)
        .await;
    let settings = walk
        .ask(&get("/api/settings"), "/api/settings", None, 200)
        .await;
    assert!(
        settings["settings"]["model.name"].is_string() && settings["environment"].is_object(),
        "{settings}"
    );

    // The session is forked, rewound, continued, reflected on and deleted.
    let head = messages.last().unwrap()["sequence"].as_u64().unwrap();
    let forked = walk
        .ask(
            "POST /api/sessions/{session_id}/fork",
            "/api/sessions/s/fork",
            None,
            201,
        )
        .await;
    let copy = forked["session"]["session_id"].as_str().unwrap().to_owned();
    let back = Some(json!({ "sequence": 2 }));
    let moved = walk
        .ask(
            "POST /api/sessions/{session_id}/head",
            "/api/sessions/s/head",
            back,
            200,
        )
        .await;
    assert_eq!(
        (&moved["sequence"], &moved["from_sequence"]),
        (&json!(2), &json!(head))
    );
    let more = Some(json!({ "prompt": "More.", "auto_execute_tools": false }));
    let accepted = walk
        .ask(
            "POST /api/traces/{trace_id}/run",
            "/api/traces/s/run",
            more,
            202,
        )
        .await;
    // A child may have repeated its call before it was cancelled.
    let mut model_request = next_with("More.");
    model_request.call("read", &json!({ "path": "README.md" }));
    model_request.end();
    let ended = served
        .ended_run(&served.token(), accepted["run_id"].as_str().unwrap())
        .await;
    let call = &ended["tool_calls"][0];
    assert_eq!(
        (&call["function"]["name"], &ended["status"]),
        (&json!("read"), &json!("completed"))
    );
    let results =
        json!({ "messages": [{ "role": "tool", "tool_call_id": call["id"], "content": "ships" }] });
    let (_, accepted) = served.post("/api/traces/s/run", results).await;
    let model_request = service.next();
    assert_eq!(model_request.last_message(), "ships");
    model_request.answer("Ships.");
    assert_eq!(
        served
            .ended_run(&served.token(), accepted["run_id"].as_str().unwrap())
            .await["output"],
        "Ships."
    );
    let focus = Some(json!({ "focus": "ships" }));
    let accepted = walk
        .ask(
            "POST /api/traces/{trace_id}/reflect",
            "/api/traces/s/reflect",
            focus,
            202,
        )
        .await;
    let model_request = service.next();
    model_request.answer(
        r#"{"experiences": [{"category": "domain", "tags": {"state": [], "intent": ["count"]}, "text": "Ships."}]}"#,
    );
    served
        .ended_run(&served.token(), accepted["run_id"].as_str().unwrap())
        .await;
    let call = Some(json!({ "prompt": "Translate" }));
    let accepted = walk.ask("POST /api/calls", "/api/calls", call, 202).await;
    service.next().answer("Done.");
    served
        .ended_run(&served.token(), accepted["run_id"].as_str().unwrap())
        .await;
    let known = walk
        .ask(&get("/api/experiences"), "/api/experiences", None, 200)
        .await;
    assert!(
        known.as_str().unwrap().contains("\nShips.\n"),
        "Markdown by itself: {known}"
    );
    let known = answer(
        served
            .request(Method::GET, "/api/experiences")
            .header("accept", "application/json"),
    )
    .await
    .1;
    assert_eq!(known["experiences"][0]["text"], "Ships.");
    let skills = walk
        .ask(&get("/api/skills"), "/api/skills", None, 200)
        .await;
    assert_eq!(skills["skills"].as_array().unwrap().len(), 3);
    let presets = walk
        .ask(&get("/api/presets"), "/api/presets", None, 200)
        .await;
    assert_eq!(presets["presets"].as_array().unwrap().len(), 6);
    walk.ask(
        "POST /api/cleanup/artifacts",
        "/api/cleanup/artifacts",
        Some(json!({ "include_all": true })),
        200,
    )
    .await;
    walk.ask(
        "POST /api/cleanup/tasks",
        "/api/cleanup/tasks",
        Some(json!({ "project_dir": project })),
        200,
    )
    .await;
    walk.ask(&format!("DELETE {one}"), path, None, 204).await;
    walk.ask(&get("/api/sessions"), "/api/sessions", None, 200)
        .await;
    walk.ask(
        &get("/api/sessions/{session_id}"),
        "/api/sessions/s",
        None,
        200,
    )
    .await;
    for session in ["s", &copy] {
        walk.ask(
            "DELETE /api/sessions/{session_id}",
            &format!("/api/sessions/{session}"),
            None,
            204,
        )
        .await;
    }
    assert_eq!(
        code(
            &answer(served.request(Method::GET, "/api/sessions/s"))
                .await
                .1
        ),
        "session_not_found"
    );
    for path in ["/health/live", "/health/ready", "/metrics"] {
        walk.ask(&get(path), path, None, 200).await;
    }

    // WebSocket routes are tested in `streams.rs`.
    for path in ["/api/traces/{trace_id}/watch", "/api/tree/watch"] {
        walk.operations.insert(get(path));
    }
    assert_eq!(
        operations(&document),
        walk.operations,
        "each operation is tried, and each that is tried is in the document"
    );
}

#[tokio::test]
async fn rejection_names_the_error_and_changes_nothing() {
    let served = TestServer::new(OFFLINE);
    served.run_to_end(&served.token(), "s", "hello").await;
    let before = served.get("/api/traces/s").await;
    for (method, path, body, status, refusal) in [
        ("GET", "/api/nothing", None, 404, "route_not_found"),
        ("PATCH", "/api/traces", None, 405, "validation_error"),
        ("GET", "/api/traces?limit=0", None, 400, "validation_error"),
        (
            "GET",
            "/api/traces?limit=101",
            None,
            400,
            "validation_error",
        ),
        (
            "GET",
            "/api/traces?status=sleeping",
            None,
            400,
            "validation_error",
        ),
        ("GET", "/api/traces?cursor=x", None, 400, "validation_error"),
        (
            "GET",
            "/api/traces?colour=red",
            None,
            400,
            "validation_error",
        ),
        ("GET", "/api/traces/%FF", None, 400, "validation_error"),
        ("GET", "/api/traces/s/watch", None, 400, "validation_error"),
        (
            "GET",
            "/api/traces/..%2F..%2Fetc%2Fpasswd",
            None,
            404,
            "trace_not_found",
        ),
        (
            "GET",
            "/api/sessions/s/artifacts/..%2F..%2Fconfig.toml",
            None,
            404,
            "artifact_not_found",
        ),
        (
            "GET",
            "/api/sessions/s/artifacts/x/export?format=pdf",
            None,
            400,
            "validation_error",
        ),
        ("GET", "/api/runs/none", None, 404, "run_not_found"),
        (
            "POST",
            "/api/traces",
            Some(json!({ "prompt": "" })),
            400,
            "validation_error",
        ),
        (
            "POST",
            "/api/traces",
            Some(json!({})),
            400,
            "validation_error",
        ),
        (
            "POST",
            "/api/traces",
            Some(json!({ "prompt": "x", "promt": 1 })),
            400,
            "validation_error",
        ),
        (
            "POST",
            "/api/traces",
            Some(json!({ "prompt": "x", "temperature": 3 })),
            400,
            "validation_error",
        ),
        (
            "POST",
            "/api/traces",
            Some(json!({ "prompt": "x", "llm_params": { "n": 2 } })),
            400,
            "validation_error",
        ),
        (
            "POST",
            "/api/traces",
            Some(json!({ "prompt": "x", "session_id": "../x" })),
            400,
            "validation_error",
        ),
        (
            "POST",
            "/api/traces",
            Some(json!({ "prompt": "x", "uid": "bob" })),
            403,
            "forbidden",
        ),
        (
            "POST",
            "/api/traces",
            Some(json!({ "prompt": "x", "agent_type": "none" })),
            400,
            "validation_error",
        ),
        (
            "POST",
            "/api/traces",
            Some(json!({ "prompt": "x", "tools": ["none"] })),
            400,
            "validation_error",
        ),
        (
            "POST",
            "/api/traces",
            Some(json!({ "prompt": "x", "project_dir": "/none" })),
            404,
            "file_not_found",
        ),
        (
            "POST",
            "/api/traces/none/run",
            Some(json!({ "prompt": "x" })),
            404,
            "trace_not_found",
        ),
        (
            "POST",
            "/api/traces/s/run",
            Some(json!({})),
            400,
            "validation_error",
        ),
        (
            "POST",
            "/api/traces/s/run",
            Some(json!({ "prompt": "x", "after_sequence": 99 })),
            400,
            "validation_error",
        ),
        ("POST", "/api/traces/s/stop", None, 409, "nothing_running"),
        (
            "POST",
            "/api/sessions",
            Some(json!({ "session_id": "s" })),
            400,
            "validation_error",
        ),
        (
            "POST",
            "/api/sessions/s/head",
            None,
            400,
            "validation_error",
        ),
        (
            "POST",
            "/api/sessions/s/permission-mode",
            Some(json!({ "permission_mode": "most" })),
            400,
            "validation_error",
        ),
        (
            "POST",
            "/api/sessions/s/permission-mode",
            Some(json!({ "permission_mode": "plan" })),
            409,
            "nothing_running",
        ),
        (
            "POST",
            "/api/traces",
            Some(json!({ "messages": [] })),
            400,
            "validation_error",
        ),
        (
            "POST",
            "/api/tree/journal:0/kill",
            None,
            400,
            "validation_error",
        ),
        (
            "POST",
            "/api/tree/journal/kill",
            None,
            404,
            "actor_not_found",
        ),
        (
            "POST",
            "/api/tree/nonsense:1/kill",
            None,
            404,
            "actor_not_found",
        ),
        (
            "POST",
            "/api/tree/mcp_server:none/kill",
            None,
            404,
            "actor_not_found",
        ),
        (
            "POST",
            "/api/tree/run:none/kill",
            None,
            404,
            "actor_not_found",
        ),
        (
            "DELETE",
            "/api/sessions/none",
            None,
            404,
            "session_not_found",
        ),
    ] {
        let mut request = served.request(method.parse().unwrap(), path);
        if let Some(body) = &body {
            request = request.json(body);
        }
        let (got, response_body) = answer(request).await;
        assert_eq!(
            (got.as_u16(), code(&response_body)),
            (status, refusal),
            "{method} {path} {body:?}: {response_body}"
        );
        let error = &response_body["error"];
        if body
            .as_ref()
            .is_some_and(|body| body.get("messages").is_some())
        {
            assert!(
                error["message"]
                    .as_str()
                    .unwrap()
                    .starts_with("prompt, messages: "),
                "{response_body}"
            );
        }
        assert!(
            error["message"]
                .as_str()
                .is_some_and(|message| message.len() > 10)
                && error["retryable"].is_boolean()
        );
    }
    assert_eq!(served.get("/api/traces/s").await, before);
    assert_eq!(
        served.get("/api/traces").await["traces"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
}

#[tokio::test]
async fn body_needs_a_content_type_and_errors_name_the_field() {
    let served = TestServer::new(OFFLINE);
    for (media, body, status, part) in [
        (
            Some("application/json"),
            r#"{"prompt": 5}"#,
            400,
            "at prompt",
        ),
        (
            Some("application/json"),
            r#"{"budget": {"tokens": -1}, "prompt": "x"}"#,
            400,
            "at budget.tokens",
        ),
        (
            Some("application/json"),
            r#"{"prompt": "x"} x"#,
            400,
            "unexpected data after the JSON body",
        ),
        (Some("application/json"), "{", 400, "invalid body"),
        (Some("application/json"), "[null, null]", 400, "JSON object"),
        (Some("application/json"), " \"x\"", 400, "JSON object"),
        (
            Some("application/json; charset=utf-8"),
            r#"{"prompt": 5}"#,
            400,
            "at prompt",
        ),
        (
            Some("text/plain"),
            r#"{"prompt": "x"}"#,
            415,
            "Content-Type: application/json",
        ),
        (
            Some("application/x-www-form-urlencoded"),
            r#"{"prompt": "x"}"#,
            415,
            "Content-Type: application/json",
        ),
        (
            Some("text/xml"),
            "<x/>",
            415,
            "Content-Type: application/json",
        ),
        (
            None,
            r#"{"prompt": "x"}"#,
            415,
            "Content-Type: application/json",
        ),
        (None, "", 400, "no conversation to resume"),
    ] {
        let mut request = served.request(Method::POST, "/api/traces").body(body);
        if let Some(media) = media {
            request = request.header("content-type", media);
        }
        let (got, response_body) = answer(request).await;
        assert_eq!(got, status, "{media:?} {body}: {response_body}");
        assert!(
            response_body["error"]["message"]
                .as_str()
                .unwrap()
                .contains(part),
            "{media:?} {body}: {response_body}"
        );
    }
    assert!(
        served.get("/api/traces").await["traces"]
            .as_array()
            .unwrap()
            .is_empty()
    );
}

#[tokio::test]
async fn document_is_complete_with_security_and_error_responses() {
    let served = TestServer::new(OFFLINE);
    let document = served.get("/openapi.json").await;
    assert!(document["openapi"].as_str().unwrap().starts_with("3.1"));
    assert_eq!(document["info"]["version"], env!("CARGO_PKG_VERSION"));
    let text = document.to_string();
    for reference in text
        .split("\"#/components/schemas/")
        .skip(1)
        .map(|rest| rest.split('"').next().unwrap())
    {
        assert!(
            document["components"]["schemas"][reference].is_object(),
            "{reference} is missing"
        );
    }
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let at = format!("{method} {path}");
            let is_open = path.starts_with("/health/");
            let needs = operation["security"][0].get("token").is_some();
            assert_ne!(needs, is_open, "{at}: {}", operation["security"]);
            let words = format!("{} {}", operation["summary"], operation["description"]);
            assert!(words.len() > 20, "{at} says what it does");
            let responses = operation["responses"].as_object().unwrap();
            assert!(
                responses
                    .keys()
                    .any(|status| status.starts_with(['1', '2'])),
                "{at}"
            );
            for status in ["401", "503"] {
                let schema = &responses[status]["content"]["application/json"]["schema"];
                assert_eq!(
                    schema["$ref"], "#/components/schemas/ErrorBody",
                    "{at} {status}"
                );
            }
        }
    }
    let page = served.open(Method::GET, "/").send().await.unwrap();
    assert_eq!(page.status(), 200);
    let policy = page.headers()["content-security-policy"]
        .to_str()
        .unwrap()
        .to_owned();
    assert!(
        policy.contains("default-src 'none'") && policy.contains("nonce-"),
        "{policy}"
    );
    let page = page.text().await.unwrap();
    assert!(
        page.contains("/openapi.json") && page.contains(env!("CARGO_PKG_VERSION")),
        "{page}"
    );
    assert!(
        !page.contains(&served.token()) && !page.contains("http://") && !page.contains("{nonce}"),
        "{page}"
    );
}

#[tokio::test]
async fn options_names_the_documented_methods() {
    let served = TestServer::new(OFFLINE);
    let document = served.get("/openapi.json").await;
    let mut documented = BTreeSet::new();
    let mut allowed = BTreeSet::new();
    for operation in operations(&document) {
        let path = operation.split_once(' ').unwrap().1.to_owned();
        // The route of the form is also one of an artifact that is named `upload`.
        if path.ends_with("/artifacts/upload") || path.ends_with("/artifacts/{name}") {
            continue;
        }
        let response = served
            .request(Method::OPTIONS, &path.replace(['{', '}'], ""))
            .send()
            .await
            .unwrap();
        let methods = response.headers()["allow"].to_str().unwrap();
        allowed.extend(
            methods
                .split(',')
                .map(|method| format!("{} {path}", method.trim())),
        );
        documented.insert(operation);
    }
    assert_eq!(allowed, documented);
    let head = served
        .request(Method::HEAD, "/api/traces")
        .send()
        .await
        .unwrap();
    assert_eq!(head.status(), 200);
}

/// A PNG image of one pixel.
const PNG: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4z8AAAAMBAQDJ/pLvAAAAAElFTkSuQmCC";

#[tokio::test]
async fn image_in_a_request_reaches_the_model_and_its_artifact() {
    let service = ManualModelService::new();
    let served = TestServer::new(&format!(
        "[model]\nbase_url = \"{}\"\nname = \"m\"\n",
        service.address
    ));
    let url = format!("data:image/png;base64,{PNG}");
    let start = |part: Value| {
        let content = json!([{ "type": "text", "text": "What is it?" }, part]);
        json!({ "session_id": "s", "messages": [{ "role": "user", "content": content }] })
    };
    let image = json!({ "type": "image_url", "image_url": { "url": url, "detail": "low" } });
    let (status, accepted) = served.post("/api/traces", start(image)).await;
    assert_eq!(status, 202, "{accepted}");
    let request = service.next();
    let sent = request.body["messages"].as_array().unwrap().last().unwrap()["content"].clone();
    let expected = json!([{ "type": "text", "text": "What is it?" }, { "type": "image_url", "image_url": { "url": url } }]);
    assert_eq!(
        sent.as_array().unwrap()[..2],
        expected.as_array().unwrap()[..]
    );
    request.answer("A dot.");
    let run = accepted["run_id"].as_str().unwrap();
    assert_eq!(
        served.ended_run(&served.token(), run).await["task"],
        "What is it?"
    );
    let messages = served.get("/api/traces/s/messages").await;
    let part = &messages["messages"][1]["content"][1];
    assert_eq!(
        (&part["type"], &part["width"], &part["height"]),
        (&json!("image"), &json!(1), &json!(1))
    );
    let id = part["artifact_id"].as_str().unwrap();
    let content = served
        .request(
            Method::GET,
            &format!("/api/sessions/s/artifacts/{id}/content"),
        )
        .send()
        .await
        .unwrap();
    assert_eq!(content.headers()["content-type"], "image/png");
    let events = served.get("/api/traces/s/events?limit=100").await;
    let added = events["events"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|event| event["event"] == "message_added");
    assert!(
        added
            .into_iter()
            .any(|event| event["data"]["content"][1]["artifact_id"] == id),
        "{events}"
    );

    // Other forms, and their errors.
    for (part, expected) in [
        (json!({ "type": "image", "artifact_id": id }), None),
        (
            json!({ "type": "image_url", "image_url": { "url": "https://example.org/a.png" } }),
            Some("data:"),
        ),
        (
            json!({ "type": "file", "file": { "file_data": "data:application/pdf;base64,AAEC" } }),
            Some("model.input"),
        ),
        (
            json!({ "type": "image", "artifact_id": "none" }),
            Some("none"),
        ),
        (json!({ "type": "hologram" }), Some("hologram")),
    ] {
        let (status, answer) = served.post("/api/traces", start(part.clone())).await;
        match expected {
            None => {
                assert_eq!(status, 202, "{part}: {answer}");
                service.next().answer("The same.");
                served
                    .ended_run(&served.token(), answer["run_id"].as_str().unwrap())
                    .await;
            }
            Some(expected) => {
                assert!(status.is_client_error(), "{part}: {status} {answer}");
                assert!(
                    answer["error"]["message"]
                        .as_str()
                        .unwrap()
                        .contains(expected),
                    "{part}: {answer}"
                );
            }
        }
    }
}
