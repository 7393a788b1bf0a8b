//! Streams: each event arrives once and in order, whatever happens to the connection.

use reqwest::Method;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{
    served::{Frames, OFFLINE, SocketMessage, TestServer, answer, code},
    service::ManualModelService,
};

/// Deterministic pseudo-random numbers.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

fn number(event: &Value, tree: bool) -> Option<u64> {
    event[if tree { "session_seq" } else { "event_id" }].as_u64()
}

#[tokio::test]
async fn watch_starts_with_a_snapshot_and_sends_each_event_once() {
    let served = TestServer::new(OFFLINE);
    let orchestrate =
        json!({ "prompt": "Report on this", "mode": "orchestrator", "session_id": "s" });
    let (_, accepted) = served.post("/api/traces", orchestrate).await;
    served
        .ended_run(&served.token(), accepted["run_id"].as_str().unwrap())
        .await;
    let shown = served.get("/api/traces/s").await;
    let last = shown["trace"]["last_event_id"].as_u64().unwrap();

    let mut socket = served
        .watch(&served.token(), "/api/traces/s/watch?since_event_id=3")
        .await;
    let connected = socket.event().await;
    assert_eq!(connected["event"], "connected");
    assert!(connected.get("event_id").is_none());
    let data = &connected["data"];
    assert_eq!(
        (&data["current_event_id"], &data["trace"]),
        (&json!(last), &shown["trace"])
    );
    assert_eq!(
        (&data["goal_tree"], &data["sub_traces"]),
        (&shown["goal_tree"], &shown["sub_traces"])
    );
    let stored = served
        .get("/api/traces/s/events?since_event_id=3&limit=1000")
        .await;
    for event in stored["events"].as_array().unwrap() {
        assert_eq!(&socket.event().await, event, "the same on each channel");
    }

    let mut socket = served
        .watch(&served.token(), "/api/traces/s/watch?tree=true")
        .await;
    assert_eq!(socket.event().await["event"], "connected");
    let mut traces = std::collections::BTreeSet::new();
    let count = served.get("/api/sessions/s").await["session"]["last_session_seq"]
        .as_u64()
        .unwrap();
    for at in 1..=count {
        let event = socket.event().await;
        assert_eq!(number(&event, true), Some(at));
        traces.insert(event["trace_id"].as_str().unwrap().to_owned());
    }
    assert!(traces.len() > 5, "the whole session is merged: {traces:?}");

    for (path, code) in [
        ("/api/traces/none/watch", 4404),
        ("/api/traces/s%40none/watch", 4404),
    ] {
        let mut socket = served.watch(&served.token(), path).await;
        let error = socket.event().await;
        assert_eq!(
            (&error["event"], &error["data"]["error"]["code"]),
            (&json!("error"), &json!("trace_not_found"))
        );
        assert!(matches!(socket.next().await, SocketMessage::Closed(got) if got == code));
    }
    // A browser cannot set the authorization header, so it sends the token as a subprotocol.
    for protocols in [
        format!("soong, soong.bearer.{}", served.token()),
        format!("soong.bearer.{}", served.token()),
    ] {
        let mut socket = served
            .try_watch("/api/tree/watch", &[("sec-websocket-protocol", &protocols)])
            .await
            .unwrap();
        assert_eq!(socket.event().await["event"], "tree_snapshot");
        socket.send_text("what I say means nothing").await;
    }
    let mut gone = served
        .watch(
            &served.token(),
            &format!("/api/traces/s/watch?since_event_id={last}"),
        )
        .await;
    assert_eq!(gone.event().await["event"], "connected");
    let deleted = answer(served.request(Method::DELETE, "/api/sessions/s")).await;
    assert_eq!(deleted.0, 204);
    assert_eq!(gone.close_code().await, 1000);
}

#[tokio::test]
async fn streamed_text_arrives_from_the_start_without_event_ids() {
    let service = ManualModelService::new();
    let served = TestServer::new(&format!(
        "[model]\nbase_url = \"{}\"\nname = \"m\"\n",
        service.address
    ));
    let start = served
        .request(Method::POST, "/api/traces")
        .json(&json!({ "prompt": "Say it.", "session_id": "s" }));
    let mut frames = Frames::open(start).await;
    let first = frames.next().await.unwrap();
    assert_eq!(
        (first.name.as_deref(), first.id, &first.data["session_id"]),
        (Some("accepted"), None, &json!("s"))
    );
    let mut request = service.next();
    let mut socket = served.watch(&served.token(), "/api/traces/s/watch").await;
    while socket.event().await["event"] != "model_started" {}
    request.text("Piece ");
    request.text("by piece.");
    request.end();
    let mut text = String::new();
    loop {
        let event = socket.event().await;
        match event["event"].as_str().unwrap() {
            "model_text_delta" => {
                assert!(event.get("event_id").is_none());
                text.push_str(event["data"]["text"].as_str().unwrap());
            }
            "run_completed" => break,
            _ => assert!(event["event_id"].is_u64()),
        }
    }
    assert_eq!(text, "Piece by piece.");
    let mut text = String::new();
    loop {
        let frame = frames.next().await.unwrap();
        match frame.data["event"].as_str().unwrap() {
            "model_text_delta" => {
                assert!(frame.id.is_none());
                text.push_str(frame.data["data"]["text"].as_str().unwrap());
            }
            "run_completed" => break,
            _ => assert_eq!(frame.id, number(&frame.data, true)),
        }
    }
    assert_eq!(text, "Piece by piece.");
}

/// Reads a stream from its start to the end of a run over connections that break. Returns the
/// numbers of the events.
async fn read_with_breaks(
    served: &TestServer,
    random: &mut Random,
    path: &str,
    tree: bool,
    over_socket: bool,
    mut until: impl FnMut(&Value) -> bool,
) -> Vec<u64> {
    let mut seen = Vec::new();
    let mut done = false;
    while !done {
        let since = seen.last().copied().unwrap_or(0);
        let most = random.below(40);
        let cursor = if tree {
            "since_session_seq"
        } else {
            "since_event_id"
        };
        let mut take = |event: &Value| {
            seen.extend(number(event, tree));
            done |= until(event);
            done
        };
        if over_socket {
            let mut socket = served
                .watch(
                    &served.token(),
                    &format!("{path}/watch?{cursor}={since}&tree={tree}"),
                )
                .await;
            for _ in 0..=most {
                if take(&socket.event().await) {
                    break;
                }
            }
        } else {
            let mut request = served.request(Method::GET, &format!("{path}/events?tree={tree}"));
            if since > 0 {
                request = request.header("last-event-id", since.to_string());
            }
            let mut frames = Frames::open(request).await;
            for _ in 0..most {
                if take(&frames.next().await.unwrap().data) {
                    break;
                }
            }
        }
    }
    seen
}

#[tokio::test]
async fn broken_connections_lose_and_repeat_no_event() {
    let served = TestServer::new(OFFLINE);
    let mut random = Random(7);
    for (number, tree) in [(0, false), (1, true)] {
        for over_socket in [false, true] {
            let session = format!("s{number}{over_socket}");
            let orchestrate = json!({ "prompt": "Report on this", "mode": "orchestrator", "session_id": session });
            let (status, accepted) = served.post("/api/traces", orchestrate).await;
            assert_eq!(status, 202);
            let run = accepted["run_id"].clone();
            let path = format!("/api/traces/{session}");
            let ends = |event: &Value| event["event"] == "run_completed" && event["run_id"] == run;
            let seen = read_with_breaks(&served, &mut random, &path, tree, over_socket, ends).await;
            let wanted: Vec<u64> = (1..=seen.len() as u64).collect();
            assert_eq!(seen, wanted, "tree {tree}, WebSocket {over_socket}");
            assert!(seen.len() > 30, "{}", seen.len());
        }
    }
}

#[tokio::test]
async fn client_that_does_not_read_delays_no_other_watcher() {
    let served = TestServer::new(OFFLINE);
    let (status, _) = served
        .post(
            "/api/sessions",
            json!({ "session_id": "s", "project_dir": served.world.project() }),
        )
        .await;
    assert_eq!(status, 201);
    let mut sockets = Vec::new();
    for _ in 0..50 {
        let mut socket = served
            .watch(&served.token(), "/api/traces/s/watch?tree=true")
            .await;
        assert_eq!(socket.event().await["event"], "connected");
        sockets.push(socket);
    }
    let deaf = sockets.pop().unwrap();
    let orchestrate =
        json!({ "prompt": "Report on this", "mode": "orchestrator", "session_id": "s" });
    let (_, accepted) = served.post("/api/traces", orchestrate).await;
    served
        .ended_run(&served.token(), accepted["run_id"].as_str().unwrap())
        .await;
    let count = served.get("/api/sessions/s").await["session"]["last_session_seq"]
        .as_u64()
        .unwrap();
    for socket in &mut sockets {
        let mut at = 0;
        while at < count {
            if let Some(number) = number(&socket.event().await, true) {
                at += 1;
                assert_eq!(number, at);
            }
        }
    }
    let metrics = served.get("/metrics").await;
    assert!(
        metrics
            .as_str()
            .unwrap()
            .contains("\nsoong_websockets 50\n"),
        "{metrics}"
    );
    drop(deaf);
}

/// Replaces a home's database with a backup.
fn restore(served: &TestServer, backup: &std::path::Path) {
    for name in [
        "sessions.sqlite",
        "sessions.sqlite-wal",
        "sessions.sqlite-shm",
    ] {
        let _ = std::fs::remove_file(served.world.home().join(name));
    }
    std::fs::copy(
        backup.join("sessions.sqlite"),
        served.world.home().join("sessions.sqlite"),
    )
    .unwrap();
}

#[tokio::test]
async fn cursor_from_before_a_restore_is_rejected_with_restart_point() {
    let mut served = TestServer::new(OFFLINE);
    served.run_to_end(&served.token(), "s", "first").await;
    let backup = served.world.project().join("backup");
    served
        .world
        .run(&["backup", backup.to_str().unwrap()])
        .expect_code(0);
    for prompt in ["second", "third"] {
        served.run_to_end(&served.token(), "s", prompt).await;
    }
    let page = served.get("/api/traces/s/events?limit=1000").await;
    let before = page["events"].as_array().unwrap().len() as u64;
    let store = page["store_id"].clone();
    let store = store.as_str().unwrap().to_owned();
    served.signal(Signal::TERM);
    served.wait_for_exit().expect_code(0);
    restore(&served, &backup);
    served.restart();

    let last = served.get("/api/traces/s").await["trace"]["last_event_id"]
        .as_u64()
        .unwrap();
    assert!(last > 1 && last < before);
    for path in [
        format!("/api/traces/s/events?since_event_id={before}"),
        format!("/api/traces/s/events?since_event_id=1&store_id={store}"),
    ] {
        for stream in [false, true] {
            let request = served.request(Method::GET, &path);
            let request = if stream {
                request.header("accept", "text/event-stream")
            } else {
                request
            };
            let (status, body) = answer(request).await;
            assert_eq!(
                (status.as_u16(), &body["error"]["code"]),
                (410, &json!("cursor_unknown")),
                "{path}: {body}"
            );
            assert_eq!(body["error"]["details"]["start_again"], 0);
            assert_ne!(body["error"]["details"]["store_id"], json!(store));
        }
        let mut socket = served
            .watch(&served.token(), &path.replace("/events?", "/watch?"))
            .await;
        let error = socket.event().await;
        assert_eq!(
            (&error["event"], &error["data"]["error"]["code"]),
            (&json!("error"), &json!("cursor_unknown"))
        );
        assert!(matches!(socket.next().await, SocketMessage::Closed(4410)));
    }
    let (status, body) = {
        let path = format!("/api/traces/s/events?tree=true&since_session_seq={before}");
        answer(
            served
                .request(Method::GET, &path)
                .header("accept", "text/event-stream"),
        )
        .await
    };
    assert_eq!(
        (status.as_u16(), &body["error"]["code"]),
        (410, &json!("cursor_unknown")),
        "{body}"
    );

    // From the beginning, each event of the restored database arrives once, and the last one is a
    // valid cursor.
    let mut socket = served
        .watch(&served.token(), "/api/traces/s/watch?since_event_id=0")
        .await;
    let connected = socket.event().await;
    let store = connected["data"]["store_id"].as_str().unwrap().to_owned();
    for number in 1..=last {
        assert_eq!(socket.event().await["event_id"], number);
    }
    served
        .get(&format!(
            "/api/traces/s/events?since_event_id={last}&store_id={store}"
        ))
        .await;
    served.run_to_end(&served.token(), "s", "another").await;
    assert_eq!(socket.event().await["event_id"], last + 1);
    // A restart does not change the store id.
    served.kill();
    served.restart();
    served
        .get(&format!(
            "/api/traces/s/events?since_event_id={last}&store_id={store}"
        ))
        .await;
}

#[tokio::test]
async fn event_streams_disable_proxy_buffering() {
    let served = TestServer::new(OFFLINE);
    let start = json!({ "prompt": "hello", "session_id": "s" });
    for request in [
        served.request(Method::POST, "/api/traces").json(&start),
        served.request(Method::GET, "/api/traces/s/events"),
    ] {
        let answer = request
            .header("accept", "text/event-stream")
            .send()
            .await
            .unwrap();
        assert_eq!(answer.headers()["content-type"], "text/event-stream");
        assert_eq!(answer.headers()["x-accel-buffering"], "no");
        assert_eq!(answer.headers()["cache-control"], "no-cache, no-transform");
    }
}

#[tokio::test]
async fn tree_shows_task_and_goal_of_the_latest_message() {
    let service = ManualModelService::new();
    let served = TestServer::new(&format!(
        "[model]\nbase_url = \"{}\"\nname = \"m\"\n",
        service.address
    ));
    let start = async |task: &str| {
        let start = json!({ "prompt": task, "session_id": "s", "mode": "orchestrator" });
        served.post("/api/traces", start).await.1["run_id"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    let shown = async |run: &str| {
        let tree = served.get("/api/tree").await;
        let shown = &actor(&tree, &format!("run:{run}")).unwrap()["run"];
        (shown["task"].clone(), shown["goal"].clone())
    };
    let first = start("Count ships.").await;
    let mut request = service.next();
    for (call, goal) in [
        (
            json!({ "add": "Look at the pier.", "focus": "1" }),
            json!("1 Look at the pier."),
        ),
        (json!({ "done": "Two ships." }), Value::Null),
    ] {
        request.call("goal", &call);
        request.end();
        request = service.next();
        assert_eq!(shown(&first).await, (json!("Count ships."), goal));
    }
    request.answer("Two.");
    served.ended_run(&served.token(), &first).await;
    let second = start("Count boats.").await;
    let request = service.next();
    assert_eq!(shown(&second).await, (json!("Count boats."), Value::Null));
    request.answer("None.");
    served.ended_run(&served.token(), &second).await;
}

/// Finds an actor in a tree by its id.
fn actor<'a>(tree: &'a Value, id: &str) -> Option<&'a Value> {
    if tree["actor_id"] == id {
        return Some(tree);
    }
    tree["children"]
        .as_array()?
        .iter()
        .find_map(|child| actor(child, id))
}

#[tokio::test]
async fn cursor_of_a_deleted_session_is_rejected() {
    let served = TestServer::new(OFFLINE);
    let token = served.token();
    served.run_to_end(&token, "s", "first").await;
    let trace = served.get("/api/traces/s").await["trace"].clone();
    let last = trace["last_event_id"].as_u64().unwrap();
    assert!(trace.get("first_event_id").is_none(), "as before: {trace}");
    let last_of_session = served.get("/api/sessions/s").await["session"]["last_session_seq"]
        .as_u64()
        .unwrap();
    assert_eq!(
        answer(served.request(Method::DELETE, "/api/sessions/s"))
            .await
            .0,
        204
    );
    served.run_to_end(&token, "s", "second").await;

    let cursors = [
        "since_event_id=1".to_owned(),
        format!("since_event_id={last}"),
        format!("tree=true&since_session_seq={last_of_session}"),
    ];
    for cursor in cursors {
        let path = format!("/api/traces/s/events?{cursor}");
        for accept in ["application/json", "text/event-stream"] {
            let (status, body) =
                answer(served.request(Method::GET, &path).header("accept", accept)).await;
            assert_eq!(
                (status.as_u16(), code(&body)),
                (410, "cursor_unknown"),
                "{path} {accept}: {body}"
            );
            assert_eq!(
                body["error"]["details"]["start_again"], 0,
                "{path} {accept}: {body}"
            );
        }
        let mut socket = served
            .watch(&token, &format!("/api/traces/s/watch?{cursor}"))
            .await;
        assert_eq!(socket.event().await["event"], "error", "{cursor}");
        assert_eq!(socket.close_code().await, 4410, "{cursor}");
    }
    let stream = served
        .request(Method::GET, "/api/traces/s/events")
        .header("accept", "text/event-stream");
    let (status, _) = answer(stream.header("last-event-id", last.to_string())).await;
    assert_eq!(status, 410);

    let trace = served.get("/api/traces/s").await["trace"].clone();
    let first = trace["first_event_id"].as_u64().unwrap();
    let end = trace["last_event_id"].as_u64().unwrap();
    assert!(first > last + 1, "{trace}");
    let page = served.get("/api/traces/s/events?limit=1000").await;
    let ids: Vec<u64> = page["events"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|event| number(event, false))
        .collect();
    assert_eq!(ids, (first..=end).collect::<Vec<_>>());
    let page = served
        .get(&format!("/api/traces/s/events?since_event_id={end}"))
        .await;
    assert_eq!(page["events"], json!([]));
    // The terminal checks the same range, without an owner process too.
    let mut served = served;
    served.kill();
    let shown = served
        .world
        .run(&["traces", "events", "s", "--since", "1"])
        .expect_code(3);
    shown.expect_stderr(&[&format!("has no event 1: its events are {first} to {end}")]);
}

/// An empty `Last-Event-ID` is none, and `text/event-stream;q=0` refuses a stream.
#[tokio::test]
async fn headers_of_streams_are_read_leniently() {
    let served = TestServer::new(OFFLINE);
    served.run_to_end(&served.token(), "s", "first").await;
    let page = |id: &'static str| {
        let request = served
            .request(Method::GET, "/api/traces/s/events?limit=1000")
            .header("last-event-id", id);
        answer(request.header("accept", "application/json, text/event-stream;q=0"))
    };
    let (status, all) = page("").await;
    assert_eq!(status, 200, "{all}");
    let (status, rest) = page("3").await;
    assert_eq!(status, 200, "{rest}");
    assert_eq!(number(&all["events"][0], false), Some(1));
    assert_eq!(
        number(&rest["events"][0], false),
        Some(4),
        "a page continues after the header too"
    );
    assert_eq!(page("x").await.0, 400);
}
