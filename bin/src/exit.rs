//! Exit codes, and failures that say what is wrong and what to do.
//!
//! Elsewhere: the output of commands that succeed.

use std::process::ExitCode;

use soong::{ErrorCode, ErrorInfo};
use soong_storage::store::StoreError;

/// Exit code of the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// The command did what was asked.
    Success = 0,
    /// The run ended without an answer, or another operation failed.
    Failed = 1,
    /// Wrong usage or configuration.
    Usage = 2,
    /// Something that was named does not exist.
    NotFound = 3,
    /// Rejected in the current state.
    Refused = 4,
    /// The provider cannot be reached or rejects the key.
    Provider = 5,
    /// A run waits for user input.
    AwaitsInput = 6,
    /// Interrupted by Ctrl-C.
    Interrupted = 130,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        ExitCode::from(exit as u8)
    }
}

impl Exit {
    /// Returns the exit code for an error. A provider that rejected the request (HTTP status 4xx)
    /// was reached, so this counts as [`Exit::Failed`].
    pub(crate) fn of_error(error: &ErrorInfo) -> Self {
        let is_refused = error.code == ErrorCode::ProviderError
            && error.details["status"]
                .as_u64()
                .is_some_and(|status| (400..500).contains(&status));
        if is_refused {
            Self::Failed
        } else {
            Self::of(error.code)
        }
    }

    /// Returns the exit code for an error code.
    pub(crate) fn of(code: ErrorCode) -> Self {
        use ErrorCode as C;
        match code {
            C::ValidationError | C::ConfigError => Self::Usage,
            C::TraceNotFound
            | C::RunNotFound
            | C::SessionNotFound
            | C::ArtifactNotFound
            | C::VersionNotFound
            | C::GoalNotFound
            | C::QuestionNotFound
            | C::PermissionNotFound
            | C::SkillNotFound
            | C::ActorNotFound
            | C::RouteNotFound
            | C::CursorUnknown
            | C::FileNotFound => Self::NotFound,
            C::SessionActive
            | C::ArtifactExists
            | C::NothingRunning
            | C::AlreadyDecided
            | C::AmbiguousMatch
            | C::NoMatch
            | C::MatchTooDifferent
            | C::MatchBudgetExceeded
            | C::Overloaded
            | C::HomeLocked
            | C::Unauthorized
            | C::Forbidden
            | C::ForbiddenHost
            | C::ForbiddenOrigin
            | C::Closing => Self::Refused,
            C::ProviderError
            | C::ProviderAuthFailed
            | C::ProviderTimeout
            | C::ProviderRateLimited => Self::Provider,
            _ => Self::Failed,
        }
    }
}

/// Failure of a command: one line with the problem, and lines of advice.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) exit: Exit,
    /// The problem. Empty if nothing is to be printed.
    pub(crate) what: String,
    /// Advice, possibly several lines. Empty if the first line says enough.
    pub(crate) advice: String,
}

impl Failure {
    pub(crate) fn new(exit: Exit, what: impl Into<String>, advice: impl Into<String>) -> Self {
        Self {
            exit,
            what: what.into(),
            advice: advice.into(),
        }
    }

    pub(crate) fn usage(what: impl Into<String>, advice: impl Into<String>) -> Self {
        Self::new(Exit::Usage, what, advice)
    }

    /// Returns the failure for a closed standard output (`| head`). It is not an error, and nothing
    /// is printed.
    pub(crate) fn output_closed() -> Self {
        Self::new(Exit::Success, "", "")
    }

    pub(crate) fn is_output_closed(&self) -> bool {
        self.what.is_empty()
    }
}

impl From<ErrorInfo> for Failure {
    fn from(error: ErrorInfo) -> Self {
        let advice = advice(error.code);
        Self::new(
            Exit::of_error(&error),
            format!("{} ({})", error.message, error.code),
            advice,
        )
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        let missing = matches!(error, StoreError::NotFound(_));
        let mut failure = Self::from(ErrorInfo::from(&error));
        if missing {
            failure.exit = Exit::NotFound;
        }
        failure
    }
}

/// Returns advice for an error code, beyond the error message. Messages of provider errors contain
/// their own advice.
pub(crate) fn advice(code: ErrorCode) -> &'static str {
    use ErrorCode as C;
    match code {
        C::ConfigError => {
            "Correct the configuration; `soong config show` shows where each value is set."
        }
        C::ValidationError => "Correct the command line; see `soong help`.",
        C::TraceNotFound | C::RunNotFound => "See `soong traces list`.",
        C::SessionNotFound => "See `soong sessions list`.",
        C::ArtifactNotFound => "See `soong artifacts list`.",
        C::ActorNotFound => "List the actors with `soong tree`.",
        C::RouteNotFound => "Use the same version of soong as the server, or check the address.",
        C::SkillNotFound => "Add it to skills/ of the home as NAME.md, or use an existing skill.",
        C::VersionNotFound => "See `soong artifacts versions NAME`.",
        C::ChildResultSchemaValidationFailed | C::ResultSchemaValidationFailed => {
            "Describe the expected answer in the prompt, or relax the schema."
        }
        C::RepeatedCalls => {
            "Say in the prompt what to do instead, use another model, or raise runtime.repeated_calls_limit."
        }
        C::QuestionNotFound => "See `soong questions list`.",
        C::PermissionNotFound => "See `soong permissions list`.",
        C::AlreadyDecided => "See `soong questions list --all` or `soong permissions list --all`.",
        C::ArtifactExists => "Choose another name, or store the next version of the artifact.",
        C::NoMatch | C::MatchTooDifferent => "Check the content: `soong artifacts get NAME`.",
        C::AmbiguousMatch => "Include more of the surrounding text, so that it matches only once.",
        C::MatchBudgetExceeded => "Give the exact text, or a shorter part of it.",
        C::UnsupportedMedia => {
            "Only text can be edited and exported; use `soong artifacts get NAME -o FILE` for other content."
        }
        C::FileNotFound => "Give a file or folder that exists.",
        C::SessionActive => {
            "Wait for its run, stop it with `soong traces stop`, or use another session."
        }
        C::NothingRunning => "See active runs with `soong tree`.",
        C::Overloaded => "Wait until some of the queued runs have ended, then try again.",
        C::Closing => {
            "Try again: if the owner has exited, the next command takes over its home. A server given by --url must \
             be started on its machine."
        }
        C::MaxOutputTokens => {
            "Raise model.max_output_tokens, or ask for less; `soong run --continue \"Continue\"` continues from the partial answer."
        }
        C::ContentRefused => {
            "Change the prompt or what it refers to, or use another model with --model."
        }
        C::CursorUnknown => "Omit --since to read all events again.",
        C::RuntimeFailed => {
            "Restart the process that owns the home; interrupted runs resume with `soong serve` or \
             `soong run --session SESSION`."
        }
        C::Unauthorized => {
            "Set SOONG_TOKEN, or give the home of the server with --home DIR; the token is in its server.token."
        }
        C::PayloadTooLarge => {
            "Send less, or raise the limit in config.toml; for a long prompt, refer to a file."
        }
        C::HomeLocked => "Or use another home with --home DIR.",
        C::ProviderRateLimited => {
            "Wait and try again, or lower model.max_concurrency in config.toml."
        }
        C::StorageError => "Run `soong doctor` to check the home and its disk.",
        C::BudgetExceeded => {
            "Raise --max-iterations or the budget (--budget-tokens, --budget-usd, [budget]), or split the task."
        }
        C::Timeout => "Raise --timeout, or split the task.",
        C::ModelAnswerTooLarge => {
            "Split the task, or raise model.max_argument_bytes, max_answer_bytes or max_tool_calls in config.toml."
        }
        C::InternalError | C::ActorCrashed => {
            "This is a bug in soong: please report it with the output of -vv."
        }
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_codes_map_to_documented_exit_codes() {
        for (code, exit) in [
            (ErrorCode::ConfigError, 2),
            (ErrorCode::ValidationError, 2),
            (ErrorCode::TraceNotFound, 3),
            (ErrorCode::FileNotFound, 3),
            (ErrorCode::SkillNotFound, 3),
            (ErrorCode::ActorNotFound, 3),
            (ErrorCode::RouteNotFound, 3),
            (ErrorCode::HomeLocked, 4),
            (ErrorCode::SessionActive, 4),
            (ErrorCode::NoMatch, 4),
            (ErrorCode::ProviderAuthFailed, 5),
            (ErrorCode::ProviderError, 5),
            (ErrorCode::ProviderTimeout, 5),
            (ErrorCode::BudgetExceeded, 1),
            (ErrorCode::Interrupted, 1),
        ] {
            assert_eq!(Exit::of(code) as u8, exit, "{code}");
        }
        for (status, exit) in [(400, 1), (404, 1), (422, 1), (429, 1), (500, 5), (503, 5)] {
            let error = ErrorInfo::new(ErrorCode::ProviderError, "x");
            let error = ErrorInfo {
                details: serde_json::json!({ "status": status }),
                ..error
            };
            assert_eq!(Exit::of_error(&error) as u8, exit, "{status}");
        }
    }
}
