//! Body of error responses.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{ErrorCode, ErrorInfo};

/// Body of every error response.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ErrorBody {
    /// The error.
    pub error: ErrorDetail,
}

/// An error like [`ErrorInfo`], in which `details` is always present.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ErrorDetail {
    code: ErrorCode,
    message: String,
    retryable: bool,
    #[serde(default)]
    details: Value,
}

impl From<ErrorInfo> for ErrorBody {
    fn from(error: ErrorInfo) -> Self {
        Self {
            error: error.into(),
        }
    }
}

impl From<ErrorInfo> for ErrorDetail {
    fn from(
        ErrorInfo {
            code,
            message,
            retryable,
            details,
        }: ErrorInfo,
    ) -> Self {
        Self {
            code,
            message,
            retryable,
            details,
        }
    }
}

impl From<ErrorDetail> for ErrorInfo {
    fn from(
        ErrorDetail {
            code,
            message,
            retryable,
            details,
        }: ErrorDetail,
    ) -> Self {
        Self {
            code,
            message,
            retryable,
            details,
        }
    }
}
