//! The requests that the source documents print, with their paths and bodies; see
//! `bin/guide/reference/conformance.md`. Each has the token of the server and `Content-Type:
//! application/json`.

use reqwest::Method;
use serde_json::{Value, json};

use crate::{
    served::{TestServer, answer, code},
    service::ManualModelService,
};

fn start(service: &ManualModelService) -> TestServer {
    TestServer::new(&format!(
        "[model]\nbase_url = \"{}\"\nname = \"m\"\n",
        service.address
    ))
}

/// Returns the sequence numbers of the main path.
async fn path(served: &TestServer, trace: &str) -> Vec<u64> {
    let messages = served
        .get(&format!("/api/traces/{trace}/messages?mode=main_path"))
        .await;
    messages["messages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|message| message["sequence"].as_u64().unwrap())
        .collect()
}

/// Sends a start, answers the call of the model, and waits for the end of the run.
async fn run(
    served: &TestServer,
    service: &ManualModelService,
    path: &str,
    body: Value,
    text: &str,
) -> Value {
    let (status, accepted) = served.post(path, body).await;
    assert_eq!(
        (status.as_u16(), &accepted["status"]),
        (202, &json!("started")),
        "{accepted}"
    );
    let request = service.next();
    request.answer(text);
    served
        .ended_run(&served.token(), accepted["run_id"].as_str().unwrap())
        .await;
    accepted
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_create_continue_rewind_stop_and_reflect_on_traces() {
    let service = ManualModelService::new();
    let served = start(&service);
    let user_messages = |text: &str| json!([{"role": "user", "content": text}]);

    let new = json!({"messages": user_messages("Describe the structure of this project"), "model": "another-model"});
    let (status, accepted) = served.post("/api/traces", new).await;
    assert_eq!(
        (status.as_u16(), &accepted["status"]),
        (202, &json!("started"))
    );
    let trace = accepted["trace_id"].as_str().unwrap().to_owned();
    let at = |what: &str| format!("/api/traces/{trace}/{what}");
    let mut watcher = served.watch(&served.token(), &at("watch")).await;
    let running = served.get("/api/traces/running").await;
    assert_eq!(running["traces"][0]["trace_id"], trace.as_str());
    let request = service.next();
    assert_eq!(request.body["model"], "another-model");
    request.answer("It is a garden.");
    while watcher.event().await["event"] != "run_completed" {}

    // Messages: 1 system, 2 user, 3 answer.
    run(
        &served,
        &service,
        &at("run"),
        json!({"messages": user_messages("Go on")}),
        "With trees.",
    )
    .await;
    assert_eq!(path(&served, &trace).await, [1, 2, 3, 4, 5]);
    let continued = json!({"after_sequence": null, "messages": user_messages("And then?")});
    run(&served, &service, &at("run"), continued, "And a fence.").await;
    assert_eq!(path(&served, &trace).await, [1, 2, 3, 4, 5, 6, 7]);
    let rewound = json!({"after_sequence": 5, "messages": user_messages("Another way")});
    run(&served, &service, &at("run"), rewound, "With flowers.").await;
    assert_eq!(path(&served, &trace).await, [1, 2, 3, 4, 5, 8, 9]);
    run(
        &served,
        &service,
        &at("run"),
        json!({"after_sequence": 8, "messages": []}),
        "With grass.",
    )
    .await;
    assert_eq!(path(&served, &trace).await, [1, 2, 3, 4, 5, 8, 10]);
    let all = served.get(&at("messages?mode=all")).await;
    assert_eq!(all["messages"].as_array().unwrap().len(), 10);

    let (_, accepted) = served
        .post(
            &at("run"),
            json!({"messages": user_messages("Think for long")}),
        )
        .await;
    let hanging = service.next();
    let (status, _) = answer(served.request(Method::POST, &at("stop"))).await;
    assert_eq!(status, 202);
    let ended = served
        .ended_run(&served.token(), accepted["run_id"].as_str().unwrap())
        .await;
    assert_eq!(ended["status"], "cancelled");
    drop(hanging);
    let shown = served.get(&format!("/api/traces/{trace}")).await;
    assert_eq!(shown["trace"]["status"], "stopped");
    assert!(shown["goal_tree"]["goals"].is_array() && shown["sub_traces"].is_array());

    let lesson = json!({"experiences": [{"category": "logic_flow", "text": "Draw the plan before the garden.",
        "tags": {"intent": ["design"], "state": ["garden"]}}], "used": []});
    let reflect = json!({"focus": "why the third step took the wrong way"});
    run(
        &served,
        &service,
        &at("reflect"),
        reflect,
        &lesson.to_string(),
    )
    .await;
    let experiences = served.get("/api/experiences").await;
    assert!(
        experiences
            .as_str()
            .unwrap()
            .contains("category: logic_flow"),
        "{experiences}"
    );
    assert!(
        experiences
            .as_str()
            .unwrap()
            .contains("Draw the plan before the garden."),
        "{experiences}"
    );
    let listed = served.get("/api/traces").await;
    assert_eq!(listed["traces"].as_array().unwrap().len(), 1);
}

/// `curl -d` without a content type sends a form, which another site could send too.
#[tokio::test]
async fn body_of_a_form_is_refused() {
    let served = start(&ManualModelService::new());
    for (operation, body) in [
        ("run", r#"{"messages": []}"#),
        ("reflect", r#"{"focus": "x"}"#),
    ] {
        let request = served
            .request(Method::POST, &format!("/api/traces/t/{operation}"))
            .body(body);
        let request = request.header("content-type", "application/x-www-form-urlencoded");
        let (status, error) = answer(request).await;
        assert_eq!(
            (status.as_u16(), code(&error)),
            (415, "unsupported_media"),
            "{error}"
        );
    }
}

/// During a run, the list and the content of a document show its edits; versions and exports show
/// what is stored.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn documents_of_an_active_run_are_read() {
    let service = ManualModelService::new();
    let served = start(&service);
    let (_, accepted) = served
        .post("/api/traces", json!({"prompt": "Plan", "session_id": "s"}))
        .await;
    let mut request = service.next();
    request.call(
        "create_artifact",
        &json!({"name": "task_plan", "content": "- [ ] dig\n"}),
    );
    request.end();
    let mut request = service.next();
    request.call(
        "update_artifact",
        &json!({"name": "task_plan", "old": "[ ]", "new": "[x]"}),
    );
    request.end();
    let request = service.next();
    let at = "/api/sessions/s/artifacts/task_plan";
    let read = async |path: &str| answer(served.request(Method::GET, path)).await;
    let listed = served.get("/api/sessions/s/artifacts").await;
    let current = &listed["artifacts"][0]["current_version"];
    let stored = &listed["artifacts"][0]["stored_version"];
    assert_eq!((current, stored), (&json!(2), &json!(0)), "{listed}");
    let shown = served.get(at).await;
    assert_eq!(
        (&shown["content"], &shown["versions"]),
        (&json!("- [x] dig\n"), &json!([]))
    );
    for path in ["versions/2", "export?format=docx"] {
        let (status, error) = read(&format!("{at}/{path}")).await;
        assert_eq!(
            (status.as_u16(), code(&error)),
            (404, "version_not_found"),
            "{path}: {error}"
        );
    }
    request.answer("done");
    served
        .ended_run(&served.token(), accepted["run_id"].as_str().unwrap())
        .await;
    let (status, version) = read(&format!("{at}/versions/2")).await;
    assert_eq!((status.as_u16(), &version["version"]), (200, &json!(2)));
}

/// The folder of a trace: its record, its goals, its events and its messages.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn trace_is_exported_as_a_folder() {
    let service = ManualModelService::new();
    let served = start(&service);
    let start = json!({"prompt": "Look at the code", "session_id": "s", "temperature": 0.3});
    let (_, accepted) = served.post("/api/traces", start).await;
    let mut request = service.next();
    request.call("agent", &json!({"task": ["left", "right"]}));
    request.end();
    service
        .take(2)
        .into_iter()
        .for_each(|request| request.answer("seen"));
    service.next().answer("done");
    served
        .ended_run(&served.token(), accepted["run_id"].as_str().unwrap())
        .await;
    served
        .world
        .run(&["traces", "export", "s", "../out"])
        .expect_code(0);
    let out = served.world.project().join("../out");
    let names = |folder: &str| {
        let mut names: Vec<String> = std::fs::read_dir(out.join(folder))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    };
    let folders = names("");
    assert_eq!((folders.len(), folders[0].as_str()), (3, "s"));
    assert!(
        folders[1].starts_with("s@explore-001-") && folders[2].starts_with("s@explore-002-"),
        "{folders:?}"
    );
    assert_eq!(
        names("s"),
        ["events.jsonl", "goal.json", "messages", "meta.json"]
    );
    assert_eq!(names("s/messages")[..2], ["s-0001.json", "s-0002.json"]);
    let read = |file: &str| -> Value {
        serde_json::from_str(&std::fs::read_to_string(out.join("s").join(file)).unwrap()).unwrap()
    };
    let meta = read("meta.json");
    for (field, value) in [
        ("trace_id", json!("s")),
        ("mode", json!("agent")),
        ("task", json!("Look at the code")),
        ("agent_type", json!("default")),
        ("status", json!("completed")),
        ("model", json!("m")),
        ("llm_params", json!({"temperature": 0.3})),
    ] {
        assert_eq!(meta[field], value, "{field}");
    }
    let collaborators = meta["context"]["collaborators"].as_array().unwrap();
    let left = collaborators
        .iter()
        .find(|collaborator| collaborator["name"] == "left")
        .unwrap();
    let left = (
        &left["type"],
        &left["trace_id"],
        &left["status"],
        &left["summary"],
    );
    assert_eq!(
        left,
        (
            &json!("agent"),
            &json!(folders[1]),
            &json!("completed"),
            &json!("seen")
        )
    );
    let goals = read("goal.json");
    assert_eq!(
        (&goals["mission"], goals["goals"].as_array().unwrap().len()),
        (&json!("Look at the code"), 1)
    );
}
