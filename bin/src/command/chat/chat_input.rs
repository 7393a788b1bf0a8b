//! Lines that users type in a chat: messages and `/` commands.
//!
//! Elsewhere: their execution (`chat.rs`).

use soong::protocol::{PermissionMode, RunMode};
use soong_tui::text;

pub(super) const HELP: &str = "\
/help             show this list
/new              start a new session
/permissions MODE plan (refuse changes), ask, edits (allow writes in the project) or all
/mode MODE        normal (one agent) or orchestrator (plans and delegates to sub-agents)
/model NAME       a model profile, a model of the default profile, or offline
/retry            resume where the last run stopped, without a new message
/rewind N         continue from message N; `soong traces messages SESSION` shows the numbers
/fork [N]         continue in a copy of the session, or of its part up to message N
/quit, Ctrl-D     quit
Ctrl-C            cancel the run; press again to exit immediately
";

/// Parsed line of input.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ChatInput {
    Message(String),
    Retry,
    Help,
    New,
    Mode(RunMode),
    /// `None`: print the permission mode.
    Permissions(Option<PermissionMode>),
    Model(String),
    /// Continue the session from the message with this number.
    Rewind(u64),
    /// Continue in a copy of the session, up to the message with this number. `None`: up to the end.
    Fork(Option<u64>),
    Quit,
    /// Empty line.
    Blank,
    /// Invalid input, with the message to print.
    Invalid(String),
}

impl ChatInput {
    pub(super) fn of(line: &str) -> Self {
        let line = line.trim();
        let Some(command) = line.strip_prefix('/') else {
            return if line.is_empty() { Self::Blank } else { Self::Message(line.to_owned()) };
        };
        let (name, rest) = command.split_once(char::is_whitespace).unwrap_or((command, ""));
        let number = rest.trim().parse::<u64>();
        match (name, rest.trim()) {
            ("help" | "?", "") => Self::Help,
            ("new", "") => Self::New,
            ("retry", "") => Self::Retry,
            ("quit" | "exit" | "q", "") => Self::Quit,
            ("permissions", "") => Self::Permissions(None),
            ("permissions", mode) => match PermissionMode::from_name(mode) {
                Some(mode) => Self::Permissions(Some(mode)),
                None => Self::Invalid("use /permissions plan, ask, edits or all".to_owned()),
            },
            ("mode", "normal") => Self::Mode(RunMode::Normal),
            ("mode", "orchestrator") => Self::Mode(RunMode::Orchestrator),
            ("mode", _) => Self::Invalid("use /mode normal or /mode orchestrator".to_owned()),
            ("model", "") => Self::Invalid("give a name: /model NAME; `soong models list` shows all".to_owned()),
            ("model", name) => Self::Model(name.to_owned()),
            ("fork", "") => Self::Fork(None),
            ("rewind" | "fork", _) => match (number, name) {
                (Ok(number), "rewind") => Self::Rewind(number),
                (Ok(number), _) => Self::Fork(Some(number)),
                (Err(_), _) => Self::Invalid(format!(
                    "give the number of a message: /{name} N; `soong traces messages SESSION` shows them"
                )),
            },
            // A first word with another slash, such as a path, is not a command.
            _ if name.contains('/') => Self::Message(line.to_owned()),
            _ => Self::Invalid(format!("unknown command /{}; /help lists all commands", text::safe_line(command))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_parsed_as_messages_or_commands() {
        let say = |text: &str| ChatInput::Message(text.to_owned());
        for (line, want) in [
            ("hello", say("hello")),
            ("  two words \n", say("two words")),
            ("", ChatInput::Blank),
            ("   ", ChatInput::Blank),
            ("/help", ChatInput::Help),
            ("/quit", ChatInput::Quit),
            ("/new", ChatInput::New),
            ("/retry", ChatInput::Retry),
            ("/mode orchestrator", ChatInput::Mode(RunMode::Orchestrator)),
            ("/mode   normal ", ChatInput::Mode(RunMode::Normal)),
            ("/rewind 5", ChatInput::Rewind(5)),
            ("/permissions", ChatInput::Permissions(None)),
            ("/permissions plan", ChatInput::Permissions(Some(PermissionMode::Plan))),
            ("/fork", ChatInput::Fork(None)),
            ("/fork 5 ", ChatInput::Fork(Some(5))),
            ("/model gpt-4.1", ChatInput::Model("gpt-4.1".to_owned())),
            ("/etc/hosts: what is it?", say("/etc/hosts: what is it?")),
        ] {
            assert_eq!(ChatInput::of(line), want, "{line:?}");
        }
        for line in [
            "/permissions none",
            "/mode",
            "/mode chaos",
            "/model",
            "/rewind",
            "/rewind x",
            "/fork -1",
            "/dance",
            "/",
            "/quit now",
        ] {
            assert!(matches!(ChatInput::of(line), ChatInput::Invalid(_)), "{line:?}");
        }
    }
}
