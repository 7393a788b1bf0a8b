//! Errors as clients get them: one JSON shape, a stable code, a status that fits it.

use axum::{
    Json,
    body::Bytes,
    extract::rejection::{BytesRejection, PathRejection, QueryRejection},
    http::StatusCode,
    response::{IntoResponse, Response},
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;
use soong::{ErrorCode, ErrorInfo};

use super::MAX_BODY_BYTES;

/// The body of every answer that is an error.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ErrorBody {
    pub(crate) error: ErrorDetail,
}

/// An error as [`ErrorInfo`] has it, with `details` in any case.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ErrorDetail {
    code: ErrorCode,
    message: String,
    retryable: bool,
    #[serde(default)]
    details: Value,
}

impl From<ErrorInfo> for ErrorDetail {
    fn from(ErrorInfo { code, message, retryable, details }: ErrorInfo) -> Self {
        Self { code, message, retryable, details }
    }
}

impl From<ErrorDetail> for ErrorInfo {
    fn from(ErrorDetail { code, message, retryable, details }: ErrorDetail) -> Self {
        Self { code, message, retryable, details }
    }
}

/// Why a request was not done.
#[derive(Debug)]
pub(crate) struct ApiError {
    info: ErrorInfo,
    status: StatusCode,
}

impl ApiError {
    /// Answers 404 whatever the code.
    pub(super) fn not_found(mut self) -> Self {
        self.status = StatusCode::NOT_FOUND;
        self
    }
}

/// Refuses what a client has sent.
pub(super) fn refuse(message: impl Into<String>) -> ApiError {
    ErrorInfo::new(ErrorCode::ValidationError, message).into()
}

/// Reads a JSON body; an error names the field.
pub(super) fn body<T: DeserializeOwned>(bytes: Result<Bytes, BytesRejection>) -> Result<T, ApiError> {
    let bytes = bytes.map_err(|rejection| match rejection.status() {
        StatusCode::PAYLOAD_TOO_LARGE => {
            let message = format!("the body is larger than {MAX_BODY_BYTES} bytes: say less, or point to a file");
            ErrorInfo::new(ErrorCode::PayloadTooLarge, message).into()
        }
        _ => refuse(rejection.body_text()),
    })?;
    let mut json = serde_json::Deserializer::from_slice(&bytes);
    serde_path_to_error::deserialize(&mut json).map_err(|error| {
        let path = error.path().to_string();
        let place = if path == "." { String::new() } else { format!(" at {path}") };
        refuse(format!("the body is not as expected{place}: {}", error.inner()))
    })
}

impl From<ErrorInfo> for ApiError {
    fn from(info: ErrorInfo) -> Self {
        Self { status: status(info.code), info }
    }
}

impl From<QueryRejection> for ApiError {
    fn from(rejection: QueryRejection) -> Self {
        refuse(rejection.body_text())
    }
}

impl From<PathRejection> for ApiError {
    fn from(rejection: PathRejection) -> Self {
        refuse(rejection.body_text())
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let body = ErrorBody { error: self.info.into() };
        (self.status, Json(body)).into_response()
    }
}

/// Returns the status that a code means.
fn status(code: ErrorCode) -> StatusCode {
    use ErrorCode as C;
    match code {
        C::ValidationError => StatusCode::BAD_REQUEST,
        C::TraceNotFound
        | C::RunNotFound
        | C::SessionNotFound
        | C::ArtifactNotFound
        | C::VersionNotFound
        | C::GoalNotFound
        | C::QuestionNotFound
        | C::PermissionNotFound
        | C::SkillNotFound
        | C::FileNotFound => StatusCode::NOT_FOUND,
        C::SessionActive
        | C::ArtifactExists
        | C::NothingRunning
        | C::AlreadyDecided
        | C::AmbiguousMatch
        | C::NoMatch
        | C::MatchTooDifferent
        | C::MatchBudgetExceeded => StatusCode::CONFLICT,
        C::PayloadTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
        C::UnsupportedMedia => StatusCode::UNSUPPORTED_MEDIA_TYPE,
        C::Overloaded | C::ProviderRateLimited => StatusCode::TOO_MANY_REQUESTS,
        C::ProviderError | C::ProviderAuthFailed => StatusCode::BAD_GATEWAY,
        C::StorageError | C::HomeLocked | C::Closing => StatusCode::SERVICE_UNAVAILABLE,
        C::ProviderTimeout => StatusCode::GATEWAY_TIMEOUT,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_code_has_the_status_that_clients_know() {
        for (code, want) in [
            (ErrorCode::ValidationError, 400),
            (ErrorCode::TraceNotFound, 404),
            (ErrorCode::SessionNotFound, 404),
            (ErrorCode::SkillNotFound, 404),
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
            (ErrorCode::HomeLocked, 503),
            (ErrorCode::ProviderTimeout, 504),
        ] {
            assert_eq!(status(code).as_u16(), want, "{code}");
        }
    }

    #[test]
    fn an_error_reads_back_as_it_was_written() {
        let info = ErrorInfo::retryable(ErrorCode::Closing, "later");
        let written = ErrorBody { error: info.clone().into() };
        let json = serde_json::to_string(&written).unwrap();
        assert_eq!(json, r#"{"error":{"code":"closing","message":"later","retryable":true,"details":null}}"#);
        let back: ErrorBody = serde_json::from_str(&json).unwrap();
        assert_eq!(ErrorInfo::from(back.error), info);
    }
}
