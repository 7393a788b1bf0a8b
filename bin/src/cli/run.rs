//! Options of `demo`, `run` and `chat`, the commands that start runs.

use std::{path::PathBuf, time::Duration};

use clap::{ArgGroup, Args, ValueEnum};
use soong::protocol::{RunMode, Usd};

use super::{duration, number_parser, short_duration};

/// Options of `demo`.
#[derive(Debug, Args)]
#[command(after_help = "\
The offline model works by rules: it lists the folder, lets sub-agents explore its parts at the
same time, has a report written and evaluated, and stores it as an artifact. Without --home it uses
a home in your cache folder, which keeps the last five demo sessions; its path is printed at the
end. A home that another process owns is refused (exit code 4).

Examples:
  soong demo ~/src/project --children 12
  soong demo --monitor --pace 3s
  soong demo --home /tmp/demo && soong --home /tmp/demo traces list")]
pub(crate) struct Demo {
    /// Folder to explore; for a file, the folder that contains it
    #[arg(default_value = ".")]
    pub(crate) path: PathBuf,
    /// Allow a new session in your home folder or in a folder above it
    #[arg(long)]
    pub(crate) here: bool,
    /// Explore with exactly N children [default: one per main folder, 4 to 8]
    #[arg(long, value_name = "N", value_parser = number_parser::<u16>(1..=200))]
    pub(crate) children: Option<u16>,
    /// Time that the offline model takes per answer [default: none; with --monitor 1s]
    #[arg(long, value_name = "S", value_parser = short_duration)]
    pub(crate) pace: Option<Duration>,
    /// Show the monitor during the run; q closes it
    #[arg(long, conflicts_with = "json")]
    pub(crate) monitor: bool,
}

/// Options of `run`.
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("conversation").args(["session", "resume", "trace"])))]
#[command(after_help = "\
The model comes from config.toml, or from OPENAI_API_KEY and OPENAI_BASE_URL alone; `--model
offline` needs neither. Progress goes to standard error, the answer to standard output. Ctrl-C
cancels the run and waits for its end; a second one leaves at once.

Where another process owns the home, it does the run, with its own configuration and key. Runs of
one session wait for each other. A process that owns a home stays until the runs of other terminals
have ended. With --detach and no owner, a process in the background owns the home until nothing has
been at work for 3 s; `soong tree` shows it, and logs/host.log in the home holds what it had to say.

Where an agent asks something, it is asked on the terminal; without one the run is parked (exit code
6), and goes on when `soong questions answer` has its answer.

Reading the project is free. What writes, runs commands, uses the network or touches sensitive
files asks on the terminal; without one it is refused, but for what --allow names beforehand. With
--detach it waits for `soong permissions allow`.

--attach stores a file in the session before the run starts, so that agents can read it.

A further run of a session keeps the mode, agent type, model, tools, system prompt, sampling
parameters and budget of its last run. --reset sets one of them back to the configuration. With
--agent-type, the last run's system prompt, tools and model are dropped.

--after SEQ takes the conversation back to one of its messages first; `soong traces messages ID`
shows their numbers. Goals and documents go back too; what came behind stays, off the path.

Examples:
  soong run \"Summarise README.md\"
  soong run --attach minutes.md --attach figures.csv \"Compare the two\"
  (echo 'Review this change:'; git diff) | soong run --timeout 2m
  soong run --continue \"And what is missing?\"
  soong run --allow write:docs --allow bash:cargo \"Document the examples\"
  soong run --session ID --after 5 \"Rather in French\"
  soong run --detach --mode orchestrator - < task.md")]
pub(crate) struct Run {
    /// The prompt. Use `-`, or omit it in a pipe, to read standard input
    pub(crate) prompt: Option<String>,
    /// Mode of the run [default: the session's last mode, else normal]
    #[arg(long, value_enum)]
    pub(crate) mode: Option<Mode>,
    /// Session to continue; an unknown id starts a new session with that id
    #[arg(long, value_name = "ID", value_parser = session_id)]
    pub(crate) session: Option<String>,
    /// Continue the last session of this project folder
    #[arg(long = "continue", conflicts_with_all = ["session", "trace"])]
    pub(crate) resume: bool,
    /// Main trace to continue; without a prompt, resume where it stopped, for example after a failure
    #[arg(long, value_name = "ID", conflicts_with = "session")]
    pub(crate) trace: Option<String>,
    /// Go back to this message first; without a prompt, call the model again from there
    #[arg(long, value_name = "SEQ", requires = "conversation", value_parser = number_parser::<u64>(1..=u64::MAX))]
    pub(crate) after: Option<u64>,
    /// Upload a file to the session before the run; can be given several times
    #[arg(long, value_name = "FILE")]
    pub(crate) attach: Vec<PathBuf>,
    /// Start the run in the background and return once it is accepted
    #[arg(long)]
    pub(crate) detach: bool,
    /// Project folder (for a file, its folder); a continued session keeps its own [default: .]
    #[arg(long, value_name = "DIR")]
    pub(crate) path: Option<PathBuf>,
    /// Allow a new session in your home folder or in a folder above it
    #[arg(long)]
    pub(crate) here: bool,
    /// Agent type, see `soong presets list` [default: default, or orchestrator in that mode]
    #[arg(long, value_name = "P")]
    pub(crate) agent_type: Option<String>,
    /// Profile of `soong models list`, a model name of the default profile, or `offline`
    #[arg(long, value_name = "PROFILE")]
    pub(crate) model: Option<String>,
    /// Maximum model calls of the run itself [default: the agent type's, else runtime.max_turns]
    #[arg(long, value_name = "N", value_parser = number_parser::<u32>(1..=u32::MAX.into()))]
    pub(crate) max_iterations: Option<u32>,
    /// Allow a tool without asking, optionally only for a directory, host or program
    #[arg(long, value_name = "TOOL[:SCOPE]")]
    pub(crate) allow: Vec<String>,
    /// Deny a tool, a tool in a scope, or commands, even if allowed elsewhere: `bash(git push *)`
    #[arg(long, value_name = "TOOL[:SCOPE]")]
    pub(crate) deny: Vec<String>,
    /// Exit with code 4 if a tool call was denied, even if the run completed
    #[arg(long, conflicts_with = "detach")]
    pub(crate) fail_on_denied: bool,
    /// Reset a setting of the session's last run to the configuration; can be given several times
    #[arg(long, value_name = "SETTING", value_enum)]
    pub(crate) reset: Vec<Setting>,
    /// Maximum tokens of the run and all its sub-agents together [default: from [budget]]
    #[arg(long, value_name = "N", value_parser = number_parser::<u64>(0..=u64::MAX))]
    pub(crate) budget_tokens: Option<u64>,
    /// Maximum cost in USD, such as 0.50; requires model prices [default: from [budget]]
    #[arg(long, value_name = "X")]
    pub(crate) budget_usd: Option<Usd>,
    /// JSON schema of the answer; the run fails if the answer is not one JSON value that matches
    #[arg(long, value_name = "FILE")]
    pub(crate) output_schema: Option<PathBuf>,
    /// Maximum run time in seconds, or with a unit: 90s, 30m, 2h, 7d [default: no limit]
    #[arg(long, value_name = "S", value_parser = duration)]
    pub(crate) timeout: Option<Duration>,
    /// Show the monitor during the run; q closes it and the run continues
    #[arg(long, conflicts_with_all = ["json", "detach"])]
    pub(crate) monitor: bool,
}

/// Options of `chat`.
#[derive(Debug, Args)]
#[command(after_help = "\
Each line is a run of the same session: its answer streams in, with the sub-agents that are at work
below it. Ctrl-C cancels the run, Ctrl-D leaves, /help lists the rest: /new, /mode, /model, /retry,
/rewind, /fork, /quit. Piped in, each line is one message, and the talk ends with the first run that
fails. Where another process owns the home, it does the runs, as with `soong run`.

Examples:
  soong chat
  soong chat --continue --mode orchestrator
  printf 'What is this?\\nAnd what is missing?\\n' | soong chat")]
pub(crate) struct Chat {
    /// Session to continue; an unknown id starts a new session with that id
    #[arg(long, value_name = "ID", value_parser = session_id)]
    pub(crate) session: Option<String>,
    /// Continue the last session of this project folder
    #[arg(long = "continue", conflicts_with = "session")]
    pub(crate) resume: bool,
    /// Mode of each run [default: the session's last mode, else normal]
    #[arg(long, value_enum)]
    pub(crate) mode: Option<Mode>,
    /// Project folder (for a file, its folder); a continued session keeps its own [default: .]
    #[arg(long, value_name = "DIR")]
    pub(crate) path: Option<PathBuf>,
    /// Allow a new session in your home folder or in a folder above it
    #[arg(long)]
    pub(crate) here: bool,
    /// Agent type, see `soong presets list` [default: default, or orchestrator in that mode]
    #[arg(long, value_name = "P")]
    pub(crate) agent_type: Option<String>,
    /// Profile of `soong models list`, a model name of the default profile, or `offline`
    #[arg(long, value_name = "PROFILE")]
    pub(crate) model: Option<String>,
    /// Reset a setting of the session's last run to the configuration; can be given several times
    #[arg(long, value_name = "SETTING", value_enum)]
    pub(crate) reset: Vec<Setting>,
}

/// Setting that a run inherits from the last run of its session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Setting {
    /// The system prompt
    SystemPrompt,
    /// The tools of the run and its sub-agents
    Tools,
    /// The agent type
    Preset,
    /// The model
    Model,
    /// The mode
    Mode,
    /// The sampling parameters, including temperature
    LlmParams,
    /// All limits of the budget
    Budget,
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

/// Rejects reserved names with which other tools refer to recent sessions: `last`, `-`, and `@` with a number.
fn session_id(text: &str) -> Result<String, String> {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    match text {
        "last" | "-" => Err("this name is reserved: --continue continues the last session of this folder".to_owned()),
        _ if text.strip_prefix('@').is_some_and(is_number) => {
            Err("this name is reserved: give the id of a session".to_owned())
        }
        _ => Ok(text.to_owned()),
    }
}
