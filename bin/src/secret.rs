//! Secrets: what may be one is not shown.
//!
//! Pure. A key is never printed on purpose; this is for text in which one may stand all the same.

/// What stands for a secret.
pub(crate) const HIDDEN: &str = "[hidden]";

/// Hides user name and password of an address, and its query: services take keys there, too.
pub(crate) fn hide_in_address(address: &str) -> String {
    let bare = address.split(['?', '#']).next().unwrap_or_default();
    let cut = if bare.len() < address.len() { format!("{bare}?{HIDDEN}") } else { bare.to_owned() };
    let Some((scheme, rest)) = cut.split_once("://") else { return cut };
    let host_end = rest.find('/').unwrap_or(rest.len());
    match rest[..host_end].rsplit_once('@') {
        Some((_, host)) => format!("{scheme}://{HIDDEN}@{host}{}", &rest[host_end..]),
        None => cut,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_shown_without_user_password_and_query() {
        for (address, want) in [
            ("http://127.0.0.1:11434/v1", "http://127.0.0.1:11434/v1"),
            ("https://me:p@ss@host/v1", "https://[hidden]@host/v1"),
            ("https://key@host", "https://[hidden]@host"),
            ("https://host/v1?key=abc", "https://host/v1?[hidden]"),
            ("no address", "no address"),
            ("https://host/a@b", "https://host/a@b"),
        ] {
            assert_eq!(hide_in_address(address), want);
        }
    }
}
