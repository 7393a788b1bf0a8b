//! Messages that the user types while a run is active: those that are queued, and the text that is
//! being typed.
//!
//! Pure. Elsewhere: reading keys (`keyboard`), drawing (`screen`).

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::{styled_line::StyledLine, terminal::TextStyle, text, typed_keys::TypedKey};

/// Maximum number of queued messages that are shown.
const MAX_SHOWN_MESSAGES: usize = 3;
/// Maximum number of rows of the text that is being typed.
const MAX_TEXT_ROWS: usize = 4;

/// Message that Ctrl-D queues: the chat ends after the run.
const QUIT: &str = "/quit";

/// Message that is not queued: the run continues in another process.
const BACKGROUND: &str = "/background";

/// An action requested by a key that does not edit the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyRequest {
    /// Cancel the run.
    Cancel,
    /// Change the permission mode to the next one.
    NextPermissionMode,
    /// Show the last output completely.
    Unfold,
    /// End the chat; the run continues in another process.
    Background,
}

/// Messages for the runs that follow.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TypedMessages {
    /// Queued messages, in the order in which they are sent.
    pub queued: Vec<String>,
    /// Text that is being typed.
    pub text: String,
}

/// Messages that outlive the display in which they are typed.
#[derive(Debug, Clone, Default)]
pub struct SharedMessages(Arc<Mutex<TypedMessages>>);

impl SharedMessages {
    /// Returns the messages. Locks are short: nothing waits while it holds one.
    pub fn lock(&self) -> MutexGuard<'_, TypedMessages> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TypedMessages {
    /// Applies a key. Enter queues the text. Esc takes the last queued message back into the text,
    /// or requests to cancel the run if none is queued.
    pub fn apply(&mut self, key: &TypedKey) -> Option<KeyRequest> {
        match key {
            TypedKey::Esc if self.queued.is_empty() => return Some(KeyRequest::Cancel),
            TypedKey::Esc => self.take_back(1),
            TypedKey::ShiftTab => return Some(KeyRequest::NextPermissionMode),
            TypedKey::Unfold => return Some(KeyRequest::Unfold),
            TypedKey::Enter if self.text.trim() == BACKGROUND => {
                self.text.clear();
                return Some(KeyRequest::Background);
            }
            TypedKey::Enter => self.queue(),
            TypedKey::NewLine => self.text.push('\n'),
            TypedKey::Char(c) => self.text.push(*c),
            TypedKey::Paste(pasted) => self.text.push_str(pasted),
            TypedKey::Backspace => drop(self.text.pop()),
            TypedKey::DeleteLine => self.text.clear(),
            TypedKey::DeleteWord => self.remove_word(),
            TypedKey::EndOfInput if self.text.is_empty() => self.queued.push(QUIT.to_owned()),
            TypedKey::EndOfInput => {}
        }
        None
    }

    fn queue(&mut self) {
        let message = std::mem::take(&mut self.text);
        if !message.trim().is_empty() {
            self.queued.push(message);
        }
    }

    fn remove_word(&mut self) {
        let without_spaces = self.text.trim_end();
        let word = without_spaces
            .rsplit(char::is_whitespace)
            .next()
            .unwrap_or_default();
        self.text.truncate(without_spaces.len() - word.len());
    }

    /// Takes up to `count` queued messages back into the text, the last ones first.
    pub fn take_back(&mut self, count: usize) {
        for message in self
            .queued
            .split_off(self.queued.len().saturating_sub(count))
            .into_iter()
            .rev()
        {
            self.put_before(message);
        }
    }

    /// Puts a text before the one that is being typed.
    pub fn put_before(&mut self, text: String) {
        let typed = std::mem::replace(&mut self.text, text);
        if !typed.trim().is_empty() {
            self.text.push('\n');
            self.text.push_str(&typed);
        }
    }

    /// Takes the first queued message, or else the text.
    pub fn take_next(&mut self) -> (Option<String>, String) {
        if self.queued.is_empty() {
            (None, std::mem::take(&mut self.text))
        } else {
            (Some(self.queued.remove(0)), String::new())
        }
    }

    /// Returns the lines that show the messages.
    pub fn lines(&self, width: usize, unicode: bool) -> Vec<StyledLine> {
        let ellipsis = if unicode { "…" } else { "..." };
        let dim = |line: String| StyledLine::of(TextStyle::Dim, text::cut(&line, width, ellipsis));
        let shown = self.queued.iter().take(MAX_SHOWN_MESSAGES);
        let mut lines: Vec<StyledLine> = shown
            .map(|message| dim(format!("queued: {}", text::safe_line(message))))
            .collect();
        if self.queued.len() > MAX_SHOWN_MESSAGES {
            lines.push(dim(format!(
                "queued: {} more",
                self.queued.len() - MAX_SHOWN_MESSAGES
            )));
        }
        if !self.text.is_empty() {
            lines.extend(self.text_lines(width, unicode));
        }
        lines
    }

    /// Returns the last rows of the text that is being typed, with a mark for the cursor.
    fn text_lines(&self, width: usize, unicode: bool) -> Vec<StyledLine> {
        let (prompt, cursor) = if unicode {
            ("› ", "▏")
        } else {
            ("> ", "_")
        };
        let width = width.saturating_sub(text::width(prompt)).max(1);
        let typed = format!("{}{cursor}", self.text);
        let rows: Vec<String> = typed
            .split('\n')
            .flat_map(|line| text::wrap(&text::safe_line_keep_spaces(line), width))
            .collect();
        let hidden = rows.len().saturating_sub(MAX_TEXT_ROWS);
        let prompts = std::iter::once(prompt).chain(std::iter::repeat("  "));
        rows[hidden..]
            .iter()
            .zip(prompts)
            .map(|(row, prompt)| StyledLine::of(TextStyle::Plain, format!("{prompt}{row}")))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{terminal::Paint, typed_keys::KeyParser};

    /// Applies keys as a terminal sends them.
    fn type_keys(messages: &mut TypedMessages, keys: &str) -> Vec<KeyRequest> {
        let mut parser = KeyParser::default();
        let keys = [parser.parse(keys.as_bytes()), parser.parse(b"")].concat();
        keys.iter().filter_map(|key| messages.apply(key)).collect()
    }

    #[test]
    fn keys_change_the_text_and_the_queue() {
        for (keys, queued, text, requests) in [
            ("hello", vec![], "hello", vec![]),
            ("one\rtwo\rthr", vec!["one", "two"], "thr", vec![]),
            ("  \r", vec![], "", vec![]),
            ("a\nb\r", vec!["a\nb"], "", vec![]),
            ("aé\u{8}b", vec![], "ab", vec![]),
            ("two words \u{17}x", vec![], "two x", vec![]),
            ("wörd\u{17}", vec![], "", vec![]),
            ("a\u{3000}b\u{17}", vec![], "a\u{3000}", vec![]),
            ("gone\u{15}", vec![], "", vec![]),
            ("one\rtwo\r\u{1b}", vec!["one"], "two", vec![]),
            ("one\rtwo\r\u{1b}\u{1b}", vec![], "one\ntwo", vec![]),
            (
                "one\rmore\u{1b}\u{1b}",
                vec![],
                "one\nmore",
                vec![KeyRequest::Cancel],
            ),
            ("draft\u{1b}", vec![], "draft", vec![KeyRequest::Cancel]),
            ("\u{1b}[Z", vec![], "", vec![KeyRequest::NextPermissionMode]),
            ("draft\u{f}", vec![], "draft", vec![KeyRequest::Unfold]),
            (
                "one\r/background \r",
                vec!["one"],
                "",
                vec![KeyRequest::Background],
            ),
            ("/backgrounds\r", vec!["/backgrounds"], "", vec![]),
            ("a\u{4}\r\u{4}", vec!["a", "/quit"], "", vec![]),
        ] {
            let mut messages = TypedMessages::default();
            assert_eq!(type_keys(&mut messages, keys), requests, "{keys:?}");
            let queued = queued.into_iter().map(str::to_owned).collect();
            assert_eq!(
                messages,
                TypedMessages {
                    queued,
                    text: text.to_owned()
                },
                "{keys:?}"
            );
        }
    }

    #[test]
    fn messages_are_shown_within_the_width() {
        let shown = |messages: &TypedMessages, width, unicode| {
            let lines = messages.lines(width, unicode);
            lines
                .iter()
                .map(|line| line.to_ansi(Paint { on: false }))
                .collect::<Vec<_>>()
        };
        let mut messages = TypedMessages::default();
        assert!(shown(&messages, 20, true).is_empty());
        type_keys(
            &mut messages,
            "first message of all\rb\rc\rd\re\rabc def ghi",
        );
        assert_eq!(
            shown(&messages, 12, true),
            [
                "queued: fir…",
                "queued: b",
                "queued: c",
                "queued: 2 m…",
                "› abc def",
                "  ghi▏"
            ]
        );
        messages = TypedMessages {
            queued: Vec::new(),
            text: "1\n2\n3\n4\n\u{1b}[5".to_owned(),
        };
        assert_eq!(
            shown(&messages, 12, false),
            ["> 2", "  3", "  4", "  \u{fffd}[5_"]
        );
    }
}
