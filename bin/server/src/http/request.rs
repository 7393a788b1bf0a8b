//! Extractors for the path, the query and the body of a request. All rejections have the same
//! format.

use axum::{
    body::{Body, to_bytes},
    extract::{FromRequest, FromRequestParts, Request},
    http::{HeaderMap, header, request::Parts},
};
use serde::de::DeserializeOwned;
use soong::{ErrorCode, ErrorInfo};

use super::{
    Api,
    error::{ApiError, validation_error},
};

/// Returns the quality that the `Accept` headers of a request give to a media type, in thousandths;
/// 0 if they do not name it, or refuse it. Ranges such as `*/*` are not considered.
pub(super) fn quality(headers: &HeaderMap, media_type: &str) -> u32 {
    let mut best = 0;
    for accept in headers
        .get_all(header::ACCEPT)
        .iter()
        .filter_map(|accept| accept.to_str().ok())
    {
        for range in accept.split(',') {
            let mut parts = range.split(';').map(str::trim);
            if !parts
                .next()
                .is_some_and(|name| name.eq_ignore_ascii_case(media_type))
            {
                continue;
            }
            let given =
                parts.find_map(|part| part.strip_prefix("q=").or_else(|| part.strip_prefix("Q=")));
            let quality: f64 = given.map_or(1.0, |given| given.parse().unwrap_or(0.0));
            best = best.max((quality.clamp(0.0, 1.0) * 1_000.0) as u32);
        }
    }
    best
}

/// Path parameters.
pub(super) struct Path<T>(pub(super) T);

impl<T: DeserializeOwned + Send> FromRequestParts<Api> for Path<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, ApiError> {
        let found = axum::extract::Path::from_request_parts(parts, api).await;
        found
            .map(|axum::extract::Path(found)| Self(found))
            .map_err(|rejection| validation_error(rejection.body_text()))
    }
}

/// Query parameters.
pub(super) struct Query<T>(pub(super) T);

impl<T: DeserializeOwned + Send> FromRequestParts<Api> for Query<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, ApiError> {
        let found = axum::extract::Query::from_request_parts(parts, api).await;
        found
            .map(|axum::extract::Query(found)| Self(found))
            .map_err(|rejection| validation_error(rejection.body_text()))
    }
}

/// A JSON body; an empty body counts as an object without fields.
pub(super) struct Json<T>(pub(super) T);

impl<T: DeserializeOwned> FromRequest<Api> for Json<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, api: &Api) -> Result<Self, ApiError> {
        let is_json = is_json(request.headers());
        let bytes = read_body(request.into_body(), api.limits.body_bytes).await?;
        if bytes.is_empty() {
            let without = |error: ApiError| {
                validation_error(format!(
                    "{} (the request has no body)",
                    error.into_info().message
                ))
            };
            return read(b"{}").map(Self).map_err(without);
        }
        if !is_json {
            return Err(not_json());
        }
        read(&bytes).map(Self)
    }
}

/// Returns whether the content type of a body is JSON.
pub(super) fn is_json(headers: &HeaderMap) -> bool {
    let media = headers
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    let essence = media
        .split(';')
        .next()
        .unwrap_or_default()
        .trim()
        .to_ascii_lowercase();
    essence == "application/json" || essence.ends_with("+json")
}

fn not_json() -> ApiError {
    let message = "the body must be JSON: send it with `Content-Type: application/json`";
    ErrorInfo::new(ErrorCode::UnsupportedMedia, message).into()
}

/// Reads a body of at most `limit` bytes.
pub(super) async fn read_body(body: Body, limit: usize) -> Result<axum::body::Bytes, ApiError> {
    to_bytes(body, limit).await.map_err(|error| {
        if is_too_long(&error) {
            let message =
                format!("the body is larger than {limit} bytes: shorten it, or refer to a file");
            ErrorInfo::new(ErrorCode::PayloadTooLarge, message).into()
        } else {
            validation_error(format!("the body is incomplete: {error}"))
        }
    })
}

/// Returns whether a body could not be read because it exceeds its limit.
pub(super) fn is_too_long(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut at = Some(error);
    while let Some(error) = at {
        if error.is::<http_body_util::LengthLimitError>() {
            return true;
        }
        at = error.source();
    }
    false
}

/// Parses JSON; an error names the field.
fn read<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, ApiError> {
    // A JSON array would be parsed as the fields in order.
    if !bytes.trim_ascii_start().starts_with(b"{") {
        return Err(validation_error("invalid body: it must be a JSON object"));
    }
    let mut json = serde_json::Deserializer::from_slice(bytes);
    let not_expected = |error: serde_path_to_error::Error<serde_json::Error>| {
        let path = error.path().to_string();
        let location = if path == "." {
            String::new()
        } else {
            format!(" at {path}")
        };
        validation_error(format!("invalid body{location}: {}", error.inner()))
    };
    let value = serde_path_to_error::deserialize(&mut json).map_err(not_expected)?;
    json.end().map_err(|error| {
        validation_error(format!("unexpected data after the JSON body: {error}"))
    })?;
    Ok(value)
}
