//! Client of the search services.
//!
//! There is one module per service, which builds the request and parses the response. This module
//! sends the request and reports errors. Invariants: the API key is sent only in a header and is
//! never part of a text that is shown; redirects are not followed, because they would forward the
//! key.
//!
//! Elsewhere: the tool (`web_search.rs`). The base URL is configured by the user, so it may be
//! private.

mod brave;
mod searxng;
mod tavily;

use std::{sync::OnceLock, time::Duration};

use reqwest::{
    Client, Method, RequestBuilder, Response, Url,
    header::{HeaderValue, LOCATION, RETRY_AFTER},
};
use serde::de::DeserializeOwned;
use soong_protocol::{ErrorCode, ErrorInfo, SearchProvider, WebSearchConfig};
use soong_text::{Environment, Redactor};
use tokio::time::{Instant, timeout_at};

use super::{USER_AGENT, client, policy, single_line};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum duration of a search.
const SEARCH_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum size of a response, in bytes.
const MAX_ANSWER_BYTES: usize = 2 * 1024 * 1024;
/// Maximum length of an error text of the service that is reported, in characters.
const ERROR_CHARS: usize = 300;

/// A search result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SearchHit {
    pub(crate) title: String,
    pub(crate) url: String,
    pub(crate) snippet: String,
}

/// A configured search service.
pub(crate) struct SearchService {
    provider: SearchProvider,
    base_url: Url,
    key: Option<HeaderValue>,
    key_env: Option<String>,
    /// Redacts the key.
    redactor: Redactor,
    whole: Duration,
    http: OnceLock<Result<Client, String>>,
}

impl SearchService {
    /// Makes the configured service, or returns which setting is missing or invalid.
    pub(crate) fn new(config: &WebSearchConfig, environment: &Environment) -> Result<Self, String> {
        let usual = match config.provider {
            SearchProvider::None => {
                return Err(
                    "no search service is configured: set tools.web_search.provider".to_owned(),
                );
            }
            SearchProvider::Searxng => None,
            SearchProvider::Tavily => Some(tavily::BASE_URL),
            SearchProvider::Brave => Some(brave::BASE_URL),
        };
        let Some(base_url) = config.base_url.as_deref().or(usual) else {
            return Err("tools.web_search.base_url is not set".to_owned());
        };
        let base_url =
            parse_base_url(base_url).map_err(|why| format!("tools.web_search.base_url {why}"))?;
        let key = match &config.api_key_env {
            Some(name) => Some(key(name, environment)?),
            None if config.provider == SearchProvider::Searxng => None,
            None => return Err("tools.web_search.api_key_env is not set".to_owned()),
        };
        let key_env = config.api_key_env.clone();
        let redactor = Redactor::from_keys(key.as_ref().and_then(|key| key.to_str().ok()));
        Ok(Self {
            provider: config.provider,
            base_url,
            key,
            key_env,
            redactor,
            whole: SEARCH_TIMEOUT,
            http: OnceLock::new(),
        })
    }

    /// Sets a shorter time limit.
    #[cfg(test)]
    pub(crate) fn within(self, whole: Duration) -> Self {
        Self { whole, ..self }
    }

    /// Returns the method of the requests that it sends.
    pub(crate) const fn method(&self) -> Method {
        match self.provider {
            SearchProvider::Tavily => Method::POST,
            SearchProvider::Searxng | SearchProvider::Brave | SearchProvider::None => Method::GET,
        }
    }

    /// Returns the base URL of the service.
    pub(crate) fn base_url(&self) -> &Url {
        &self.base_url
    }

    /// Searches and returns at most `limit` hits, best first.
    pub(crate) async fn search(
        &self,
        query: &str,
        limit: usize,
    ) -> Result<Vec<SearchHit>, ErrorInfo> {
        let deadline = Instant::now() + self.whole;
        let http = self.http.get_or_init(build).as_ref().map_err(|why| {
            ErrorInfo::new(
                ErrorCode::InternalError,
                format!("could not set up HTTP: {why}"),
            )
        })?;
        let request = self.request(http, query, limit);
        let answer = async {
            let response = request
                .send()
                .await
                .map_err(|error| self.connection_error(&error))?;
            self.read_response(response).await
        };
        let bytes = match timeout_at(deadline, answer).await {
            Ok(bytes) => bytes?,
            Err(_) => return Err(self.timeout_error()),
        };
        let hits = match self.provider {
            SearchProvider::Searxng => searxng::hits(&bytes),
            SearchProvider::Tavily => tavily::hits(&bytes),
            // Invariant: `new` returns an error for `SearchProvider::None`.
            SearchProvider::Brave | SearchProvider::None => brave::hits(&bytes),
        };
        let mut hits = hits
            .map_err(|why| self.service_error(&format!("answered what cannot be read ({why})")))?;
        hits.truncate(limit);
        Ok(hits.into_iter().map(|hit| self.redact_key(hit)).collect())
    }

    fn request(&self, http: &Client, query: &str, limit: usize) -> RequestBuilder {
        let key = self.key.as_ref();
        match self.provider {
            SearchProvider::Searxng => searxng::request(http, &self.base_url, key, query),
            SearchProvider::Tavily => tavily::request(http, &self.base_url, key, query, limit),
            SearchProvider::Brave | SearchProvider::None => {
                brave::request(http, &self.base_url, key, query, limit)
            }
        }
    }

    /// Returns the body of a successful response. Converts any other response to an error.
    async fn read_response(&self, mut response: Response) -> Result<Vec<u8>, ErrorInfo> {
        let status = response.status();
        let header = |name| {
            let value = response.headers().get(name)?;
            Some(single_line(&self.redactor.text(&lossy(value)), ERROR_CHARS))
        };
        let retry_after = header(RETRY_AFTER);
        let location = header(LOCATION);
        let mut bytes = Vec::new();
        // The body of an error response may be incomplete, because its status is sufficient.
        while let Some(piece) = response.chunk().await.or_else(|error| {
            if status.is_success() {
                Err(self.connection_error(&error))
            } else {
                Ok(None)
            }
        })? {
            if bytes.len() + piece.len() > MAX_ANSWER_BYTES {
                return Err(
                    self.service_error(&format!("answered more than {MAX_ANSWER_BYTES} bytes"))
                );
            }
            bytes.extend_from_slice(&piece);
        }
        let error_text = single_line(
            &self.redactor.text(&String::from_utf8_lossy(&bytes)),
            ERROR_CHARS,
        );
        let host = policy::host_of(&self.base_url);
        match status.as_u16() {
            _ if status.is_success() => Ok(bytes),
            401 | 403 => {
                let key = match &self.key_env {
                    Some(name) => format!("check the key in the environment variable {name}"),
                    None => "see whether it allows the JSON format, and needs no key".to_owned(),
                };
                let message = format!(
                    "search at `{host}` was refused (HTTP {status}): {key}; it says: {error_text}"
                );
                Err(ErrorInfo::new(ErrorCode::ProviderAuthFailed, message))
            }
            429 => {
                let wait = retry_after.map_or("later".to_owned(), |after| {
                    format!("after {after} (seconds, or a time)")
                });
                let message = format!(
                    "`{host}` limits how often it is asked (HTTP {status}): search again {wait}"
                );
                Err(ErrorInfo::retryable(
                    ErrorCode::ProviderRateLimited,
                    message,
                ))
            }
            300..=399 => {
                let target = location.unwrap_or_default();
                Err(self.service_error(&format!(
                    "redirects to `{target}`, which is not followed: mend its base_url"
                )))
            }
            500.. => {
                let ErrorInfo { message, .. } =
                    self.service_error(&format!("failed (HTTP {status}); it says: {error_text}"));
                Err(ErrorInfo::retryable(ErrorCode::ProviderError, message))
            }
            _ => Err(self.service_error(&format!(
                "did not take the search (HTTP {status}); it says: {error_text}"
            ))),
        }
    }

    fn connection_error(&self, error: &reqwest::Error) -> ErrorInfo {
        if error.is_timeout() {
            return self.timeout_error();
        }
        let what = if error.is_connect() {
            "could not be connected to"
        } else {
            "broke off, or answered no HTTP"
        };
        let why = self.redactor.text(&client::root_cause(error)).into_owned();
        let ErrorInfo { message, .. } = self.service_error(&format!("{what} ({why})"));
        ErrorInfo::retryable(ErrorCode::ProviderError, message)
    }

    fn timeout_error(&self) -> ErrorInfo {
        let host = policy::host_of(&self.base_url);
        let limit_ms = self.whole.as_millis();
        let message =
            format!("the search service `{host}` took longer than {limit_ms} ms: try again later");
        ErrorInfo::retryable(ErrorCode::ProviderTimeout, message)
    }

    fn service_error(&self, what: &str) -> ErrorInfo {
        let message = format!(
            "the search service `{}` {what}",
            policy::host_of(&self.base_url)
        );
        ErrorInfo::new(ErrorCode::ProviderError, message)
    }

    /// Removes the key, which a service may repeat in its response.
    fn redact_key(&self, mut hit: SearchHit) -> SearchHit {
        let SearchHit {
            title,
            url,
            snippet,
        } = &mut hit;
        [title, url, snippet]
            .into_iter()
            .for_each(|text| self.redactor.redact(text));
        hit
    }
}

/// Parses the base URL of a service. The result ends in a slash, so that paths can be appended.
fn parse_base_url(text: &str) -> Result<Url, &'static str> {
    let mut url = policy::normalize(Url::parse(text.trim()).map_err(|_| "is not a valid URL")?)?;
    url.set_query(None);
    if !url.path().ends_with('/') {
        url.set_path(&format!("{}/", url.path()));
    }
    Ok(url)
}

/// Returns the URL of an endpoint below a base URL, with its query.
fn endpoint(base: &Url, path: &str, query: &[(&str, &str)]) -> Url {
    let mut url = base.clone();
    url.set_path(&format!("{}{path}", base.path()));
    if !query.is_empty() {
        url.query_pairs_mut().extend_pairs(query);
    }
    url
}

fn key(name: &str, environment: &Environment) -> Result<HeaderValue, String> {
    let value = environment
        .get(name)
        .ok_or_else(|| format!("the environment variable {name} is not set"))?;
    let fits = HeaderValue::from_str(value.trim())
        .ok()
        .filter(|key| !key.is_empty());
    let mut key = fits
        .ok_or_else(|| format!("the environment variable {name} does not contain a valid key"))?;
    key.set_sensitive(true);
    Ok(key)
}

/// Returns the value of an `Authorization` header with the key as bearer token.
fn bearer(key: &HeaderValue) -> HeaderValue {
    let bytes = [b"Bearer ", key.as_bytes()].concat();
    // Invariant: the prefix is valid in a header value.
    let mut value =
        HeaderValue::from_bytes(&bytes).unwrap_or_else(|_| HeaderValue::from_static(""));
    value.set_sensitive(true);
    value
}

/// Parses a response. The error states where it does not fit, and quotes nothing.
fn json<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, String> {
    serde_json::from_slice(bytes).map_err(|error| {
        let what = if error.is_data() {
            "unexpected JSON"
        } else {
            "no JSON"
        };
        format!("{what}, line {} column {}", error.line(), error.column())
    })
}

fn lossy(value: &HeaderValue) -> String {
    String::from_utf8_lossy(value.as_bytes()).into_owned()
}

fn build() -> Result<Client, String> {
    soong_http::client_builder()
        .user_agent(USER_AGENT)
        .connect_timeout(CONNECT_TIMEOUT)
        .redirect(reqwest::redirect::Policy::none())
        .no_proxy()
        .referer(false)
        .pool_max_idle_per_host(0)
        .build()
        .map_err(|error| client::root_cause(&error))
}

#[cfg(test)]
mod tests;
