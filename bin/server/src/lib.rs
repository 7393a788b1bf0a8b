//! The HTTP interface of Soong: routes over a runtime, a server for them, and the control socket of a home.
//!
//! [`http::router`] makes the routes. [`server::Server`] serves them on an address, for callers with a token;
//! [`socket`] is the Unix socket in the home, which only the user who owns it can reach.

pub mod duration;
pub mod http;
pub mod server;
pub mod socket;
pub mod text_file;
