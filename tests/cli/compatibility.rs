//! Homes made by earlier versions: every reading command works on them, and their interrupted runs
//! resume and end.
//!
//! An archive under `fixtures/` holds a home as its owner left it after `kill -9`, its project, and
//! the events of each trace as that version printed them. Each event must read back byte by byte,
//! whatever has changed since.

mod home;
mod reading;
mod recovery;
mod rewriting;
