//! Keys that answer a permission request at a terminal, without Enter.
//!
//! Elsewhere: what they mean, and lines for terminals without keys (`prompts.rs`).

use std::{
    io::{Write, stderr},
    time::Duration,
};

use soong_tui::{
    keyboard::{EchoOff, KeyReader},
    typed_keys::TypedKey,
};

use crate::{input::InputLine, print};

/// Keys with a meaning at a permission request, in lower case.
const KEYS: [char; 5] = ['y', 'a', 'n', 'e', 'v'];
/// Interval between checks for keys.
const KEY_INTERVAL: Duration = Duration::from_millis(25);
/// Time without a key after which typing has ended.
const TYPING_PAUSE: Duration = Duration::from_millis(500);
/// Answer of a key that has no meaning.
const UNKNOWN: &str = "?";

/// Reader of the keys that answer a permission request.
pub(super) struct DecisionKeys {
    // Dropped first: keys are read only while echo is off.
    reader: KeyReader,
    _echo_off: EchoOff,
}

impl DecisionKeys {
    /// Starts to read keys. Returns `None` if the terminal supports lines only, or if another prompt still reads it.
    pub(super) fn start() -> Option<Self> {
        KeyReader::start().map(|reader| Self { reader, _echo_off: EchoOff::begin() })
    }

    /// Shows the prompt and waits for a key. Returns its character as a line.
    ///
    /// The first letter of a word that is no answer must not be followed by one that is: after a key without a meaning,
    /// all keys are discarded until none was pressed for a moment.
    pub(super) async fn next(&mut self, prompt: &str) -> InputLine {
        // A write error means that the terminal is gone.
        let _ = write!(stderr(), "{prompt}").and_then(|()| stderr().flush());
        let key = loop {
            match self.reader.keys().into_iter().find(|key| *key != TypedKey::Enter) {
                Some(key) => break key,
                None => tokio::time::sleep(KEY_INTERVAL).await,
            }
        };
        let answer = match key {
            TypedKey::Char(key) if KEYS.contains(&key.to_ascii_lowercase()) => InputLine::Line(key.to_string()),
            TypedKey::EndOfInput => InputLine::Closed,
            _ => {
                self.discard_word().await;
                InputLine::Line(UNKNOWN.to_owned())
            }
        };
        match &answer {
            InputLine::Line(key) if key != UNKNOWN => print::error_line(key),
            _ => end_row(),
        }
        answer
    }

    async fn discard_word(&mut self) {
        loop {
            tokio::time::sleep(TYPING_PAUSE).await;
            if self.reader.keys().is_empty() {
                return;
            }
        }
    }
}

/// Ends the row of a prompt.
pub(super) fn end_row() {
    print::error_line("");
}
