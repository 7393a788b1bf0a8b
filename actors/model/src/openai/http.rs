//! HTTP client used by `async-openai`: one attempt, no retries, unprocessed responses.
//!
//! `async-openai` builds the request: address, headers, key and body. Its response handling is bypassed, because it
//! retries on its own, drops the status and headers of error bodies that are not in OpenAI's form, reads streams in a
//! separate task through an unbounded queue, and cannot distinguish a truncated stream or a timeout from a complete
//! one. Its middleware lets a service take the response. The only way past its response handling is to return the
//! response in an error of the service's own type: [`BypassedResponse`].
//!
//! Elsewhere: the meaning of a response.

use std::{
    collections::BTreeMap,
    fmt,
    net::IpAddr,
    task::{Context, Poll},
    time::Duration,
};

use async_openai::{
    Client,
    config::{OPENAI_API_BASE, OpenAIConfig},
    error::OpenAIError,
    middleware::HttpRequestFactory,
};
use futures::future::BoxFuture;
use reqwest::{Response, Url, redirect};
use serde::{Serialize, de::IgnoredAny};

use super::{failure::ServiceInfo, headers::Headers};
use crate::{Failure, ModelError};

/// Base URL of OpenAI's own service, the default.
pub const DEFAULT_BASE_URL: &str = OPENAI_API_BASE;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Sends requests to one service, and keeps its connections.
pub(super) struct HttpClient {
    client: Client<OpenAIConfig>,
}

impl HttpClient {
    /// Creates the client of a service. `key` must be valid in a header. `query` is added to the query of `base_url`.
    pub(super) fn new(
        base_url: &Url,
        query: &BTreeMap<String, String>,
        key: &str,
        headers: Headers,
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
        let client = builder
            .build()
            .map_err(|error| ModelError::new(Failure::Rejected, format!("could not set up HTTP: {error}")))?;
        // Set every option, so that none is read from environment variables.
        let (base, query) = split_query(base_url, query);
        let config = OpenAIConfig::new()
            .with_api_base(base.as_str().trim_end_matches('/'))
            .with_api_key(key)
            .with_org_id("")
            .with_project_id("");
        // `Client::new` and `Client::with_config` would create another HTTP client, and load the certificates once more.
        let openai = Client::build(client.clone(), config);
        Ok(Self { client: openai.with_http_service(OneAttempt { client, query, headers }) })
    }

    /// Sends one request and returns the response, whatever its status.
    pub(super) async fn send<B: Serialize + Send>(
        &self,
        body: B,
        origin: &ServiceInfo,
    ) -> Result<Response, ModelError> {
        let outcome = self.client.chat().create_stream_byot::<_, IgnoredAny>(body).await;
        match outcome {
            Err(OpenAIError::Boxed(error)) => match error.downcast::<BypassedResponse>() {
                Ok(taken) => Ok(taken.0),
                Err(error) => Err(origin.invalid_response("could not be read", error.to_string().as_bytes())),
            },
            Err(OpenAIError::Reqwest(error)) => Err(origin.transport_error(&error)),
            Err(error) => Err(ModelError::new(Failure::Rejected, format!("could not build the request: {error}"))),
            // Invariant: the service below never returns `Ok`.
            Ok(_) => Err(origin.invalid_response("was not intercepted", b"")),
        }
    }
}

/// The service below the client.
#[derive(Clone)]
struct OneAttempt {
    client: reqwest::Client,
    /// Query parameters added to each request.
    query: Vec<(String, String)>,
    headers: Headers,
}

/// A response that bypasses the response handling of `async-openai`.
struct BypassedResponse(Response);

impl fmt::Debug for BypassedResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Taken").field(&self.0.status()).finish()
    }
}

impl fmt::Display for BypassedResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a response with status {}", self.0.status())
    }
}

impl std::error::Error for BypassedResponse {}

impl tower::Service<HttpRequestFactory> for OneAttempt {
    type Response = Response;
    type Error = OpenAIError;
    type Future = BoxFuture<'static, Result<Response, OpenAIError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), OpenAIError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: HttpRequestFactory) -> Self::Future {
        let Self { client, query, headers } = self.clone();
        Box::pin(async move {
            let mut request = request.build().await?;
            if !query.is_empty() {
                request.url_mut().query_pairs_mut().extend_pairs(query);
            }
            headers.apply(request.headers_mut());
            let response = client.execute(request).await?;
            Err(OpenAIError::Boxed(Box::new(BypassedResponse(response))))
        })
    }
}

/// Returns the address of the service: `base_url`, else OpenAI's.
///
/// Also accepts the address of the endpoint itself, which users copy from manuals. A query is kept.
pub(super) fn base_url(base_url: Option<&str>) -> Result<Url, ModelError> {
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
pub(super) fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or("").trim_matches(['[', ']']);
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}
