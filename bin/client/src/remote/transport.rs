//! How requests reach the owner of a home: over the control socket of the home, or over HTTP.

use std::{fmt, io, path::Path, sync::Arc};

#[cfg(test)]
use futures::future::BoxFuture;
use http::{HeaderValue, Uri, header, uri::Scheme};
use reqwest::Body;
use soong_protocol::{ErrorCode, ErrorInfo};

use crate::{invalid_request, socket::ShortPath};

/// Routes that a test answers as another process does.
#[cfg(test)]
pub(crate) trait Routes: Send + Sync {
    /// Handles a request.
    fn send(&self, request: http::Request<Body>) -> BoxFuture<'static, http::Response<Body>>;
}

/// Route of requests to an owner.
#[derive(Clone)]
pub(crate) enum Transport {
    /// Routes that a test answers as another process does.
    #[cfg(test)]
    Routes(Arc<dyn Routes>),
    /// The owner is another process on this machine. Each request opens a new connection.
    Socket(Endpoint),
    /// The owner is a server.
    Server(Remote),
}

impl fmt::Debug for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            #[cfg(test)]
            Self::Routes(_) => f.write_str("Routes"),
            Self::Socket(endpoint) => f.debug_tuple("Socket").field(&endpoint.url).finish(),
            Self::Server(remote) => f.debug_tuple("Server").field(remote).finish(),
        }
    }
}

impl Transport {
    /// Creates the transport to the control socket of a home.
    pub(crate) fn socket(home: &Path) -> Result<Self, ErrorInfo> {
        let path = ShortPath::new(home).map_err(|error| no_owner(&error))?;
        // Without certificates: a socket needs none, and loading those of the system takes time.
        let http = soong_http::client_builder()
            .unix_socket(path.socket())
            .tls_certs_only([])
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .http1_only()
            .pool_max_idle_per_host(0)
            .build();
        let http = http.map_err(|error| invalid_request(&error))?;
        Ok(Self::Socket(Endpoint {
            http,
            url: "http://soong".to_owned(),
            token: None,
            folder: Some(Arc::new(path)),
        }))
    }

    pub(crate) async fn send(
        &self,
        request: http::Request<Body>,
    ) -> Result<reqwest::Response, ErrorInfo> {
        match self {
            #[cfg(test)]
            Self::Routes(routes) => Ok(routes.send(request).await.into()),
            Self::Socket(endpoint) => endpoint.send(request).await.map_err(|error| {
                if error.is_connect() {
                    no_owner(&root_cause(&error))
                } else {
                    super::connection_lost(&root_cause(&error))
                }
            }),
            Self::Server(remote) => remote.send(request).await,
        }
    }
}

/// Error of a home whose control socket cannot be reached.
fn no_owner(error: &dyn fmt::Display) -> ErrorInfo {
    ErrorInfo::retryable(
        ErrorCode::Closing,
        format!("cannot connect to the owner process of the home: {error}"),
    )
}

/// An HTTP client with the base URL of its requests.
#[derive(Clone)]
pub(crate) struct Endpoint {
    http: reqwest::Client,
    /// Base URL without a trailing slash.
    url: String,
    token: Option<HeaderValue>,
    /// Keeps the folder of the socket open while its short path is in use.
    #[expect(dead_code, reason = "held, not read")]
    folder: Option<Arc<ShortPath>>,
}

impl Endpoint {
    async fn send(&self, request: http::Request<Body>) -> reqwest::Result<reqwest::Response> {
        let (parts, body) = request.into_parts();
        let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
        let mut request = self
            .http
            .request(parts.method, format!("{}{path}", self.url))
            .headers(parts.headers)
            .body(body);
        if let Some(token) = &self.token {
            request = request.header(header::AUTHORIZATION, token.clone());
        }
        request.send().await
    }
}

/// A server at an address, with its access token. Cheap to clone; the debug output does not contain
/// the token.
#[derive(Clone)]
pub struct Remote(Endpoint);

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Remote")
            .field("url", &self.0.url)
            .finish_non_exhaustive()
    }
}

impl Remote {
    /// Names a server; nothing is sent. The error explains what is wrong with the address or the
    /// token.
    pub fn new(url: &str, token: &str) -> Result<Self, String> {
        let parsed: Uri = url
            .parse()
            .map_err(|error| format!("--url {url}: {error}"))?;
        let is_http =
            parsed.scheme() == Some(&Scheme::HTTP) || parsed.scheme() == Some(&Scheme::HTTPS);
        if !is_http || parsed.query().is_some() || url.contains('@') {
            return Err(format!(
                "--url {url}: expected an address such as http://127.0.0.1:7788"
            ));
        }
        let mut token = HeaderValue::from_str(&format!("Bearer {token}"))
            .map_err(|_| "the token contains invalid characters".to_owned())?;
        token.set_sensitive(true);
        // Redirects are not followed, so that the token is sent to no other server.
        let mut http = soong_http::client_builder_for(parsed.host().unwrap_or_default())
            .redirect(reqwest::redirect::Policy::none());
        if parsed.scheme() == Some(&Scheme::HTTP) {
            // Loading the certificates of the system takes time.
            http = http.tls_certs_only([]);
        }
        let http = http
            .build()
            .map_err(|error| format!("cannot create the HTTP client: {error}"))?;
        Ok(Self(Endpoint {
            http,
            url: url.trim_end_matches('/').to_owned(),
            token: Some(token),
            folder: None,
        }))
    }

    /// Returns the address of the server.
    pub fn url(&self) -> &str {
        &self.0.url
    }

    async fn send(&self, request: http::Request<Body>) -> Result<reqwest::Response, ErrorInfo> {
        self.0.send(request).await.map_err(|error| {
            let url = self.url();
            let cause = root_cause(&error);
            let what = if error.is_connect() {
                "cannot connect"
            } else {
                "lost the connection"
            };
            ErrorInfo::new(ErrorCode::Closing, format!("{what} to {url}: {cause}"))
        })
    }
}

/// Returns the root cause of an error.
pub(crate) fn root_cause(error: &dyn std::error::Error) -> String {
    let mut at = error;
    while let Some(source) = at.source() {
        at = source;
    }
    at.to_string()
}

/// Returns whether access to the control socket of a home is denied.
pub(crate) async fn is_denied(home: &Path) -> bool {
    crate::socket::connect(home)
        .await
        .is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_url_is_validated_and_token_is_not_shown() {
        for (url, is_one) in [
            ("http://127.0.0.1:7788", true),
            ("https://soong.example.org/", true),
            ("https://example.org/behind/a/proxy", true),
            ("127.0.0.1:7788", false),
            ("ftp://x", false),
            ("http://user:secret@x", false),
            ("http://x?y", false),
            ("", false),
        ] {
            assert_eq!(Remote::new(url, "t").is_ok(), is_one, "{url:?}");
        }
        assert!(Remote::new("http://x", "a\nb").is_err());
        let shown = format!("{:?}", Remote::new("http://x/", "the-token").unwrap());
        assert!(
            shown.contains("http://x") && !shown.contains("the-token"),
            "{shown}"
        );
    }
}
