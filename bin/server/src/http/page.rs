//! The page at `/`: what runs here, and where its interface is described.
//!
//! It tells nothing without a token, which it asks for and keeps to itself.

use axum::{
    http::{StatusCode, header},
    response::{Html, IntoResponse, Response},
};

const PAGE: &str = include_str!("page.html");

pub(super) async fn show() -> Response {
    // Only what is on the page itself runs there, and it may ask this server and nobody else.
    let mut nonce = [0; 16];
    let nonce = match getrandom::fill(&mut nonce) {
        Ok(()) => nonce.map(|byte| format!("{byte:02x}")).concat(),
        Err(_) => return StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    };
    let policy = format!(
        "default-src 'none'; style-src 'nonce-{nonce}'; script-src 'nonce-{nonce}'; connect-src 'self'; base-uri 'none'; \
         form-action 'none'; frame-ancestors 'none'"
    );
    let page = PAGE.replace("{version}", env!("CARGO_PKG_VERSION")).replace("{nonce}", &nonce);
    let headers = [
        (header::CONTENT_SECURITY_POLICY, policy.as_str()),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CACHE_CONTROL, "no-store"),
    ];
    (headers, Html(page)).into_response()
}
