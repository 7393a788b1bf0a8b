//! The terminal of Soong: what it supports, safe text, styled lines, Markdown, the live picture of
//! a session, the transcript of a run, the monitor, and the state of keyboard and screen, which is
//! restored at the end.
//!
//! Elsewhere: what is printed and asked (the binary), and the source of the records
//! (`soong-client`).

pub mod attention;
pub mod format;
pub mod keyboard;
pub mod markdown;
pub mod monitor;
pub mod request;
#[cfg(any(test, feature = "testing"))]
pub mod sample;
pub mod screen;
pub mod spent;
pub mod styled_line;
pub mod table;
pub mod terminal;
pub mod text;
pub mod transcript;
pub mod tty;
pub mod typed_keys;
pub mod typed_messages;
