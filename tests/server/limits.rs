//! Limits of one client: bodies, files and connections.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
};

use reqwest::{Method, multipart};
use serde_json::json;

use crate::{
    process::TIMEOUT,
    served::{OFFLINE, TestServer, answer, code},
};

#[tokio::test]
async fn bodies_and_files_are_accepted_up_to_their_limits() {
    let served = TestServer::new(&format!(
        "{OFFLINE}[server]\nmax_body_bytes = 1000\nmax_upload_bytes = 5000\n"
    ));
    let start = |length: usize| json!({ "prompt": "x".repeat(length), "session_id": "s" });
    let (status, body) = served.post("/api/traces", start(1_000)).await;
    assert_eq!(
        (status.as_u16(), code(&body)),
        (413, "payload_too_large"),
        "{body}"
    );
    assert!(
        served.get("/api/traces").await["traces"]
            .as_array()
            .unwrap()
            .is_empty()
    );
    let (status, accepted) = served.post("/api/traces", start(800)).await;
    assert_eq!(status, 202);
    served
        .ended_run(&served.token(), accepted["run_id"].as_str().unwrap())
        .await;
    for (bytes, allowed) in [(5_000, true), (5_001, false), (2_000_000, false)] {
        let put = served
            .request(Method::PUT, "/api/sessions/s/artifacts/a.bin")
            .body(vec![0; bytes]);
        let (status, body) = answer(put).await;
        assert_eq!(
            status.as_u16(),
            if allowed { 201 } else { 413 },
            "{bytes}: {body}"
        );
    }
    let form = |bytes: usize| {
        multipart::Form::new().part(
            "file",
            multipart::Part::bytes(vec![0; bytes]).file_name("b.bin"),
        )
    };
    for (bytes, allowed) in [(4_000, true), (6_000, false), (300_000, false)] {
        let upload = served
            .request(Method::POST, "/api/sessions/s/artifacts/upload")
            .multipart(form(bytes));
        let (status, body) = answer(upload).await;
        assert_eq!(
            status.as_u16(),
            if allowed { 201 } else { 413 },
            "{bytes}: {body}"
        );
    }
    let large = TestServer::new(OFFLINE);
    assert_eq!(
        large
            .post("/api/sessions", json!({ "session_id": "s" }))
            .await
            .0,
        201
    );
    let upload = large
        .request(Method::POST, "/api/sessions/s/artifacts/upload")
        .multipart(form(15_000_000));
    assert_eq!(
        answer(upload).await.0,
        201,
        "as large as the default lets in"
    );
    let listed = served.get("/api/sessions/s/artifacts").await;
    assert_eq!(
        listed["artifacts"].as_array().unwrap().len(),
        2,
        "what was refused is not half there: {listed}"
    );
}

/// A persistent connection for several requests, used with raw bytes.
struct KeepAlive(BufReader<TcpStream>);

impl KeepAlive {
    fn new(addr: &str) -> Self {
        let stream = TcpStream::connect(addr).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        Self(BufReader::new(stream))
    }

    /// Sends a request in one write. Returns false if the server has closed the connection.
    fn send(&mut self, head: &str, body: &[u8]) -> bool {
        let head = format!("{head}\r\ncontent-length: {}\r\n\r\n", body.len());
        let stream = self.0.get_mut();
        stream.write_all(&[head.as_bytes(), body].concat()).is_ok()
    }

    /// Reads a response: its head in lower case, and its body. Both are empty if the server has
    /// closed the connection.
    fn answer(&mut self) -> (String, String) {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if self.0.read_line(&mut head).unwrap_or(0) == 0 {
                return Default::default();
            }
        }
        let head = head.to_ascii_lowercase();
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length: "));
        let mut body = vec![0; length.unwrap().parse().unwrap()];
        self.0.read_exact(&mut body).unwrap();
        (head, String::from_utf8(body).unwrap())
    }
}

#[tokio::test]
async fn early_response_keeps_or_closes_the_connection() {
    let served = TestServer::new(&format!("{OFFLINE}[server]\nmax_body_bytes = 1000\n"));
    let addr = served.url.trim_start_matches("http://").to_owned();
    let token = served.token();
    let json = "content-type: application/json";
    for (path, token, media, status) in [
        ("/api/traces", "wrong", json, 401),
        ("/api/traces", &*token, json, 413),
        ("/api/traces", &*token, "content-type: text/plain", 415),
        (
            "/api/traces",
            &*token,
            "content-type: application/yaml",
            413,
        ),
        ("/api/nothing", &*token, json, 404),
    ] {
        for size in [10, 5_000, 200_000, 300_000, 5_000_000] {
            let mut connection = KeepAlive::new(&addr);
            let head = format!(
                "POST {path} HTTP/1.1\r\nhost: {addr}\r\nauthorization: Bearer {token}\r\n{media}"
            );
            // If the server stops reading, sending may fail. The response must still be readable,
            // except after bodies above 256 KiB.
            connection.send(&head, &vec![b'x'; size]);
            let (answer, _) = connection.answer();
            let case = format!("{path} {media} {size}: {answer}");
            let want = if size == 10 && status == 413 {
                "http/1.1 4".to_owned()
            } else {
                format!("http/1.1 {status} ")
            };
            assert!(
                answer.starts_with(&want) || size > 256 * 1_024 && answer.is_empty(),
                "{case}"
            );
            let next_head = format!("GET /health/live HTTP/1.1\r\nhost: {addr}");
            if answer.contains("\r\nconnection: close\r\n") || answer.is_empty() {
                assert!(size > 10, "a small body is read: {case}");
                assert_eq!(connection.answer().0, "", "announced, and done: {case}");
            } else {
                assert!(connection.send(&next_head, b""), "{case}");
                assert!(connection.answer().0.starts_with("http/1.1 200 "), "{case}");
            }
        }
    }
    // A client that sends `Expect: 100-continue` gets the rejection before it sends its body.
    let mut connection = KeepAlive::new(&addr);
    let head = format!(
        "POST /api/traces HTTP/1.1\r\nhost: {addr}\r\nexpect: 100-continue\r\ncontent-length: 900"
    );
    connection
        .0
        .get_mut()
        .write_all(format!("{head}\r\n\r\n").as_bytes())
        .unwrap();
    let (answer, _) = connection.answer();
    assert!(
        answer.starts_with("http/1.1 401 ") && answer.contains("\r\nconnection: close\r\n"),
        "{answer}"
    );
}

/// Sends a GET request over a new connection and returns the whole response.
fn ask(addr: &str, path: &str, token: &str) -> String {
    let mut stream = TcpStream::connect(addr).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    let head = format!(
        "GET {path} HTTP/1.1\r\nhost: {addr}\r\nauthorization: Bearer {token}\r\nconnection: close"
    );
    let _ = stream.write_all(format!("{head}\r\n\r\n").as_bytes());
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer);
    answer
}

#[tokio::test]
async fn idle_connections_do_not_block_other_clients() {
    let limits = "[server]\nmax_connections = 40\nreserved_connections = 4\nmax_connections_per_address = 30\n";
    let served = TestServer::new(&format!("{OFFLINE}{limits}"));
    let addr = served.url.trim_start_matches("http://").to_owned();
    let token = served.token();
    let mut silent: Vec<TcpStream> = Vec::new();
    for round in 0..120 {
        let mut stream = TcpStream::connect(&addr).unwrap();
        // One third of the connections sends nothing, one third an incomplete request, one third a
        // complete request.
        match round % 3 {
            0 => {}
            1 => stream.write_all(b"GET / HTTP/1.1\r\nHost:").unwrap(),
            _ => stream
                .write_all(format!("GET /health/live HTTP/1.1\r\nhost: {addr}\r\n\r\n").as_bytes())
                .unwrap(),
        }
        silent.push(stream);
        if round % 10 == 0 {
            assert!(
                ask(&addr, "/api/traces", &token).starts_with("HTTP/1.1 200 "),
                "{round}"
            );
            assert!(
                ask(&addr, "/health/live", "").starts_with("HTTP/1.1 200 "),
                "{round}"
            );
        }
    }
}

#[tokio::test]
async fn connections_over_the_limit_are_rejected_until_others_close() {
    let served = TestServer::new(&format!("{OFFLINE}[server]\nmax_connections = 4\n"));
    let addr = served.url.trim_start_matches("http://").to_owned();
    let token = served.token();
    let mut sockets = Vec::new();
    for _ in 0..4 {
        let mut socket = served.watch(&token, "/api/tree/watch").await;
        assert_eq!(socket.event().await["event"], "tree_snapshot");
        sockets.push(socket);
    }
    let full = ask(&addr, "/health/live", &token);
    assert!(
        full.starts_with("HTTP/1.1 503 ") && full.contains("\"overloaded\""),
        "{full}"
    );
    drop(sockets);
    while !ask(&addr, "/health/live", "").starts_with("HTTP/1.1 200") {}
    assert_eq!(served.get("/api/traces").await["traces"], json!([]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn half_closed_connection_still_gets_its_response() {
    let served = TestServer::new(OFFLINE);
    let addr = served.url.trim_start_matches("http://").to_owned();
    let token = served.token();
    let body = json!({ "prompt": "hello" }).to_string();
    let start = format!(
        "POST /api/traces HTTP/1.1\r\ncontent-type: application/json\r\ncontent-length: {}",
        body.len()
    );
    for (head, body, want) in [
        (start.as_str(), body.as_str(), "202"),
        ("GET /api/traces HTTP/1.1", "", "200"),
    ] {
        for _ in 0..20 {
            let mut stream = TcpStream::connect(&addr).unwrap();
            stream.set_read_timeout(Some(TIMEOUT)).unwrap();
            let head =
                format!("{head}\r\nhost: {addr}\r\nauthorization: Bearer {token}\r\n\r\n{body}");
            stream.write_all(head.as_bytes()).unwrap();
            stream.shutdown(std::net::Shutdown::Write).unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            assert!(
                answer.starts_with(&format!("HTTP/1.1 {want} ")),
                "{head}: {answer:?}"
            );
        }
    }
    assert_eq!(
        served.get("/api/traces?limit=100").await["traces"]
            .as_array()
            .unwrap()
            .len(),
        20
    );
}

/// Many connections at once from one address, each with a valid token, are all answered: those that
/// the slots of the address and the reserved ones hold with the response, those beyond them at
/// least with a refusal.
#[test]
fn burst_of_new_connections_is_answered() {
    // So few that all are open within the 2 s in which a new connection is not closed for another
    // one.
    let limits = "[server]\nmax_connections_per_address = 32\nreserved_connections = 32\n";
    let served = TestServer::new(&format!("{OFFLINE}{limits}"));
    let token = served.token();
    let address = served.url.trim_start_matches("http://").to_owned();
    for (count, may_refuse) in [(48, false), (700, true)] {
        // All are open before the first one sends anything.
        let mut connections: Vec<TcpStream> = (0..count)
            .map(|_| TcpStream::connect(&address).unwrap())
            .collect();
        let request = format!(
            "GET /api/sessions HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {token}\r\nconnection: close\r\n\r\n"
        );
        for connection in &mut connections {
            connection.set_read_timeout(Some(TIMEOUT)).unwrap();
            // The server may have answered, and closed its side, already.
            let _ = connection.write_all(request.as_bytes());
        }
        for (number, connection) in connections.iter_mut().enumerate() {
            let mut answer = Vec::new();
            let read = connection.read_to_end(&mut answer);
            let answer = String::from_utf8_lossy(&answer);
            let is_refusal =
                answer.starts_with("HTTP/1.1 503 ") && answer.contains("\"overloaded\"");
            let is_expected = answer.starts_with("HTTP/1.1 200 ") || (may_refuse && is_refusal);
            assert!(is_expected, "{number} of {count}: {read:?} {answer:?}");
        }
    }
}
