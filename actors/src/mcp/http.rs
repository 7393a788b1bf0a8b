//! A server at an address: streamable HTTP.
//!
//! Redirects are not followed: headers with secrets would travel along. The address is the user's own word, so it
//! may be one of a private network. Not here: how long a request may take (its caller's).

use std::{collections::HashMap, net::IpAddr, time::Duration};

use reqwest::{
    Client, Url,
    header::{HeaderName, HeaderValue},
    redirect::Policy,
};
use rmcp::transport::{StreamableHttpClientTransport, streamable_http_client::StreamableHttpClientTransportConfig};
use soong_protocol::{ErrorCode, ErrorInfo};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Most calls of one server at the same time; more wait.
const MAX_CONCURRENT_CALLS: usize = 256;

/// Makes the way to an address; does not connect.
pub(super) fn transport(
    url: &Url,
    headers: HashMap<HeaderName, HeaderValue>,
    timeout: Duration,
) -> Result<StreamableHttpClientTransport<Client>, ErrorInfo> {
    let mut builder = Client::builder()
        .user_agent(concat!("soong/", env!("CARGO_PKG_VERSION")))
        .connect_timeout(CONNECT_TIMEOUT.min(timeout))
        .tcp_nodelay(true)
        .redirect(Policy::none());
    if is_loopback(url) {
        builder = builder.no_proxy(); // this machine is not reachable from a proxy
    }
    let client = builder
        .build()
        .map_err(|error| ErrorInfo::new(ErrorCode::InternalError, format!("could not set up HTTP: {error}")))?;
    let config = StreamableHttpClientTransportConfig::with_uri(url.as_str())
        .custom_headers(headers)
        .max_concurrent_requests(MAX_CONCURRENT_CALLS);
    Ok(StreamableHttpClientTransport::with_client(client, config))
}

fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or("").trim_matches(['[', ']']);
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}
