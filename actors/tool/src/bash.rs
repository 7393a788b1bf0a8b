//! Tool `bash`: runs a shell command (TOOL-5).
//!
//! Every call requires permission. The exit status of a command is reported to the model and is not
//! an error of the call. A call fails only if its command could not be started, took too long or
//! was cancelled.
//!
//! Elsewhere: starting and killing processes (`soong_sandbox`), the scope of a grant
//! (`command.rs`), which files a command can read and write (`bash/sandbox_policy.rs`), how its
//! output is formatted (`bash/format_output.rs`).

mod cache;
mod format_output;
mod limits;
mod run;
mod sandbox_policy;

use std::{
    path::PathBuf,
    sync::{Arc, OnceLock},
    time::Duration,
};

use futures::{FutureExt, future::BoxFuture};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use soong_protocol::{AccessRequest, ErrorCode, ErrorInfo, Scope, ToolSpec};
use soong_sandbox::{Confinement, confinement, confinement::describe_gaps, find_program};
use soong_text::Environment;

use super::{
    Tool, ToolContext, ToolEnvironment, ToolResult, arguments, path_policy::PathPolicy,
    schema::schema_of,
};
use crate::command::session_scope;

/// Time between the maximum timeout of a command and the timeout of its tool call, in milliseconds.
/// The tool enforces the timeout of the command itself, and then needs time to kill the remaining
/// processes.
const KILL_GRACE_MS: u64 = 10_000;
/// Maximum length of a command, in bytes. The system accepts arguments of at most 128 KiB.
const MAX_COMMAND_BYTES: usize = 100_000;

/// The tool `bash`.
pub(crate) struct Bash {
    spec: ToolSpec,
    setting: Arc<BashState>,
}

/// State shared by all calls.
struct BashState {
    tool_environment: ToolEnvironment,
    roots: Arc<PathPolicy>,
    /// Shell that runs the command: bash, or `sh` if bash is not installed.
    shell: PathBuf,
    /// How far commands can be confined. Determined when a call first needs it, because that starts
    /// a shell.
    confinement: OnceLock<Confinement>,
    limits: limits::CommandLimits,
}

/// Runs a command.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    #[schemars(length(min = 1))]
    command: String,
    #[schemars(range(min = 1))]
    #[serde(default)]
    timeout_ms: Option<u64>,
}

/// Returns the shell that runs commands: bash, or `sh` if bash is not installed.
pub fn command_shell(environment: &Environment) -> PathBuf {
    let find = |name: &str| find_program(name, environment.get("PATH"));
    find("bash")
        .or_else(|| find("sh"))
        .unwrap_or_else(|| "/bin/sh".into())
}

impl Bash {
    /// Makes the tool. Finds the shell.
    pub(crate) fn new(tool_environment: &ToolEnvironment, roots: Arc<PathPolicy>) -> Self {
        Self::with_confinement(tool_environment, roots, OnceLock::new())
    }

    fn with_confinement(
        tool_environment: &ToolEnvironment,
        roots: Arc<PathPolicy>,
        confinement: OnceLock<Confinement>,
    ) -> Self {
        let shell = command_shell(&tool_environment.environment);
        let tools = &tool_environment.tools;
        let description = format!(
            "Runs a command with {} in the project folder, without input, and shows its output and exit status. It \
             and all processes that it started are stopped after {} ms, or after timeout_ms (at most {}). $TMPDIR is \
             deleted after the call.",
            shell.file_name().unwrap_or_default().display(),
            tools.default_timeout_ms.min(tools.max_timeout_ms),
            tools.max_timeout_ms,
        );
        let spec = ToolSpec::dangerous(
            "bash",
            "Run a command",
            &description,
            schema_of::<Arguments>(),
        );
        let spec = ToolSpec {
            timeout_ms: Some(tools.max_timeout_ms.saturating_add(KILL_GRACE_MS)),
            ..spec
        };
        let limits = limits::CommandLimits::new(&tools.bash);
        let setting = BashState {
            tool_environment: tool_environment.clone(),
            roots,
            shell,
            confinement,
            limits,
        };
        Self {
            spec,
            setting: Arc::new(setting),
        }
    }
}

impl Tool for Bash {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn required_access(
        &self,
        context: &ToolContext,
        value: &Value,
    ) -> Result<Option<AccessRequest>, ErrorInfo> {
        let arguments: Arguments = arguments(value.clone())?;
        self.setting.timeout_of(&arguments)?;
        let directory = context.project_dir.to_string_lossy().into_owned();
        let lacks = self.setting.confinement().missing();
        let scope = match lacks {
            // Only a grant for unconfined commands covers it.
            Some(_) => Scope::Unconfined,
            None => session_scope(&arguments.command, &directory),
        };
        let note = lacks
            .map(|why| self.setting.unconfined_note(why) + "; ")
            .unwrap_or_default();
        let note = Some(note + &describe_gaps());
        Ok(Some(AccessRequest {
            target: arguments.command,
            scope,
            is_sensitive: lacks.is_some(),
            note,
        }))
    }

    fn call(&self, context: ToolContext, value: Value) -> BoxFuture<'static, ToolResult> {
        let setting = Arc::clone(&self.setting);
        async move {
            let arguments: Arguments = arguments(value)?;
            let limit = setting.timeout_of(&arguments)?;
            run::run(&setting, &context, &arguments.command, limit).await
        }
        .boxed()
    }
}

impl BashState {
    fn confinement(&self) -> &Confinement {
        self.confinement.get_or_init(confinement)
    }

    /// Checks what the schema cannot express, and returns the time limit of the command.
    fn timeout_of(&self, arguments: &Arguments) -> Result<Duration, ErrorInfo> {
        let refuse = |message: String| Err(ErrorInfo::new(ErrorCode::ValidationError, message));
        let tools = &self.tool_environment.tools;
        let asked_ms = arguments
            .timeout_ms
            .unwrap_or(tools.default_timeout_ms.min(tools.max_timeout_ms));
        if asked_ms == 0 || asked_ms > tools.max_timeout_ms {
            let most_ms = tools.max_timeout_ms;
            return refuse(format!(
                "timeout_ms is {asked_ms}: ask for 1 to {most_ms} ms, and split up what takes longer"
            ));
        }
        if arguments.command.trim().is_empty() {
            return refuse("the command is empty: say what is to be run".to_owned());
        }
        if arguments.command.contains('\0') {
            return refuse(
                "the command holds a NUL character: no program can be given one".to_owned(),
            );
        }
        if arguments.command.len() > MAX_COMMAND_BYTES {
            return refuse(format!(
                "the command is {} bytes long: write what is beyond {MAX_COMMAND_BYTES} bytes into a file first",
                arguments.command.len()
            ));
        }
        Ok(Duration::from_millis(asked_ms))
    }

    /// Returns a note for the approver: the command would not be fully confined, and why.
    fn unconfined_note(&self, why: &str) -> String {
        match self.confinement() {
            Confinement::Partial { .. } => format!("it would run only partly confined: {why}"),
            _ => format!("it would run unconfined: {why}"),
        }
    }
}

#[cfg(test)]
#[path = "bash/tests.rs"]
mod tests;
