//! Tests of which connections are made: none to an address that is not allowed.

use std::{
    net::{IpAddr, Ipv4Addr},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use futures::FutureExt;
use reqwest::Url;
use soong_protocol::{ErrorCode, ErrorInfo};

use super::server::{Server, page, path_of, redirect, response};
use crate::{
    address::is_public,
    client::{AddressCheck, FetchLimits, FetchOutcome, Lookup, WebClient},
};

/// Address that these tests treat as public.
const PUBLIC_ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
/// Address that these tests treat as private.
const PRIVATE_ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));

const LIMITS: FetchLimits = FetchLimits {
    connect: Duration::from_secs(5),
    total: Duration::from_secs(20),
    body_bytes: 64 * 1024,
    redirects: 5,
};

/// Returns the answers one after the other, and then repeats the last one.
fn lookup(answers: &[&[IpAddr]]) -> Lookup {
    let answers: Vec<Vec<IpAddr>> = answers.iter().map(|found| found.to_vec()).collect();
    let lookup_count = AtomicUsize::new(0);
    Arc::new(move |_| {
        let found = answers[lookup_count.fetch_add(1, SeqCst).min(answers.len() - 1)].clone();
        async move { Ok(found) }.boxed()
    })
}

fn only_open() -> AddressCheck {
    Arc::new(|address| address == PUBLIC_ADDRESS)
}

async fn text(client: &WebClient, url: &str) -> Result<String, ErrorInfo> {
    match client.get(Url::parse(url).unwrap(), |_, _| true).await? {
        FetchOutcome::Response(page) => {
            Ok(String::from_utf8_lossy(&page.read_body().await?.bytes).into_owned())
        }
        FetchOutcome::Redirect { to, .. } => panic!("all redirects are followed: {to}"),
    }
}

#[tokio::test]
async fn private_addresses_are_never_connected_to() {
    let open = Server::of(&[("/", page("text/plain", b"open"))]).await;
    let port = open.port();
    let closed = Server::at(&format!("{PRIVATE_ADDRESS}:{port}"), |_, _| {
        async {}.boxed()
    })
    .await;
    for (answers, want) in [
        (vec![[PUBLIC_ADDRESS].as_slice()], Ok("open")),
        (
            vec![[PRIVATE_ADDRESS, PUBLIC_ADDRESS].as_slice()],
            Ok("open"),
        ),
        (
            vec![[PUBLIC_ADDRESS, PRIVATE_ADDRESS].as_slice()],
            Ok("open"),
        ),
        (
            vec![
                [
                    PRIVATE_ADDRESS,
                    PRIVATE_ADDRESS,
                    PUBLIC_ADDRESS,
                    PRIVATE_ADDRESS,
                ]
                .as_slice(),
            ],
            Ok("open"),
        ),
        (
            vec![[PRIVATE_ADDRESS].as_slice()],
            Err(ErrorCode::PermissionDenied),
        ),
        (vec![[].as_slice()], Err(ErrorCode::PermissionDenied)),
    ] {
        let client = WebClient::new(lookup(&answers), only_open(), LIMITS);
        let got = text(&client, &format!("http://name.example:{port}/")).await;
        assert_eq!(
            got.as_deref().map_err(|error| error.code),
            want,
            "{answers:?}"
        );
    }
    assert_eq!((open.accepted(), closed.accepted()), (4, 0));
}

#[tokio::test]
async fn name_is_resolved_and_checked_for_every_request() {
    let open = Server::at("127.0.0.1:0", |head, mut stream| {
        async move {
            use tokio::io::AsyncWriteExt;
            let raw = if path_of(&head) == "/" {
                redirect("/second")
            } else {
                page("text/plain", b"second")
            };
            let _ = stream.write_all(&raw).await;
        }
        .boxed()
    })
    .await;
    let port = open.port();
    let closed = Server::at(&format!("{PRIVATE_ADDRESS}:{port}"), |_, _| {
        async {}.boxed()
    })
    .await;
    let url = format!("http://rebind.example:{port}/");
    let stays = WebClient::new(
        lookup(&[&[PUBLIC_ADDRESS], &[PUBLIC_ADDRESS]]),
        only_open(),
        LIMITS,
    );
    assert_eq!(text(&stays, &url).await.as_deref(), Ok("second"));
    let moves = WebClient::new(
        lookup(&[&[PUBLIC_ADDRESS], &[PRIVATE_ADDRESS]]),
        only_open(),
        LIMITS,
    );
    assert_eq!(
        text(&moves, &url).await.unwrap_err().code,
        ErrorCode::PermissionDenied
    );
    // A host that was connected to before is looked up again, because no connection is kept open.
    let later = WebClient::new(
        lookup(&[&[PUBLIC_ADDRESS], &[PUBLIC_ADDRESS], &[PRIVATE_ADDRESS]]),
        only_open(),
        LIMITS,
    );
    assert!(text(&later, &url).await.is_ok());
    assert_eq!(
        text(&later, &url).await.unwrap_err().code,
        ErrorCode::PermissionDenied
    );
    assert_eq!((open.accepted(), closed.accepted()), (5, 0));
}

#[tokio::test]
async fn redirect_target_is_checked_like_the_first_url() {
    let closed = Server::of(&[]).await;
    let port = closed.port();
    let location = Arc::new(Mutex::new(String::new()));
    let next = Arc::clone(&location);
    // The redirect target is set before each row. The server uses another address than the closed
    // one.
    let open = Server::at("127.0.0.3:0", move |_, mut stream| {
        let raw = redirect(&next.lock().unwrap());
        async move {
            use tokio::io::AsyncWriteExt;
            let _ = stream.write_all(&raw).await;
        }
        .boxed()
    })
    .await;
    let here = open.address.ip();
    let client = WebClient::new(
        lookup(&[&[PUBLIC_ADDRESS]]),
        Arc::new(move |address| address == here),
        LIMITS,
    );
    let url = format!("http://{}/", open.address);
    for (target, code, requests) in [
        (
            format!("http://127.0.0.1:{port}/"),
            ErrorCode::PermissionDenied,
            1,
        ),
        (
            format!("http://2130706433:{port}/"),
            ErrorCode::PermissionDenied,
            1,
        ),
        (
            format!("http://0x7f.1:{port}/"),
            ErrorCode::PermissionDenied,
            1,
        ),
        (
            format!("http://[::ffff:127.0.0.1]:{port}/"),
            ErrorCode::PermissionDenied,
            1,
        ),
        (
            format!("//127.0.0.1:{port}/"),
            ErrorCode::PermissionDenied,
            1,
        ),
        (
            format!("http:\\\\127.0.0.1:{port}/"),
            ErrorCode::PermissionDenied,
            1,
        ),
        (
            format!("http://name.example:{port}/"),
            ErrorCode::PermissionDenied,
            1,
        ),
        (
            format!("http://user@{}/", open.address),
            ErrorCode::PermissionDenied,
            1,
        ),
        (
            "file:///etc/passwd".to_owned(),
            ErrorCode::PermissionDenied,
            1,
        ),
        (
            "gopher://127.0.0.1/".to_owned(),
            ErrorCode::PermissionDenied,
            1,
        ),
        (
            "data:text/html,x".to_owned(),
            ErrorCode::PermissionDenied,
            1,
        ),
        (
            "javascript:alert(1)".to_owned(),
            ErrorCode::PermissionDenied,
            1,
        ),
        ("http://".to_owned(), ErrorCode::PermissionDenied, 1),
        ("/loop".to_owned(), ErrorCode::ProviderError, 6),
        (String::new(), ErrorCode::ProviderError, 6),
    ] {
        location.lock().unwrap().clone_from(&target);
        let before = open.accepted();
        let error = text(&client, &url).await.unwrap_err();
        assert_eq!(
            (error.code, open.accepted() - before),
            (code, requests),
            "{target}: {error}"
        );
        // A target with a forbidden address is rejected even if the redirect would not be followed.
        if code == ErrorCode::PermissionDenied && !target.contains("name.example") {
            let refused = client.get(Url::parse(&url).unwrap(), |_, _| false).await;
            assert!(refused.is_err_and(|error| error.code == code), "{target}");
        }
    }
    assert_eq!(closed.accepted(), 0);
}

#[tokio::test]
async fn localhost_name_is_rejected() {
    let server = Server::of(&[("/", page("text/plain", b"here"))]).await;
    let url = format!("http://localhost:{}/", server.port());
    let error = text(&WebClient::public(), &url).await.unwrap_err();
    assert_eq!(error.code, ErrorCode::PermissionDenied, "{error}");
    assert!(error.message.contains("public addresses only"), "{error}");
    assert_eq!(server.accepted(), 0);
}

#[tokio::test]
async fn request_has_user_agent_but_no_cookies_or_referer() {
    let heads = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&heads);
    let server = Server::at("127.0.0.1:0", move |head, mut stream| {
        let is_first = path_of(&head) == "/";
        seen.lock().unwrap().push(head.to_lowercase());
        async move {
            use tokio::io::AsyncWriteExt;
            let cookie = "Set-Cookie: a=b\r\nLocation: /next\r\n";
            let raw = if is_first {
                response("302 Found", cookie, b"")
            } else {
                page("text/plain", b"x")
            };
            let _ = stream.write_all(&raw).await;
        }
        .boxed()
    })
    .await;
    let client = WebClient::new(lookup(&[&[PUBLIC_ADDRESS]]), only_open(), LIMITS);
    text(&client, &format!("http://a.example:{}/", server.port()))
        .await
        .unwrap();
    let heads = heads.lock().unwrap();
    assert_eq!(heads.len(), 2);
    for head in heads.iter() {
        assert!(
            head.contains(&format!(
                "user-agent: soong/{}\r\n",
                env!("CARGO_PKG_VERSION")
            )),
            "{head}"
        );
        for absent in ["cookie:", "referer:", "authorization:"] {
            assert!(!head.contains(absent), "{absent} {head}");
        }
    }
}

#[test]
fn public_client_has_documented_limits() {
    assert_eq!(FetchLimits::DEFAULT.body_bytes, 5 * 1024 * 1024);
    assert_eq!(
        (
            FetchLimits::DEFAULT.total.as_secs(),
            FetchLimits::DEFAULT.connect.as_secs(),
            FetchLimits::DEFAULT.redirects
        ),
        (30, 10, 5)
    );
    assert!(!is_public(PUBLIC_ADDRESS) && !is_public(PRIVATE_ADDRESS));
}
