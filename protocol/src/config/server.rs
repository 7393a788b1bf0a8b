//! `[server]`: where the server listens, to whom, and how much it takes in (SRV-1).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{NO_VARIABLE, is_variable};
use crate::SessionId;

/// Where the server listens, to whom, and how much it takes in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ServerConfig {
    /// Address and port.
    pub addr: String,
    /// Names beside its own address under which it may be asked for: `host`, or `host:port`.
    pub allowed_hosts: Vec<String>,
    /// Web pages of other origins that may ask: `scheme://host`, with `:port` where it has one.
    pub allowed_origins: Vec<String>,
    /// Longest body of a request that is no file, in bytes.
    pub max_body_bytes: usize,
    /// Longest body that brings a file, in bytes.
    pub max_upload_bytes: usize,
    /// Most connections at once, streams included.
    pub max_connections: usize,
    /// How many of them only clients with a known token can take; at most half of them are reserved.
    pub reserved_connections: usize,
    /// Most connections of one address that have not shown a known token; of IPv6, of one /64 network.
    pub max_connections_per_address: usize,
    /// How long a connection that has not shown a known token may wait with the head of a request, in seconds.
    pub head_timeout_s: u64,
    /// Further tokens: each user with the name of the environment variable that holds the token.
    pub tokens: BTreeMap<String, String>,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            addr: "127.0.0.1:7788".to_owned(),
            allowed_hosts: Vec::new(),
            allowed_origins: Vec::new(),
            max_body_bytes: 1_048_576,
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
    /// Finds the first value that cannot be, with its key and why.
    pub(super) fn check(&self) -> Result<(), (&'static str, &'static str)> {
        let is_origin = |text: &String| {
            let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
            rest.is_some_and(|rest| !rest.is_empty() && !rest.contains(['/', '?', '#', '@', '*']))
        };
        let is_host = |text: &String| !text.is_empty() && !text.contains(['/', '?', '#', '@', '*', ' ']);
        // A user's name is a folder of the home.
        let is_user = |uid: &String| SessionId::parse(uid).is_ok();
        for (bad, key, why) in [
            (
                self.addr.parse::<std::net::SocketAddr>().is_err(),
                "server.addr",
                "must be an address with a port, such as 127.0.0.1:7788",
            ),
            (self.max_body_bytes == 0, "server.max_body_bytes", "must be at least 1"),
            (self.max_upload_bytes == 0, "server.max_upload_bytes", "must be at least 1"),
            (self.max_connections == 0, "server.max_connections", "must be at least 1"),
            (self.max_connections_per_address == 0, "server.max_connections_per_address", "must be at least 1"),
            (!(1..=86_400).contains(&self.head_timeout_s), "server.head_timeout_s", "must be 1 to 86400"),
            (
                !self.allowed_hosts.iter().all(is_host),
                "server.allowed_hosts",
                "must be names of hosts, such as soong.example.org or soong.example.org:8443; a `*` stands for nothing",
            ),
            (
                !self.allowed_origins.iter().all(is_origin),
                "server.allowed_origins",
                "must be origins, such as https://example.org or http://localhost:3000; a `*` stands for nothing",
            ),
            (
                !self.tokens.keys().all(is_user),
                "server.tokens",
                "must name users by letters, digits, '_', '-' or '.', starting with a letter, digit or '_'",
            ),
            (self.tokens.contains_key("local"), "server.tokens", "must not name `local`: its token is server.token"),
            (!self.tokens.values().all(|name| is_variable(name)), "server.tokens", NO_VARIABLE),
        ] {
            if bad {
                return Err((key, why));
            }
        }
        Ok(())
    }
}
