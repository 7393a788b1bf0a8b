//! Tests of the parts of the web tools, against servers on this machine only.

mod address;
mod client;
mod media;
mod page;
mod policy;
pub(crate) mod server;
