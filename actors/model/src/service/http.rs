//! The address of a model service, and requests to it: one attempt, no retries, unprocessed
//! responses.
//!
//! Elsewhere: the meaning of a response (`answer.rs`, `failure.rs`).

use std::{sync::OnceLock, time::Duration};

use bytes::Bytes;
use reqwest::{
    Body, Method, Request, Response, StatusCode, Url,
    header::{CONTENT_TYPE, HeaderMap, HeaderValue},
    redirect,
};
use soong_protocol::{ModelConfig, Provider};
use soong_text::Environment;

use super::failure::ServiceInfo;
use crate::{ExchangeLog, Failure, ModelError};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum number of bytes read from an error body.
const MAX_ERROR_BYTES: usize = 64 * 1024;

/// Base URL of a service: an address without user, password and query, and the query parameters of
/// each request.
#[derive(Debug, Clone)]
pub(crate) struct BaseUrl {
    url: Url,
    /// The URL as text, without a final slash.
    address: String,
    /// Query of each request, encoded; empty if there is none.
    query: String,
    is_vendor: bool,
    /// The first endpoint that was used, with its path; mostly the only one.
    first_endpoint: OnceLock<(String, Url)>,
}

impl BaseUrl {
    /// Returns the base URL of a profile: its own, else that of the environment, else that of the
    /// provider's own service. `query` of the profile overrides the parameters of the URL. A URL
    /// may end with `endpoint`.
    ///
    /// # Errors
    /// A text that is not the URL of a host.
    pub(crate) fn parse(
        config: &ModelConfig,
        provider: Provider,
        endpoint: &str,
        environment: &Environment,
    ) -> Result<Self, ModelError> {
        let text = [
            config.base_url.as_deref(),
            environment.get(provider.base_url_env()),
        ];
        let text = text
            .into_iter()
            .flatten()
            .map(str::trim)
            .find(|text| !text.is_empty());
        // The text is not repeated, since it may contain a password.
        let refused = || {
            let message = format!(
                "the base URL (`model.base_url`, or {}) must be an http or https URL, such as {}",
                provider.base_url_env(),
                provider.base_url()
            );
            ModelError::new(Failure::Rejected, message)
        };
        let mut url =
            Url::parse(text.unwrap_or_else(|| provider.base_url())).map_err(|_| refused())?;
        if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
            return Err(refused());
        }
        let query = query_of(&url, config);
        let path = url.path().trim_end_matches('/');
        let path = path.strip_suffix(endpoint).unwrap_or(path).to_owned();
        url.set_path(&path);
        url.set_query(None);
        url.set_fragment(None);
        // The key is in a header; a user name and a password are not sent.
        url.set_username("")
            .and_then(|()| url.set_password(None))
            .map_err(|()| refused())?;
        let is_vendor =
            Url::parse(provider.base_url()).is_ok_and(|vendor| vendor.host_str() == url.host_str());
        let address = url.as_str().trim_end_matches('/').to_owned();
        Ok(Self {
            url,
            address,
            query,
            is_vendor,
            first_endpoint: OnceLock::new(),
        })
    }

    /// Returns the address without a final slash.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// Returns whether the service is the vendor's own.
    pub(crate) fn is_vendor(&self) -> bool {
        self.is_vendor
    }

    /// Returns whether the address ends with a version, such as `v1` or `v1beta`.
    pub(crate) fn ends_with_version(&self) -> bool {
        let last = self.address.rsplit('/').next().unwrap_or_default();
        last.strip_prefix('v')
            .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    }

    /// Returns host and port.
    pub(crate) fn host(&self) -> String {
        let host = self.url.host_str().unwrap_or("").to_owned();
        self.url
            .port()
            .map_or(host.clone(), |port| format!("{host}:{port}"))
    }

    /// Returns whether the service is on this machine.
    pub(crate) fn is_loopback(&self) -> bool {
        soong_http::is_loopback(self.url.host_str().unwrap_or_default())
    }

    /// Returns whether the service is on this machine or in its network, as far as the name of its
    /// host says.
    pub(crate) fn is_local_network(&self) -> bool {
        soong_http::is_local_network(self.url.host_str().unwrap_or_default())
    }

    /// Returns the URL of a server route outside of the API: `path` replaces the `/v1` at the end
    /// of the address.
    pub(crate) fn root_endpoint(&self, path: &str) -> Option<Url> {
        let root = self.address.strip_suffix("/v1").unwrap_or(&self.address);
        Url::parse(&format!("{root}{path}")).ok()
    }

    /// Returns the URL of an endpoint: the address, `path`, and the query.
    pub(crate) fn endpoint(&self, path: &str) -> Result<Url, ModelError> {
        if let Some((_, url)) = self.first_endpoint.get().filter(|(known, _)| known == path) {
            return Ok(url.clone());
        }
        let mut url = Url::parse(&format!("{}{path}", self.address)).map_err(|error| {
            ModelError::new(
                Failure::Rejected,
                format!("the base URL cannot be used: {error}"),
            )
        })?;
        if !self.query.is_empty() {
            // A path can have parameters of its own.
            let query = match url.query() {
                Some(of_path) => format!("{of_path}&{}", self.query),
                None => self.query.clone(),
            };
            url.set_query(Some(&query));
        }
        let _ = self.first_endpoint.set((path.to_owned(), url.clone())); // kept if there is one
        Ok(url)
    }
}

/// Returns the query of requests: that of the URL as it is written, without the names that are
/// configured, and the configured names and values. Spaces are `%20`, because not every service
/// reads `+` as a space.
fn query_of(url: &Url, config: &ModelConfig) -> String {
    let mut part_url = url.clone();
    let mut parts = Vec::new();
    for part in url
        .query()
        .unwrap_or_default()
        .split('&')
        .filter(|part| !part.is_empty())
    {
        part_url.set_query(Some(part));
        let is_configured = part_url
            .query_pairs()
            .any(|(name, _)| config.query.contains_key(name.as_ref()));
        if !is_configured {
            parts.push(part.to_owned());
        }
    }
    if !config.query.is_empty() {
        part_url.set_query(None);
        part_url.query_pairs_mut().extend_pairs(&config.query);
        // A plus sign in a value is encoded, so each `+` is a space.
        parts.push(part_url.query().unwrap_or_default().replace('+', "%20"));
    }
    parts.join("&")
}

/// Sends requests to one service, and keeps its connections.
pub(crate) struct HttpClient {
    client: reqwest::Client,
    /// Headers of each request.
    headers: HeaderMap,
}

impl HttpClient {
    /// Creates the client of a service. `timeout`: the maximum time for a connection, and without a
    /// byte.
    pub(crate) fn new(
        base_url: &BaseUrl,
        mut headers: HeaderMap,
        timeout: Duration,
    ) -> Result<Self, ModelError> {
        let mut builder =
            soong_http::client_builder_for(base_url.url.host_str().unwrap_or_default())
                .user_agent(concat!("soong/", env!("CARGO_PKG_VERSION")))
                .connect_timeout(CONNECT_TIMEOUT.min(timeout))
                .read_timeout(timeout)
                .tcp_nodelay(true)
                // A compressed stream arrives in large blocks; other parts of the crate enable
                // gzip.
                .no_gzip()
                // A redirected POST would become a GET and carry the key along, so redirects are
                // reported as errors.
                .redirect(redirect::Policy::none());
        if base_url.is_loopback() && base_url.url.scheme() == "http" {
            builder = builder.tls_certs_only([]); // loading the certificates of the system takes 10 ms
        }
        let client = builder.build().map_err(|error| {
            ModelError::new(Failure::Rejected, format!("could not set up HTTP: {error}"))
        })?;
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        Ok(Self { client, headers })
    }

    /// Sends a request without a body and returns the response, whatever its status.
    pub(crate) async fn get(&self, endpoint: &Url) -> reqwest::Result<Response> {
        let mut request = Request::new(Method::GET, endpoint.clone());
        request.headers_mut().clone_from(&self.headers);
        self.client.execute(request).await
    }

    /// Sends JSON and returns the response, whatever its status.
    pub(crate) async fn post(
        &self,
        endpoint: &Url,
        json: impl Into<Body>,
    ) -> reqwest::Result<Response> {
        let mut request = Request::new(Method::POST, endpoint.clone());
        request.headers_mut().clone_from(&self.headers);
        *request.body_mut() = Some(json.into());
        self.client.execute(request).await
    }

    /// Sends one request and returns the response, whatever its status. `exchanges` records both.
    pub(crate) async fn send<'a>(
        &self,
        endpoint: &Url,
        json: Vec<u8>,
        service: &ServiceInfo,
        exchanges: Option<&'a ExchangeLog>,
    ) -> Result<RecordedResponse<'a>, ModelError> {
        if let Some(exchanges) = exchanges {
            // The query may carry a key.
            let mut url = endpoint.clone();
            url.set_query(None);
            exchanges.begin(url.as_str(), &json);
        }
        let response =
            tokio::time::timeout(service.first_byte_timeout, self.post(endpoint, json)).await;
        let response = response.map_err(|_| service.silence_error(false))?;
        let response = response.map_err(|error| service.transport_error(&error))?;
        if let Some(exchanges) = exchanges {
            exchanges.set_status(response.status().as_u16());
        }
        Ok(RecordedResponse {
            response,
            exchanges,
        })
    }
}

/// A response whose body is recorded as it is read, if the request has a log.
pub(crate) struct RecordedResponse<'a> {
    response: Response,
    exchanges: Option<&'a ExchangeLog>,
}

impl RecordedResponse<'_> {
    pub(crate) fn status(&self) -> StatusCode {
        self.response.status()
    }

    pub(crate) fn headers(&self) -> &HeaderMap {
        self.response.headers()
    }

    /// Reads the next bytes of the body. `None` at its end.
    pub(crate) async fn chunk(&mut self) -> reqwest::Result<Option<Bytes>> {
        let chunk = self.response.chunk().await?;
        if let (Some(exchanges), Some(bytes)) = (self.exchanges, &chunk) {
            exchanges.receive(bytes);
        }
        Ok(chunk)
    }
}

/// Returns the beginning of an error body. Read errors are ignored.
pub(crate) async fn error_body(mut response: RecordedResponse<'_>) -> Vec<u8> {
    let mut body = Vec::new();
    while let Ok(Some(bytes)) = response.chunk().await {
        let room = MAX_ERROR_BYTES - body.len();
        body.extend_from_slice(&bytes[..bytes.len().min(room)]);
        if body.len() == MAX_ERROR_BYTES {
            break;
        }
    }
    body
}

#[cfg(test)]
mod tests {
    use super::*;

    fn base_url(url: &str, query: &[(&str, &str)]) -> BaseUrl {
        let query = query
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        let config = ModelConfig {
            base_url: Some(url.to_owned()),
            query,
            ..ModelConfig::default()
        };
        BaseUrl::parse(
            &config,
            Provider::Openai,
            "/chat/completions",
            &Environment::default(),
        )
        .unwrap()
    }

    #[test]
    fn url_of_requests_has_the_query_but_no_user() {
        for (url, address, want) in [
            ("https://h/v1", "https://h/v1", "https://h/v1/x?b=2%203"),
            ("https://h/v1/", "https://h/v1", "https://h/v1/x?b=2%203"),
            (
                "https://h/v1/chat/completions",
                "https://h/v1",
                "https://h/v1/x?b=2%203",
            ),
            (
                "https://h/v1/chat/completions?a=1",
                "https://h/v1",
                "https://h/v1/x?a=1&b=2%203",
            ),
            (
                "https://h/openai/deployments/d?b=1",
                "https://h/openai/deployments/d",
                "https://h/openai/deployments/d/x?b=2%203",
            ),
            (
                "https://h/v1?a=x%20y+z%2B&c",
                "https://h/v1",
                "https://h/v1/x?a=x%20y+z%2B&c&b=2%203",
            ),
            (
                "https://h/v1?%62=1",
                "https://h/v1",
                "https://h/v1/x?b=2%203",
            ),
            (
                "http://me:secret@127.0.0.1:1",
                "http://127.0.0.1:1",
                "http://127.0.0.1:1/x?b=2%203",
            ),
        ] {
            let base_url = base_url(url, &[("b", "2 3")]);
            assert_eq!(
                (
                    base_url.address(),
                    base_url.endpoint("/x").unwrap().as_str()
                ),
                (address, want),
                "{url}"
            );
        }
    }
}
