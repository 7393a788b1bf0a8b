//! OpenTelemetry export: which data of a run is exported, and which is not.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    missing_docs,
    reason = "a test says by a panic what is wrong"
)]

#[path = "support/process.rs"]
mod process;

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpListener,
    sync::mpsc,
};

use process::TestHome;

/// Starts a collector. Returns its address and the request bodies that it receives.
fn collector() -> (String, mpsc::Receiver<Vec<u8>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (tell, bodies) = mpsc::channel();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            let mut length = 0;
            let mut line = String::new();
            while reader.read_line(&mut line).unwrap() > 2 {
                if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                    length = value.trim().parse().unwrap();
                }
                line.clear();
            }
            let mut body = vec![0; length];
            reader.read_exact(&mut body).unwrap();
            let _ = (&stream)
                .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
            let _ = tell.send(body);
        }
    });
    (url, bodies)
}

#[test]
fn runs_and_calls_are_exported_as_spans_without_content() {
    let (url, bodies) = collector();
    let world = TestHome::new();
    let args = [
        "run",
        "--model",
        "offline",
        "--mode",
        "orchestrator",
        "Report on the lighthouse",
    ];
    let mut command = world.command(&args);
    let ran = command
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", &url)
        .output()
        .unwrap();
    assert_eq!(
        ran.status.code(),
        Some(0),
        "{}",
        String::from_utf8_lossy(&ran.stderr)
    );
    let exported: Vec<u8> = bodies.try_iter().flatten().collect();
    let has = |text: &str| {
        exported
            .windows(text.len())
            .any(|window| window == text.as_bytes())
    };
    for text in [
        "invoke_agent orchestrator",
        "invoke_agent explore",
        "invoke_agent evaluator",
        "chat offline",
        "execute_tool read",
        "gen_ai.operation.name",
        "gen_ai.conversation.id",
        "gen_ai.request.model",
        "gen_ai.tool.call.id",
        "service.name",
        "soong.status",
    ] {
        assert!(
            has(text),
            "{text} is not exported, in {} bytes",
            exported.len()
        );
    }
    for text in ["lighthouse", "Counts ships"] {
        assert!(!has(text), "{text:?} is the content of a message");
    }
}

#[test]
fn unreachable_collector_does_not_fail_the_run() {
    let world = TestHome::new();
    let mut command = world.command(&["run", "--model", "offline", "hello"]);
    let ran = command
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
        .output()
        .unwrap();
    assert_eq!(
        ran.status.code(),
        Some(0),
        "{}",
        String::from_utf8_lossy(&ran.stderr)
    );
}
