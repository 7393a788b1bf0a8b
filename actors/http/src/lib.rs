//! HTTP clients: all of them use the same TLS implementation, rustls with the cryptography of
//! `ring`, and the same parser of server-sent events.

mod sse;

use std::net::IpAddr;

pub use sse::{EventParser, ServerSentEvent};

/// Returns a builder for an HTTP client.
pub fn client_builder() -> reqwest::ClientBuilder {
    install_tls_provider();
    reqwest::Client::builder()
}

/// Returns a builder for a client of one server, named by the host of its URL. A server on this
/// machine is connected to directly, whatever proxy the environment names: a proxy cannot reach it,
/// and must not see what is sent to it.
pub fn client_builder_for(host: &str) -> reqwest::ClientBuilder {
    let builder = client_builder();
    if is_loopback(host) {
        builder.no_proxy()
    } else {
        builder
    }
}

/// Returns whether the host of a URL is this machine: `localhost`, a name below it, or a loopback
/// or unspecified address. An IPv6 address may be in brackets.
pub fn is_loopback(host: &str) -> bool {
    let host = host.trim_end_matches('.').to_ascii_lowercase();
    if host == "localhost" || host.ends_with(".localhost") {
        return true;
    }
    let Ok(address) = host.trim_matches(['[', ']']).parse::<IpAddr>() else {
        return false;
    };
    let address = address.to_canonical();
    address.is_loopback() || address.is_unspecified()
}

/// Returns whether the host of a URL is this machine or one in its network: a private or link-local
/// address, a name without a dot, or one below `.local`, `.lan`, `.home.arpa` or `.internal`. Names
/// are not looked up.
pub fn is_local_network(host: &str) -> bool {
    const ZONES: [&str; 4] = [".local", ".lan", ".home.arpa", ".internal"];
    if is_loopback(host) {
        return true;
    }
    let host = host.trim_end_matches('.').to_ascii_lowercase();
    let Ok(address) = host.trim_matches(['[', ']']).parse::<IpAddr>() else {
        return !host.contains('.') || ZONES.iter().any(|zone| host.ends_with(zone));
    };
    match address.to_canonical() {
        IpAddr::V4(address) => address.is_private() || address.is_link_local(),
        IpAddr::V6(address) => address.is_unique_local() || address.is_unicast_link_local(),
    }
}

/// Sets the cryptography for TLS connections of this process, unless the program has set another
/// one. Clients that are not built with [`client_builder`] need it as well.
pub fn install_tls_provider() {
    // Fails if a provider is set already, which is then used.
    let _ = rustls::crypto::ring::default_provider().install_default();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_of_the_local_network_are_recognized() {
        for host in [
            "localhost",
            "nas",
            "Box.local.",
            "10.0.0.7",
            "192.168.1.2",
            "172.20.0.1",
            "[fd00::1]",
            "169.254.1.1",
        ] {
            assert!(is_local_network(host), "{host}");
        }
        for host in [
            "api.openai.com",
            "8.8.8.8",
            "[2001:db8::1]",
            "172.15.0.1",
            "locale.example",
        ] {
            assert!(!is_local_network(host), "{host}");
        }
    }

    #[test]
    fn loopback_hosts_are_recognized() {
        for host in [
            "localhost",
            "LocalHost.",
            "a.localhost",
            "127.0.0.1",
            "127.9.9.9",
            "[::1]",
            "::1",
            "0.0.0.0",
            "[::]",
        ] {
            assert!(is_loopback(host), "{host}");
        }
        assert!(is_loopback("[::ffff:127.0.0.1]"));
        for host in [
            "",
            "localhost.example.org",
            "notlocalhost",
            "10.0.0.1",
            "[2001:db8::1]",
            "127.0.0.1.example.org",
        ] {
            assert!(!is_loopback(host), "{host}");
        }
    }

    #[test]
    fn clients_with_and_without_certificates_can_be_built() {
        client_builder().build().unwrap();
        client_builder().tls_certs_only([]).build().unwrap();
        install_tls_provider();
    }
}
