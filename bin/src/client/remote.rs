//! A server at an address, with its access token.

use axum::{
    body::Body,
    http::{HeaderValue, Request, Response, Uri, header, uri::Scheme},
};
use soong::{ErrorCode, ErrorInfo};

/// A server. Cheap to clone; the debug output does not contain the token.
#[derive(Clone)]
pub(crate) struct Remote {
    http: reqwest::Client,
    /// Base URL without a trailing slash.
    url: String,
    token: HeaderValue,
}

impl std::fmt::Debug for Remote {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Remote").field("url", &self.url).finish_non_exhaustive()
    }
}

impl Remote {
    /// Creates a client of a server. The error explains what is wrong with the address or the token.
    pub(crate) fn new(url: &str, token: &str) -> Result<Self, String> {
        let parsed: Uri = url.parse().map_err(|error| format!("--url {url}: {error}"))?;
        let is_http = parsed.scheme() == Some(&Scheme::HTTP) || parsed.scheme() == Some(&Scheme::HTTPS);
        if !is_http || parsed.query().is_some() || url.contains('@') {
            return Err(format!("--url {url}: expected an address such as http://127.0.0.1:7788"));
        }
        let mut token = HeaderValue::from_str(&format!("Bearer {token}"))
            .map_err(|_| "the token contains invalid characters".to_owned())?;
        token.set_sensitive(true);
        // Redirects are not followed, so that the token is sent to no other server.
        let http = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build();
        let http = http.map_err(|error| format!("cannot create the HTTP client: {error}"))?;
        Ok(Self { http, url: url.trim_end_matches('/').to_owned(), token })
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    pub(super) async fn send(&self, request: Request<Body>) -> Result<Response<Body>, ErrorInfo> {
        Ok(Response::<reqwest::Body>::from(self.send_request(request).await?).map(Body::new))
    }

    /// Sends a request; the response keeps its connection.
    pub(super) async fn send_request(&self, request: Request<Body>) -> Result<reqwest::Response, ErrorInfo> {
        let (parts, body) = request.into_parts();
        let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
        let request = self
            .http
            .request(parts.method, format!("{}{path}", self.url))
            .headers(parts.headers)
            .header(header::AUTHORIZATION, self.token.clone())
            .body(reqwest::Body::wrap_stream(body.into_data_stream()));
        request.send().await.map_err(|error| {
            let url = &self.url;
            if error.is_connect() {
                let message = format!("cannot connect to {url}: {}", root_cause(&error));
                return ErrorInfo::new(ErrorCode::Closing, message);
            }
            ErrorInfo::new(ErrorCode::Closing, format!("lost the connection to {url}: {}", root_cause(&error)))
        })
    }
}

/// Returns the root cause of an error.
fn root_cause(error: &dyn std::error::Error) -> String {
    let mut at = error;
    while let Some(source) = at.source() {
        at = source;
    }
    at.to_string()
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
        assert!(shown.contains("http://x") && !shown.contains("the-token"), "{shown}");
    }
}
