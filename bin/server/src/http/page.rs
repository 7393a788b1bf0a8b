//! The page at `/`: shows active runs and links to the API document.
//!
//! It shows nothing without a token, which the user enters and which stays in the page.

use axum::{
    http::{StatusCode, header},
    response::{Html, IntoResponse, Response},
};

const PAGE: &str = include_str!("page.html");

pub(super) async fn show() -> Response {
    // Content security policy: only scripts of the page itself run, and they may send requests only
    // to this server.
    let mut nonce = [0; 16];
    let nonce = match getrandom::fill(&mut nonce) {
        Ok(()) => nonce.map(|byte| format!("{byte:02x}")).concat(),
        Err(_) => return StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    };
    let policy = format!(
        "default-src 'none'; style-src 'nonce-{nonce}'; script-src 'nonce-{nonce}'; connect-src 'self'; base-uri 'none'; \
         form-action 'none'; frame-ancestors 'none'"
    );
    let page = PAGE
        .replace("{version}", env!("CARGO_PKG_VERSION"))
        .replace("{nonce}", &nonce);
    let headers = [
        (header::CONTENT_SECURITY_POLICY, policy.as_str()),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CACHE_CONTROL, "no-store"),
    ];
    (headers, Html(page)).into_response()
}
