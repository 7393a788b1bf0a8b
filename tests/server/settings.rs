//! Settings that a further message of a session keeps from the previous run, as the model service
//! receives them.

use serde_json::{Value, json};

use crate::{served::TestServer, service::ManualModelService};

/// Answers the next request. Returns its system prompt, tool names, model, seed and temperature.
fn answer_and_read_settings(service: &ManualModelService) -> Value {
    let request = service.next();
    let body = &request.body;
    let names = |tools: &Vec<Value>| {
        tools
            .iter()
            .map(|tool| tool["function"]["name"].clone())
            .collect::<Value>()
    };
    let tools = body["tools"].as_array().map(names).unwrap_or_default();
    let tools = if tools.as_array().is_some_and(|tools| tools.len() > 3) {
        json!("all")
    } else {
        tools
    };
    let prompt = body["messages"][0]["content"].as_str().unwrap_or_default();
    let prompt = if prompt.len() > 100 {
        "of the preset"
    } else {
        prompt
    };
    let settings = json!([
        prompt,
        tools,
        body["model"],
        body["seed"],
        body["temperature"]
    ]);
    request.answer("Done.");
    settings
}

#[tokio::test]
async fn further_message_keeps_settings_until_they_are_reset() {
    let service = ManualModelService::new();
    let config = format!(
        "[model]\nbase_url = \"{}\"\nname = \"m\"\ntemperature = 0.25\n",
        service.address
    );
    let served = TestServer::with(&config, &[("OPENAI_API_KEY", "sk-test-test-test-test")]);
    let want = json!(["Be terse.", ["read"], "big", 7, 0.5]);
    let start = json!({
        "session_id": "s", "prompt": "One.", "system_prompt": "Be terse.", "tools": ["read"], "model": "big",
        "llm_params": { "seed": 7 }, "temperature": 0.5, "budget": { "model_calls": 1 },
    });
    let run = async |path: &str, body: Value| {
        let (status, accepted) = served.post(path, body).await;
        assert_eq!(status, 202, "{accepted}");
        let settings = answer_and_read_settings(&service);
        let ended = served
            .ended_run(&served.token(), accepted["run_id"].as_str().unwrap())
            .await;
        assert_eq!(
            ended["status"], "completed",
            "a limit of calls begins anew: {ended}"
        );
        let trace = served.get("/api/traces/s").await;
        let tools = trace["trace"]["tools"].as_array().unwrap();
        let tools = if tools.len() > 3 {
            json!("all")
        } else {
            json!(tools)
        };
        assert_eq!(
            tools, settings[1],
            "the record names the tools that were offered"
        );
        settings
    };
    assert_eq!(run("/api/traces", start).await, want);
    let more = |settings: Value| {
        let mut body = json!({ "prompt": "More." });
        body.as_object_mut()
            .unwrap()
            .extend(settings.as_object().unwrap().clone());
        body
    };
    for (settings, wanted) in [
        (json!({}), want.clone()),
        // Each setting can be reset separately to its configured value, and stays reset.
        (
            json!({ "llm_params": null }),
            json!(["Be terse.", ["read"], "big", null, 0.5]),
        ),
        (
            json!({ "temperature": null }),
            json!(["Be terse.", ["read"], "big", null, 0.25]),
        ),
        (
            json!({ "model": null, "system_prompt": null }),
            json!(["of the preset", ["read"], "m", null, 0.25]),
        ),
        (
            json!({ "tools": null }),
            json!(["of the preset", "all", "m", null, 0.25]),
        ),
        (
            json!({ "tools": ["glob"], "system_prompt": "Be kind.", "llm_params": { "seed": 1 } }),
            json!(["Be kind.", ["glob"], "m", 1, 0.25]),
        ),
        // A new preset resets prompt, tools and model.
        (
            json!({ "agent_type": "default" }),
            json!(["of the preset", "all", "m", 1, 0.25]),
        ),
    ] {
        assert_eq!(
            run("/api/traces/s/run", more(settings.clone())).await,
            wanted,
            "{settings}"
        );
    }
    assert_eq!(
        run(
            "/api/traces",
            json!({ "session_id": "s", "prompt": "x", "llm_params": {} })
        )
        .await[3],
        Value::Null
    );
}

#[tokio::test]
async fn command_line_keeps_and_resets_settings() {
    let service = ManualModelService::new();
    let config = format!(
        "[model]\nbase_url = \"{}\"\nname = \"m\"\ntemperature = 0.25\n",
        service.address
    );
    let served = TestServer::with(&config, &[("OPENAI_API_KEY", "sk-test-test-test-test")]);
    let start = json!({
        "session_id": "s", "prompt": "One.", "system_prompt": "Be terse.", "tools": ["read"], "temperature": 0.5,
    });
    served.post("/api/traces", start).await;
    answer_and_read_settings(&service);
    let command = |options: &[&str]| {
        let arguments = [&["run", "--session", "s"], options, &["More."]].concat();
        let mut child = served.world.command(&arguments).spawn().unwrap();
        let settings = answer_and_read_settings(&service);
        assert!(child.wait().unwrap().success(), "{options:?}");
        settings
    };
    assert_eq!(command(&[]), json!(["Be terse.", ["read"], "m", null, 0.5]));
    let reset = ["--reset", "system-prompt", "--reset", "llm-params"];
    assert_eq!(
        command(&reset),
        json!(["of the preset", ["read"], "m", null, 0.25])
    );
    assert_eq!(
        command(&["--reset", "tools"]),
        json!(["of the preset", "all", "m", null, 0.25])
    );
    let options = [
        "run",
        "--session",
        "s",
        "--reset",
        "budget",
        "--budget-tokens",
        "5",
        "x",
    ];
    served
        .world
        .run(&options)
        .expect_code(2)
        .expect_stderr(&["--reset budget", "new limits"]);
    served
        .world
        .run(&["run", "--session", "s", "--reset", "prompt", "x"])
        .expect_code(2)
        .expect_stderr(&["system-prompt"]);
}
