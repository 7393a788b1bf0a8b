//! Checks of every request: host name, origin, and token (SRV-1).
//!
//! A web page in a user's browser can send requests to this machine. It cannot change the `Host`
//! and `Origin` headers that the browser sends, nor read the token. Therefore these three are
//! checked for every request, in this order.

use std::{net::SocketAddr, sync::Arc};

use axum::{
    extract::{Request, State},
    http::{HeaderMap, HeaderValue, Method, StatusCode, header, uri::Authority},
    middleware::Next,
    response::{IntoResponse, Response},
};
use soong::{
    ErrorCode, ErrorInfo,
    protocol::ServerConfig,
    protocol::api::operation::{AllowedCaller, EndpointEntry},
};

use super::{connections::Connection, token::Tokens, too_many_connections};
use crate::http::{ApiError, BEARER_PROTOCOL};

/// Settings of the checks.
#[derive(Clone)]
pub(crate) struct Guard {
    names: Arc<[HostName]>,
    pub(super) origins: Arc<[String]>,
    tokens: Tokens,
}

/// A host name of the server.
#[derive(Debug, PartialEq, Eq)]
struct HostName {
    host: String,
    /// `None`: any port.
    port: Option<u16>,
}

impl Guard {
    pub(super) fn new(addr: SocketAddr, config: &ServerConfig, tokens: Tokens) -> Self {
        let port = Some(addr.port());
        let mut names: Vec<HostName> = config
            .allowed_hosts
            .iter()
            .map(|text| HostName::of(text))
            .collect();
        // A server that listens on all addresses also listens on the loopback address.
        if addr.ip().is_loopback() || addr.ip().is_unspecified() {
            let own = ["localhost", "127.0.0.1", "[::1]"];
            names.extend(own.map(|host| HostName {
                host: host.to_owned(),
                port,
            }));
        }
        if !addr.ip().is_unspecified() {
            let host = if addr.is_ipv6() {
                format!("[{}]", addr.ip())
            } else {
                addr.ip().to_string()
            };
            names.push(HostName { host, port });
        }
        let origins = config
            .allowed_origins
            .iter()
            .map(|origin| origin.to_ascii_lowercase())
            .collect();
        Self {
            names: names.into(),
            origins,
            tokens,
        }
    }

    /// Rejects a request whose host is not a name of this server, as it would be after DNS
    /// rebinding.
    fn check_host(&self, request: &Request) -> Result<String, ApiError> {
        let refuse = |what: String| -> ApiError {
            let message =
                format!("{what}: add it to server.allowed_hosts, or use the address of the server");
            ErrorInfo::new(ErrorCode::ForbiddenHost, message).into()
        };
        let mut header = request.headers().get_all(header::HOST).iter();
        let first = header.next();
        let second = header.next();
        let host = match (request.uri().authority(), first, second) {
            (Some(authority), _, None) => authority.as_str(),
            (None, Some(host), None) => host.to_str().unwrap_or_default(),
            _ => return Err(refuse("the request must name exactly one host".to_owned())),
        };
        let host = host.to_ascii_lowercase();
        if self.names.iter().any(|name| name.matches(&host)) {
            Ok(host)
        } else {
            Err(refuse(format!("host {host:?} is not allowed")))
        }
    }

    /// Rejects a request of a page of another origin, or with an opaque origin.
    fn check_origin(&self, headers: &HeaderMap, host: &str) -> Result<(), ApiError> {
        for origin in headers.get_all(header::ORIGIN) {
            let origin = origin.to_str().unwrap_or_default().to_ascii_lowercase();
            let rest = origin
                .strip_prefix("http://")
                .or_else(|| origin.strip_prefix("https://"));
            let is_own = rest.is_some_and(|rest| rest == host);
            if !is_own && !self.origins.contains(&origin) {
                let message =
                    format!("origin {origin:?} is not allowed: add it to server.allowed_origins");
                return Err(ErrorInfo::new(ErrorCode::ForbiddenOrigin, message).into());
            }
        }
        Ok(())
    }
}

impl HostName {
    fn of(text: &str) -> Self {
        let text = text.to_ascii_lowercase();
        match text.parse::<Authority>() {
            Ok(authority) => Self {
                host: authority.host().to_owned(),
                port: authority.port_u16(),
            },
            Err(_) => Self {
                host: text,
                port: None,
            },
        }
    }

    /// Returns whether a `Host` header matches this name. Without a port, the default port of the
    /// scheme is meant.
    fn matches(&self, host: &str) -> bool {
        let Ok(authority) = host.parse::<Authority>() else {
            return false;
        };
        let has_user = host.contains('@');
        let same_port = self.port.is_none_or(|port| match authority.port_u16() {
            Some(header) => header == port,
            None => port == 80 || port == 443,
        });
        !has_user && authority.host() == self.host && same_port
    }
}

/// Middleware: passes on requests with an allowed host and origin.
pub(super) async fn check_place(
    State(guard): State<Guard>,
    request: Request,
    next: Next,
) -> Response {
    let checked = guard
        .check_host(&request)
        .and_then(|host| guard.check_origin(request.headers(), &host));
    match checked.and_then(|()| check_form(&request)) {
        Ok(()) => next.run(request).await,
        Err(error) => error.into_response(),
    }
}

/// Rejects content types that a form on any page can send without a preflight request.
fn check_form(request: &Request) -> Result<(), ApiError> {
    let media = request
        .headers()
        .get(header::CONTENT_TYPE)
        .map(HeaderValue::to_str);
    let essence = |media: &str| {
        media
            .split(';')
            .next()
            .unwrap_or_default()
            .trim()
            .to_ascii_lowercase()
    };
    let is_fine = match media {
        None => true,
        Some(Ok(media)) => !matches!(
            essence(media).as_str(),
            "text/plain" | "application/x-www-form-urlencoded"
        ),
        Some(Err(_)) => false,
    };
    if request.method() == Method::POST && !is_fine {
        let message = "the body must be JSON or a multipart form: send JSON with `Content-Type: application/json`";
        return Err(ErrorInfo::new(ErrorCode::UnsupportedMedia, message).into());
    }
    Ok(())
}

/// Middleware: passes on requests with a valid token, and adds the caller.
pub(super) async fn check_token(
    State(guard): State<Guard>,
    mut request: Request,
    next: Next,
) -> Response {
    let found = request_token(&request).and_then(|token| guard.tokens.find(&token));
    if let Some(connection) = request.extensions().get::<Arc<Connection>>() {
        if found.is_some() {
            connection.set_known();
        } else if connection.is_reserved() {
            return too_many_connections(StatusCode::TOO_MANY_REQUESTS);
        }
    }
    if needs_no_token(request.uri().path()) {
        return next.run(request).await;
    }
    let Some((caller, token_watch)) = found else {
        let message = "the token is missing or unknown: send `Authorization: Bearer TOKEN`; the token of the home \
                       is in its file server.token";
        return ApiError::from(ErrorInfo::new(ErrorCode::Unauthorized, message)).into_response();
    };
    request.extensions_mut().insert(caller);
    request.extensions_mut().insert(token_watch);
    next.run(request).await
}

/// Returns whether a path requires no token: that of the page, or of an endpoint for anyone.
fn needs_no_token(path: &str) -> bool {
    let is_for_anyone = |endpoint: &EndpointEntry| endpoint.caller == AllowedCaller::Anyone;
    path == "/" || EndpointEntry::find("GET", path).is_some_and(is_for_anyone)
}

/// Returns the token of a request: from its header or, for a WebSocket, from a subprotocol.
fn request_token(request: &Request) -> Option<String> {
    let headers = request.headers();
    if let Some(header) = headers.get(header::AUTHORIZATION) {
        let (scheme, token) = header.to_str().ok()?.split_once(' ')?;
        return scheme
            .eq_ignore_ascii_case("bearer")
            .then(|| token.trim().to_owned());
    }
    let is_upgrade = headers
        .get(header::UPGRADE)
        .is_some_and(|to| to.as_bytes().eq_ignore_ascii_case(b"websocket"));
    let protocols = headers
        .get_all(header::SEC_WEBSOCKET_PROTOCOL)
        .iter()
        .filter_map(|value| value.to_str().ok());
    let mut protocols = protocols.flat_map(|list| list.split(',').map(str::trim));
    let token = protocols.find_map(|name| name.strip_prefix(BEARER_PROTOCOL))?;
    is_upgrade.then(|| token.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_matches_by_name_and_port() {
        for (own, host, is) in [
            ("127.0.0.1:7788", "127.0.0.1:7788", true),
            ("127.0.0.1:7788", "127.0.0.1:7789", false),
            ("127.0.0.1:7788", "127.0.0.1", false),
            ("127.0.0.1:80", "127.0.0.1", true),
            ("localhost:7788", "localhost.evil.example:7788", false),
            ("localhost:7788", "evil@localhost:7788", false),
            ("soong.example.org", "soong.example.org", true),
            ("soong.example.org", "soong.example.org:8443", true),
            ("soong.example.org:8443", "soong.example.org", false),
            ("SOONG.example.org", "soong.example.org", true),
            ("[::1]:7788", "[::1]:7788", true),
            ("localhost:7788", "", false),
            ("localhost:7788", "local host:7788", false),
        ] {
            assert_eq!(HostName::of(own).matches(host), is, "{host:?} for {own:?}");
        }
    }
}
