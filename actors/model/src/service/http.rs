//! Requests to a service with OpenAI's API: one attempt, no retries, unprocessed responses.
//!
//! `async-openai` provides the configuration: the address of the endpoint and the headers of a request. Its client is
//! not used, because it retries on its own, drops the status and headers of error bodies that are not in OpenAI's form,
//! and cannot distinguish a truncated stream or a timeout from a complete one. Address and headers are built once.
//!
//! Elsewhere: the meaning of a response.

use std::{collections::BTreeMap, net::IpAddr, time::Duration};

use async_openai::config::{Config, OPENAI_API_BASE, OpenAIConfig};
use reqwest::{
    Method, Request, Response, Url,
    header::{CONTENT_TYPE, HeaderMap, HeaderValue},
    redirect,
};
use serde::Serialize;

use super::{failure::ServiceInfo, headers::Headers};
use crate::{Failure, ModelError};

/// Base URL of OpenAI's own service, the default.
pub const DEFAULT_BASE_URL: &str = OPENAI_API_BASE;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Sends requests to one service, and keeps its connections.
pub(crate) struct HttpClient {
    client: reqwest::Client,
    /// Address of the endpoint, with its query.
    endpoint: Url,
    /// Headers of each request.
    headers: HeaderMap,
}

impl HttpClient {
    /// Creates the client of a service. `key` must be valid in a header. `query` is added to the query of `base_url`.
    pub(crate) fn new(
        base_url: &Url,
        query: &BTreeMap<String, String>,
        key: &str,
        headers: &Headers,
        timeout: Duration,
    ) -> Result<Self, ModelError> {
        let mut builder = soong_http::client_builder()
            .user_agent(concat!("soong/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(CONNECT_TIMEOUT.min(timeout))
            .read_timeout(timeout)
            .tcp_nodelay(true)
            // A compressed stream arrives in large blocks; other parts of the crate enable gzip.
            .no_gzip()
            // A redirected POST would become a GET and carry the key along, so redirects are reported as errors.
            .redirect(redirect::Policy::none());
        if is_loopback(base_url) {
            builder = builder.no_proxy(); // this machine is not reachable from a proxy
            if base_url.scheme() == "http" {
                builder = builder.tls_certs_only([]); // loading the certificates of the system takes 10 ms
            }
        }
        let refused = |error: String| ModelError::new(Failure::Rejected, format!("could not set up HTTP: {error}"));
        let client = builder.build().map_err(|error| refused(error.to_string()))?;
        // Set every option, so that none is read from environment variables.
        let (base, query) = split_query(base_url, query);
        let config = OpenAIConfig::new()
            .with_api_base(base.as_str().trim_end_matches('/'))
            .with_api_key(key)
            .with_org_id("")
            .with_project_id("");
        let mut endpoint = Url::parse(&config.url("/chat/completions")).map_err(|error| refused(error.to_string()))?;
        if !query.is_empty() {
            endpoint.query_pairs_mut().extend_pairs(query);
        }
        // The key is in a header; a user name and a password are not sent.
        if endpoint.set_username("").is_err() || endpoint.set_password(None).is_err() {
            return Err(refused("the base URL has no host".to_owned()));
        }
        let mut request_headers = config.headers();
        request_headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.apply(&mut request_headers);
        Ok(Self { client, endpoint, headers: request_headers })
    }

    /// Sends one request and returns the response, whatever its status.
    pub(crate) async fn send<B: Serialize>(&self, body: B, origin: &ServiceInfo) -> Result<Response, ModelError> {
        let json = serde_json::to_vec(&body)
            .map_err(|error| ModelError::new(Failure::Rejected, format!("could not serialize the request: {error}")))?;
        let mut request = Request::new(Method::POST, self.endpoint.clone());
        request.headers_mut().clone_from(&self.headers);
        *request.body_mut() = Some(json.into());
        self.client.execute(request).await.map_err(|error| origin.transport_error(&error))
    }
}

/// Returns the address of the service: `base_url`, else OpenAI's.
///
/// Also accepts the address of the endpoint itself, which users copy from manuals. A query is kept.
pub(crate) fn base_url(base_url: Option<&str>) -> Result<Url, ModelError> {
    let text = base_url.map(str::trim).filter(|text| !text.is_empty()).unwrap_or(DEFAULT_BASE_URL);
    match Url::parse(text) {
        Ok(mut url) if matches!(url.scheme(), "http" | "https") && url.has_host() => {
            let path = url.path().trim_end_matches('/');
            let path = path.strip_suffix("/chat/completions").unwrap_or(path).to_owned();
            url.set_path(&path);
            url.set_fragment(None);
            Ok(url)
        }
        // The text is not repeated, since it may contain a password.
        _ => Err(ModelError::new(
            Failure::Rejected,
            "the base URL (`model.base_url`, or OPENAI_BASE_URL) must be an http or https URL, such as https://host/v1",
        )),
    }
}

/// Returns the address without user, password and query.
pub(crate) fn without_user(base_url: &Url) -> String {
    let port = base_url.port().map(|port| format!(":{port}")).unwrap_or_default();
    format!("{}://{}{port}{}", base_url.scheme(), base_url.host_str().unwrap_or_default(), base_url.path())
}

/// Returns the address without its query, and all query parameters. `more` overrides the parameters of the address.
fn split_query(base_url: &Url, more: &BTreeMap<String, String>) -> (Url, Vec<(String, String)>) {
    let own = base_url.query_pairs().filter(|(name, _)| !more.contains_key(name.as_ref()));
    let mut query: Vec<(String, String)> = own.map(|(name, value)| (name.into_owned(), value.into_owned())).collect();
    query.extend(more.iter().map(|(name, value)| (name.clone(), value.clone())));
    let mut base = base_url.clone();
    base.set_query(None);
    (base, query)
}

/// Returns whether an address is on this machine.
pub(crate) fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or("").trim_matches(['[', ']']);
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_of_requests_has_the_query_but_no_user() {
        let base_url = base_url(Some("http://me:secret@127.0.0.1:9/v1/chat/completions?a=1")).unwrap();
        let query = BTreeMap::from([("b".to_owned(), "2 3".to_owned())]);
        let client = HttpClient::new(&base_url, &query, "k", &Headers::default(), Duration::from_secs(1)).unwrap();
        assert_eq!(client.endpoint.as_str(), "http://127.0.0.1:9/v1/chat/completions?a=1&b=2+3");
        assert_eq!(client.headers["authorization"], "Bearer k");
    }
}
