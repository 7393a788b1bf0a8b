//! Messages that the user types while a run is active: those that are queued, and the text that is being typed.
//!
//! Pure. Elsewhere: reading keys (`keyboard`), drawing (`screen`).

use crossterm::event::{Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use crate::{styled_line::StyledLine, terminal::TextStyle, text};

/// Maximum number of queued messages that are shown.
const MAX_SHOWN_MESSAGES: usize = 3;
/// Maximum number of rows of the text that is being typed.
const MAX_TEXT_ROWS: usize = 4;

/// Message that Ctrl-D queues: the chat ends after the run.
const QUIT: &str = "/quit";

/// A request of a key besides a change of the messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyRequest {
    /// Cancel the run.
    Cancel,
    /// Change the permission mode to the next one.
    NextPermissionMode,
}

/// Messages for the runs that follow.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TypedMessages {
    /// Queued messages, in the order in which they are sent.
    pub queued: Vec<String>,
    /// Text that is being typed.
    pub text: String,
}

impl TypedMessages {
    /// Applies a key or pasted text. Enter queues the text. Esc takes the last queued message back into the text, or
    /// requests to cancel the run if none is queued.
    pub fn apply(&mut self, event: &Event) -> Option<KeyRequest> {
        match event {
            Event::Paste(pasted) => self.text.push_str(&pasted.replace("\r\n", "\n").replace('\r', "\n")),
            Event::Key(key) if key.kind != KeyEventKind::Release => return self.apply_key(*key),
            _ => {}
        }
        None
    }

    fn apply_key(&mut self, key: KeyEvent) -> Option<KeyRequest> {
        let has = |modifier| key.modifiers.contains(modifier);
        match key.code {
            KeyCode::Esc if self.queued.is_empty() => return Some(KeyRequest::Cancel),
            KeyCode::Esc => self.take_back(1),
            KeyCode::BackTab => return Some(KeyRequest::NextPermissionMode),
            KeyCode::Enter if has(KeyModifiers::ALT) => self.text.push('\n'),
            KeyCode::Enter => self.queue(),
            KeyCode::Backspace => {
                self.text.pop();
            }
            KeyCode::Char('d') if has(KeyModifiers::CONTROL) && self.text.is_empty() => {
                self.queued.push(QUIT.to_owned())
            }
            KeyCode::Char('u') if has(KeyModifiers::CONTROL) => self.text.clear(),
            KeyCode::Char('w') if has(KeyModifiers::CONTROL) => self.remove_word(),
            KeyCode::Char(c) if !has(KeyModifiers::CONTROL) && !has(KeyModifiers::ALT) => self.text.push(c),
            _ => {}
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
        let word = without_spaces.rsplit(char::is_whitespace).next().unwrap_or_default();
        self.text.truncate(without_spaces.len() - word.len());
    }

    /// Takes up to `count` queued messages back into the text, the last ones first.
    pub fn take_back(&mut self, count: usize) {
        for message in self.queued.drain(self.queued.len().saturating_sub(count)..).rev() {
            let typed = std::mem::replace(&mut self.text, message);
            if !typed.trim().is_empty() {
                self.text.push('\n');
                self.text.push_str(&typed);
            }
        }
    }

    /// Returns the lines that show the messages.
    pub fn lines(&self, width: usize, unicode: bool) -> Vec<StyledLine> {
        let ellipsis = if unicode { "…" } else { "..." };
        let dim = |line: String| StyledLine::of(TextStyle::Dim, text::cut(&line, width, ellipsis));
        let shown = self.queued.iter().take(MAX_SHOWN_MESSAGES);
        let mut lines: Vec<StyledLine> =
            shown.map(|message| dim(format!("queued: {}", text::safe_line(message)))).collect();
        if self.queued.len() > MAX_SHOWN_MESSAGES {
            lines.push(dim(format!("queued: {} more", self.queued.len() - MAX_SHOWN_MESSAGES)));
        }
        if !self.text.is_empty() {
            lines.extend(self.text_lines(width, unicode));
        }
        lines
    }

    /// Returns the last rows of the text that is being typed, with a mark for the cursor.
    fn text_lines(&self, width: usize, unicode: bool) -> Vec<StyledLine> {
        let (prompt, cursor) = if unicode { ("› ", "▏") } else { ("> ", "_") };
        let width = width.saturating_sub(text::width(prompt)).max(1);
        let typed = format!("{}{cursor}", self.text);
        let rows: Vec<String> =
            typed.split('\n').flat_map(|line| text::wrap(&text::safe_line_keep_spaces(line), width)).collect();
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
    use crate::terminal::Paint;

    fn key(code: KeyCode, modifiers: KeyModifiers) -> Event {
        Event::Key(KeyEvent::new(code, modifiers))
    }

    /// Applies each character as a key: `\r` is Enter, `\u{1b}` Esc, `\u{8}` Backspace, `\u{17}` Ctrl-W, `\n` Alt-Enter.
    fn type_keys(messages: &mut TypedMessages, keys: &str) -> Vec<KeyRequest> {
        let event = |c| match c {
            '\r' => key(KeyCode::Enter, KeyModifiers::NONE),
            '\n' => key(KeyCode::Enter, KeyModifiers::ALT),
            '\u{1b}' => key(KeyCode::Esc, KeyModifiers::NONE),
            '\u{8}' => key(KeyCode::Backspace, KeyModifiers::NONE),
            '\u{17}' => key(KeyCode::Char('w'), KeyModifiers::CONTROL),
            '\u{15}' => key(KeyCode::Char('u'), KeyModifiers::CONTROL),
            '\u{4}' => key(KeyCode::Char('d'), KeyModifiers::CONTROL),
            '\t' => key(KeyCode::BackTab, KeyModifiers::SHIFT),
            c => key(KeyCode::Char(c), KeyModifiers::NONE),
        };
        keys.chars().filter_map(|c| messages.apply(&event(c))).collect()
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
            ("one\rmore\u{1b}\u{1b}", vec![], "one\nmore", vec![KeyRequest::Cancel]),
            ("draft\u{1b}", vec![], "draft", vec![KeyRequest::Cancel]),
            ("\t", vec![], "", vec![KeyRequest::NextPermissionMode]),
            ("a\u{4}\r\u{4}", vec!["a", "/quit"], "", vec![]),
        ] {
            let mut messages = TypedMessages::default();
            assert_eq!(type_keys(&mut messages, keys), requests, "{keys:?}");
            let queued = queued.into_iter().map(str::to_owned).collect();
            assert_eq!(messages, TypedMessages { queued, text: text.to_owned() }, "{keys:?}");
        }
    }

    #[test]
    fn pasted_text_may_have_several_lines() {
        let mut messages = TypedMessages::default();
        assert_eq!(messages.apply(&Event::Paste("a\r\nb\rc".to_owned())), None);
        assert_eq!(messages.text, "a\nb\nc");
        messages.apply(&Event::FocusGained);
        assert_eq!(messages.queued, Vec::<String>::new());
    }

    #[test]
    fn messages_are_shown_within_the_width() {
        let shown = |messages: &TypedMessages, width, unicode| {
            let lines = messages.lines(width, unicode);
            lines.iter().map(|line| line.to_ansi(Paint { on: false })).collect::<Vec<_>>()
        };
        let mut messages = TypedMessages::default();
        assert!(shown(&messages, 20, true).is_empty());
        type_keys(&mut messages, "first message of all\rb\rc\rd\re\rabc def ghi");
        assert_eq!(
            shown(&messages, 12, true),
            ["queued: fir…", "queued: b", "queued: c", "queued: 2 m…", "› abc def", "  ghi▏"]
        );
        messages = TypedMessages { queued: Vec::new(), text: "1\n2\n3\n4\n\u{1b}[5".to_owned() };
        assert_eq!(shown(&messages, 12, false), ["> 2", "  3", "  4", "  \u{fffd}[5_"]);
    }
}
