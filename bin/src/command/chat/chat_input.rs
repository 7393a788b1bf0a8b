//! Lines that users type in a chat: messages and `/` commands.
//!
//! Elsewhere: their execution (`conversation.rs`).

use soong::protocol::{Effort, PermissionMode, RunMode};
use soong_tui::text;

use super::custom_commands::CustomCommands;
use crate::{cli::nearest_of, input::Completion};

/// Commands: name, arguments and description.
const COMMANDS: [(&str, &str, &str); 29] = [
    ("help", "", "show this list"),
    ("new", "", "start a new session"),
    ("resume", "SESSION", "continue another session"),
    (
        "permissions",
        "MODE",
        "plan (refuse changes), ask, edits (allow writes in the project) or all; Shift-Tab changes it",
    ),
    (
        "mode",
        "MODE",
        "normal (one agent) or orchestrator (plans and delegates to sub-agents)",
    ),
    (
        "model",
        "NAME",
        "a model profile, a model of the default profile, or offline",
    ),
    (
        "effort",
        "LEVEL",
        "effort of the reasoning: none, minimal, low, medium, high, xhigh or max",
    ),
    (
        "retry",
        "",
        "resume where the last run stopped, without a new message",
    ),
    (
        "undo",
        "",
        "go back to before your last message, and revert the files that were changed since",
    ),
    (
        "rewind",
        "[N]",
        "choose one of your messages to edit (also Esc Esc), or continue after message N",
    ),
    (
        "fork",
        "[N]",
        "continue in a copy of the session, or of its part up to message N",
    ),
    ("attach", "FILE", "attach a file to your next message"),
    ("copy", "", "copy the last answer to the clipboard"),
    ("monitor", "", "show all agents live"),
    (
        "background",
        "",
        "while a run is active: end the chat and continue the run in the background",
    ),
    ("status", "", "show tokens, cost and goals of the session"),
    (
        "context",
        "",
        "show how much of the context window the last prompt used",
    ),
    (
        "compact",
        "",
        "summarize the conversation before your next message, to free its context window",
    ),
    (
        "diff",
        "",
        "show the changes in the project that are not committed (`git diff`)",
    ),
    (
        "messages",
        "",
        "show the messages of the session with their numbers",
    ),
    ("artifacts", "", "list the artifacts of the session"),
    (
        "export",
        "DIR",
        "export the session to a folder, or to one page: /export FILE.html",
    ),
    ("sessions", "", "list the sessions"),
    ("agents", "", "show the running agents"),
    ("tools", "", "list the tools"),
    ("models", "", "list the models"),
    ("mcp", "", "list the MCP servers"),
    ("clear", "", "clear the screen"),
    ("quit", "", "quit, as Ctrl-D does"),
];

/// Commands that print what a command of `soong` prints.
const QUERIES: [(&str, &[&str]); 11] = [
    ("status", &["traces", "show", SESSION]),
    ("cost", &["usage", "--session", SESSION]),
    ("goals", &["traces", "show", SESSION]),
    ("messages", &["traces", "messages", SESSION]),
    ("artifacts", &["artifacts", "list", "--session", SESSION]),
    ("export", &["traces", "export", SESSION]),
    ("sessions", &["sessions", "list"]),
    ("agents", &["tree"]),
    ("tools", &["tools", "list"]),
    ("models", &["models", "list"]),
    ("mcp", &["mcp", "list"]),
];

/// Replaced by the session of the chat in [`QUERIES`].
pub(super) const SESSION: &str = "SESSION";

/// Returns the commands for completion. One with arguments is completed up to them.
pub(super) fn completions(custom: &CustomCommands) -> Vec<Completion> {
    let completion = |name: &str, arguments: &str, about: &str| {
        let text = if arguments.is_empty() {
            format!("/{name}")
        } else {
            format!("/{name} ")
        };
        Completion {
            text,
            description: help_line(&format!("/{name} {arguments}"), about),
        }
    };
    let custom = custom.iter().filter(|command| !is_built_in(&command.name));
    let custom = custom.map(|command| {
        completion(
            &command.name,
            "[TEXT]",
            &text::safe_line(&command.description),
        )
    });
    COMMANDS
        .iter()
        .map(|(name, arguments, about)| completion(name, arguments, about))
        .chain(custom)
        .collect()
}

fn is_built_in(name: &str) -> bool {
    let aliases = ["exit", "q"];
    COMMANDS.iter().any(|(known, ..)| *known == name)
        || QUERIES.iter().any(|(known, _)| *known == name)
        || aliases.contains(&name)
}

fn help_line(input: &str, about: &str) -> String {
    format!("{:<16}  {about}", input.trim_end())
}

/// Returns the lines of `/help`.
pub(super) fn help(custom: &CustomCommands) -> Vec<String> {
    let keys = [
        (
            "!COMMAND",
            "run a command yourself; your next message includes its output",
        ),
        (
            "@FILE",
            "include a file of the project; Tab completes names and commands",
        ),
        ("Alt-Enter, Ctrl-J", "start a new line"),
        ("Ctrl-G", "edit the message in $VISUAL or $EDITOR"),
        ("Ctrl-O", "show the last output of a tool completely"),
        ("Esc Esc", "choose one of your messages to edit"),
        ("Ctrl-C", "cancel the run; press again to exit immediately"),
        (
            "during a run",
            "type to queue messages; Esc takes one back or cancels the run",
        ),
    ];
    let keys = keys.iter().map(|(key, about)| help_line(key, about));
    completions(custom)
        .into_iter()
        .map(|command| command.description)
        .chain(keys)
        .collect()
}

/// Parsed line of input.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ChatInput {
    Message(String),
    Retry,
    New,
    /// Change a setting of the next runs.
    Set(ChatSetting),
    /// Summarize the conversation before the next message.
    Compact,
    /// `None`: print the permission mode.
    Permissions(Option<PermissionMode>),
    /// Continue another session.
    Resume(String),
    /// Print what a command of `soong` prints. [`SESSION`] is replaced by the session.
    Query(Vec<String>),
    /// Run a command of the user, which may be empty.
    Shell(String),
    /// Attach this file to the next message.
    Attach(String),
    /// A command that starts no run and changes nothing.
    Local(LocalCommand),
    Move(HeadMove),
    Quit,
    /// Empty line.
    Blank,
    /// Invalid input, with the message to print.
    Invalid(String),
}

/// Another place from which the conversation continues.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum HeadMove {
    /// The message with this number. `None`: ask for a message, and go back to before it.
    Rewind(Option<u64>),
    /// The message before the user's last one.
    Undo,
    /// A copy of the session, up to the message with this number. `None`: up to the end.
    Fork(Option<u64>),
}

/// Command of the chat that shows or copies something.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum LocalCommand {
    Help,
    /// The monitor, until the user leaves it.
    Monitor,
    /// The last answer, to the clipboard.
    Copy,
    /// Clears the screen.
    Clear,
    /// The size of the last prompt.
    Context,
    /// Changes in the project.
    Diff,
    /// A note that no run is active, so that none can continue in the background.
    Background,
}

/// A setting of the next runs.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ChatSetting {
    Mode(RunMode),
    Model(String),
    Effort(Effort),
}

impl ChatSetting {
    /// Parses the value of `/mode`, `/model` or `/effort`. The error is a message for the user.
    fn of(name: &str, value: &str) -> Result<Self, String> {
        match (name, value) {
            ("mode", "normal") => Ok(Self::Mode(RunMode::Normal)),
            ("mode", "orchestrator") => Ok(Self::Mode(RunMode::Orchestrator)),
            ("mode", _) => Err("use /mode normal or /mode orchestrator".to_owned()),
            ("model", "") => Err("give a name: /model NAME; /models lists all".to_owned()),
            ("model", model) => Ok(Self::Model(model.to_owned())),
            (_, level) => match Effort::ALL
                .into_iter()
                .find(|known| known.as_str() == level)
            {
                Some(effort) => Ok(Self::Effort(effort)),
                None => {
                    Err("use /effort none, minimal, low, medium, high, xhigh or max".to_owned())
                }
            },
        }
    }
}

impl ChatInput {
    /// Returns whether a plan can still be executed after this input.
    pub(super) fn keeps_plan(&self) -> bool {
        !matches!(
            self,
            Self::Message(_)
                | Self::Retry
                | Self::New
                | Self::Resume(_)
                | Self::Move(_)
                | Self::Quit
        )
    }

    /// Parses a line. `custom`: commands of the user, which do not replace others.
    pub(super) fn of(line: &str, custom: &CustomCommands) -> Self {
        let line = line.trim();
        if let Some(command) = line.strip_prefix('!').map(str::trim) {
            return Self::Shell(command.to_owned());
        }
        let Some(command) = line.strip_prefix('/') else {
            return if line.is_empty() {
                Self::Blank
            } else {
                Self::Message(line.to_owned())
            };
        };
        let (name, rest) = command
            .split_once(char::is_whitespace)
            .unwrap_or((command, ""));
        let number = rest.trim().parse::<u64>();
        match (name, rest.trim()) {
            ("help" | "?", "") => Self::Local(LocalCommand::Help),
            ("new", "") => Self::New,
            ("retry", "") => Self::Retry,
            ("compact", "") => Self::Compact,
            ("quit" | "exit" | "q", "") => Self::Quit,
            ("permissions", "") => Self::Permissions(None),
            ("permissions", mode) => match PermissionMode::from_name(mode) {
                Some(mode) => Self::Permissions(Some(mode)),
                None => Self::Invalid("use /permissions plan, ask, edits or all".to_owned()),
            },
            ("mode" | "model" | "effort", value) => {
                ChatSetting::of(name, value).map_or_else(Self::Invalid, Self::Set)
            }
            ("resume", "") => {
                Self::Invalid("give a session: /resume SESSION; /sessions lists them".to_owned())
            }
            ("resume", session) => Self::Resume(session.to_owned()),
            ("clear", "") => Self::Local(LocalCommand::Clear),
            ("context", "") => Self::Local(LocalCommand::Context),
            ("diff", "") => Self::Local(LocalCommand::Diff),
            ("background", "") => Self::Local(LocalCommand::Background),
            ("undo", "") => Self::Move(HeadMove::Undo),
            ("copy", "") => Self::Local(LocalCommand::Copy),
            ("monitor", "") => Self::Local(LocalCommand::Monitor),
            ("attach", "") => Self::Invalid("give a file: /attach FILE".to_owned()),
            ("attach", path) => Self::Attach(path.to_owned()),
            ("export", "") => Self::Invalid("give a folder: /export DIR".to_owned()),
            ("fork", "") => Self::Move(HeadMove::Fork(None)),
            ("rewind", "") => Self::Move(HeadMove::Rewind(None)),
            ("rewind" | "fork", _) => match (number, name) {
                (Ok(number), "rewind") => Self::Move(HeadMove::Rewind(Some(number))),
                (Ok(number), _) => Self::Move(HeadMove::Fork(Some(number))),
                (Err(_), _) => Self::Invalid(format!(
                    "give the number of a message: /{name} N; /messages shows them"
                )),
            },
            (_, rest) if let Some(query) = query(name, rest) => query,
            (name, rest)
                if let Some(message) =
                    custom.message(name, rest).filter(|_| !is_built_in(name)) =>
            {
                Self::Message(message)
            }
            // A first word with another slash, such as a path, is not a command.
            _ if name.contains('/') => Self::Message(line.to_owned()),
            _ => {
                let known = COMMANDS.iter().map(|(name, ..)| *name);
                let nearest = nearest_of(
                    name,
                    known.chain(custom.iter().map(|command| &command.name[..])),
                );
                let nearest = nearest.map(|near| format!(". Did you mean /{near}?"));
                let name = text::safe_line(command);
                Self::Invalid(format!(
                    "unknown command /{name}{}; /help lists all commands",
                    nearest.unwrap_or_default()
                ))
            }
        }
    }
}

/// Returns the command that prints what a command of `soong` prints, or `None` if there is none of
/// this name.
fn query(name: &str, rest: &str) -> Option<ChatInput> {
    let (_, query) = QUERIES.iter().find(|(known, _)| *known == name)?;
    let to_page = (name == "export" && rest.ends_with(".html")).then_some("--html");
    let rest = Some(rest).filter(|rest| !rest.is_empty());
    let words = query.iter().copied().chain(to_page).chain(rest);
    Some(ChatInput::Query(words.map(str::to_owned).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_listed_command_is_known() {
        for (name, arguments, about) in COMMANDS {
            let line = match arguments {
                "MODE" | "LEVEL" | "[N]" => continue,
                "N" => format!("/{name} 1"),
                "" => format!("/{name}"),
                _ => format!("/{name} x"),
            };
            assert!(
                !matches!(
                    ChatInput::of(&line, &CustomCommands::default()),
                    ChatInput::Invalid(_) | ChatInput::Message(_)
                ),
                "{line}: {about}"
            );
        }
    }

    #[test]
    fn lines_are_parsed_as_messages_or_commands() {
        let say = |text: &str| ChatInput::Message(text.to_owned());
        for (line, want) in [
            ("hello", say("hello")),
            ("  two words \n", say("two words")),
            ("", ChatInput::Blank),
            ("   ", ChatInput::Blank),
            ("/help", ChatInput::Local(LocalCommand::Help)),
            ("/quit", ChatInput::Quit),
            ("/new", ChatInput::New),
            ("/retry", ChatInput::Retry),
            (
                "/mode orchestrator",
                ChatInput::Set(ChatSetting::Mode(RunMode::Orchestrator)),
            ),
            (
                "/mode   normal ",
                ChatInput::Set(ChatSetting::Mode(RunMode::Normal)),
            ),
            ("/rewind 5", ChatInput::Move(HeadMove::Rewind(Some(5)))),
            ("/rewind", ChatInput::Move(HeadMove::Rewind(None))),
            ("/undo", ChatInput::Move(HeadMove::Undo)),
            ("/attach a b.png", ChatInput::Attach("a b.png".to_owned())),
            ("/permissions", ChatInput::Permissions(None)),
            (
                "/permissions plan",
                ChatInput::Permissions(Some(PermissionMode::Plan)),
            ),
            ("/fork", ChatInput::Move(HeadMove::Fork(None))),
            ("/fork 5 ", ChatInput::Move(HeadMove::Fork(Some(5)))),
            (
                "/model gpt-4.1",
                ChatInput::Set(ChatSetting::Model("gpt-4.1".to_owned())),
            ),
            (
                "/effort high",
                ChatInput::Set(ChatSetting::Effort(Effort::High)),
            ),
            ("/resume s 1", ChatInput::Resume("s 1".to_owned())),
            ("/clear", ChatInput::Local(LocalCommand::Clear)),
            ("/compact", ChatInput::Compact),
            ("/background", ChatInput::Local(LocalCommand::Background)),
            ("!ls -l", ChatInput::Shell("ls -l".to_owned())),
            (
                "/sessions",
                ChatInput::Query(vec!["sessions".to_owned(), "list".to_owned()]),
            ),
            (
                "/goals",
                ChatInput::Query(["traces", "show", SESSION].map(str::to_owned).to_vec()),
            ),
            (
                "/export out",
                ChatInput::Query(
                    ["traces", "export", SESSION, "out"]
                        .map(str::to_owned)
                        .to_vec(),
                ),
            ),
            (
                "/export out.html",
                ChatInput::Query(
                    ["traces", "export", SESSION, "--html", "out.html"]
                        .map(str::to_owned)
                        .to_vec(),
                ),
            ),
            ("/etc/hosts: what is it?", say("/etc/hosts: what is it?")),
        ] {
            assert_eq!(
                ChatInput::of(line, &CustomCommands::default()),
                want,
                "{line:?}"
            );
        }
        for line in [
            "/permissions none",
            "/mode",
            "/mode chaos",
            "/model",
            "/rewind x",
            "/attach",
            "/fork -1",
            "/dance",
            "/effort",
            "/resume",
            "/export",
            "/",
            "/quit now",
        ] {
            assert!(
                matches!(
                    ChatInput::of(line, &CustomCommands::default()),
                    ChatInput::Invalid(_)
                ),
                "{line:?}"
            );
        }
    }
}
