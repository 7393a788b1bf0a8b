//! A text line typed in the monitor: a filter, an answer or a folder.
//!
//! Pure. Invariant: the text contains no control character and has at most [`MAX_BYTES`] bytes.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

/// Maximum length of the text, in bytes.
const MAX_BYTES: usize = 16 * 1_024;

/// A line, with the cursor at its end.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Prompt {
    pub(crate) text: String,
}

/// Result of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PromptResult {
    /// Typing continues.
    Editing,
    /// The text is complete.
    Submitted,
    /// Typing was cancelled.
    Cancelled,
}

impl Prompt {
    pub(crate) fn with(text: impl Into<String>) -> Self {
        Self { text: text.into() }
    }

    pub(crate) fn key(&mut self, key: KeyEvent) -> PromptResult {
        let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Enter => return PromptResult::Submitted,
            KeyCode::Esc => return PromptResult::Cancelled,
            KeyCode::Char('c') if is_control => return PromptResult::Cancelled,
            KeyCode::Char('u') if is_control => self.text.clear(),
            KeyCode::Char('w') if is_control => {
                let length = self
                    .text
                    .trim_end()
                    .rfind(char::is_whitespace)
                    .map_or(0, |at| at + 1);
                self.text.truncate(length);
            }
            KeyCode::Backspace => drop(self.text.pop()),
            KeyCode::Char(c) if !is_control => self.paste(&c.to_string()),
            _ => {}
        }
        PromptResult::Editing
    }

    /// Appends pasted text; line breaks become spaces.
    pub(crate) fn paste(&mut self, text: &str) {
        for c in text
            .chars()
            .map(|c| if c == '\n' || c == '\t' { ' ' } else { c })
        {
            if !c.is_control() && self.text.len() + c.len_utf8() <= MAX_BYTES {
                self.text.push(c);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn input_is_typed_pasted_and_deleted() {
        let mut prompt = Prompt::default();
        let key = |code| KeyEvent::new(code, KeyModifiers::NONE);
        let control = |c| KeyEvent::new(KeyCode::Char(c), KeyModifiers::CONTROL);
        for c in "ab cd".chars() {
            assert_eq!(prompt.key(key(KeyCode::Char(c))), PromptResult::Editing);
        }
        prompt.paste("e\n\u{1b}[f");
        assert_eq!(prompt.text, "ab cde [f");
        prompt.key(key(KeyCode::Backspace));
        prompt.key(control('w'));
        assert_eq!(prompt.text, "ab cde ");
        assert_eq!(
            (prompt.key(key(KeyCode::Enter)), prompt.key(control('c'))),
            (PromptResult::Submitted, PromptResult::Cancelled)
        );
        prompt.key(control('u'));
        prompt.paste(&"x".repeat(MAX_BYTES + 9));
        assert_eq!(prompt.text.len(), MAX_BYTES);
    }
}
