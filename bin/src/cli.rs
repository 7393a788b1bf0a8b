//! Definition of the command line (clap).
//!
//! Elsewhere: the implementation of the commands (`command/`).

mod artifacts;
mod mcp;
mod memory;
mod permissions;
mod questions;
mod run;
mod sessions;
mod suggestion;
mod tasks;
mod traces;
mod usage;
mod values;

use std::{ffi::OsString, path::PathBuf};

pub(crate) use artifacts::{Artifacts, SessionArg};
pub(crate) use mcp::Mcp;
pub(crate) use memory::{Experiences, Skills};
pub(crate) use permissions::Permissions;
pub(crate) use questions::Questions;
pub(crate) use run::{Chat, Demo, Run, Setting};
pub(crate) use sessions::Sessions;
pub(crate) use tasks::Tasks;
pub(crate) use traces::Traces;
pub(crate) use usage::{Usage, UsageBy};

use clap::{ArgAction, Args, Parser, Subcommand, builder::PossibleValuesParser, error::ErrorKind};
pub(crate) use suggestion::with_suggestion;
pub(crate) use values::duration;
use values::{number_parser, short_duration};

use crate::{guide, terminal::Color};

/// An actor-model multi-agent orchestrator: supervised, durable, observable agent runs.
#[derive(Debug, Parser)]
#[command(
    name = "soong",
    version,
    propagate_version = true,
    after_help = FIRST_STEPS,
    after_long_help = LONG_HELP,
    arg_required_else_help = true
)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

const FIRST_STEPS: &str = "\
Examples:
  soong demo                                   explore this folder without a key or a network
  soong run \"What does this project do?\"       one run with your model (by OPENAI_API_KEY, say)
  soong chat                                   a conversation with it
  soong traces list                            what has run so far

`soong --help` also tells of the environment, exit codes and a second terminal; `soong help COMMAND`
of one command.";

const LONG_HELP: &str = "\
Examples:
  soong demo                                   explore this folder without a key or a network
  soong run \"What does this project do?\"       one run with your model (by OPENAI_API_KEY, say)
  soong run --mode orchestrator - < task.md    plan, delegate, evaluate; the task comes from a file
  soong chat                                   a conversation with it
  soong monitor                                what is at work, live, in any terminal
  soong tree                                   the same once, for logs and scripts
  soong traces list                            what has run so far

Two terminals: one process owns a home for as long as it works there, and answers on control.sock
in it. Other commands with the same home ask that owner: `tree`, `sessions` and `traces` show what
it has, `traces stop` ends a run of it, and `run` and `chat` do their runs there, with the owner's
configuration and key. Where nobody owns the home, `run`, `chat` and those of `artifacts` that
change something become its owner, and the others read what is on disk. `demo` needs a home that
nobody owns.

Environment:
  SOONG_AGENT_HOME   the home, unless --home names one [default: ~/.soong-agent]
  SOONG_TOKEN        the token of the server that --url names
  OPENAI_API_KEY     the key of the model's service; model.api_key_env can name another variable
  OPENAI_BASE_URL    where the service is, unless model.base_url in config.toml says so
  NO_COLOR           if set and not empty, `--color auto` colours nothing

Exit codes:
  0    done
  1    the run ended without an answer (failed, took too long, was stopped from elsewhere), or
       something else could not be done (a disk or a file that cannot be written, say)
  2    wrong usage or configuration
  3    not found: a home, session, trace, artifact, version, skill, file or folder that was named
  4    refused as things stand: another process owns the home and does not answer, or `demo` needs
       it for itself (home_locked); the session is at work (session_active); nothing is at work
       that could be stopped (nothing_running); too much is queued (overloaded); the owner is about
       to end, or no server answers (closing); the server refuses the token (unauthorized); the text
       that `artifacts edit` is to replace is not there, or not once (no_match, ambiguous_match,
       match_too_different); `init` found a file, `backup` and `traces
       export` a folder that is not empty
  5    the model's service cannot be reached, refuses the key, or gives no answer
  6    parked: a run asks something (`soong questions list`) or waits for leave (`soong permissions
       list`), and nobody is there to answer
  101  a defect of soong; the report lies in logs/ of the home
  130  interrupted: the first Ctrl-C cancels the run and waits for its end, a second leaves at once

Errors go to standard error: a line that says what is wrong, then what to do.";

/// Help heading of the options that every command has.
const GLOBAL_OPTIONS_HEADING: &str = "Options of every command";

/// Options of every command.
#[derive(Debug, Clone, Args)]
pub(crate) struct Global {
    /// Home folder: database, artifacts, config.toml [default: $SOONG_AGENT_HOME, else ~/.soong-agent]
    #[arg(long, value_name = "DIR", global = true, help_heading = GLOBAL_OPTIONS_HEADING)]
    pub(crate) home: Option<PathBuf>,
    /// Configuration file [default: config.toml in the home, if it exists]
    #[arg(long, value_name = "FILE", global = true, help_heading = GLOBAL_OPTIONS_HEADING)]
    pub(crate) config: Option<PathBuf>,
    /// Send the command to this server; token: SOONG_TOKEN, else server.token in the home
    #[arg(long, value_name = "URL", global = true, help_heading = GLOBAL_OPTIONS_HEADING)]
    pub(crate) url: Option<String>,
    /// Print JSON: records; for runs and event streams one event per line, the result last
    #[arg(long, global = true, help_heading = GLOBAL_OPTIONS_HEADING)]
    pub(crate) json: bool,
    /// When to use color
    #[arg(long, value_enum, value_name = "WHEN", default_value_t = Color::Auto, global = true, help_heading = GLOBAL_OPTIONS_HEADING)]
    pub(crate) color: Color,
    /// Log more to standard error, unless a live display is shown; -vv: more still, also to logs/
    #[arg(short, long = "verbose", action = ArgAction::Count, global = true, help_heading = GLOBAL_OPTIONS_HEADING)]
    pub(crate) verbose: u8,
}

const TREE: &str = "\
With an owner of the home, this is its tree of actors: supervisors, sessions and runs, with what
each does and since when. Without one, it is what the disk says: runs that were cut off.

Examples:
  soong tree
  soong tree --json";

const MONITOR: &str = "\
The tree of actors of whoever owns the home, or of the server that --url names: sessions, runs and
their children with state, activity, age, restarts, tokens and cost, and of a selected run its
goals, team, events, messages, artifacts and timeline. What is stuck, asks, has failed or crashed
is named on top; n goes there. Where the owner goes, the monitor stays, and waits for the next.

Keys: ? shows all. Up, Down, Enter and Tab move, 1 to 7 choose a pane, / filters, s sorts; c
cancels, a answers, x exports, K makes an actor crash for a drill, q leaves.

Examples:
  soong monitor
  soong run --monitor --mode orchestrator - < task.md
  soong demo --monitor
  soong --url https://agents.example.org monitor";

const PRESETS: &str = "\
A file agents/*.md of the home is an agent type: front matter between two lines `---`, its
instructions below. Only the home is looked at, never a project. Of one name, [presets.NAME] in
config.toml stands in for a file, and a file for a built-in one.

Example, agents/reviewer.md:
  ---
  name: reviewer
  description: Reviews a change; changes nothing.
  allowed_tools: [read, list_files, glob, grep]
  skills: [house-style]
  ---
  You review. Name file and line of every finding.

Further keys: denied_tools, max_iterations, temperature, model, coordinates. skills/*.md of the home
are skills: front matter with name and description, and the text that goes into the prompt.";

/// Commands of `soong`.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Explore a folder and report on it, without a key, network or model
    Demo(Demo),
    /// Run a prompt and print the answer
    Run(Box<Run>),
    /// Chat in one session, one run per message
    Chat(Chat),
    /// Serve the home over HTTP: REST, event streams, WebSockets
    Serve(Serve),
    /// List, show, fork, switch or delete sessions
    #[command(subcommand)]
    Sessions(Sessions),
    /// Inspect, export or stop traces: what each agent was asked, said and did
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
    /// Copy the home to a backup that is itself a usable home
    Backup(Backup),
    /// Show the live actor tree of the home, for runs of all terminals
    #[command(after_help = TREE)]
    Tree,
    /// Monitor the live actor tree: cancel, answer, export, crash an actor
    #[command(after_help = MONITOR)]
    Monitor,
    /// Own the home while runs are active in it
    #[command(hide = true)]
    Host,
    /// Write a config.toml with every setting, its default and its meaning
    Init(Init),
    /// Check everything that a run needs, and suggest fixes
    Doctor(Doctor),
    /// Print a page of the user guide, or list its pages
    Guide(Guide),
    /// Print a shell completion script for this command line
    Completions(Completions),
    /// Write man pages to a folder
    Man(Man),
    /// Show the configuration
    #[command(subcommand)]
    Config(Config),
    /// List the agent types: built-in, from files of the home, and from config.toml
    #[command(subcommand, after_help = PRESETS)]
    Presets(List),
    /// List and print skills: texts in an agent's prompt, or loaded on demand
    #[command(subcommand)]
    Skills(Skills),
    /// List and show the experiences that runs have recorded for later runs
    #[command(subcommand)]
    Experiences(Experiences),
    /// List the tools that agents can be given
    #[command(subcommand)]
    Tools(List),
    /// List the model profiles and the endpoint of each
    #[command(subcommand)]
    Models(List),
    /// List and test the MCP servers in config.toml
    #[command(subcommand)]
    Mcp(Mcp),
}

impl Cli {
    /// Parses the command line of the process. On an error, prints it and exits. `soong help TOPIC` prints a page of the
    /// guide, unless a command has that name.
    pub(crate) fn of_process() -> Self {
        Self::try_parse().unwrap_or_else(|error| {
            let args: Vec<OsString> = std::env::args_os().skip(1).collect();
            match &args[..] {
                [help, topic] if error.kind() == ErrorKind::InvalidSubcommand && help == "help" => {
                    match topic.to_str().and_then(guide::page) {
                        Some(page) => Self::parse_from(["soong", "guide", page.topic]),
                        None => with_suggestion(error).exit(),
                    }
                }
                _ => with_suggestion(error).exit(),
            }
        })
    }
}

impl Command {
    /// Returns whether the command sends requests to the owner of the home, local or remote (`--url`).
    pub(crate) fn uses_owner(&self) -> bool {
        matches!(
            self,
            Self::Run(_)
                | Self::Chat(_)
                | Self::Sessions(_)
                | Self::Traces(_)
                | Self::Artifacts(_)
                | Self::Questions(_)
                | Self::Permissions(_)
                | Self::Usage(_)
                | Self::Tree
                | Self::Monitor
        )
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
    /// The page to print. Without it, all pages are listed
    #[arg(value_name = "TOPIC", hide_possible_values = true, value_parser = PossibleValuesParser::new(topics()))]
    pub(crate) topic: Option<String>,
}

fn topics() -> impl Iterator<Item = &'static str> {
    guide::PAGES.iter().map(|page| page.topic)
}

/// Options of `serve`.
#[derive(Debug, Args)]
#[command(after_help = "\
Owns the home until Ctrl-C or SIGTERM, and goes on with runs that an earlier process left behind.
What is at work at its end is parked, and goes on with the next `soong serve`. Every request carries
a token: that of the home is made on the first start, in server.token, for its owner alone. Other
commands with the same home ask the server by themselves, those on other machines with --url.

Examples:
  soong serve --addr 127.0.0.1:8080
  curl -H @$HOME/.soong-agent/server.header http://127.0.0.1:8080/api/traces
  curl --unix-socket ~/.soong-agent/control.sock http://localhost/api/traces")]
pub(crate) struct Serve {
    /// Address and port to listen on [default: server.addr in config.toml, else 127.0.0.1:7788]
    #[arg(long, value_name = "ADDR:PORT")]
    pub(crate) addr: Option<std::net::SocketAddr>,
}

/// Options of `backup`.
#[derive(Debug, Args)]
#[command(after_help = "\
The copy is whole or not there, also while runs are at work: the database as it is at one moment,
the files of all versions of artifacts, config.toml, hooks.json, skills/, agents/ and memory/. It is
a home of its own. Tokens, locks, sockets and logs stay behind, and so do artifacts in a bucket.

Where a file is missing that the database knows, it is named (exit code 1), and the rest is there.
DIR is refused unless it is empty or not there (exit code 4).

Examples:
  soong backup ~/backups/today
  soong --home ~/backups/today sessions list")]
pub(crate) struct Backup {
    /// Folder of the copy
    pub(crate) dir: PathBuf,
}

/// Options of `init`.
#[derive(Debug, Args)]
#[command(after_help = "\
The file goes to config.toml in the home, or where --config says. A file that is there is left as it
is (exit code 4).

Examples:
  soong init
  soong init --force")]
pub(crate) struct Init {
    /// Overwrite an existing file
    #[arg(long)]
    pub(crate) force: bool,
}

/// Options of `doctor`.
#[derive(Debug, Args)]
#[command(after_help = "\
Nothing is changed by looking. Exit codes: 0 nothing is broken (warnings are no error), 2 the
configuration is, 5 only the call of the model failed, 130 the call was interrupted, else 1.

Examples:
  soong doctor
  soong doctor --call")]
pub(crate) struct Doctor {
    /// Also run the default model once with a tool; may cost a little, takes at most 120 s
    #[arg(long)]
    pub(crate) call: bool,
}

/// Options of `completions`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples, to install once:
  bash   d=~/.local/share/bash-completion/completions
         mkdir -p $d && soong completions bash > $d/soong
         (needs the package bash-completion; without it, `source <(soong completions bash)` in
         ~/.bashrc does the same)
  zsh    d=~/.zfunc; mkdir -p $d && soong completions zsh > $d/_soong
         (with `fpath=(~/.zfunc $fpath)` before `autoload -U compinit && compinit` in ~/.zshrc)
  fish   d=~/.config/fish/completions; mkdir -p $d && soong completions fish > $d/soong.fish

Then begin a new shell.")]
pub(crate) struct Completions {
    /// Shell of the script
    pub(crate) shell: clap_complete::Shell,
}

/// Options of `man`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  soong man ~/.local/share/man/man1")]
pub(crate) struct Man {
    /// Folder of the pages; created if it does not exist
    pub(crate) dir: PathBuf,
}

/// Options of `config`.
#[derive(Debug, Subcommand)]
pub(crate) enum Config {
    /// Show every setting: its value and where it is set (default, config.toml line or variable)
    Show,
}

/// Subcommand of commands that only list.
#[derive(Debug, Subcommand)]
pub(crate) enum List {
    /// List all entries, built-in and from the configuration
    List,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn command_line_definition_is_valid() {
        Cli::command().debug_assert();
    }
}
