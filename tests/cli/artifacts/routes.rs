//! The artifact routes on the control socket, tested with raw HTTP.

use std::{
    io::{Read, Write},
    os::unix::net::UnixStream,
};

use serde_json::{Value, json};

use super::{Owned, lived_in};
use crate::{
    process::{TIMEOUT, TestHome},
    service::ManualModelService,
};

pub(crate) struct Answer {
    status: u16,
    head: String,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }

    fn text(&self) -> String {
        format!("{}\n\n{}", self.head, String::from_utf8_lossy(&self.body))
    }

    #[track_caller]
    pub(crate) fn is(self, status: u16) -> Self {
        assert_eq!(self.status, status, "{}", self.text());
        self
    }

    #[track_caller]
    pub(crate) fn refuses(self, status: u16, code: &str) {
        let body = self.is(status).json();
        assert_eq!(
            keys(&body["error"]),
            ["code", "message", "retryable", "details"]
        );
        assert_eq!(body["error"]["code"], code);
    }

    #[track_caller]
    fn has(&self, header: &str) {
        let is_there = self
            .head
            .lines()
            .any(|line| line.eq_ignore_ascii_case(header));
        assert!(is_there, "{header:?} is missing in\n{}", self.head);
    }
}

fn keys(object: &Value) -> Vec<&str> {
    object
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect()
}

/// Sends a request and reads the whole response. It uses HTTP/1.0, so that the response is not
/// chunked.
#[track_caller]
pub(crate) fn ask(world: &TestHome, line: &str, headers: &str, body: &[u8]) -> Answer {
    let mut stream = UnixStream::connect(world.home().join("control.sock")).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    let length = body.len();
    let head = format!("{line} HTTP/1.0\r\nhost: x\r\ncontent-length: {length}\r\n{headers}\r\n");
    stream.write_all(&[head.as_bytes(), body].concat()).unwrap();
    let mut all = Vec::new();
    stream.read_to_end(&mut all).unwrap();
    let end = all.windows(4).position(|four| four == b"\r\n\r\n").unwrap();
    let head = String::from_utf8(all[..end].to_vec()).unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    Answer {
        status,
        head,
        body: all[end + 4..].to_vec(),
    }
}

const JSON: &str = "content-type: application/json\r\n";

#[test]
fn artifact_routes_cover_its_whole_life() {
    let world = lived_in();
    let service = ManualModelService::new();
    let owned = Owned::begin(&world, &service, "o");
    let at = |method: &str, more: &str| format!("{method} /api/sessions/s/artifacts{more}");
    let markdown = "content-type: text/markdown; charset=utf-8\r\n";

    let stored = ask(&world, &at("PUT", "/my%20plan"), markdown, b"# One\n")
        .is(201)
        .json();
    assert_eq!(
        keys(&stored),
        ["name", "artifact_id", "version", "size", "content_type"]
    );
    assert_eq!(
        (&stored["name"], &stored["content_type"]),
        (&json!("my plan"), &json!("text/markdown; charset=utf-8"))
    );
    assert_eq!(
        ask(&world, &at("PUT", "/my%20plan"), markdown, b"# Two\n")
            .is(200)
            .json()["version"],
        2
    );
    let bytes = ask(&world, &at("PUT", "/user:%E5%A5%BD"), "", &[0, 255])
        .is(201)
        .json();
    assert_eq!(
        (&bytes["name"], &bytes["content_type"]),
        (&json!("user:好"), &json!("application/octet-stream"))
    );

    let edit = json!({ "old": "Two", "new": "Three" }).to_string();
    let edited = ask(&world, &at("PATCH", "/my%20plan"), JSON, edit.as_bytes())
        .is(200)
        .json();
    assert_eq!(
        edited,
        json!({ "version": 3, "layer": "exact", "similarity": 1.0, "replaced": "Two" })
    );

    let shown = ask(&world, &at("GET", "/my%20plan"), "", b"")
        .is(200)
        .json();
    assert_eq!(keys(&shown), ["artifact", "content", "versions"]);
    assert_eq!(shown["content"], "# Three\n");
    assert_eq!(shown["versions"].as_array().unwrap().len(), 3);
    let shown = ask(&world, &at("GET", "/user:%E5%A5%BD"), "", b"")
        .is(200)
        .json();
    assert!(shown.get("content").is_none(), "bytes are no text: {shown}");
    // An artifact can also be addressed by its id.
    let id = stored["artifact_id"].as_str().unwrap();
    assert_eq!(
        ask(&world, &at("GET", &format!("/{id}")), "", b"")
            .is(200)
            .json()["artifact"]["name"],
        "my plan"
    );

    let content = ask(&world, &at("GET", "/my%20plan/content"), "", b"").is(200);
    for header in [
        "content-type: text/markdown; charset=utf-8",
        "content-length: 8",
        "content-disposition: attachment; filename=\"my plan.md\"; filename*=UTF-8''my%20plan.md",
        "x-content-type-options: nosniff",
    ] {
        content.has(header);
    }
    assert_eq!(content.body, b"# Three\n");
    let first = ask(&world, &at("GET", "/my%20plan/content?version=1"), "", b"").is(200);
    assert_eq!(first.body, b"# One\n");
    let content = ask(&world, &at("GET", "/user:%E5%A5%BD/content"), "", b"").is(200);
    content.has("content-disposition: attachment; filename=\"_\"; filename*=UTF-8''%E5%A5%BD");
    assert_eq!(content.body, [0, 255]);

    assert_eq!(
        ask(&world, &at("GET", "/my%20plan/versions"), "", b"")
            .is(200)
            .json()["versions"][2]["version"],
        3
    );
    assert_eq!(
        ask(&world, &at("GET", "/my%20plan/versions/2"), "", b"")
            .is(200)
            .json()["update_type"],
        "rewrite"
    );
    let docx = ask(&world, &at("GET", "/my%20plan/export?format=docx"), "", b"").is(200);
    docx.has("content-disposition: attachment; filename=\"my plan.docx\"; filename*=UTF-8''my%20plan.docx");
    assert!(docx.body.starts_with(b"PK"));

    let listed = ask(&world, &at("GET", ""), "", b"").is(200).json();
    assert_eq!(listed["artifacts"].as_array().unwrap().len(), 2);
    let gone = ask(&world, &at("DELETE", "/my%20plan"), "", b"").is(204);
    assert!(gone.body.is_empty());
    ask(&world, &at("GET", "/my%20plan"), "", b"").refuses(404, "artifact_not_found");
    owned.end();
}

#[test]
fn sessions_and_uploads_need_no_run() {
    let world = lived_in();
    let service = ManualModelService::new();
    let owned = Owned::begin(&world, &service, "o");
    let spec = json!({ "session_id": "n", "name": "New" }).to_string();
    let made = ask(&world, "POST /api/sessions", JSON, spec.as_bytes())
        .is(201)
        .json();
    assert_eq!(
        (&made["session"]["session_id"], &made["session"]["name"]),
        (&json!("n"), &json!("New"))
    );
    ask(&world, "POST /api/sessions", JSON, spec.as_bytes()).refuses(400, "validation_error");
    let made = ask(&world, "POST /api/sessions", JSON, b"{}")
        .is(201)
        .json();
    assert!(made["session"]["session_id"].is_string());
    ask(&world, "POST /api/sessions", JSON, b"{\"colour\":1}").refuses(400, "validation_error");

    let part = |name: &str, filename: &str, kind: &str, body: &str| {
        format!(
            "--cut\r\ncontent-disposition: form-data; name=\"{name}\"{filename}\r\n{kind}\r\n{body}\r\n"
        )
    };
    let plain = "content-type: text/plain\r\n";
    let two = [
        part("note", "", "", "no file"),
        part("file", "; filename=\"a/b\u{df}.txt\"", plain, "one"),
        part("file", "; filename=\"b\u{df}.txt\"", plain, "two"),
        "--cut--\r\n".to_owned(),
    ]
    .concat();
    let multipart = "content-type: multipart/form-data; boundary=cut\r\n";
    let stored = ask(
        &world,
        "POST /api/sessions/n/artifacts/upload",
        multipart,
        two.as_bytes(),
    )
    .is(201)
    .json();
    assert_eq!(
        (&stored["name"], &stored["version"], &stored["size"]),
        (&json!("bß.txt"), &json!(1), &json!(3))
    );
    assert_eq!(stored["artifacts"][1]["name"], "bß_1.txt");
    let shown = ask(
        &world,
        "GET /api/sessions/n/artifacts/b%C3%9F_1.txt",
        "",
        b"",
    )
    .is(200)
    .json();
    assert_eq!(
        (&shown["content"], &shown["artifact"]["source"]),
        (&json!("two"), &json!("user_upload"))
    );

    let nothing = [part("note", "", "", "no file"), "--cut--\r\n".to_owned()].concat();
    for (path, headers, body, status, code) in [
        (
            "/api/sessions/n/artifacts/upload",
            multipart,
            nothing.as_bytes(),
            400,
            "validation_error",
        ),
        (
            "/api/sessions/n/artifacts/upload",
            JSON,
            b"{}",
            400,
            "validation_error",
        ),
        (
            "/api/sessions/no/artifacts/upload",
            multipart,
            two.as_bytes(),
            404,
            "session_not_found",
        ),
        (
            "/api/sessions/n/artifacts/other",
            multipart,
            two.as_bytes(),
            405,
            "validation_error",
        ),
        (
            "/api/sessions/n/artifacts/upload",
            multipart,
            &two.as_bytes()[..200],
            400,
            "validation_error",
        ),
    ] {
        ask(&world, &format!("POST {path}"), headers, body).refuses(status, code);
    }
    owned.end();
}

#[test]
fn interrupted_upload_stores_no_artifact() {
    let world = lived_in();
    let service = ManualModelService::new();
    let owned = Owned::begin(&world, &service, "o");
    let part = "--cut\r\ncontent-disposition: form-data; name=\"file\"; filename=\"half\"\r\n\r\n";
    for (line, kind, begin) in [
        ("PUT", "text/plain", ""),
        ("POST", "multipart/form-data; boundary=cut", part),
    ] {
        let name = if line == "PUT" { "half" } else { "upload" };
        let mut stream = UnixStream::connect(world.home().join("control.sock")).unwrap();
        let head = format!(
            "{line} /api/sessions/s/artifacts/{name} HTTP/1.1\r\nhost: x\r\ncontent-type: {kind}\r\n"
        );
        write!(stream, "{head}content-length: 9000000\r\n\r\n{begin}").unwrap();
        // More than the socket buffers hold, so that a part is already being written to disk.
        stream.write_all(&[b'x'; 4_000_000]).unwrap();
    }
    // The owner exits only after all uploads have ended.
    owned.end();
    assert_eq!(
        super::artifact(&world, &["list", "--session", "s"]).out,
        "no artifacts\n"
    );
    let left =
        std::fs::read_dir(world.home().join("sessions/s/artifacts")).map_or(0, Iterator::count);
    assert_eq!(left, 0, "no file is left");
}

#[test]
fn rejections_have_their_status_and_code() {
    let world = lived_in();
    let service = ManualModelService::new();
    let owned = Owned::begin(&world, &service, "o");
    let plain = "content-type: text/plain\r\n";
    ask(
        &world,
        "PUT /api/sessions/s/artifacts/plan",
        plain,
        b"one two one",
    )
    .is(201);
    ask(&world, "PUT /api/sessions/s/artifacts/bytes", "", &[0, 255]).is(201);
    let edit = |old: &str| json!({ "old": old, "new": "x" }).to_string();
    let one = edit("one");
    let none = edit("nothing like it");
    let empty = edit("");
    for (line, headers, body, status, code) in [
        ("GET /plan", "", "", 200, ""),
        ("GET /no", "", "", 404, "artifact_not_found"),
        ("GET /no/content", "", "", 404, "artifact_not_found"),
        ("GET /no/versions", "", "", 404, "artifact_not_found"),
        ("GET /no/versions/1", "", "", 404, "artifact_not_found"),
        (
            "GET /no/export?format=docx",
            "",
            "",
            404,
            "artifact_not_found",
        ),
        (
            "GET /plan/content?version=9",
            "",
            "",
            404,
            "version_not_found",
        ),
        (
            "GET /plan/content?version=x",
            "",
            "",
            400,
            "validation_error",
        ),
        (
            "GET /plan/content?colour=red",
            "",
            "",
            400,
            "validation_error",
        ),
        ("GET /plan/versions/9", "", "", 404, "version_not_found"),
        ("GET /plan/versions/x", "", "", 400, "validation_error"),
        (
            "GET /plan/export?format=pdf",
            "",
            "",
            400,
            "validation_error",
        ),
        ("GET /plan/export", "", "", 400, "validation_error"),
        (
            "GET /bytes/export?format=docx",
            "",
            "",
            415,
            "unsupported_media",
        ),
        ("GET /%FF", "", "", 400, "validation_error"),
        ("PUT /a%2Fb", plain, "x", 400, "validation_error"),
        ("PUT /user:user:x", plain, "x", 400, "validation_error"),
        ("PATCH /plan", JSON, &one, 409, "ambiguous_match"),
        ("PATCH /plan", JSON, &none, 409, "no_match"),
        ("PATCH /plan", JSON, &empty, 400, "validation_error"),
        ("PATCH /plan", JSON, "{", 400, "validation_error"),
        ("PATCH /no", JSON, &one, 404, "artifact_not_found"),
        ("PATCH /bytes", JSON, &one, 415, "unsupported_media"),
        ("DELETE /no", "", "", 404, "artifact_not_found"),
        ("POST /plan/content", "", "", 405, "validation_error"),
    ] {
        let line = line.replacen('/', "/api/sessions/s/artifacts/", 1);
        let answer = ask(&world, &line, headers, body.as_bytes());
        match status {
            200 => drop(answer.is(200)),
            _ => answer.refuses(status, code),
        }
    }
    for line in [
        "GET /api/sessions/no/artifacts",
        "GET /api/sessions/no/artifacts/x",
        "PUT /api/sessions/no/artifacts/x",
    ] {
        ask(&world, line, plain, b"x").refuses(404, "session_not_found");
    }
    ask(
        &world,
        "POST /api/cleanup/artifacts",
        JSON,
        b"{\"session_id\":\"no\"}",
    )
    .refuses(404, "session_not_found");
    ask(
        &world,
        "POST /api/cleanup/artifacts",
        JSON,
        b"{\"session\":\"s\"}",
    )
    .refuses(400, "validation_error");
    let report = ask(
        &world,
        "POST /api/cleanup/artifacts",
        JSON,
        b"{\"include_all\":true}",
    )
    .is(200)
    .json();
    assert_eq!(
        (
            &report["dry_run"],
            report["candidates"].as_array().unwrap().len()
        ),
        (&json!(true), 2)
    );
    let done = b"{\"include_all\":true,\"dry_run\":false}";
    let report = ask(&world, "POST /api/cleanup/artifacts", JSON, done)
        .is(200)
        .json();
    assert_eq!(report["deleted"].as_array().unwrap().len(), 2);
    ask(&world, "POST /api/cleanup/tasks", JSON, b"{}").refuses(400, "validation_error");
    ask(
        &world,
        "POST /api/cleanup/tasks",
        JSON,
        b"{\"project_dir\":\"/no/where\"}",
    )
    .refuses(404, "file_not_found");
    let project = json!({ "project_dir": world.project() }).to_string();
    let report = ask(&world, "POST /api/cleanup/tasks", JSON, project.as_bytes())
        .is(200)
        .json();
    assert_eq!(
        report,
        json!({ "dry_run": true, "candidates": [], "failed": [] })
    );
    owned.end();
}
