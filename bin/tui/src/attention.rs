//! Signals to the terminal besides text: its title, notifications and its clipboard.
//!
//! Terminals ignore the sequences that they do not support.

use std::io::{IsTerminal, Write, stderr};

use base64::{Engine as _, prelude::BASE64_STANDARD};

use crate::{keyboard, text};

/// Maximum length of a title or notification, in columns.
const MAX_COLUMNS: usize = 60;
/// Maximum size of a text that is copied, in bytes. Terminals reject longer ones.
const MAX_COPIED_BYTES: usize = 74_000;

/// The title of the terminal. When it is dropped, the previous title is restored.
#[derive(Debug)]
pub struct Title(());

impl Title {
    /// Saves the previous title, and sets a new one.
    pub fn set(title: &str) -> Self {
        send("\u{1b}[22;0t");
        let set = Self(());
        set.change(title);
        set
    }

    /// Changes the title.
    pub fn change(&self, title: &str) {
        send(&format!("\u{1b}]0;{}\u{7}", shortened(title)));
    }
}

impl Drop for Title {
    fn drop(&mut self) {
        send("\u{1b}[23;0t");
    }
}

/// Notifies the user: by the bell, and by a notification where the terminal supports it (OSC 9).
pub fn notify(what: &str) {
    send(&format!("\u{1b}]9;{}\u{7}\u{7}", shortened(what)));
}

/// Copies a text to the clipboard (OSC 52), at most its first 74 000 bytes. Returns whether all of
/// it was copied.
pub fn copy_to_clipboard(copied: &str) -> bool {
    let end = copied.floor_char_boundary(MAX_COPIED_BYTES);
    send(&format!(
        "\u{1b}]52;c;{}\u{7}",
        BASE64_STANDARD.encode(&copied[..end])
    ));
    end == copied.len()
}

fn shortened(line: &str) -> String {
    text::cut(&text::safe_line(line), MAX_COLUMNS, "...")
}

fn send(sequence: &str) {
    let mut terminal = stderr();
    if terminal.is_terminal() && !keyboard::is_dumb() && keyboard::is_foreground() {
        // An error means that the terminal is gone.
        let _ = terminal
            .write_all(sequence.as_bytes())
            .and_then(|()| terminal.flush());
    }
}
