//! Definition of the command line (clap).
//!
//! Elsewhere: the implementation of the commands (`command/`).

mod artifacts;
mod mcp;
mod memory;
mod models;
mod permissions;
mod questions;
mod run;
mod sessions;
mod setup;
mod shell;
mod suggestion;
mod tasks;
mod traces;
mod usage;
mod values;

use std::{
    ffi::OsString,
    io::{IsTerminal, stdin, stdout},
    path::PathBuf,
};

pub(crate) use artifacts::{Artifacts, SessionArg};
pub(crate) use mcp::Mcp;
pub(crate) use memory::{Experiences, Skills};
pub(crate) use models::Models;
pub(crate) use permissions::Permissions;
pub(crate) use questions::Questions;
pub(crate) use run::{Call, Chat, ConversationArgs, Demo, ProjectArgs, Run};
pub(crate) use sessions::Sessions;
pub(crate) use setup::{Backup, Doctor, Init};
pub(crate) use shell::{Completions, Man};
pub(crate) use tasks::Tasks;
pub(crate) use traces::Traces;
pub(crate) use usage::{Usage, UsageBy};

use clap::{
    ArgAction, Args, CommandFactory, Parser, Subcommand, builder::PossibleValuesParser,
    error::ErrorKind,
};
use soong::protocol::RecoveryMode;
use soong_tui::terminal::Color;
pub(crate) use suggestion::{nearest_of, with_suggestion};
pub(crate) use values::duration;
use values::{number_parser, short_duration};

use crate::{exit::Exit, guide};

/// An actor-model multi-agent orchestrator: supervised, durable, observable agent runs.
#[derive(Debug, Parser)]
#[command(
    name = "soong",
    version,
    propagate_version = true,
    after_help = FIRST_STEPS,
    after_long_help = LONG_HELP
)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    /// `None`: opens a chat at a terminal, and else prints the help.
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

const FIRST_STEPS: &str = "\
Examples:
  soong demo                                   explore this folder, without a key or a network
  soong run \"What does this project do?\"       ask your model (set OPENAI_API_KEY first)
  soong                                        chat with your model
  soong --continue                             continue the last chat of this folder
  soong traces list                            list what has run

`soong --help` also explains environment variables, exit codes and the use of several terminals;
`soong help COMMAND` explains one command.";

const LONG_HELP: &str = "\
Examples:
  soong demo                                   explore this folder, without a key or a network
  soong run \"What does this project do?\"       ask your model (set OPENAI_API_KEY first)
  soong run --mode orchestrator - < task.md    plan, delegate and evaluate the task in a file
  soong                                        chat with your model
  soong --continue                             continue the last chat of this folder
  soong monitor                                watch active runs live, from any terminal
  soong tree                                   print them once, for logs and scripts
  soong traces list                            list what has run

Several terminals: the process that has a home open is its owner process, and executes all its runs.
Other commands with the same home send their requests to it, through control.sock in the home; runs
use the configuration and the key of the owner process. Without an owner process, `run` and `chat`
become the owner process until they end, commands that change data open the home for that moment,
and commands that only read use the files of the home. `serve` and `demo --home` require a home
without an owner process.

Environment:
  SOONG_AGENT_HOME   home, unless --home is given [default: ~/.soong-agent]
  SOONG_TOKEN        token for the server of --url
  OPENAI_API_KEY     API key of the model service; model.api_key_env can name another variable
  OPENAI_BASE_URL    URL of the model service, unless config.toml sets model.base_url
  NO_COLOR           if set and not empty, `--color auto` prints no color

Exit codes:
  0    success
  1    the run ended without an answer (it failed, timed out or was stopped by another command), or
       another operation failed (for example, a file cannot be written)
  2    wrong usage or configuration
  3    not found: a home, session, trace, artifact, version, question, permission, skill or file
  4    refused in the current state: another process owns the home and cannot take the command
       (home_locked); the session has an unfinished run (session_active); there is no run to stop
       (nothing_running); the request is already decided (already_decided); too much is queued
       (overloaded); the owner process is shutting down, or no server answers (closing); the server
       rejects the token (unauthorized); `artifacts edit` does not find the text exactly once
       (no_match, ambiguous_match, match_too_different); the target of `init`, `backup` or `traces
       export` exists; with --fail-on-denied: a tool call was denied
  5    the model service cannot be reached, rejects the key, or does not answer
  6    the run waits for an answer (`soong questions list`) or a permission (`soong permissions
       list`), because the terminal is not interactive or you pressed Ctrl-D
  101  a bug in soong; the crash report is in logs/ in the home
  130  interrupted: the first Ctrl-C cancels the run and waits until it has ended, the second one
       exits immediately

Errors go to standard error: one line with the problem, then how to solve it.";

/// Help heading of the options that every command has.
const GLOBAL_OPTIONS_HEADING: &str = "Options of every command";

/// Options of every command.
#[derive(Debug, Clone, Args)]
pub(crate) struct Global {
    /// Home: folder of the database, artifacts and config.toml [default: $SOONG_AGENT_HOME, else
    /// ~/.soong-agent]
    #[arg(long, value_name = "DIR", global = true, help_heading = GLOBAL_OPTIONS_HEADING)]
    pub(crate) home: Option<PathBuf>,
    /// Configuration file [default: config.toml in the home, if it exists]
    #[arg(long, value_name = "FILE", global = true, help_heading = GLOBAL_OPTIONS_HEADING)]
    pub(crate) config: Option<PathBuf>,
    /// Send the command to this server; token: $SOONG_TOKEN, else server.token in the home
    #[arg(long, value_name = "URL", global = true, help_heading = GLOBAL_OPTIONS_HEADING)]
    pub(crate) url: Option<String>,
    /// Print JSON; runs print one event per line, and their result in the last line
    #[arg(long, global = true, help_heading = GLOBAL_OPTIONS_HEADING)]
    pub(crate) json: bool,
    /// When to use color
    #[arg(long, value_enum, value_name = "WHEN", default_value_t = Color::Auto, global = true, help_heading = GLOBAL_OPTIONS_HEADING)]
    pub(crate) color: Color,
    /// Log more to standard error, except during a live display; -vv: even more, also to logs/
    #[arg(short, long = "verbose", action = ArgAction::Count, global = true, help_heading = GLOBAL_OPTIONS_HEADING)]
    pub(crate) verbose: u8,
}

const TREE: &str = "\
Prints the actors of the owner process of the home as `soong monitor` shows them: sessions with
their runs, and sub-agents below the runs that started them. With --supervision, each actor is below
its supervisor. Without an owner process, prints the interrupted and waiting runs of the home.

Examples:
  soong tree
  soong tree --supervision
  soong tree --json";

const MONITOR: &str = "\
Shows the actors of the owner process of the home, or of the server of --url: sessions, runs and
sub-agents, with state, activity, age, restarts, tokens and cost. For the selected run, it also
shows goals, team, events, messages, artifacts, a timeline, changes of files, cost and prompt. A line
at the top shows runs that are stuck, wait for you or have failed, and actors that crashed; n selects
the next one. If the owner process ends, the monitor waits for the next one.

Keys: ? lists all keys. Up, Down, Enter and Tab move, 1 to 8, d, $ and p select a pane, / filters, s
sorts, c cancels, a answers, x exports, K crashes an actor as a test, q quits.

Examples:
  soong monitor
  soong run --monitor --mode orchestrator - < task.md
  soong demo --monitor
  soong --url https://agents.example.org monitor";

const PRESETS: &str = "\
A preset is a kind of agent: its tools, limits and instructions. Each file agents/*.md in the home
defines a preset: front matter between two lines `---`, then the instructions. Projects cannot
define presets. If several presets have the same name, [presets.NAME] in config.toml takes
precedence over a file, and a file over a built-in preset.

Example, agents/reviewer.md:
  ---
  name: reviewer
  description: Reviews a change; changes nothing.
  allowed_tools: [read, list_files, glob, grep]
  skills: [house-style]
  ---
  You review. Name file and line of every finding.

Other keys: denied_tools, max_iterations, temperature, model and coordinates; `soong guide agents`
explains them. `soong help skills` explains skills.";

/// Commands of `soong`.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Explore a folder and write a report, without an API key, network or language model
    Demo(Demo),
    /// Run a prompt and print the answer
    Run(Box<Run>),
    /// Make one model call without tools and print the answer
    Call(Call),
    /// Chat in one session, one run per message
    Chat(Chat),
    /// Serve the home over HTTP: REST, event streams, WebSockets
    Serve(Serve),
    #[command(flatten)]
    Records(RecordCommand),
    /// Copy the home to a folder, also while runs are active
    Backup(Backup),
    /// Print the actors of the home once: sessions, runs and sub-agents of all terminals
    #[command(after_help = TREE)]
    Tree {
        /// Show each actor below its supervisor, instead of sub-agents below the runs that started
        /// them
        #[arg(long)]
        supervision: bool,
    },
    /// Show the actors of the home live, with keys to cancel, answer and export
    #[command(after_help = MONITOR)]
    Monitor,
    /// Own the home while runs are active in it
    #[command(hide = true)]
    Host,
    #[command(flatten)]
    Setup(SetupCommand),
    #[command(flatten)]
    Catalog(CatalogCommand),
}

/// Commands on the records of a home.
#[derive(Debug, Subcommand)]
pub(crate) enum RecordCommand {
    /// List, show, fork, switch or delete sessions
    #[command(subcommand)]
    Sessions(Sessions),
    /// Show, export, review or stop traces: the messages, goals and events of each agent
    #[command(subcommand)]
    Traces(Traces),
    /// List, read and change artifacts: documents and files of agents and users
    #[command(subcommand)]
    Artifacts(Artifacts),
    /// List and clean up the task journals of a project
    #[command(subcommand)]
    Tasks(Tasks),
    /// List the questions that agents ask users, and answer them
    #[command(subcommand)]
    Questions(Questions),
    /// List the tool calls that wait for permission, and allow or deny them
    #[command(subcommand)]
    Permissions(Permissions),
    /// Show the tokens, calls and cost of past runs
    Usage(Usage),
}

/// Commands that set up the program and explain it.
#[derive(Debug, Subcommand)]
pub(crate) enum SetupCommand {
    /// Find a model, check it, and write a config.toml for it
    Init(Init),
    /// Check everything that a run needs, and suggest fixes
    Doctor(Doctor),
    /// Print a page of the user guide, or list its pages
    Guide(Guide),
    /// Print a completion script for a shell
    Completions(Completions),
    /// Write man pages to a folder
    Man(Man),
}

/// Commands that show the configuration and what agents can use.
#[derive(Debug, Subcommand)]
pub(crate) enum CatalogCommand {
    /// Show the configuration
    #[command(subcommand)]
    Config(Config),
    /// List the presets: kinds of agents, built in or your own
    #[command(subcommand, after_help = PRESETS)]
    Presets(List),
    /// List and print skills: reusable texts for agents, in the prompt or loaded on demand
    #[command(subcommand)]
    Skills(Skills),
    /// List and show the experiences that runs have recorded for later runs
    #[command(subcommand)]
    Experiences(Experiences),
    /// List the tools of agents, and which of them are available
    #[command(subcommand)]
    Tools(List),
    /// List the model profiles and the known models, and update their prices
    #[command(subcommand, after_help = models::HELP)]
    Models(Models),
    /// List and test the MCP servers in config.toml
    #[command(subcommand)]
    Mcp(Mcp),
}

impl Cli {
    /// Parses the command line of the process. On an error, prints it and exits. Without a command,
    /// prints the help and exits unless the user is at a terminal. Options of `chat` need no
    /// command. `soong help TOPIC` prints a page of the guide, unless a command has that name.
    pub(crate) fn of_process() -> Self {
        let cli = Self::try_parse().unwrap_or_else(|error| {
            let args: Vec<OsString> = std::env::args_os().skip(1).collect();
            match &args[..] {
                [help, topic] if error.kind() == ErrorKind::InvalidSubcommand && help == "help" => {
                    match topic.to_str().and_then(guide::page) {
                        Some(page) => Self::parse_from(["soong", "guide", page.topic]),
                        None => with_suggestion(error).exit(),
                    }
                }
                args if error.kind() == ErrorKind::UnknownArgument => {
                    let chat = ["soong", "chat"].map(OsString::from);
                    Self::try_parse_from(chat.iter().chain(args)).unwrap_or_else(|of_chat| {
                        match of_chat.kind() {
                            // There is another command, or `chat` does not have the option either.
                            ErrorKind::UnknownArgument => with_suggestion(error).exit(),
                            _ => of_chat.exit(),
                        }
                    })
                }
                _ => with_suggestion(error).exit(),
            }
        });
        if cli.command.is_none() && !(stdin().is_terminal() && stdout().is_terminal()) {
            eprint!("{}", Self::command().render_help());
            std::process::exit(Exit::Usage as i32);
        }
        cli
    }
}

impl Default for Command {
    fn default() -> Self {
        Self::Chat(Chat::default())
    }
}

impl Command {
    /// Returns whether the command sends requests to the owner of the home, local or remote
    /// (`--url`).
    pub(crate) fn uses_owner(&self) -> bool {
        match self {
            Self::Run(_) | Self::Call(_) | Self::Chat(_) | Self::Tree { .. } | Self::Monitor => {
                true
            }
            Self::Records(command) => !matches!(command, RecordCommand::Tasks(_)),
            Self::Demo(_)
            | Self::Serve(_)
            | Self::Backup(_)
            | Self::Host
            | Self::Setup(_)
            | Self::Catalog(_) => false,
        }
    }
}

impl RecordCommand {
    /// Returns whether the command prints records, asks nothing and ends by itself.
    pub(crate) fn only_prints(&self) -> bool {
        match self {
            Self::Sessions(command) => {
                matches!(command, Sessions::List { .. } | Sessions::Show { .. })
            }
            Self::Traces(command) => match command {
                Traces::List { .. } | Traces::Show { .. } | Traces::Messages { .. } => true,
                Traces::Events { follow, .. } => !follow,
                Traces::Stop { .. } | Traces::Reflect { .. } | Traces::Export { .. } => false,
            },
            Self::Artifacts(command) => command.only_prints(),
            Self::Tasks(command) => matches!(command, Tasks::List { .. }),
            Self::Questions(command) => matches!(command, Questions::List { .. }),
            Self::Permissions(command) => matches!(command, Permissions::List { .. }),
            Self::Usage(_) => true,
        }
    }
}

/// Options of `guide`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  soong guide
  soong guide quickstart
  soong guide permissions | less")]
pub(crate) struct Guide {
    /// Page to print [default: list all pages]
    #[arg(value_name = "TOPIC", hide_possible_values = true, value_parser = PossibleValuesParser::new(topics()))]
    pub(crate) topic: Option<String>,
}

fn topics() -> impl Iterator<Item = &'static str> {
    guide::PAGES.iter().map(|page| page.topic)
}

/// Options of `serve`.
#[derive(Debug, Args)]
#[command(after_help = "\
Owns the home until Ctrl-C or SIGTERM. Interrupted runs resume when the server starts; runs that are
active when it ends are interrupted, and resume with the next `soong serve`. HTTP requests require a
token. The token of the home is created at the first start, in server.token, which only your user
can read. Other commands with the same home find the server by themselves; on other machines, use
--url.

Examples:
  soong serve --addr 127.0.0.1:8080
  curl -H @$HOME/.soong-agent/server.header http://127.0.0.1:8080/api/traces
  curl --unix-socket ~/.soong-agent/control.sock http://localhost/api/traces")]
pub(crate) struct Serve {
    /// Address and port to listen on [default: server.addr in config.toml, else 127.0.0.1:7788]
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) addr: Option<std::net::SocketAddr>,

    /// Treatment of runs that an earlier process left unfinished [default: runtime.recovery in
    /// config.toml, else ask at a terminal, else resume]
    #[arg(long, value_enum, value_name = "MODE")]
    pub(crate) recovery: Option<Recovery>,
}

/// Treatment of interrupted runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Recovery {
    /// Ask at the terminal
    Ask,
    /// Resume them
    Resume,
    /// Leave them interrupted
    None,
    /// End them as failed
    Fail,
}

impl From<Recovery> for RecoveryMode {
    fn from(recovery: Recovery) -> Self {
        match recovery {
            Recovery::Ask => Self::Ask,
            Recovery::Resume => Self::Resume,
            Recovery::None => Self::None,
            Recovery::Fail => Self::Fail,
        }
    }
}

/// Options of `config`.
#[derive(Debug, Subcommand)]
pub(crate) enum Config {
    /// Show every setting with its value and origin (default, line of config.toml, or variable)
    Show,
}

/// Columns of a list.
#[derive(Debug, Clone, Args)]
pub(crate) struct ColumnsArg {
    /// Print only these columns, in this order: their names in lower case, with - for spaces
    #[arg(
        long,
        value_name = "NAMES",
        value_delimiter = ',',
        conflicts_with = "json"
    )]
    pub(crate) columns: Vec<String>,
}

/// Subcommand of commands that only list.
#[derive(Debug, Subcommand)]
pub(crate) enum List {
    /// List all entries, built-in and from the configuration
    List,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_line_definition_is_valid() {
        Cli::command().debug_assert();
    }
}
