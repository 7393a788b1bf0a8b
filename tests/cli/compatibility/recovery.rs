//! Recovery: interrupted runs of an earlier version resume under the same ids, and end.

use std::{collections::BTreeMap, fmt::Write as _};

use serde_json::{Value, json};

use super::home::{HOME_0_1, unpack};
use crate::{
    scripted::{Reply, ScriptedServer},
    served::{TestServer, answer},
};

/// Event kinds whose number depends on timing.
const TIMED: [&str; 2] = ["collaborator_updated", "model_waiting"];

/// Ends each conversation with its next answer.
fn last_step(request: &crate::scripted::Request) -> Reply {
    let text = |message: &Value| message["content"].as_str().unwrap_or_default().to_owned();
    let messages = request.body["messages"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    let task = messages
        .iter()
        .filter(|message| message["role"] == "user")
        .map(text)
        .find(|text| text.starts_with("fx:"));
    Reply::answer(&format!("Ended: {}", task.unwrap_or_default()))
}

/// Removes values that differ between recoveries: times, durations, numbers that depend on other
/// traces, and the token estimate of a prompt that contains the project's path.
fn settled(event: &Value) -> Value {
    fn settle(value: &mut Value) {
        match value {
            Value::Object(fields) => {
                let varies = |name: &str| {
                    [
                        "ts",
                        "session_seq",
                        "event_id",
                        "run_seq",
                        "estimated_tokens",
                    ]
                    .contains(&name)
                        || name.ends_with("_ms")
                        || name.ends_with("_at")
                };
                fields.retain(|name, _| !varies(name));
                fields.values_mut().for_each(settle);
            }
            Value::Array(items) => items.iter_mut().for_each(settle),
            _ => {}
        }
    }
    let mut event = event.clone();
    settle(&mut event);
    event
}

#[tokio::test]
async fn interrupted_runs_of_0_1_resume_and_end() {
    let (world, expected) = unpack(HOME_0_1);
    let root = world
        .dir
        .path()
        .canonicalize()
        .unwrap()
        .to_str()
        .unwrap()
        .to_owned();
    let model = ScriptedServer::start(last_step);
    let config = format!(
        "[model]\nbase_url = \"{}\"\nname = \"scripted\"\n",
        model.base_url()
    );
    let served = TestServer::over(
        world,
        &config,
        &[("OPENAI_API_KEY", "sk-fixture-fixture-fixture")],
    );

    let permission = served
        .wait_for("/api/permissions?status=pending", "permissions")
        .await;
    let id = permission["permission_id"]
        .as_str()
        .unwrap()
        .replace('@', "%40");
    let (status, body) = served
        .post(
            &format!("/api/permissions/{id}"),
            json!({ "decision": "allow_once" }),
        )
        .await;
    assert_eq!(status, 200, "{body}");
    let question = served
        .wait_for("/api/questions?status=pending", "questions")
        .await;
    let id = question["question_id"]
        .as_str()
        .unwrap()
        .replace('@', "%40");
    let (status, body) = served
        .post(&format!("/api/questions/{id}"), json!({ "answer": "7788" }))
        .await;
    assert_eq!(status, 200, "{body}");

    let mut recovered: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for (trace, lines) in &expected {
        let path = trace.replace('@', "%40");
        let run = serde_json::from_str::<Value>(lines.last().unwrap()).unwrap()["run_id"].clone();
        if let Some(run) = run.as_str() {
            served.ended_run(&served.token(), run).await;
        }
        let (_, page) = answer(served.request(
            reqwest::Method::GET,
            &format!("/api/traces/{path}/events?limit=1000"),
        ))
        .await;
        let events = page["events"].as_array().unwrap();
        let stored: Vec<String> = events
            .iter()
            .take(lines.len())
            .map(Value::to_string)
            .collect();
        assert_eq!(stored, *lines, "{trace}: what was stored is unchanged");
        recovered.insert(trace.clone(), events[lines.len()..].to_vec());
    }
    let out = std::fs::read_to_string(served.world.project().join("out.txt")).unwrap();
    assert_eq!(out, "written with permission\n");
    let draft = answer(served.request(
        reqwest::Method::GET,
        "/api/sessions/unflushed/artifacts/draft",
    ))
    .await
    .1;
    assert_eq!(
        (&draft["content"], &draft["artifact"]["current_version"]),
        (&json!("first line, edited\n"), &json!(2))
    );

    let mut listed = String::new();
    for (trace, events) in &recovered {
        let ids: Vec<u64> = events
            .iter()
            .map(|event| event["event_id"].as_u64().unwrap())
            .collect();
        assert!(
            ids.is_sorted_by(|id, next| id + 1 == *next),
            "{trace}: {ids:?}"
        );
        let listed_events = events
            .iter()
            .filter(|event| !TIMED.contains(&event["event"].as_str().unwrap()));
        // A child may end before or after its parent has recovered: its end is listed last.
        let (ended_children, own): (Vec<&Value>, Vec<&Value>) =
            listed_events.partition(|event| event["event"] == "sub_trace_completed");
        for event in own.into_iter().chain(ended_children) {
            let event = settled(event).to_string().replace(&root, "ROOT");
            writeln!(listed, "{trace} {event}").unwrap();
        }
    }
    insta::assert_snapshot!("recovered_events_of_0_1", listed);
}

#[test]
fn continue_finds_a_session_of_0_1() {
    let (world, _) = unpack(HOME_0_1);
    let model = ScriptedServer::start(last_step);
    let config = format!(
        "[model]\nbase_url = \"{}\"\nname = \"scripted\"\n",
        model.base_url()
    );
    std::fs::write(world.home().join("config.toml"), config).unwrap();
    let ran = world.run(&[
        "run",
        "--continue=finish",
        "--json",
        "--permission-mode",
        "plan",
        "More",
    ]);
    let result = ran.expect_code(0).json_lines().last().unwrap()["result"].clone();
    let ended = json!("Ended: fx:finished Read the sources and report");
    assert_eq!(
        (&result["session_id"], &result["output"]),
        (&json!("finished"), &ended)
    );

    let (world, _) = unpack(HOME_0_1);
    world
        .run(&["run", "--continue=nothing", "--model", "offline", "x"])
        .expect_code(3)
        .expect_stderr(&["nothing"]);
}
