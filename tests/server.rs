//! The server: real HTTP requests to the real binary.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs, reason = "a test says by a panic what is wrong")]

#[path = "support/process.rs"]
mod process;
#[path = "support/served.rs"]
mod served;
#[path = "support/service.rs"]
mod service;

#[path = "server/acknowledged.rs"]
mod acknowledged;
#[path = "server/commands.rs"]
mod commands;
#[path = "server/drain.rs"]
mod drain;
#[path = "server/failure.rs"]
mod failure;
#[path = "server/limits.rs"]
mod limits;
#[path = "server/metrics.rs"]
mod metrics;
#[path = "server/routes.rs"]
mod routes;
#[path = "server/security.rs"]
mod security;
#[path = "server/settings.rs"]
mod settings;
#[path = "server/streams.rs"]
mod streams;
#[path = "server/users.rs"]
mod users;
