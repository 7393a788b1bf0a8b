//! Terminal output of Soong: what a terminal supports, styled lines, Markdown, and the live picture of a session.
//!
//! Elsewhere: what is printed and asked (the binary), and where the shown records come from (`soong-client`).

pub mod format;
pub mod keyboard;
pub mod markdown;
#[cfg(any(test, feature = "testing"))]
pub mod sample;
pub mod screen;
pub mod styled_line;
pub mod terminal;
pub mod text;
pub mod tty;
