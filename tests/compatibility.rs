//! Homes made by earlier versions: every reading command works on them, and their interrupted runs resume and end.
//!
//! An archive under `fixtures/` holds a home as its owner left it after `kill -9`, its project, and the events of
//! each trace as that version printed them. Each event must read back byte by byte, whatever has changed since.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs, reason = "a test says by a panic what is wrong")]

#[path = "support/process.rs"]
mod process;
#[path = "support/scripted.rs"]
mod scripted;
#[path = "support/served.rs"]
mod served;

#[path = "compatibility/home.rs"]
mod home;
#[path = "compatibility/reading.rs"]
mod reading;
#[path = "compatibility/recovery.rs"]
mod recovery;
