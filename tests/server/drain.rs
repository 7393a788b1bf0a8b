//! Shutdown and crash of a server: accepted runs are stored, and the next server resumes them.

use std::collections::BTreeSet;

use reqwest::Method;
use rustix::process::Signal;
use serde_json::json;

use crate::{
    process::TIMEOUT,
    served::{Frames, OFFLINE, SocketMessage, TestServer, answer},
    service::ManualModelService,
};

#[tokio::test]
async fn shutdown_suspends_runs_and_the_next_server_resumes_them() {
    let service = ManualModelService::new();
    let mut served = TestServer::new(&format!(
        "[model]\nbase_url = \"{}\"\nname = \"m\"\n",
        service.address
    ));
    let (_, accepted) = served
        .post(
            "/api/traces",
            json!({ "prompt": "Divide.", "session_id": "s" }),
        )
        .await;
    let (_, queued) = served
        .post(
            "/api/traces",
            json!({ "prompt": "Then this.", "session_id": "s" }),
        )
        .await;
    assert_eq!(
        (&accepted["status"], &queued["status"]),
        (&json!("started"), &json!("queued"))
    );
    let mut request = service.next();
    request.call("agent", &json!({ "task": ["left", "right"] }));
    request.end();
    let of_children = service.take(2);
    let mut socket = served
        .watch(&served.token(), "/api/traces/s/watch?tree=true")
        .await;
    let mut tree = served.watch(&served.token(), "/api/tree/watch").await;
    let mut frames =
        Frames::open(served.request(Method::GET, "/api/traces/s/events?tree=true")).await;
    let mut last = 0;
    while let SocketMessage::Event(event) = socket.next().await {
        last = event["session_seq"].as_u64().unwrap_or(last);
        if last > 0 && event["event"] == "model_started" && event["trace_id"] != "s" {
            break;
        }
    }
    assert_eq!(frames.next().await.unwrap().id, Some(1));

    served.signal(Signal::TERM);
    let mut seen = last;
    let code = loop {
        match socket.next().await {
            SocketMessage::Event(event) => seen = event["session_seq"].as_u64().unwrap_or(seen),
            SocketMessage::Closed(code) => break code,
            SocketMessage::Gone => panic!("it left no reason given"),
        }
    };
    assert_eq!((code, tree.close_code().await), (1001, 1001));
    while frames.next().await.is_some() {}
    let ran = served.wait_for_exit().expect_code(0);
    assert!(ran.err.is_empty(), "{}", ran.err);
    drop(of_children);

    served.restart();
    // The children's model calls are repeated, then all runs resume under the same ids.
    for request in service.take(2) {
        request.answer("found it");
    }
    service.next().answer("both found it");
    service.next().answer("and then this");
    let token = served.token();
    for (run, output) in [(accepted, "both found it"), (queued, "and then this")] {
        let ended = served
            .ended_run(&token, run["run_id"].as_str().unwrap())
            .await;
        assert_eq!(
            (&ended["status"], &ended["output"]),
            (&json!("completed"), &json!(output))
        );
    }
    // A client that reconnects with its cursor misses no event.
    let mut socket = served
        .watch(
            &token,
            &format!("/api/traces/s/watch?tree=true&since_session_seq={seen}"),
        )
        .await;
    assert_eq!(socket.event().await["event"], "connected");
    let count = served.get("/api/sessions/s").await["session"]["last_session_seq"]
        .as_u64()
        .unwrap();
    while seen < count {
        if let Some(number) = socket.event().await["session_seq"].as_u64() {
            seen += 1;
            assert_eq!(number, seen);
        }
    }
}

#[tokio::test]
async fn no_accepted_run_is_lost_when_the_server_is_killed() {
    let mut served = TestServer::new(OFFLINE);
    let mut accepted = BTreeSet::new();
    for round in 0..3 {
        let starts = (0..8).map(|client| {
            let token = served.token();
            let requests: Vec<_> = (0..40)
                .map(|at| {
                    let body = json!({ "prompt": "hello", "session_id": format!("s{round}-{client}-{at}") });
                    served.request_as(&token, Method::POST, "/api/traces").json(&body)
                })
                .collect();
            tokio::spawn(async move {
                let mut run_ids = Vec::new();
                for request in requests {
                    let Ok(response) = request.send().await else { break };
                    let Ok(body) = response.json::<serde_json::Value>().await else { break };
                    run_ids.push(body["run_id"].as_str().unwrap().to_owned());
                }
                run_ids
            })
        });
        let starts: Vec<_> = starts.collect();
        // The server is killed while requests are being sent.
        let probe = served.request(Method::GET, &format!("/api/traces/s{round}-3-7"));
        let is_there = async { while answer(probe.try_clone().unwrap()).await.0 != 200 {} };
        tokio::time::timeout(TIMEOUT, is_there)
            .await
            .expect("the eighth run of a client is accepted");
        served.kill();
        let before = accepted.len();
        for start in starts {
            accepted.extend(start.await.unwrap());
        }
        assert!(accepted.len() > before, "some were accepted");
        served.restart();
    }
    let token = served.token();
    for run in &accepted {
        let ended = tokio::time::timeout(TIMEOUT, served.ended_run(&token, run))
            .await
            .unwrap();
        assert_eq!(ended["status"], "completed", "{ended}");
    }
}

/// An address that begins with `@` is in the abstract namespace of Linux.
#[cfg(target_os = "linux")]
#[test]
fn service_manager_can_have_an_abstract_address() {
    use std::os::linux::net::SocketAddrExt;
    let name = format!("soong-test-{}", std::process::id());
    let address = std::os::unix::net::SocketAddr::from_abstract_name(&name).unwrap();
    let socket = std::os::unix::net::UnixDatagram::bind_addr(&address).unwrap();
    socket.set_read_timeout(Some(TIMEOUT)).unwrap();
    let served = TestServer::with(OFFLINE, &[("NOTIFY_SOCKET", &format!("@{name}"))]);
    let mut bytes = [0; 256];
    let length = socket.recv(&mut bytes).unwrap();
    assert_eq!(
        std::str::from_utf8(&bytes[..length]).unwrap().trim(),
        "READY=1"
    );
    drop(served);
}

#[test]
fn service_manager_gets_ready_watchdog_and_stopping() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("notify");
    let socket = std::os::unix::net::UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(TIMEOUT)).unwrap();
    let next_notification = || {
        let mut bytes = [0; 256];
        let length = socket.recv(&mut bytes).unwrap();
        String::from_utf8(bytes[..length].to_vec())
            .unwrap()
            .trim()
            .to_owned()
    };
    let variables = [
        ("NOTIFY_SOCKET", path.to_str().unwrap()),
        ("WATCHDOG_USEC", "200000"),
    ];
    let mut served = TestServer::with(OFFLINE, &variables);
    assert_eq!(
        [
            next_notification(),
            next_notification(),
            next_notification()
        ],
        ["READY=1", "WATCHDOG=1", "WATCHDOG=1"]
    );
    served.signal(Signal::TERM);
    while next_notification() != "STOPPING=1" {}
    served.wait_for_exit().expect_code(0);
}
