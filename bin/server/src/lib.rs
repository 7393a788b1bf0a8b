//! The HTTP interface of Soong: routes over a runtime, a server for them, and the control socket of
//! a home.
//!
//! [`http::router`] builds the routes. [`server::Server`] serves them on an address, for clients
//! with a token. An embedding program calls [`ServeControl::serve_control`] so that `soong`
//! commands of the same user can reach its runtime:
//!
//! ```no_run
//! # async fn example(runtime: soong::Runtime) -> std::io::Result<()> {
//! use soong_server::ServeControl as _;
//!
//! let control = runtime.serve_control()?;
//! // … `soong tree` and `soong permissions allow` work now …
//! control.close().await;
//! runtime.close().await;
//! # Ok(())
//! # }
//! ```

pub mod control;
pub mod duration;
pub mod http;
pub mod server;
pub mod socket;
pub mod text_file;

pub use control::{ControlSocket, ServeControl};
