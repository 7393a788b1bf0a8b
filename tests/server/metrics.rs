//! Metrics: their values match what the routes report for the same runs.

use std::collections::BTreeMap;

use reqwest::Method;
use serde_json::{Value, json};

use crate::{
    served::{TestServer, answer},
    service::ManualModelService,
};

/// Fetches the metrics: the value of each name with its labels.
async fn metrics(served: &TestServer) -> BTreeMap<String, f64> {
    let request = served
        .request(Method::GET, "/metrics")
        .header("accept", "application/openmetrics-text;version=1.0.0");
    let (status, body) = answer(request).await;
    assert_eq!(status, 200, "{body}");
    let text = body.as_str().unwrap();
    assert!(text.ends_with("# EOF\n"), "{text}");
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let read = |line: &str| {
        let (name, value) = line.rsplit_once(' ').unwrap();
        (name.to_owned(), value.parse().unwrap())
    };
    lines.map(read).collect()
}

#[tokio::test]
async fn default_format_is_prometheus_text() {
    let served = TestServer::new("");
    let response = served
        .request(Method::GET, "/metrics")
        .send()
        .await
        .unwrap();
    assert_eq!(
        response.headers()["content-type"],
        "text/plain; version=0.0.4; charset=utf-8"
    );
    let text = response.text().await.unwrap();
    assert!(
        !text.contains("# EOF") && !text.contains("# UNIT"),
        "{text}"
    );
    let mut families: BTreeMap<&str, &str> = BTreeMap::new();
    let mut helped = std::collections::BTreeSet::new();
    for line in text.lines() {
        match line.split(' ').collect::<Vec<_>>()[..] {
            ["#", "HELP", name, _, ..] => drop(helped.insert(name)),
            ["#", "TYPE", name, kind] => drop(families.insert(name, kind)),
            [sample, value] => {
                assert!(value.parse::<f64>().is_ok(), "{line}");
                let name = sample.split('{').next().unwrap();
                let parts = ["_bucket", "_sum", "_count"]
                    .iter()
                    .filter_map(|part| name.strip_suffix(part));
                assert!(
                    [name]
                        .into_iter()
                        .chain(parts)
                        .any(|name| families.contains_key(name)),
                    "{line}"
                );
            }
            _ => panic!("{line}"),
        }
    }
    assert_eq!(
        families.keys().copied().collect::<Vec<_>>(),
        helped.into_iter().collect::<Vec<_>>()
    );
    let counters = families
        .iter()
        .filter(|(_, kind)| **kind == "counter")
        .map(|(name, _)| *name);
    assert!(
        counters.clone().count() > 5 && counters.clone().all(|name| name.ends_with("_total")),
        "{families:?}"
    );
}

fn count(list: &Value, is_one: impl Fn(&Value) -> bool) -> f64 {
    list.as_array()
        .unwrap()
        .iter()
        .filter(|one| is_one(one))
        .count() as f64
}

#[tokio::test]
async fn values_match_the_routes_of_a_busy_server() {
    let service = ManualModelService::new();
    let prices = "[prices.m]\nprompt_per_mtok = \"1\"\ncompletion_per_mtok = \"2\"\n";
    let served = TestServer::new(&format!(
        "[model]\nbase_url = \"{}\"\nname = \"m\"\n{prices}",
        service.address
    ));
    let begin = async |session: &str| {
        let (status, accepted) = served
            .post(
                "/api/traces",
                json!({ "prompt": "Do it", "session_id": session }),
            )
            .await;
        assert_eq!(status, 202, "{accepted}");
        accepted
    };
    let token = served.token();
    // A run that completes with a tool call, one that fails, and one in progress with another one
    // queued.
    let first = begin("first").await;
    let mut request = service.next();
    request.call("list_files", &json!({ "path": "." }));
    request.end();
    service.next().answer("done");
    served
        .ended_run(&token, first["run_id"].as_str().unwrap())
        .await;
    let (_, cut) = served
        .post(
            "/api/traces",
            json!({ "prompt": "x", "session_id": "cut", "max_iterations": 1 }),
        )
        .await;
    let mut request = service.next();
    request.call("list_files", &json!({ "path": "." }));
    request.end();
    let ended = served
        .ended_run(&token, cut["run_id"].as_str().unwrap())
        .await;
    assert_eq!(ended["status"], "failed", "{ended}");
    begin("busy").await;
    let pending_request = service.next();
    assert_eq!(begin("busy").await["status"], "queued");
    let mut watcher = served.watch(&token, "/api/traces/busy/watch").await;
    assert_eq!(watcher.event().await["event"], "connected");

    let samples = metrics(&served).await;
    let value = |name: &str| {
        *samples
            .get(name)
            .unwrap_or_else(|| panic!("no {name} in {samples:#?}"))
    };
    let usage = served.get("/api/usage").await;
    let total = &usage["total"];
    let prompt = value(r#"soong_tokens_total{kind="prompt"}"#);
    let completion = value(r#"soong_tokens_total{kind="completion"}"#);
    assert_eq!((prompt, completion), (300.0, 60.0));
    assert_eq!(total["prompt_tokens"].as_f64(), Some(prompt), "{usage}");
    assert_eq!(total["completion_tokens"].as_f64(), Some(completion));
    let cost: f64 = total["cost"].as_str().unwrap().parse().unwrap();
    assert_eq!(
        (value("soong_cost_nano_usd_total"), cost),
        (420_000.0, 0.000_42)
    );
    assert_eq!(
        value("soong_runs_begun_total"),
        3.0,
        "one waits in the queue"
    );
    assert_eq!(value(r#"soong_runs_ended_total{status="completed"}"#), 1.0);
    assert_eq!(value(r#"soong_runs_ended_total{status="failed"}"#), 1.0);
    assert_eq!(value("soong_turns_total"), 4.0);
    assert_eq!(
        value("soong_model_calls_total"),
        3.0,
        "the fourth is on its way"
    );
    assert_eq!(value("soong_tool_calls_total"), 2.0);
    assert_eq!(value(r#"soong_gateway_in_flight{profile="default"}"#), 1.0);
    assert_eq!(value(r#"soong_gateway_waiting{profile="default"}"#), 0.0);
    assert_eq!(value(r#"soong_queue_depth{queue="runs"}"#), 1.0);
    let at_work = served.get("/api/traces/running").await;
    let running = count(&at_work["traces"], |trace| trace["status"] == "running");
    assert_eq!(
        (value(r#"soong_runs{status="running"}"#), running),
        (1.0, 1.0),
        "{at_work}"
    );
    assert_eq!(value("soong_websockets"), 1.0);
    assert!(value("soong_subscribers") >= 1.0);
    // Every event of every session was committed, in at most as many transactions as appends.
    let mut events = 0.0;
    for session in ["first", "cut", "busy"] {
        let shown = served.get(&format!("/api/sessions/{session}")).await;
        events += shown["session"]["last_session_seq"].as_f64().unwrap();
    }
    assert_eq!(value("soong_events_total"), events);
    let appends = value("soong_journal_batch_appends_sum");
    let commits = value("soong_journal_batch_appends_count");
    assert!(
        commits > 0.0 && appends >= commits,
        "{appends} appends, {commits} commits"
    );
    assert_eq!(
        value(r#"soong_journal_batch_appends_bucket{le="+Inf"}"#),
        commits
    );
    assert_eq!(value("soong_journal_refused_total"), 0.0);

    // A crash forced through the API is counted as a restart.
    let tree = served.get("/api/tree").await.to_string();
    let session = tree
        .split('"')
        .find(|text| text.starts_with("session:"))
        .unwrap()
        .to_owned();
    let (status, body) = served
        .post(&format!("/api/tree/{session}/kill"), json!({}))
        .await;
    assert_eq!(status, 202, "{body}");
    let back = async {
        loop {
            let samples = metrics(&served).await;
            if samples.get(r#"soong_actor_restarts_total{kind="session"}"#) == Some(&1.0) {
                return;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(crate::process::TIMEOUT, back)
        .await
        .expect("the restart is counted");
    drop(pending_request);
}

/// OpenMetrics is sent to clients that prefer it, and not to those that refuse it.
#[tokio::test]
async fn format_follows_the_qualities_of_the_accept_header() {
    let served = TestServer::new("");
    for (accept, is_open_metrics) in [
        ("application/openmetrics-text", true),
        (
            "application/openmetrics-text;version=1.0.0;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
            true,
        ),
        (
            "application/openmetrics-text;q=0.4, text/plain;q=0.5",
            false,
        ),
        ("application/openmetrics-text;q=0", false),
        ("text/plain", false),
        ("*/*", false),
    ] {
        let response = served
            .request(Method::GET, "/metrics")
            .header("accept", accept)
            .send()
            .await
            .unwrap();
        let content_type = response.headers()["content-type"]
            .to_str()
            .unwrap()
            .to_owned();
        assert_eq!(
            content_type.starts_with("application/openmetrics-text"),
            is_open_metrics,
            "{accept}: {content_type}"
        );
    }
}
