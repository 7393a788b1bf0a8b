//! Conditional requests: the entity tag of an artifact is the number of its version, in quotes (RFC 9110, section 13).

use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use soong::artifact::{ChangeCondition, VersionSet};

use super::error::{ApiError, validation_error};

/// Returns the header with the entity tag of a version.
pub(super) fn etag(version: u64) -> [(HeaderName, HeaderValue); 1] {
    let tag = HeaderValue::from_str(&format!("\"{version}\"")).unwrap_or(HeaderValue::from_static("\"0\""));
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

/// Returns whether the client has this version, so that it is not sent again.
pub(super) fn is_known(headers: &HeaderMap, version: u64) -> Result<bool, ApiError> {
    let known = versions(headers, &header::IF_NONE_MATCH)?;
    Ok(known.is_some_and(|known| known.contains(version)))
}

/// Reads a list of entity tags. Tags that are no version match none.
fn versions(headers: &HeaderMap, name: &HeaderName) -> Result<Option<VersionSet>, ApiError> {
    let mut versions = Vec::new();
    let mut is_present = false;
    for value in headers.get_all(name) {
        is_present = true;
        let text = value.to_str().unwrap_or_default().trim();
        if text == "*" {
            return Ok(Some(VersionSet::Any));
        }
        for tag in text.split(',') {
            let tag = tag.trim();
            let tag = tag.strip_prefix("W/").unwrap_or(tag);
            let quoted = tag.strip_prefix('"').and_then(|tag| tag.strip_suffix('"'));
            let Some(quoted) = quoted.filter(|quoted| !quoted.contains('"')) else {
                let message = format!("{name}: expected `*`, or the ETag of an answer, such as \"3\" with its quotes");
                return Err(validation_error(message));
            };
            versions.extend(quoted.parse::<u64>().ok());
        }
    }
    Ok(is_present.then_some(VersionSet::Of(versions)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(values: &[&str]) -> HeaderMap {
        let pairs = values.iter().map(|value| (header::IF_MATCH, HeaderValue::from_str(value).unwrap()));
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
            (vec!["\"abc\""], of(&[])),
        ] {
            assert_eq!(change_condition(&headers(&values)).unwrap().if_match, expected, "{values:?}");
        }
        for invalid in ["3", "\"3", "", "\"3\" \"4\"", "*, \"3\""] {
            assert!(change_condition(&headers(&[invalid])).is_err(), "{invalid:?}");
        }
        assert_eq!(etag(12)[0].1, "\"12\"");
    }
}
