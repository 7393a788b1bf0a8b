//! Conditional requests: the entity tag of an artifact is the number of its version, in quotes (RFC
//! 9110, section 13).

use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use soong::artifact::{ChangeCondition, VersionSet};

use super::error::{ApiError, validation_error};

/// Returns the header with the entity tag of a version.
pub(super) fn etag(version: u64) -> [(HeaderName, HeaderValue); 1] {
    let tag = HeaderValue::from_str(&format!("\"{version}\""))
        .unwrap_or(HeaderValue::from_static("\"0\""));
    [(header::ETAG, tag)]
}

/// Reads the condition of a change from `If-Match` and `If-None-Match`.
///
/// # Errors
/// `validation_error` if a header is not a list of entity tags.
pub(super) fn change_condition(headers: &HeaderMap) -> Result<ChangeCondition, ApiError> {
    Ok(ChangeCondition {
        if_match: versions(headers, &header::IF_MATCH)?,
        if_none_match: versions(headers, &header::IF_NONE_MATCH)?,
    })
}

/// Returns whether the client has this version, so that it is not sent again. A header that is not
/// a list of entity tags is ignored.
pub(super) fn client_has_version(headers: &HeaderMap, version: u64) -> bool {
    let versions = versions(headers, &header::IF_NONE_MATCH).ok().flatten();
    versions.is_some_and(|versions| versions.contains(version))
}

/// Reads a list of entity tags. Tags that are not version numbers match no version. Weak tags count
/// like strong ones, because proxies that compress an answer weaken its tag, and a version always
/// has the same bytes.
fn versions(headers: &HeaderMap, name: &HeaderName) -> Result<Option<VersionSet>, ApiError> {
    let mut versions = Vec::new();
    let mut has_star = false;
    let mut is_present = false;
    for value in headers.get_all(name) {
        is_present = true;
        if value.as_bytes().trim_ascii() == b"*" {
            has_star = true;
        } else {
            let Some(tags) = entity_tags(value.as_bytes()) else {
                let message = format!(
                    "{name}: expected `*`, or the ETag of an answer, such as \"3\" with its quotes"
                );
                return Err(validation_error(message));
            };
            versions.extend(tags.into_iter().filter_map(version_of));
        }
    }
    let set = if has_star {
        VersionSet::Any
    } else {
        VersionSet::Of(versions)
    };
    Ok(is_present.then_some(set))
}

/// Parses a list of entity tags, and returns what is between their quotes. Empty elements are
/// ignored (RFC 9110, section 5.6.1). `None` if the text is not such a list, or has no tag.
fn entity_tags(text: &[u8]) -> Option<Vec<&[u8]>> {
    let mut tags = Vec::new();
    let mut rest = text.trim_ascii();
    while !rest.is_empty() {
        if let Some(after) = rest.strip_prefix(b",") {
            rest = after.trim_ascii_start();
            continue;
        }
        let opened = rest
            .strip_prefix(b"W/")
            .unwrap_or(rest)
            .strip_prefix(b"\"")?;
        let end = opened.iter().position(|byte| *byte == b'"')?;
        tags.push(&opened[..end]);
        rest = opened[end + 1..].trim_ascii_start();
        if !rest.is_empty() && !rest.starts_with(b",") {
            return None;
        }
    }
    if tags.is_empty() { None } else { Some(tags) }
}

/// Returns the version that a tag names. Only the form of [`etag`] is one.
fn version_of(tag: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(tag).ok()?;
    let version: u64 = text.parse().ok()?;
    if version.to_string() == text {
        Some(version)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(values: &[&str]) -> HeaderMap {
        let pairs = values
            .iter()
            .map(|value| (header::IF_MATCH, HeaderValue::from_str(value).unwrap()));
        pairs.collect()
    }

    #[test]
    fn entity_tags_are_read_as_versions() {
        let of = |versions: &[u64]| Some(VersionSet::Of(versions.to_vec()));
        for (values, expected) in [
            (vec![], None),
            (vec!["*"], Some(VersionSet::Any)),
            (vec!["\"3\""], of(&[3])),
            (vec!["W/\"3\", \"4\""], of(&[3, 4])),
            (vec!["\"3\"", "\"5\""], of(&[3, 5])),
            (
                vec!["\"abc\"", "\"a,b\"", "\"+3\"", "\"03\"", "\"\u{e9}\""],
                of(&[]),
            ),
            (vec![",\"3\", , \"4\","], of(&[3, 4])),
            (vec!["\"3\"", "*"], Some(VersionSet::Any)),
        ] {
            assert_eq!(
                change_condition(&headers(&values)).unwrap().if_match,
                expected,
                "{values:?}"
            );
        }
        for invalid in ["3", "\"3", "", ",", "\"3\" \"4\"", "*, \"3\"", "W/3"] {
            assert!(
                change_condition(&headers(&[invalid])).is_err(),
                "{invalid:?}"
            );
            assert!(
                change_condition(&headers(&["*", invalid])).is_err(),
                "{invalid:?}"
            );
        }
        assert_eq!(etag(12)[0].1, "\"12\"");
    }
}
