//! Errors as clients see them: one stable code, one sentence, what to do.

use serde::{Deserialize, Serialize};
use serde_json::Value;

macro_rules! codes {
    ($($(#[$meta:meta])* $variant:ident = $text:literal),* $(,)?) => {
        /// A stable error code; the closed set that tool outcomes, runs and calls share.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
        #[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
        #[serde(rename_all = "snake_case")]
        pub enum ErrorCode { $($(#[$meta])* $variant),* }

        impl ErrorCode {
            /// Every code, in the order of their declaration.
            pub const ALL: &'static [ErrorCode] = &[$(Self::$variant),*];

            /// Returns the code as clients see it.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text),* }
            }
        }
    };
}

codes! {
    /// The request breaks a rule; nothing was changed.
    ValidationError = "validation_error",
    /// No such trace.
    TraceNotFound = "trace_not_found",
    /// No such run.
    RunNotFound = "run_not_found",
    /// No such session.
    SessionNotFound = "session_not_found",
    /// No such artifact.
    ArtifactNotFound = "artifact_not_found",
    /// The artifact has no such version.
    VersionNotFound = "version_not_found",
    /// No such question.
    QuestionNotFound = "question_not_found",
    /// No such permission.
    PermissionNotFound = "permission_not_found",
    /// No such goal in this trace.
    GoalNotFound = "goal_not_found",
    /// No such skill.
    SkillNotFound = "skill_not_found",
    /// No such actor.
    ActorNotFound = "actor_not_found",
    /// The server has no such route.
    RouteNotFound = "route_not_found",
    /// Somebody was first: the question or permission is decided, or is not open any more.
    AlreadyDecided = "already_decided",
    /// The session has a queued or running run.
    SessionActive = "session_active",
    /// An artifact of that name exists.
    ArtifactExists = "artifact_exists",
    /// The text to be replaced stands in more than one place.
    AmbiguousMatch = "ambiguous_match",
    /// The text to be replaced, or one like it, was not found.
    NoMatch = "no_match",
    /// What is most like the text to be replaced is not like it enough.
    MatchTooDifferent = "match_too_different",
    /// The search for the text to be replaced took too long.
    MatchBudgetExceeded = "match_budget_exceeded",
    /// There is no token, or one that nobody has.
    Unauthorized = "unauthorized",
    /// The caller is known, and may not do this: it is another user's, or the home's own.
    Forbidden = "forbidden",
    /// A web page of an origin that may not ask.
    ForbiddenOrigin = "forbidden_origin",
    /// The server was asked for under a name that is not its own.
    ForbiddenHost = "forbidden_host",
    /// Nothing is running that the request could act on.
    NothingRunning = "nothing_running",
    /// A named limit is full.
    Overloaded = "overloaded",
    /// The configuration cannot be used.
    ConfigError = "config_error",
    /// A defect of Soong itself.
    InternalError = "internal_error",
    /// The provider failed or answered nonsense.
    ProviderError = "provider_error",
    /// An answer, or the arguments of a call, were cut at the token limit.
    MaxOutputTokens = "max_output_tokens",
    /// The provider refused the key.
    ProviderAuthFailed = "provider_auth_failed",
    /// The provider did not answer in time.
    ProviderTimeout = "provider_timeout",
    /// The provider limits the rate, and retries did not help.
    ProviderRateLimited = "provider_rate_limited",
    /// The store could not write or read.
    StorageError = "storage_error",
    /// Another process owns the home.
    HomeLocked = "home_locked",
    /// The store has no event with this number, for example because a backup was restored. `details.start_again` says
    /// where to read from.
    CursorUnknown = "cursor_unknown",
    /// The runtime is closing and admits nothing new.
    Closing = "closing",
    /// The runtime, or a part that the request needs, crashed too often and is no longer restarted. Restart the process;
    /// its runs resume then.
    RuntimeFailed = "runtime_failed",
    /// The run may not use a tool of that name.
    ToolNotAvailable = "tool_not_available",
    /// The caller may not do this.
    PermissionDenied = "permission_denied",
    /// A time limit passed.
    Timeout = "timeout",
    /// Cancelled on request.
    Cancelled = "cancelled",
    /// Cut off by a crash or an end from outside; the effect is unknown.
    Interrupted = "interrupted",
    /// Not run because an earlier call of the turn failed.
    Skipped = "skipped",
    /// There is something else of that name already, or what is there has changed meanwhile.
    PathConflict = "path_conflict",
    /// The text to be replaced is not in the file.
    TextNotFound = "text_not_found",
    /// The text to be replaced, or the place of a change, is in the file more than once.
    AmbiguousEdit = "ambiguous_edit",
    /// The file is not the one that the diff was made of.
    PatchApplyFailed = "patch_apply_failed",
    /// No such file or folder.
    FileNotFound = "file_not_found",
    /// The path lies outside the project and the allowed roots.
    OutsideAllowedRoots = "outside_allowed_roots",
    /// The content is of a kind that the tool does not handle.
    UnsupportedMedia = "unsupported_media",
    /// The body or result is larger than its limit.
    PayloadTooLarge = "payload_too_large",
    /// Too many children, or too deep.
    ChildLimitExceeded = "child_limit_exceeded",
    /// The answer does not fit the schema that was asked for, also at the second try.
    ChildResultSchemaValidationFailed = "child_result_schema_validation_failed",
    /// The answer of a user's run does not fit its schema, also when it was asked again.
    ResultSchemaValidationFailed = "result_schema_validation_failed",
    /// A limit on turns, tokens, cost or calls is used up.
    BudgetExceeded = "budget_exceeded",
    /// The provider lacks what the run needs.
    UnsupportedCapability = "unsupported_capability",
    /// The prompt does not fit the model's window.
    PromptTooLong = "prompt_too_long",
    /// The model's answer is larger than `model.max_argument_bytes`, `max_answer_bytes` or `max_tool_calls` allows.
    ModelAnswerTooLarge = "model_answer_too_large",
    /// A run's actor crashed more often than its restart limit allows.
    ActorCrashed = "actor_crashed",
}

impl std::fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// An error as it is stored, streamed and shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[error("{code}: {message}")]
pub struct ErrorInfo {
    /// What kind of error this is; stable.
    pub code: ErrorCode,
    /// What went wrong, where, and what to do; for people and models.
    pub message: String,
    /// Whether the same request may succeed later.
    #[serde(default)]
    pub retryable: bool,
    /// What a program may want to know beyond the message.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub details: Value,
}

impl ErrorInfo {
    /// Makes an error that repeating the request does not mend.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), retryable: false, details: Value::Null }
    }

    /// Makes an error that may be gone on a later try.
    pub fn retryable(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), retryable: true, details: Value::Null }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_code_is_written_as_serde_writes_it() {
        for code in ErrorCode::ALL {
            assert_eq!(serde_json::to_value(code).unwrap(), code.as_str());
        }
    }
}
