//! The real binary, from a terminal, a pipe or another process.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    missing_docs,
    reason = "a test says by a panic what is wrong"
)]

#[path = "../support/process.rs"]
mod process;
#[path = "../support/pty.rs"]
mod pty;
#[path = "../support/scripted.rs"]
mod scripted;
#[path = "../support/served.rs"]
mod served;
#[path = "../support/service.rs"]
mod service;

mod artifacts;
mod basics;
mod branches;
mod compatibility;
mod control;
mod faults;
mod help;
mod init;
mod mcp;
mod memory;
mod permissions;
mod presets;
mod processes;
mod questions;
mod records;
mod references;
mod setup;
mod tables;
mod terminal;
mod upkeep;
