//! Error responses: one JSON format, a stable code, and the matching HTTP status.

use axum::{
    Json,
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use soong::{ErrorCode, ErrorInfo, protocol::api::ErrorBody};

/// An error response.
#[derive(Debug)]
pub struct ApiError {
    info: ErrorInfo,
    status: StatusCode,
}

impl ApiError {
    /// Sets the status, whatever the code is.
    pub(crate) fn with_status(mut self, status: StatusCode) -> Self {
        self.status = status;
        self
    }

    pub(super) fn into_info(self) -> ErrorInfo {
        self.info
    }
}

/// Creates a validation error.
pub fn validation_error(message: impl Into<String>) -> ApiError {
    ErrorInfo::new(ErrorCode::ValidationError, message).into()
}

impl From<ErrorInfo> for ApiError {
    fn from(info: ErrorInfo) -> Self {
        // The request is well-formed, but the value of one field is invalid.
        let is_of_field =
            info.code == ErrorCode::ValidationError && info.details.get("field").is_some();
        let status = match info.code {
            _ if is_of_field => StatusCode::UNPROCESSABLE_ENTITY,
            // An actor crashed and is being restarted.
            ErrorCode::InternalError if info.retryable => StatusCode::SERVICE_UNAVAILABLE,
            // Every code has a valid status.
            code => StatusCode::from_u16(code.http_status())
                .unwrap_or(StatusCode::INTERNAL_SERVER_ERROR),
        };
        Self { status, info }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let body = ErrorBody::from(self.info);
        let mut response = (self.status, Json(body)).into_response();
        if self.status == StatusCode::UNAUTHORIZED {
            response
                .headers_mut()
                .insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if matches!(
            self.status,
            StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS
        ) {
            response
                .headers_mut()
                .insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_codes_map_to_documented_statuses() {
        for (code, want) in [
            (ErrorCode::ValidationError, 400),
            (ErrorCode::TraceNotFound, 404),
            (ErrorCode::SessionNotFound, 404),
            (ErrorCode::SkillNotFound, 404),
            (ErrorCode::ActorNotFound, 404),
            (ErrorCode::RouteNotFound, 404),
            (ErrorCode::Unauthorized, 401),
            (ErrorCode::Forbidden, 403),
            (ErrorCode::ForbiddenOrigin, 403),
            (ErrorCode::ForbiddenHost, 403),
            (ErrorCode::SessionActive, 409),
            (ErrorCode::NothingRunning, 409),
            (ErrorCode::AlreadyDecided, 409),
            (ErrorCode::QuestionNotFound, 404),
            (ErrorCode::PermissionNotFound, 404),
            (ErrorCode::AmbiguousMatch, 409),
            (ErrorCode::MatchBudgetExceeded, 409),
            (ErrorCode::Overloaded, 429),
            (ErrorCode::ConfigError, 500),
            (ErrorCode::ProviderAuthFailed, 502),
            (ErrorCode::Closing, 503),
            (ErrorCode::RuntimeFailed, 503),
            (ErrorCode::CursorUnknown, 410),
            (ErrorCode::HomeLocked, 503),
            (ErrorCode::ProviderTimeout, 504),
        ] {
            assert_eq!(code.http_status(), want, "{code}");
        }
    }

    #[test]
    fn retryable_internal_error_is_503_with_retry_after() {
        let crashed = ErrorInfo::new(ErrorCode::InternalError, "x");
        let retryable = ErrorInfo {
            retryable: true,
            ..crashed.clone()
        };
        for (info, status, retry_after) in [
            (crashed, 500, None),
            (retryable, 503, Some("1")),
            (ErrorInfo::new(ErrorCode::Overloaded, "x"), 429, Some("1")),
        ] {
            let response = ApiError::from(info).into_response();
            let header = response
                .headers()
                .get(header::RETRY_AFTER)
                .map(|value| value.to_str().unwrap());
            assert_eq!((response.status().as_u16(), header), (status, retry_after));
        }
    }

    #[test]
    fn error_round_trips_through_json() {
        let info = ErrorInfo::retryable(ErrorCode::Closing, "later");
        let written = ErrorBody::from(info.clone());
        let json = serde_json::to_string(&written).unwrap();
        assert_eq!(
            json,
            r#"{"error":{"code":"closing","message":"later","retryable":true,"details":null}}"#
        );
        let back: ErrorBody = serde_json::from_str(&json).unwrap();
        assert_eq!(ErrorInfo::from(back.error), info);
    }
}
