//! Options of `demo`, `run` and `chat`, the commands that start runs.

use std::{path::PathBuf, time::Duration};

use clap::{ArgGroup, Args, ValueEnum, builder::NonEmptyStringValueParser};
use serde_json::{Map, Value};
use soong::protocol::{Budget, Effort, PermissionMode, RunMode, RunSetting, Usd};

use super::{
    duration, number_parser, short_duration,
    values::{effort, permission_mode, run_setting},
};

/// Options of `demo`.
#[derive(Debug, Args)]
#[command(after_help = "\
The offline model follows built-in rules: it lists the folder, explores its parts with parallel
sub-agents, has a report written and evaluated, and stores the report as an artifact. Without
--home, the demo uses a home in your cache folder, which keeps the last five demo sessions; its path
is printed at the end. With --home, a home that another process owns is refused (exit code 4).

--kill runs the demo in a separate process, kills that process (SIGKILL) when a third of the
sub-agents have ended, resumes the run in this process, and compares what both processes executed
with what was stored. Exit code 1 if something was lost or repeated.

Examples:
  soong demo ~/src/project --children 12
  soong demo --monitor --pace 3s
  soong demo --kill
  soong demo --home /tmp/demo && soong --home /tmp/demo traces list")]
pub(crate) struct Demo {
    /// Folder to explore; for a file, the folder that contains it
    #[arg(default_value = ".")]
    pub(crate) path: PathBuf,
    /// Allow $HOME, or a folder above it, as the project of a new session
    #[arg(long)]
    pub(crate) here: bool,
    /// Number of sub-agents that explore [default: one per main folder, 4 to 8; with --kill 30]
    #[arg(long, value_name = "N", value_parser = number_parser::<u16>(1..=200))]
    pub(crate) children: Option<u16>,
    /// Delay of each model answer, such as 500ms or 3s [default: 400ms on a terminal, else none;
    /// with --monitor 1s]
    #[arg(long, value_name = "S", value_parser = short_duration)]
    pub(crate) pace: Option<Duration>,
    /// Show the monitor during the run; q closes it
    #[arg(long, conflicts_with = "json")]
    pub(crate) monitor: bool,
    /// Kill the process of the demo in the middle, resume the run, and count what was lost or
    /// repeated
    #[arg(long, conflicts_with_all = ["monitor", "json"])]
    pub(crate) kill: bool,
    /// File to which each executed model call and tool call is added; used by --kill
    #[arg(long, value_name = "FILE", hide = true)]
    pub(crate) log_executions: Option<PathBuf>,
}

/// Options of `run`.
#[derive(Debug, Args)]
#[command(after_help = "\
The model is set in config.toml, or by OPENAI_API_KEY and OPENAI_BASE_URL alone; `--model offline`
needs neither. Progress goes to standard error, the answer to standard output. The first Ctrl-C
cancels the run and waits until it has ended; the second one exits immediately.

If another process owns the home, it executes the run, with its own configuration and key. Runs of
one session are executed one after the other. A process that owns the home exits when the runs of
other terminals have ended too. With --detach and no owner process, a background process owns the
home until no run has been active for 3 s; its messages are in logs/host.log in the home.

If an agent asks a question, it is shown on the terminal. Without a terminal, the run waits (exit
code 6), and `soong questions answer` resumes it.

Reading the project needs no permission. Calls that write, run commands, use the network or access
sensitive files request permission on the terminal. Without a terminal they are denied, unless
--allow covers them. With --detach they wait for `soong permissions allow`.

Further runs of a session keep the mode, preset, model, tools, system prompt, sampling parameters
and budget of its last run. --reset sets one of them back to the configuration. --agent-type also
drops the last system prompt, tools and model.

--after SEQ continues after an earlier message; `soong traces messages ID` shows the numbers. Goals
and documents return to their state at that message. Later messages are kept, off the main path.

Examples:
  soong run \"Summarize README.md\"
  soong run --attach minutes.md --attach figures.csv \"Compare the two\"
  soong run --attach plan.png \"Which rooms face north?\"
  (echo 'Review this change:'; git diff) | soong run --timeout 2m
  soong run --continue \"And what is missing?\"
  soong run --allow write:docs --allow bash:cargo \"Document the examples\"
  soong run --permission-mode plan \"How would you split this module?\"
  soong run --session ID --after 5 \"In French, please\"
  soong run --detach --mode orchestrator - < task.md")]
pub(crate) struct Run {
    /// The prompt. Use `-`, or omit it in a pipe, to read standard input
    pub(crate) prompt: Option<String>,
    /// Mode of the run [default: the session's last mode, else normal]
    #[arg(long, value_enum)]
    pub(crate) mode: Option<Mode>,
    #[command(flatten)]
    pub(crate) conversation: ConversationArgs,
    /// File to store as an artifact before the run, for agents to read; models see images and PDF;
    /// `-` reads standard input; can be given several times
    #[arg(long, value_name = "FILE")]
    pub(crate) attach: Vec<PathBuf>,
    /// Wait for the end of standard input, and attach it; without this, a pipe that sends nothing
    /// within a second is not read
    #[arg(long)]
    pub(crate) stdin: bool,
    /// Start the run in the background and return once it is accepted
    #[arg(long)]
    pub(crate) detach: bool,
    #[command(flatten)]
    pub(crate) project: ProjectArgs,
    #[command(flatten)]
    pub(crate) agent: AgentArgs,
    /// Tools that the run and its sub-agents may use, such as read,grep; "" for none [default: the
    /// session's, else all]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub(crate) tools: Option<Vec<String>>,
    /// Maximum turns, without sub-agents [default: the preset's, else runtime.max_turns]
    #[arg(long = "max-iterations", value_name = "N", value_parser = number_parser::<u32>(1..=u32::MAX.into()))]
    pub(crate) max_turns: Option<u32>,
    #[command(flatten)]
    pub(crate) permissions: PermissionArgs,
    /// Set a setting of the session back to the configuration; can be given several times
    #[arg(long, value_name = "SETTING", value_parser = run_setting())]
    pub(crate) reset: Vec<RunSetting>,
    #[command(flatten)]
    pub(crate) budget: BudgetArgs,
    /// File with a JSON schema; the run fails if its answer is not JSON that matches it
    #[arg(long, value_name = "FILE")]
    pub(crate) output_schema: Option<PathBuf>,
    /// Maximum active time, in seconds or with a unit (90s, 30m, 2h, 7d) [default: no limit]
    #[arg(long, value_name = "S", value_parser = duration)]
    pub(crate) timeout: Option<Duration>,
    /// Show the monitor during the run; q closes it and the run continues
    #[arg(long, conflicts_with_all = ["json", "detach"])]
    pub(crate) monitor: bool,
    /// Print only the answer: no progress and no summary
    #[arg(short, long, conflicts_with_all = ["json", "detach", "monitor"])]
    pub(crate) quiet: bool,
}

/// Options of `call`.
#[derive(Debug, Args)]
#[command(after_help = "\
The call has no tools, no memory, and no system prompt unless one is given. It is stored as a session
of its own, with its events and its cost; `soong sessions list --all` shows it.

Examples:
  soong call \"Translate to Japanese: good morning\"
  git diff | soong call --system-prompt \"Write a commit message.\"
  soong call --output-schema person.json \"Who wrote Faust?\"")]
pub(crate) struct Call {
    /// The prompt. Use `-`, or omit it in a pipe, to read standard input
    pub(crate) prompt: Option<String>,
    /// System prompt [default: none, or that of --agent-type]
    #[arg(long, value_name = "TEXT")]
    pub(crate) system_prompt: Option<String>,
    #[command(flatten)]
    pub(crate) agent: AgentArgs,
    #[command(flatten)]
    pub(crate) budget: BudgetArgs,
    /// File with a JSON schema; the call fails if its answer is not JSON that matches it
    #[arg(long, value_name = "FILE")]
    pub(crate) output_schema: Option<PathBuf>,
    /// Maximum active time, in seconds or with a unit (90s, 30m, 2h, 7d) [default: no limit]
    #[arg(long, value_name = "S", value_parser = duration)]
    pub(crate) timeout: Option<Duration>,
}

/// Options of `chat`.
#[derive(Debug, Default, Args)]
#[command(after_help = "\
Each line starts a run in the same session. Its answer is streamed, with the active sub-agents below
it. You can type the next messages meanwhile. Esc or Ctrl-C cancels the run, Ctrl-D ends the chat, and
/help lists the chat commands, such as /new, /permissions, /model, /undo and /quit. At a terminal,
`soong` without a command is the same. In a pipe, each line is one message, and the
chat ends with the first failed run. If another process owns the home, it executes the runs, as with
`soong run`.

Examples:
  soong chat
  soong chat --continue --mode orchestrator
  soong chat --permission-mode plan
  printf 'What is this?\\nAnd what is missing?\\n' | soong chat")]
pub(crate) struct Chat {
    /// Session to continue: its id or slug, last, - or @N; another name begins a session of that
    /// name
    #[arg(long, value_name = "SESSION")]
    pub(crate) session: Option<String>,
    /// Continue the last session of this project folder; with =SESSION that session, which must
    /// exist
    #[arg(long = "continue", value_name = "SESSION", require_equals = true, conflicts_with = "session",
          value_parser = NonEmptyStringValueParser::new())]
    pub(crate) continued: Option<Option<String>>,
    /// Mode of each run [default: the session's last mode, else normal]
    #[arg(long, value_enum)]
    pub(crate) mode: Option<Mode>,
    #[command(flatten)]
    pub(crate) project: ProjectArgs,
    #[command(flatten)]
    pub(crate) agent: AgentArgs,
    #[command(flatten)]
    pub(crate) permissions: PermissionModeArg,
    /// Set a setting of the session back to the configuration; can be given several times
    #[arg(long, value_name = "SETTING", value_parser = run_setting())]
    pub(crate) reset: Vec<RunSetting>,
}

/// Options of `run` that select the conversation to continue.
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("conversation").args(["session", "continued", "trace"])))]
pub(crate) struct ConversationArgs {
    /// Session to continue: its id or slug, last, - or @N; another name begins a session of that
    /// name
    #[arg(long, value_name = "SESSION")]
    pub(crate) session: Option<String>,
    /// Continue the last session of this project folder; with =SESSION that session, which must
    /// exist
    #[arg(long = "continue", value_name = "SESSION", require_equals = true, conflicts_with_all = ["session", "trace"],
          value_parser = NonEmptyStringValueParser::new())]
    pub(crate) continued: Option<Option<String>>,
    /// Trace to continue, also that of a sub-agent (SESSION#N); without a prompt, resume it where
    /// it stopped
    #[arg(long, value_name = "TRACE", conflicts_with = "session")]
    pub(crate) trace: Option<String>,
    /// Continue after this message; without a prompt, the model answers it again
    #[arg(long, value_name = "SEQ", requires = "conversation", value_parser = number_parser::<u64>(1..=u64::MAX))]
    pub(crate) after: Option<u64>,
    /// Summarize the conversation before the prompt is answered, even if it is short
    #[arg(long, requires = "conversation")]
    pub(crate) compact: bool,
}

/// Options of the project folder.
#[derive(Debug, Default, Args)]
pub(crate) struct ProjectArgs {
    /// Project folder (for a file, its folder); a continued session keeps its project [default: .]
    #[arg(long, value_name = "DIR")]
    pub(crate) path: Option<PathBuf>,
    /// Allow $HOME, or a folder above it, as the project of a new session
    #[arg(long)]
    pub(crate) here: bool,
}

/// Options of the agent that executes runs.
#[derive(Debug, Default, Args)]
pub(crate) struct AgentArgs {
    /// Preset (kind of agent) from `soong presets list` [default: the session's, else by mode]
    #[arg(long = "agent-type", value_name = "P")]
    pub(crate) preset: Option<String>,
    /// Profile from `soong models list`, a model name for the default service, or `offline`
    #[arg(long, value_name = "PROFILE")]
    pub(crate) model: Option<String>,
    /// How much the model reasons: none, minimal, low, medium, high, xhigh, max [default: the
    /// preset's or profile's]
    #[arg(long, value_name = "LEVEL", value_parser = effort)]
    pub(crate) effort: Option<Effort>,
}

impl AgentArgs {
    /// Returns the sampling parameters that are set, for a run without a session.
    pub(crate) fn llm_params(&self) -> Option<Map<String, Value>> {
        self.effort
            .map(|effort| Map::from_iter([("effort".to_owned(), Value::from(effort.as_str()))]))
    }
}

/// Options of the permissions of a run.
#[derive(Debug, Args)]
pub(crate) struct PermissionArgs {
    /// Allow tool calls without asking: TOOL, write:DIR, webfetch:HOST, bash:PROGRAM
    #[arg(long, value_name = "TOOL[:SCOPE]")]
    pub(crate) allow: Vec<String>,
    #[command(flatten)]
    pub(crate) mode: PermissionModeArg,
    /// Deny tool calls, even if another rule allows them: TOOL, write:DIR, `bash(git push *)`
    #[arg(long, value_name = "TOOL[:SCOPE]")]
    pub(crate) deny: Vec<String>,
    /// Exit with code 4 if a tool call was denied, even if the run succeeded
    #[arg(long, conflicts_with = "detach")]
    pub(crate) fail_on_denied: bool,
}

/// Option of the permission mode of a run.
#[derive(Debug, Default, Args)]
pub(crate) struct PermissionModeArg {
    /// Permission mode: plan (refuse changes), ask, edits (allow writes in the project) or all
    /// [default: permissions.mode]
    #[arg(long, value_name = "MODE", value_parser = permission_mode)]
    pub(crate) permission_mode: Option<PermissionMode>,
}

/// Options of the budget of a run.
#[derive(Debug, Args)]
pub(crate) struct BudgetArgs {
    /// Maximum tokens of the run and its sub-agents [default: the session's, else budget.tokens]
    #[arg(long, value_name = "N", value_parser = number_parser::<u64>(0..=u64::MAX))]
    pub(crate) budget_tokens: Option<u64>,
    /// Maximum cost in USD, such as 0.50; requires prices [default: the session's, else budget.usd]
    #[arg(long, value_name = "X")]
    pub(crate) budget_usd: Option<Usd>,
}

impl BudgetArgs {
    /// Returns the limits that are set.
    pub(crate) fn limits(&self) -> Budget {
        Budget {
            tokens: self.budget_tokens,
            usd: self.budget_usd,
            ..Budget::default()
        }
    }
}

/// Mode of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Mode {
    /// One agent, which may delegate
    Normal,
    /// An orchestrator, which plans and delegates the work to sub-agents
    Orchestrator,
}

impl From<Mode> for RunMode {
    fn from(mode: Mode) -> Self {
        match mode {
            Mode::Normal => Self::Normal,
            Mode::Orchestrator => Self::Orchestrator,
        }
    }
}
