//! The server: real HTTP requests to the real binary.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    missing_docs,
    reason = "a test says by a panic what is wrong"
)]

#[path = "../support/process.rs"]
mod process;
#[path = "../support/served.rs"]
mod served;
#[path = "../support/service.rs"]
mod service;

mod acknowledged;
mod calls;
mod commands;
mod conditions;
mod conformance;
mod drain;
mod failure;
mod idempotency;
mod limits;
mod metrics;
mod routes;
mod security;
mod settings;
mod streams;
mod users;
