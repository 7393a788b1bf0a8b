//! Which URLs are valid, and which hosts require permission (TOOL-6, PERM-1).
//!
//! Pure: resolves nothing and makes no connection. Invariants: only http and https URLs, and no
//! user name or password in a URL; a permission is for a host and its port, if that is not the
//! default port.
//!
//! Elsewhere: whether the addresses of a host are public (`address.rs`, `client.rs`).

use reqwest::{Method, Url};
use soong_protocol::{
    AccessRequest, ErrorCode, ErrorInfo, NetworkPolicy, PermissionsConfig, Scope,
};

use super::single_line;

/// Maximum length of a URL, in bytes; more than servers accept.
const MAX_URL_BYTES: usize = 8 * 1024;
/// Maximum length of an invalid URL in an error, in characters.
const SHOWN_CHARS: usize = 200;

/// Parses a URL that a model wrote. All notations of a URL give the same result.
pub(crate) fn parse_url(text: &str) -> Result<Url, ErrorInfo> {
    let bad = |why: &str| {
        let message = format!(
            "`{}` {why}: give a URL such as https://example.org/page",
            single_line(text, SHOWN_CHARS)
        );
        Err(ErrorInfo::new(ErrorCode::ValidationError, message))
    };
    if text.len() > MAX_URL_BYTES {
        return bad("is longer than a URL may be");
    }
    match Url::parse(text.trim()) {
        Ok(url) => normalize(url).or_else(bad),
        Err(error) => bad(&format!("is no usable URL ({error})")),
    }
}

/// Returns a URL in its normalized form, or why it cannot be fetched.
pub(super) fn normalize(mut url: Url) -> Result<Url, &'static str> {
    if url.as_str().len() > MAX_URL_BYTES {
        return Err("is longer than a URL may be");
    }
    if !matches!(url.scheme(), "http" | "https") {
        return Err("is neither http nor https");
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("contains a user name or password, which is never sent");
    }
    let host = url.host_str().unwrap_or_default();
    let plain = host.trim_end_matches('.').to_owned();
    if plain.is_empty() {
        return Err("names no host");
    }
    if plain.len() < host.len() && url.set_host(Some(&plain)).is_err() {
        return Err("names no host");
    }
    url.set_fragment(None);
    Ok(url)
}

/// Returns the host of a URL as permissions name it, with its port if that is not the default port.
pub(crate) fn host_of(url: &Url) -> String {
    let host = url
        .host_str()
        .unwrap_or_default()
        .trim_end_matches('.')
        .to_ascii_lowercase();
    match url.port() {
        Some(port) => format!("{host}:{port}"),
        None => host,
    }
}

/// How the configuration treats a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HostPolicy {
    /// No permission is required.
    Allowed,
    /// Permission is required.
    NeedsPermission,
    /// The host is denied.
    Denied,
}

/// Returns how the configuration treats the host of a URL.
pub(super) fn host_policy(permissions: &PermissionsConfig, url: &Url) -> HostPolicy {
    let is_listed = permissions
        .allowed_hosts
        .iter()
        .any(|pattern| matches_host(pattern, url));
    match permissions.network {
        _ if is_listed => HostPolicy::Allowed,
        NetworkPolicy::Allow => HostPolicy::Allowed,
        NetworkPolicy::Ask => HostPolicy::NeedsPermission,
        NetworkPolicy::Deny => HostPolicy::Denied,
    }
}

/// Returns the permission that is required to send a request to a URL; `None` if none is required.
pub(crate) fn required_access(
    permissions: &PermissionsConfig,
    method: &Method,
    url: &Url,
) -> Result<Option<AccessRequest>, ErrorInfo> {
    let host = host_of(url);
    match host_policy(permissions, url) {
        HostPolicy::Allowed => Ok(None),
        HostPolicy::NeedsPermission => {
            let note = Some(format!("sends a {method} request to {host}"));
            let target = url.to_string();
            let scope = Scope::Host { host };
            Ok(Some(AccessRequest {
                target,
                scope,
                is_sensitive: false,
                note,
            }))
        }
        HostPolicy::Denied => {
            let message = format!(
                "`{host}` may not be connected to: permissions.network is \"deny\" and permissions.allowed_hosts does \
                 not list it; continue without it"
            );
            Err(ErrorInfo::new(ErrorCode::PermissionDenied, message))
        }
    }
}

/// Returns whether a redirect may be followed without permission: to the same host, or to one that
/// requires none.
pub(crate) fn may_follow(permissions: &PermissionsConfig, from: &Url, to: &Url) -> bool {
    host_of(from) == host_of(to) || host_policy(permissions, to) == HostPolicy::Allowed
}

/// Returns whether an entry of `permissions.allowed_hosts` matches the host of a URL.
///
/// `example.org` matches that host on any port, `example.org:8080` only that port, and
/// `*.example.org` all its subdomains.
fn matches_host(pattern: &str, url: &Url) -> bool {
    let pattern = pattern.trim();
    let (below, name) = match pattern.strip_prefix("*.") {
        Some(name) => (true, name),
        None => (false, pattern),
    };
    // Parsed as part of a URL, so that it is normalized like the host of a URL: lower case,
    // punycode, numbers as addresses.
    let Ok(listed) = Url::parse(&format!("{}://{name}", url.scheme())) else {
        return false;
    };
    let is_host = listed.path() == "/" && listed.query().is_none() && listed.username().is_empty();
    let says_port = name
        .rsplit_once(':')
        .is_some_and(|(_, port)| !port.ends_with(']'));
    let fits_port = !says_port || listed.port_or_known_default() == url.port_or_known_default();
    let host = |url: &Url| {
        url.host_str()
            .unwrap_or_default()
            .trim_end_matches('.')
            .to_owned()
    };
    let listed = host(&listed);
    let host = host(url);
    let is_below = || {
        host.strip_suffix(&listed)
            .is_some_and(|rest| rest.len() > 1 && rest.ends_with('.'))
    };
    is_host && fits_port && !listed.is_empty() && if below { is_below() } else { host == listed }
}
