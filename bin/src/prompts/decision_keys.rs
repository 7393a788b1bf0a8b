//! Keys that answer a permission request at a terminal, without Enter.
//!
//! Invariant: a key answers only if no other key is pressed shortly before or after it. So neither
//! the rest of a text that the user was typing, nor a letter of a word, nor a key that is held down
//! is an answer.
//!
//! Elsewhere: what the keys mean, and lines for terminals without keys (`prompts.rs`).

use std::{
    io::{Write, stderr},
    time::Duration,
};

use soong_tui::{
    keyboard::{EchoOff, KeyReader},
    typed_keys::TypedKey,
};
use tokio::time::Instant;

use crate::{input::InputLine, print};

/// Keys with a meaning at a permission request, in lower case.
const KEYS: [char; 5] = ['y', 'a', 'n', 'e', 'v'];
/// Interval between checks for keys.
const KEY_INTERVAL: Duration = Duration::from_millis(25);
/// Time without another key before and after a key that is an answer.
const QUIET_TIME: Duration = Duration::from_millis(300);
/// Answer of keys that have no meaning.
const UNKNOWN: &str = "?";

/// Reader of the keys that answer a permission request.
pub(super) struct DecisionKeys {
    // Dropped first: keys are read only while echo is off.
    reader: KeyReader,
    _echo_off: EchoOff,
}

impl DecisionKeys {
    /// Starts to read keys. Returns `None` if the terminal supports lines only, or if another
    /// prompt still reads it.
    pub(super) fn start() -> Option<Self> {
        KeyReader::start().map(|reader| Self {
            reader,
            _echo_off: EchoOff::begin(),
        })
    }

    /// Shows the prompt as soon as no key is pressed, and waits for a key. Returns its character as
    /// a line.
    pub(super) async fn next(&mut self, prompt: &str) -> InputLine {
        while self.is_pressed_within_quiet_time().await {}
        // A write error means that the terminal is gone.
        let _ = write!(stderr(), "{prompt}").and_then(|()| stderr().flush());
        let keys = loop {
            match self.keys() {
                keys if keys.is_empty() => tokio::time::sleep(KEY_INTERVAL).await,
                keys => break keys,
            }
        };
        let answer = match &keys[..] {
            [TypedKey::EndOfInput] => InputLine::Closed,
            [TypedKey::Char(key)]
                if KEYS.contains(&key.to_ascii_lowercase())
                    && !self.is_pressed_within_quiet_time().await =>
            {
                InputLine::Line(key.to_string())
            }
            _ => InputLine::Line(UNKNOWN.to_owned()),
        };
        match &answer {
            InputLine::Line(key) if key != UNKNOWN => print::error_line(key),
            _ => end_row(),
        }
        answer
    }

    /// Returns the keys since the last call, without Enter, which is often pressed after an answer.
    fn keys(&mut self) -> Vec<TypedKey> {
        let mut keys = self.reader.keys();
        keys.retain(|key| *key != TypedKey::Enter);
        keys
    }

    /// Reads and discards keys for [`QUIET_TIME`]. Returns whether there were any.
    async fn is_pressed_within_quiet_time(&mut self) -> bool {
        let end = Instant::now() + QUIET_TIME;
        let mut is_pressed = false;
        while Instant::now() < end {
            tokio::time::sleep(KEY_INTERVAL).await;
            is_pressed |= !self.keys().is_empty();
        }
        is_pressed
    }
}

/// Ends the row of a prompt.
pub(super) fn end_row() {
    print::error_line("");
}
