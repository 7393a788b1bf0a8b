//! Fetches pages from public addresses only (TOOL-6).
//!
//! Architecture invariants:
//! - An address is checked in [`PublicResolver`], from which the connection takes it. So the
//!   checked address is the one that is connected to.
//! - An IP address that is part of the URL is not looked up, and is checked before each request.
//! - Redirects are followed by this module, and each target is checked.
//! - No proxy, no cookies, no referer, and no connection is reused after its response.
//!
//! Elsewhere: the format of a body (`media.rs`), which hosts require permission (`policy.rs`).

use std::{
    error::Error,
    fmt, io,
    net::{IpAddr, SocketAddr},
    sync::{Arc, OnceLock},
    time::Duration,
};

use futures::{FutureExt, future::BoxFuture};
use reqwest::{
    Response, StatusCode, Url,
    dns::{Addrs, Name, Resolve, Resolving},
    header::{ACCEPT, HeaderMap, LOCATION},
    redirect,
};
use soong_protocol::{ErrorCode, ErrorInfo};
use tokio::time::{Instant, timeout_at};

use super::{USER_AGENT, address, policy, single_line};

/// Value of the `Accept` header, best type first.
const ACCEPT_VALUE: &str =
    "text/html,application/xhtml+xml,text/*;q=0.9,application/json;q=0.9,*/*;q=0.1";

/// Limits of one call.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FetchLimits {
    /// Maximum time to connect.
    pub(crate) connect: Duration,
    /// Maximum time from the first request to the last byte.
    pub(crate) total: Duration,
    /// Maximum size of the decompressed body, in bytes.
    pub(crate) body_bytes: usize,
    /// Maximum number of redirects.
    pub(crate) redirects: usize,
}

impl FetchLimits {
    /// Limits of TOOL-6.
    pub(crate) const DEFAULT: Self = Self {
        connect: Duration::from_secs(10),
        total: Duration::from_secs(30),
        body_bytes: 5 * 1024 * 1024,
        redirects: 5,
    };
}

/// Looks up the addresses of a host.
pub(crate) type Lookup =
    Arc<dyn Fn(String) -> BoxFuture<'static, io::Result<Vec<IpAddr>>> + Send + Sync>;
/// Returns whether a connection to an address is allowed.
pub(crate) type AddressCheck = Arc<dyn Fn(IpAddr) -> bool + Send + Sync>;

/// DNS resolver that returns only the addresses to which a connection is allowed.
#[derive(Clone)]
struct PublicResolver {
    lookup: Lookup,
    is_allowed: AddressCheck,
}

impl Resolve for PublicResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let host = name.as_str().to_owned();
        let reachable = Arc::clone(&self.is_allowed);
        let found = (self.lookup)(host);
        async move {
            let mut addresses = found.await?;
            addresses.retain(|address| reachable(*address));
            if addresses.is_empty() {
                return Err(NoAllowedAddress.into());
            }
            // The port is taken from the URL.
            Ok(Box::new(
                addresses
                    .into_iter()
                    .map(|address| SocketAddr::new(address, 0)),
            ) as Addrs)
        }
        .boxed()
    }
}

/// The host has addresses, but a connection to them is not allowed.
#[derive(Debug)]
struct NoAllowedAddress;

impl fmt::Display for NoAllowedAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no public address")
    }
}

impl Error for NoAllowedAddress {}

/// HTTP client. It makes no connection until the first call.
pub(crate) struct WebClient {
    guard: PublicResolver,
    limits: FetchLimits,
    /// Built at first use, because loading the system's certificates takes time.
    http: OnceLock<Result<reqwest::Client, String>>,
}

/// Result of a fetch.
pub(crate) enum FetchOutcome {
    /// A response.
    Response(Box<PendingResponse>),
    /// A redirect that is not followed, because its target requires permission.
    Redirect {
        /// URL that redirects.
        from: Url,
        /// Status of the redirect.
        status: StatusCode,
        /// Target of the redirect.
        to: Url,
    },
}

/// A response whose body has not been read.
pub(crate) struct PendingResponse {
    pub(crate) url: Url,
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    response: Response,
    deadline: Instant,
    limits: FetchLimits,
}

/// The part of a body that was read.
pub(crate) struct Body {
    pub(crate) bytes: Vec<u8>,
    /// Why the body is incomplete; `None` if it is complete.
    pub(crate) truncation_reason: Option<String>,
}

impl WebClient {
    /// Makes a client for the public internet.
    pub(crate) fn public() -> Self {
        let lookup: Lookup = Arc::new(|host| {
            async move {
                Ok(tokio::net::lookup_host((host, 0))
                    .await?
                    .map(|address| address.ip())
                    .collect())
            }
            .boxed()
        });
        Self::new(lookup, Arc::new(address::is_public), FetchLimits::DEFAULT)
    }

    /// Makes a client with the given lookup, address check and limits.
    pub(crate) fn new(lookup: Lookup, reachable: AddressCheck, limits: FetchLimits) -> Self {
        Self {
            guard: PublicResolver {
                lookup,
                is_allowed: reachable,
            },
            limits,
            http: OnceLock::new(),
        }
    }

    /// Requests a page, and follows a redirect if `may_follow(from, to)` returns true.
    pub(crate) async fn get(
        &self,
        url: Url,
        may_follow: impl Fn(&Url, &Url) -> bool,
    ) -> Result<FetchOutcome, ErrorInfo> {
        let deadline = Instant::now() + self.limits.total;
        let mut url = url;
        for _ in 0..=self.limits.redirects {
            let response = self.request(&url, deadline).await?;
            let status = response.status();
            let headers = response.headers().clone();
            let Some(to) = redirect_target(&url, status, &headers)? else {
                let limits = self.limits;
                return Ok(FetchOutcome::Response(Box::new(PendingResponse {
                    url,
                    status,
                    headers,
                    response,
                    deadline,
                    limits,
                })));
            };
            if !may_follow(&url, &to) {
                self.check_address(&to)?;
                return Ok(FetchOutcome::Redirect {
                    from: url,
                    status,
                    to,
                });
            }
            url = to;
        }
        let message = format!(
            "`{}` redirects more than {} times in a row; the last one leads to {}: ask for another page",
            policy::host_of(&url),
            self.limits.redirects,
            single_line(url.as_str(), 200)
        );
        Err(ErrorInfo::new(ErrorCode::ProviderError, message))
    }

    async fn request(&self, url: &Url, deadline: Instant) -> Result<Response, ErrorInfo> {
        self.check_address(url)?;
        let host = policy::host_of(url);
        let http = self
            .http
            .get_or_init(|| self.build())
            .as_ref()
            .map_err(|why| {
                ErrorInfo::new(
                    ErrorCode::InternalError,
                    format!("could not set up HTTP: {why}"),
                )
            })?;
        let sent = http.get(url.clone()).header(ACCEPT, ACCEPT_VALUE).send();
        match timeout_at(deadline, sent).await {
            Ok(answer) => answer.map_err(|error| request_error(&host, &error)),
            Err(_) => Err(timeout_error(&host, self.limits.total)),
        }
    }

    /// Rejects an IP address in the URL that is not allowed, because no lookup would check it.
    fn check_address(&self, url: &Url) -> Result<(), ErrorInfo> {
        // `host_str` returns an IPv6 address in brackets.
        let host = url
            .host_str()
            .unwrap_or_default()
            .trim_start_matches('[')
            .trim_end_matches(']');
        match host.parse::<IpAddr>() {
            Ok(address) if !(self.guard.is_allowed)(address) => {
                Err(not_public_error(&policy::host_of(url)))
            }
            _ => Ok(()),
        }
    }

    fn build(&self) -> Result<reqwest::Client, String> {
        soong_http::client_builder()
            .user_agent(USER_AGENT)
            .connect_timeout(self.limits.connect)
            .redirect(redirect::Policy::none())
            .retry(reqwest::retry::never())
            // A proxy would resolve the host itself and could reach addresses that are not allowed.
            .no_proxy()
            .referer(false)
            .pool_max_idle_per_host(0)
            .dns_resolver(self.guard.clone())
            .build()
            .map_err(|error| root_cause(&error))
    }
}

impl PendingResponse {
    /// Reads the body up to the limits. If reading fails later, the part that was read is kept.
    pub(crate) async fn read_body(mut self) -> Result<Body, ErrorInfo> {
        let host = policy::host_of(&self.url);
        let mut body = Body {
            bytes: Vec::new(),
            truncation_reason: None,
        };
        let failed = loop {
            match timeout_at(self.deadline, self.response.chunk()).await {
                Ok(Ok(None)) => return Ok(body),
                Ok(Ok(Some(piece))) => {
                    let room = self.limits.body_bytes - body.bytes.len();
                    body.bytes
                        .extend_from_slice(&piece[..piece.len().min(room)]);
                    if piece.len() > room {
                        body.truncation_reason = Some(format!(
                            "it is larger than {} bytes",
                            self.limits.body_bytes
                        ));
                        return Ok(body);
                    }
                }
                Ok(Err(error)) => break request_error(&host, &error),
                Err(_) => break timeout_error(&host, self.limits.total),
            }
        };
        if body.bytes.is_empty() {
            return Err(failed);
        }
        body.truncation_reason = Some(failed.message);
        Ok(body)
    }

    /// Returns the content length that the server announced.
    pub(crate) fn content_length(&self) -> Option<u64> {
        self.response.content_length()
    }
}

/// Returns the target of a redirect; `None` if the response is not a redirect.
fn redirect_target(
    from: &Url,
    status: StatusCode,
    headers: &HeaderMap,
) -> Result<Option<Url>, ErrorInfo> {
    if !matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308) {
        return Ok(None);
    }
    let Some(location) = headers.get(LOCATION) else {
        return Ok(None);
    };
    let location = String::from_utf8_lossy(location.as_bytes());
    let checked = match from.join(location.trim()) {
        Ok(url) => policy::normalize(url),
        Err(_) => Err("is no usable URL"),
    };
    checked.map(Some).map_err(|why| {
        let host = policy::host_of(from);
        let target = single_line(&location, 200);
        let message = format!("`{host}` redirects to `{target}`, which {why}: it was not followed");
        ErrorInfo::new(ErrorCode::PermissionDenied, message)
    })
}

fn not_public_error(host: &str) -> ErrorInfo {
    let message = format!(
        "`{host}` has no public address: webfetch reaches public addresses only, nothing on this machine or in its \
         own network"
    );
    ErrorInfo::new(ErrorCode::PermissionDenied, message)
}

fn timeout_error(host: &str, limit: Duration) -> ErrorInfo {
    let message = format!(
        "`{host}` took longer than {} ms: try again later, or another page",
        limit.as_millis()
    );
    ErrorInfo::retryable(ErrorCode::Timeout, message)
}

/// Converts a failed request into an error that a model can act on.
fn request_error(host: &str, error: &reqwest::Error) -> ErrorInfo {
    if causes(error).any(|cause| cause.is::<NoAllowedAddress>()) {
        return not_public_error(host);
    }
    let why = root_cause(error);
    if error.is_timeout() {
        let message =
            format!("`{host}` could not be connected to in time: try again later, or another page");
        return ErrorInfo::retryable(ErrorCode::Timeout, message);
    }
    let what = if error.is_connect() {
        "could not be connected to"
    } else {
        "broke off, or answered no usable HTTP"
    };
    let message = format!("`{host}` {what} ({why}): check the URL, or try again later");
    ErrorInfo::retryable(ErrorCode::ProviderError, message)
}

fn causes(error: &reqwest::Error) -> impl Iterator<Item = &(dyn Error + 'static)> {
    std::iter::successors(error.source(), |cause| (*cause).source())
}

/// Returns the innermost cause of an error. The outer errors repeat the URL.
pub(super) fn root_cause(error: &reqwest::Error) -> String {
    single_line(
        &causes(error)
            .last()
            .map(ToString::to_string)
            .unwrap_or_default(),
        200,
    )
}
