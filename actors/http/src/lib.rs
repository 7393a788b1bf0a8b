//! HTTP clients: all of them use the same TLS implementation, rustls with the cryptography of `ring`.

/// Returns a builder for an HTTP client.
pub fn client_builder() -> reqwest::ClientBuilder {
    install_tls_provider();
    reqwest::Client::builder()
}

/// Sets the cryptography for TLS connections of this process, unless the program has set another one. Clients that are
/// not built with [`client_builder`] need it as well.
pub fn install_tls_provider() {
    // Fails if a provider is set already, which is then used.
    let _ = rustls::crypto::ring::default_provider().install_default();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_with_and_without_certificates_can_be_built() {
        client_builder().build().unwrap();
        client_builder().tls_certs_only([]).build().unwrap();
        install_tls_provider();
    }
}
