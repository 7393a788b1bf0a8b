//! Errors as clients see them: a stable code and a message that says what to do.

use serde::{Deserialize, Serialize};
use serde_json::Value;

macro_rules! codes {
    ($($(#[$meta:meta])* $variant:ident = $text:literal),* $(,)?) => {
        /// A stable error code. Tool results, runs and API calls share this set. Later versions may add
        /// codes.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
        #[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
        #[serde(rename_all = "snake_case")]
        #[non_exhaustive]
        pub enum ErrorCode { $($(#[$meta])* $variant),* }

        impl ErrorCode {
            /// All codes, in the order of their declaration.
            pub const ALL: &'static [ErrorCode] = &[$(Self::$variant),*];

            /// Returns the code as clients see it.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text),* }
            }
        }
    };
}

codes! {
    /// The request is invalid. Nothing was changed.
    ValidationError = "validation_error",
    /// The trace does not exist.
    TraceNotFound = "trace_not_found",
    /// The run does not exist.
    RunNotFound = "run_not_found",
    /// The session does not exist.
    SessionNotFound = "session_not_found",
    /// The artifact does not exist.
    ArtifactNotFound = "artifact_not_found",
    /// The artifact has no such version.
    VersionNotFound = "version_not_found",
    /// The question does not exist.
    QuestionNotFound = "question_not_found",
    /// The permission request does not exist.
    PermissionNotFound = "permission_not_found",
    /// The trace has no such goal.
    GoalNotFound = "goal_not_found",
    /// The skill does not exist.
    SkillNotFound = "skill_not_found",
    /// The actor does not exist.
    ActorNotFound = "actor_not_found",
    /// The server has no such route.
    RouteNotFound = "route_not_found",
    /// The question or permission request has already been decided, or is not open any more.
    AlreadyDecided = "already_decided",
    /// The `Idempotency-Key` was used for another request.
    IdempotencyConflict = "idempotency_conflict",
    /// The session has a queued or running run.
    SessionActive = "session_active",
    /// The artifact does not have the version that the request requires. Nothing was changed.
    PreconditionFailed = "precondition_failed",
    /// An artifact with this name exists.
    ArtifactExists = "artifact_exists",
    /// The text to replace occurs more than once.
    AmbiguousMatch = "ambiguous_match",
    /// Neither the text to replace nor a similar one was found.
    NoMatch = "no_match",
    /// The most similar text differs too much from the text to replace.
    MatchTooDifferent = "match_too_different",
    /// The search for the text to replace exceeded its time limit.
    MatchBudgetExceeded = "match_budget_exceeded",
    /// The token is missing or unknown.
    Unauthorized = "unauthorized",
    /// The caller is authenticated but not permitted: the object belongs to another user, or the
    /// action is reserved for the owner of the home.
    Forbidden = "forbidden",
    /// The request comes from a web page whose origin is not allowed.
    ForbiddenOrigin = "forbidden_origin",
    /// The request names a host that is not allowed.
    ForbiddenHost = "forbidden_host",
    /// There is no running work that the request could affect.
    NothingRunning = "nothing_running",
    /// A limit is reached, or a part of the runtime is busy.
    Overloaded = "overloaded",
    /// The configuration is invalid.
    ConfigError = "config_error",
    /// A defect in Soong.
    InternalError = "internal_error",
    /// The provider failed or returned an invalid answer.
    ProviderError = "provider_error",
    /// An answer, or the arguments of a tool call, were truncated at the token limit.
    MaxOutputTokens = "max_output_tokens",
    /// The model or its provider refused to answer, such as by a content filter.
    ContentRefused = "content_refused",
    /// A callback of the program failed, or failed the run.
    CallbackFailed = "callback_failed",
    /// The provider rejected the API key.
    ProviderAuthFailed = "provider_auth_failed",
    /// The provider did not answer in time.
    ProviderTimeout = "provider_timeout",
    /// The provider limits the rate, and retries did not succeed.
    ProviderRateLimited = "provider_rate_limited",
    /// The store could not read or write.
    StorageError = "storage_error",
    /// Another process owns the home.
    HomeLocked = "home_locked",
    /// The store has no event with this number, for example because a backup was restored.
    /// `details.start_again` is the position to read from.
    CursorUnknown = "cursor_unknown",
    /// The runtime is closing and accepts no new work.
    Closing = "closing",
    /// The runtime, or a part that the request needs, crashed too often and is no longer restarted.
    /// Restart the process to resume its runs.
    RuntimeFailed = "runtime_failed",
    /// The run may not use a tool with this name.
    ToolNotAvailable = "tool_not_available",
    /// The caller is not permitted to do this.
    PermissionDenied = "permission_denied",
    /// A time limit was exceeded.
    Timeout = "timeout",
    /// The work was cancelled on request.
    Cancelled = "cancelled",
    /// The work was interrupted by a crash or by the end of the process. Its effect is unknown.
    Interrupted = "interrupted",
    /// The call was not executed, because an earlier call of the turn failed.
    Skipped = "skipped",
    /// Something else exists at the path, or it changed during the operation.
    PathConflict = "path_conflict",
    /// The file does not contain the text to replace.
    TextNotFound = "text_not_found",
    /// The text to replace, or the position of a change, occurs more than once in the file.
    AmbiguousEdit = "ambiguous_edit",
    /// The diff does not apply to the file.
    PatchApplyFailed = "patch_apply_failed",
    /// The file or folder does not exist.
    FileNotFound = "file_not_found",
    /// The path is outside of the project and the allowed roots.
    OutsideAllowedRoots = "outside_allowed_roots",
    /// The tool does not support this type of content.
    UnsupportedMedia = "unsupported_media",
    /// The body or result exceeds its size limit.
    PayloadTooLarge = "payload_too_large",
    /// The number or the depth of children exceeds its limit.
    ChildLimitExceeded = "child_limit_exceeded",
    /// The answer of a child run does not match the requested schema, even after a second attempt.
    ChildResultSchemaValidationFailed = "child_result_schema_validation_failed",
    /// The answer of a user's run does not match its schema, even after a second attempt.
    ResultSchemaValidationFailed = "result_schema_validation_failed",
    /// The model has made the same tool call with the same result, or given the same denied answer,
    /// too often in a row.
    RepeatedCalls = "repeated_calls",
    /// A limit on turns, tokens, cost or calls is used up.
    BudgetExceeded = "budget_exceeded",
    /// The provider lacks a capability that the run needs.
    UnsupportedCapability = "unsupported_capability",
    /// The prompt does not fit the model's context window.
    PromptTooLong = "prompt_too_long",
    /// The model's answer exceeds `model.max_argument_bytes`, `max_answer_bytes` or
    /// `max_tool_calls`.
    ModelAnswerTooLarge = "model_answer_too_large",
    /// The actor of a run crashed more often than its restart limit allows.
    ActorCrashed = "actor_crashed",
}

impl ErrorCode {
    /// Returns the status with which an HTTP server reports this error.
    pub const fn http_status(self) -> u16 {
        match self {
            Self::ValidationError
            | Self::ToolNotAvailable
            | Self::UnsupportedCapability
            | Self::OutsideAllowedRoots
            | Self::TextNotFound
            | Self::AmbiguousEdit
            | Self::PatchApplyFailed
            | Self::PromptTooLong => 400,
            Self::TraceNotFound
            | Self::RunNotFound
            | Self::SessionNotFound
            | Self::ArtifactNotFound
            | Self::VersionNotFound
            | Self::GoalNotFound
            | Self::QuestionNotFound
            | Self::PermissionNotFound
            | Self::SkillNotFound
            | Self::ActorNotFound
            | Self::RouteNotFound
            | Self::FileNotFound => 404,
            Self::Unauthorized => 401,
            Self::Forbidden
            | Self::ForbiddenOrigin
            | Self::ForbiddenHost
            | Self::PermissionDenied => 403,
            Self::IdempotencyConflict
            | Self::SessionActive
            | Self::ArtifactExists
            | Self::NothingRunning
            | Self::AlreadyDecided
            | Self::ChildLimitExceeded
            | Self::BudgetExceeded
            | Self::PathConflict
            | Self::Cancelled
            | Self::AmbiguousMatch
            | Self::NoMatch
            | Self::MatchTooDifferent
            | Self::MatchBudgetExceeded => 409,
            Self::CursorUnknown => 410,
            Self::PreconditionFailed => 412,
            Self::PayloadTooLarge => 413,
            Self::UnsupportedMedia => 415,
            Self::Overloaded | Self::ProviderRateLimited => 429,
            Self::ProviderError
            | Self::ProviderAuthFailed
            | Self::ModelAnswerTooLarge
            | Self::MaxOutputTokens
            | Self::ContentRefused => 502,
            Self::StorageError | Self::HomeLocked | Self::Closing | Self::RuntimeFailed => 503,
            Self::ProviderTimeout | Self::Timeout => 504,
            Self::ConfigError
            | Self::InternalError
            | Self::ActorCrashed
            | Self::Interrupted
            | Self::Skipped
            | Self::CallbackFailed
            | Self::ChildResultSchemaValidationFailed
            | Self::ResultSchemaValidationFailed
            | Self::RepeatedCalls => 500,
        }
    }
}

impl std::fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// An error with its code and message, in the form that is stored, streamed and displayed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[error("{code}: {message}")]
pub struct ErrorInfo {
    /// Stable code.
    pub code: ErrorCode,
    /// Description of the error and what to do about it, for users and models.
    pub message: String,
    /// Whether the same request may succeed later.
    #[serde(default)]
    pub retryable: bool,
    /// Additional data for programs.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub details: Value,
}

impl ErrorInfo {
    /// Creates an error that a repeated request would get again.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            retryable: false,
            details: Value::Null,
        }
    }

    /// Creates an error that may not recur when the request is repeated.
    pub fn retryable(code: ErrorCode, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            retryable: true,
            details: Value::Null,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_str_equals_serde_name() {
        for code in ErrorCode::ALL {
            assert_eq!(serde_json::to_value(code).unwrap(), code.as_str());
        }
    }
}
