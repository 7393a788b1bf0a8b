//! What one client may take up: bodies, files, connections.

use std::{
    io::{Read, Write},
    net::TcpStream,
};

use reqwest::{Method, multipart};
use serde_json::json;

use crate::{
    process::PATIENCE,
    served::{OFFLINE, Served, answer, code},
};

#[tokio::test]
async fn bodies_and_files_are_as_long_as_they_may_be_and_no_longer() {
    let served = Served::new(&format!("{OFFLINE}[server]\nmax_body_bytes = 1000\nmax_upload_bytes = 5000\n"));
    let start = |length: usize| json!({ "prompt": "x".repeat(length), "session_id": "s" });
    let (status, said) = served.post("/api/traces", start(1_000)).await;
    assert_eq!((status.as_u16(), code(&said)), (413, "payload_too_large"), "{said}");
    assert!(served.get("/api/traces").await["traces"].as_array().unwrap().is_empty());
    let (status, accepted) = served.post("/api/traces", start(800)).await;
    assert_eq!(status, 202);
    served.ended_run(&served.token(), accepted["run_id"].as_str().unwrap()).await;
    for (bytes, allowed) in [(5_000, true), (5_001, false), (2_000_000, false)] {
        let put = served.request(Method::PUT, "/api/sessions/s/artifacts/a.bin").body(vec![0; bytes]);
        let (status, said) = answer(put).await;
        assert_eq!(status.as_u16(), if allowed { 201 } else { 413 }, "{bytes}: {said}");
    }
    let form =
        |bytes: usize| multipart::Form::new().part("file", multipart::Part::bytes(vec![0; bytes]).file_name("b.bin"));
    for (bytes, allowed) in [(4_000, true), (6_000, false), (300_000, false)] {
        let upload = served.request(Method::POST, "/api/sessions/s/artifacts/upload").multipart(form(bytes));
        let (status, said) = answer(upload).await;
        assert_eq!(status.as_u16(), if allowed { 201 } else { 413 }, "{bytes}: {said}");
    }
    let large = Served::new(OFFLINE);
    assert_eq!(large.post("/api/sessions", json!({ "session_id": "s" })).await.0, 201);
    let upload = large.request(Method::POST, "/api/sessions/s/artifacts/upload").multipart(form(15_000_000));
    assert_eq!(answer(upload).await.0, 201, "as large as the default lets in");
    let listed = served.get("/api/sessions/s/artifacts").await;
    assert_eq!(listed["artifacts"].as_array().unwrap().len(), 2, "what was refused is not half there: {listed}");
}

#[tokio::test]
async fn connections_beyond_the_limit_are_turned_away_and_give_way() {
    let served = Served::new(&format!("{OFFLINE}[server]\nmax_connections = 4\n"));
    let addr = served.url.trim_start_matches("http://").to_owned();
    let token = served.token();
    // Two WebSockets keep their places; two say nothing.
    let mut sockets = Vec::new();
    for _ in 0..2 {
        let mut socket = served.watch(&token, "/api/tree/watch").await;
        assert_eq!(socket.event().await["event"], "tree_snapshot");
        sockets.push(socket);
    }
    let idle: Vec<TcpStream> = (0..2).map(|_| TcpStream::connect(&addr).unwrap()).collect();
    let told = || {
        let mut stream = TcpStream::connect(&addr).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let _ = stream
            .write_all(format!("GET /health/live HTTP/1.1\r\nhost: {addr}\r\nconnection: close\r\n\r\n").as_bytes());
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer);
        answer
    };
    // Until the idle ones are taken in, there may be room.
    let full = loop {
        let answer = told();
        if !answer.starts_with("HTTP/1.1 200") {
            break answer;
        }
    };
    assert!(full.starts_with("HTTP/1.1 429 ") && full.contains("\"overloaded\""), "{full}");
    drop(idle);
    while !told().starts_with("HTTP/1.1 200") {}
    drop(sockets);
    assert_eq!(served.get("/api/traces").await["traces"], json!([]));
}
