//! `[server]`: settings of the HTTP server, such as address, allowed clients and limits (SRV-1).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{NOT_A_VARIABLE_NAME, is_variable_name};
use crate::SessionId;

/// Settings of the HTTP server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ServerConfig {
    /// Address and port to listen on. Default: `127.0.0.1:7788`.
    pub addr: String,
    /// Accepted `Host` names in addition to the server's address, as `host` or `host:port`.
    /// Default: none.
    pub allowed_hosts: Vec<String>,
    /// Accepted origins of web pages in addition to the server's, as `scheme://host` or
    /// `scheme://host:port`. Default: none.
    pub allowed_origins: Vec<String>,
    /// Maximum size of a request body of JSON, in bytes; images and files in it are a third larger
    /// than their bytes. Default: 33554432 (32 MiB).
    pub max_body_bytes: usize,
    /// Maximum size of a request body with a file, in bytes. Default: 20971520 (20 MiB).
    pub max_upload_bytes: usize,
    /// Maximum number of concurrent connections, including streams. Default: 1024.
    pub max_connections: usize,
    /// Number of these connections that are reserved for clients with a valid token. At most half
    /// of the connections are reserved. Default: 64.
    pub reserved_connections: usize,
    /// Maximum number of connections per address that have not yet presented a valid token. An IPv6
    /// /64 network counts as one address. Default: 256.
    pub max_connections_per_address: usize,
    /// How long a connection that has not presented a valid token may wait for a complete request
    /// head, in seconds. Range: 1 to 86400. Default: 10.
    pub head_timeout_s: u64,
    /// Tokens of additional users. Each user name maps to the environment variable that holds the
    /// token.
    pub tokens: BTreeMap<String, String>,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            addr: "127.0.0.1:7788".to_owned(),
            allowed_hosts: Vec::new(),
            allowed_origins: Vec::new(),
            max_body_bytes: 33_554_432,
            max_upload_bytes: 20_971_520,
            max_connections: 1_024,
            reserved_connections: 64,
            max_connections_per_address: 256,
            head_timeout_s: 10,
            tokens: BTreeMap::new(),
        }
    }
}

impl ServerConfig {
    /// Returns the first invalid key and the reason.
    pub(super) fn check(&self) -> Result<(), (&'static str, &'static str)> {
        let is_origin = |text: &String| {
            let rest = text
                .strip_prefix("https://")
                .or_else(|| text.strip_prefix("http://"));
            rest.is_some_and(|rest| !rest.is_empty() && !rest.contains(['/', '?', '#', '@', '*']))
        };
        let is_host =
            |text: &String| !text.is_empty() && !text.contains(['/', '?', '#', '@', '*', ' ']);
        // A user name is also the name of a folder in the home.
        let is_user = |uid: &String| SessionId::parse(uid).is_ok();
        for (bad, key, why) in [
            (
                self.addr.parse::<std::net::SocketAddr>().is_err(),
                "server.addr",
                "must be an address with a port, such as 127.0.0.1:7788",
            ),
            (
                self.max_body_bytes == 0,
                "server.max_body_bytes",
                "must be at least 1",
            ),
            (
                self.max_upload_bytes == 0,
                "server.max_upload_bytes",
                "must be at least 1",
            ),
            (
                self.max_connections == 0,
                "server.max_connections",
                "must be at least 1",
            ),
            (
                self.max_connections_per_address == 0,
                "server.max_connections_per_address",
                "must be at least 1",
            ),
            (
                !(1..=86_400).contains(&self.head_timeout_s),
                "server.head_timeout_s",
                "must be 1 to 86400",
            ),
            (
                !self.allowed_hosts.iter().all(is_host),
                "server.allowed_hosts",
                "must be host names, such as soong.example.org or soong.example.org:8443; `*` is not supported",
            ),
            (
                !self.allowed_origins.iter().all(is_origin),
                "server.allowed_origins",
                "must be origins, such as https://example.org or http://localhost:3000; `*` is not supported",
            ),
            (
                !self.tokens.keys().all(is_user),
                "server.tokens",
                "must name users with letters, digits, '_', '-' or '.', starting with a letter, digit or '_'",
            ),
            (
                self.tokens.contains_key("local"),
                "server.tokens",
                "must not name `local`: its token is in server.token",
            ),
            (
                !self.tokens.values().all(|name| is_variable_name(name)),
                "server.tokens",
                NOT_A_VARIABLE_NAME,
            ),
        ] {
            if bad {
                return Err((key, why));
            }
        }
        Ok(())
    }
}
