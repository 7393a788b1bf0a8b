//! The web as `webfetch` and `web_search` reach it (TOOL-6).
//!
//! `policy` says which hosts need leave, `address` which addresses are public, `client` fetches and looks at both,
//! `media` tells text from other things and decodes it, `tree` and `page` make Markdown of HTML, `search` speaks
//! with search services. Architecture invariant: what `webfetch` connects to went through `client`, which has the
//! addresses checked that it connects to, at each redirect anew.
//! Not here: the two tools (`webfetch.rs`, `web_search.rs`).

pub(super) mod address;
pub(super) mod client;
pub(super) mod media;
pub(super) mod page;
pub(super) mod policy;
pub(super) mod search;
mod tree;

use super::untrusted::visible;

/// How both tools call themselves to servers.
const USER_AGENT: &str = concat!("soong/", env!("CARGO_PKG_VERSION"));

/// Puts a text on one line, at most so many characters long.
pub(super) fn one_line(text: &str, max_chars: usize) -> String {
    let line = visible(text).split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(max_chars) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

#[cfg(test)]
pub(in crate::tool) mod tests;
