//! Access control: tokens, host names and the origins of web pages.

use std::{os::unix::fs::PermissionsExt, path::Path};

use reqwest::Method;
use serde_json::json;

use crate::{
    routes::operations,
    served::{Frames, OFFLINE, TestServer, answer, code},
};

#[tokio::test]
async fn only_the_page_and_health_are_served_without_a_token() {
    let served = TestServer::new(OFFLINE);
    let document = served.get("/openapi.json").await;
    let mut operations = operations(&document);
    operations.extend([
        "GET /openapi.json".to_owned(),
        "GET /api/nothing".to_owned(),
        "GET /api".to_owned(),
    ]);
    for operation in &operations {
        let (method, path) = operation.split_once(' ').unwrap();
        let path = path.replace(['{', '}'], "");
        if path.starts_with("/health/") {
            continue;
        }
        for authorization in [
            None,
            Some("Bearer wrong"),
            Some("Bearer "),
            Some("Basic dXNlcjpwYXNz"),
            Some("nothing"),
        ] {
            for accept in ["*/*", "text/event-stream"] {
                let mut request = served
                    .open(method.parse().unwrap(), &path)
                    .header("accept", accept);
                if let Some(authorization) = authorization {
                    request = request.header("authorization", authorization);
                }
                let (status, body) = answer(request).await;
                assert_eq!(
                    (status.as_u16(), code(&body)),
                    (401, "unauthorized"),
                    "{operation} {authorization:?}"
                );
            }
        }
    }
    // A token in the URL is not accepted, because URLs are logged.
    let token = served.token();
    for path in [
        format!("/api/traces?token={token}"),
        format!("/api/traces?access_token={token}"),
    ] {
        assert_eq!(answer(served.open(Method::GET, &path)).await.0, 401);
    }
    for path in ["/", "/health/live", "/health/ready"] {
        assert_eq!(
            answer(served.open(Method::GET, path)).await.0,
            200,
            "{path}"
        );
    }
    for path in ["/api/traces/s/watch", "/api/tree/watch"] {
        for headers in [
            &[][..],
            &[("authorization", "Bearer wrong")],
            &[("sec-websocket-protocol", "soong.bearer.wrong")],
        ] {
            assert_eq!(
                served.try_watch(path, headers).await.err(),
                Some(401),
                "{path} {headers:?}"
            );
        }
    }
}

#[tokio::test]
async fn foreign_host_and_origin_are_rejected() {
    let served = TestServer::new(&format!(
        "{OFFLINE}[server]\nallowed_hosts = [\"soong.example.org\"]\nallowed_origins = [\"https://app.example.org\"]\n"
    ));
    let port = served.url.rsplit(':').next().unwrap().to_owned();
    let bearer = format!("Bearer {}", served.token());
    let own = format!("127.0.0.1:{port}");
    for (host, origin, refusal) in [
        (own.as_str(), None, None),
        (&format!("localhost:{port}"), None, None),
        ("soong.example.org", None, None),
        ("soong.example.org:443", None, None),
        ("evil.example", None, Some("forbidden_host")),
        (
            &format!("evil.example:{port}"),
            None,
            Some("forbidden_host"),
        ),
        ("127.0.0.1", None, Some("forbidden_host")),
        ("127.0.0.1:1", None, Some("forbidden_host")),
        (&own, Some(format!("http://{own}")), None),
        (&own, Some("https://app.example.org".to_owned()), None),
        (&own, Some("null".to_owned()), Some("forbidden_origin")),
        (
            &own,
            Some("https://evil.example".to_owned()),
            Some("forbidden_origin"),
        ),
        (
            &own,
            Some(format!("http://localhost:{port}")),
            Some("forbidden_origin"),
        ),
        (
            &own,
            Some("https://app.example.org.evil.example".to_owned()),
            Some("forbidden_origin"),
        ),
        (&own, Some("file://".to_owned()), Some("forbidden_origin")),
        (
            "soong.example.org",
            Some("https://soong.example.org".to_owned()),
            None,
        ),
    ] {
        let what = format!("{host} {origin:?}");
        for path in ["/api/traces", "/health/live", "/"] {
            let mut request = served.request(Method::GET, path).header("host", host);
            if let Some(origin) = &origin {
                request = request.header("origin", origin);
            }
            let (status, body) = answer(request).await;
            match refusal {
                None => assert_eq!(status, 200, "{what} {path}: {body}"),
                Some(refusal) => assert_eq!(
                    (status.as_u16(), code(&body)),
                    (403, refusal),
                    "{what} {path}"
                ),
            }
        }
        let mut headers = vec![("authorization", bearer.as_str()), ("host", host)];
        headers.extend(origin.as_deref().map(|origin| ("origin", origin)));
        let upgraded = served.try_watch("/api/tree/watch", &headers).await;
        assert_eq!(upgraded.err(), refusal.map(|_| 403), "WebSocket {what}");
    }
    // A preflight request from an allowed origin is granted; one from another origin is not.
    for (origin, may) in [
        ("https://app.example.org", true),
        ("https://evil.example", false),
    ] {
        let request = served
            .open(Method::OPTIONS, "/api/traces")
            .header("origin", origin);
        let request = request.header("access-control-request-method", "POST");
        let response = request
            .header("access-control-request-headers", "authorization")
            .send()
            .await
            .unwrap();
        let allowed_origin = response
            .headers()
            .get("access-control-allow-origin")
            .map(|value| value.to_str().unwrap().to_owned());
        assert_eq!(
            allowed_origin.as_deref(),
            may.then_some(origin),
            "{:?}",
            response.headers()
        );
    }
}

#[tokio::test]
async fn html_form_media_types_are_rejected() {
    let served = TestServer::new(OFFLINE);
    for media in [
        "text/plain",
        "text/plain;charset=UTF-8",
        "application/x-www-form-urlencoded",
    ] {
        for path in [
            "/api/traces",
            "/api/traces/s/stop",
            "/api/sessions/s/artifacts/upload",
        ] {
            let request = served
                .request(Method::POST, path)
                .header("content-type", media)
                .body("{\"prompt\":\"x\"}");
            let (status, body) = answer(request).await;
            assert_eq!(
                (status.as_u16(), code(&body)),
                (415, "unsupported_media"),
                "{media} {path}"
            );
        }
    }
    assert!(
        served.get("/api/traces").await["traces"]
            .as_array()
            .unwrap()
            .is_empty()
    );
}

#[tokio::test]
async fn invalid_project_folders_are_rejected() {
    let served = TestServer::new(OFFLINE);
    let user_home = served.world.home().with_file_name("user");
    std::fs::create_dir_all(&user_home).unwrap();
    for route in ["/api/traces", "/api/sessions"] {
        for (folder, is_allowed) in [
            (user_home.as_path(), true),
            (Path::new("/proc"), false),
            (Path::new("/sys"), false),
        ] {
            let mut body = json!({ "prompt": "x", "project_dir": folder });
            if route == "/api/sessions" {
                body.as_object_mut().unwrap().remove("prompt");
            }
            let (status, response_body) = served.post(route, body.clone()).await;
            assert_eq!(
                (status.as_u16(), code(&response_body)),
                (422, "validation_error"),
                "{route} {folder:?}: {response_body}"
            );
            assert_eq!(
                response_body["error"]["details"]["field"], "project_dir",
                "{response_body}"
            );
            body["allow_home_project"] = true.into();
            let (status, response_body) = served.post(route, body).await;
            assert_eq!(
                status.is_success(),
                is_allowed,
                "{route} {folder:?}: {response_body}"
            );
        }
    }
}

#[tokio::test]
async fn revoked_token_is_rejected_and_its_streams_end() {
    let served = TestServer::new(OFFLINE);
    let path = served.world.home().join("server.token");
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    served.run_to_end(&served.token(), "s", "hello").await;
    let old = served.token();
    let last = served.get("/api/traces/s").await["trace"]["last_event_id"].clone();
    let mut socket = served
        .watch(&old, &format!("/api/traces/s/watch?since_event_id={last}"))
        .await;
    assert_eq!(socket.event().await["event"], "connected");
    let mut tree = served.watch(&old, "/api/tree/watch").await;
    assert_eq!(tree.event().await["event"], "tree_snapshot");
    let stream = served.request(
        Method::GET,
        &format!("/api/traces/s/events?since_event_id={last}"),
    );
    let mut frames = Frames::open(stream).await;

    std::fs::write(&path, "another-token-of-some-length\n").unwrap();
    let (status, body) = answer(served.request_as(&old, Method::GET, "/api/traces")).await;
    assert_eq!(
        (status.as_u16(), code(&body)),
        (401, "unauthorized"),
        "at once"
    );
    assert_eq!(
        answer(served.request(Method::GET, "/api/traces")).await.0,
        200
    );
    assert_eq!(
        (socket.close_code().await, tree.close_code().await),
        (4401, 4401)
    );
    assert!(frames.next().await.is_none());

    std::fs::remove_file(&path).unwrap();
    let gone = served.request_as("another-token-of-some-length", Method::GET, "/api/traces");
    assert_eq!(answer(gone).await.0, 401);
}

#[tokio::test]
async fn token_appears_in_no_log_and_no_stored_file() {
    let mut served = TestServer::new(OFFLINE);
    let token = served.token();
    // Also if a task or a name contains the token.
    served
        .run_to_end(&token, "s", &format!("What is {token}?"))
        .await;
    let (status, _) = served
        .post("/api/sessions", json!({ "session_id": "n", "name": token }))
        .await;
    assert_eq!(status, 201);
    let _ = answer(served.request(Method::GET, &format!("/api/traces/{token}"))).await;
    served.signal(rustix::process::Signal::TERM);
    let ran = served.wait_for_exit().expect_code(0);
    assert!(
        !ran.err.contains(&token) && !ran.out.contains(&token),
        "{}",
        ran.err
    );
    let mut open = vec![served.world.home()];
    let mut seen = 0;
    while let Some(path) = open.pop() {
        if path.is_dir() {
            open.extend(
                std::fs::read_dir(&path)
                    .unwrap()
                    .map(|entry| entry.unwrap().path()),
            );
        } else if !path.ends_with("server.token")
            && !path.ends_with("server.header")
            && path.is_file()
        {
            seen += 1;
            let bytes = std::fs::read(&path).unwrap();
            let found = bytes
                .windows(token.len())
                .any(|window| window == token.as_bytes());
            assert!(!found, "{}", path.display());
        }
    }
    assert!(seen > 2, "there are a database and logs");
}

#[test]
fn startup_error_states_cause_and_advice() {
    let world = crate::process::TestHome::new();
    std::fs::create_dir_all(world.home()).unwrap();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap().to_string();
    world
        .run(&["serve", "--addr", &addr])
        .expect_code(4)
        .expect_stderr(&["cannot listen on", "--addr"]);
    std::fs::write(
        world.home().join("config.toml"),
        "[server.tokens]\nbob = \"BOB\"\n",
    )
    .unwrap();
    world
        .run(&["serve", "--addr", "127.0.0.1:0"])
        .expect_code(2)
        .expect_stderr(&["bob has no token", "BOB is not set"]);
    std::fs::write(
        world.home().join("config.toml"),
        "[server]\naddr = \"here\"\n",
    )
    .unwrap();
    world.run(&["serve"]).expect_code(2).expect_stderr(&[
        "config.toml:2",
        "server.addr",
        "127.0.0.1:7788",
    ]);
    std::fs::write(world.home().join("config.toml"), "").unwrap();
    std::fs::write(world.home().join("server.token"), "short\n").unwrap();
    world
        .run(&["serve", "--addr", "127.0.0.1:0"])
        .expect_code(1)
        .expect_stderr(&["contains no token of at least 16"]);
    world.run(&["serve", "--addr", "nowhere"]).expect_code(2);
}
