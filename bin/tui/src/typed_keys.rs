//! Keys that the user presses while a run is active, parsed from the bytes of the terminal.
//!
//! Pure. `crossterm` is not used for this: its reader waits for the rest of an incomplete sequence.

/// Start and end of pasted text.
const PASTE: [&[u8]; 2] = [b"\x1b[200~", b"\x1b[201~"];

/// A key, or pasted text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TypedKey {
    /// A character.
    Char(char),
    /// Pasted text, with `\n` between its lines.
    Paste(String),
    /// Enter.
    Enter,
    /// Alt-Enter or Ctrl-J.
    NewLine,
    /// Backspace.
    Backspace,
    /// Ctrl-W.
    DeleteWord,
    /// Ctrl-U.
    DeleteLine,
    /// Ctrl-D.
    EndOfInput,
    /// Esc.
    Esc,
    /// Shift-Tab.
    ShiftTab,
    /// Ctrl-O.
    Unfold,
}

/// Parser of the bytes that a terminal sends.
#[derive(Debug, Default)]
pub struct KeyParser {
    /// Bytes of an incomplete key or pasted text.
    pending: Vec<u8>,
}

impl KeyParser {
    /// Returns the keys that are complete. Called with the bytes since the last call, also without
    /// any: an Esc that nothing follows is a key.
    pub fn parse(&mut self, bytes: &[u8]) -> Vec<TypedKey> {
        let is_idle = bytes.is_empty();
        self.pending.extend_from_slice(bytes);
        let mut keys = Vec::new();
        while !self.pending.is_empty() {
            let Some((length, key)) = first_key(&self.pending, is_idle) else {
                break;
            };
            self.pending.drain(..length);
            keys.extend(key);
        }
        keys
    }
}

/// Returns the length and the meaning of the first key. `None`: it is incomplete. `is_idle`:
/// nothing follows.
fn first_key(bytes: &[u8], is_idle: bool) -> Option<(usize, Option<TypedKey>)> {
    let key = |length, key| Some((length, Some(key)));
    match *bytes {
        [0x1b] if is_idle => key(1, TypedKey::Esc),
        [0x1b] => None,
        // Two presses: the second one may begin a sequence.
        [0x1b, 0x1b, ..] => key(1, TypedKey::Esc),
        [0x1b, b'\r' | b'\n', ..] => key(2, TypedKey::NewLine),
        [0x1b, b'[', ..] => control_sequence(bytes, is_idle),
        [0x1b, b'O'] if !is_idle => None,
        [0x1b, b'O', _, ..] => Some((3, None)),
        // Alt and another key.
        [0x1b, ..] => Some((2, None)),
        [b'\r', ..] => key(1, TypedKey::Enter),
        [b'\n', ..] => key(1, TypedKey::NewLine),
        [0x7f | 0x08, ..] => key(1, TypedKey::Backspace),
        [0x04, ..] => key(1, TypedKey::EndOfInput),
        [0x0f, ..] => key(1, TypedKey::Unfold),
        [0x15, ..] => key(1, TypedKey::DeleteLine),
        [0x17, ..] => key(1, TypedKey::DeleteWord),
        [0x00..=0x1f, ..] => Some((1, None)),
        _ => character(bytes),
    }
}

/// Parses `ESC [ … FINAL`.
fn control_sequence(bytes: &[u8], is_idle: bool) -> Option<(usize, Option<TypedKey>)> {
    if bytes.starts_with(PASTE[0]) {
        let text = &bytes[PASTE[0].len()..];
        let end = text
            .windows(PASTE[1].len())
            .position(|window| window == PASTE[1])?;
        let pasted = String::from_utf8_lossy(&text[..end])
            .replace("\r\n", "\n")
            .replace('\r', "\n");
        return Some((
            PASTE[0].len() + end + PASTE[1].len(),
            Some(TypedKey::Paste(pasted)),
        ));
    }
    let Some(end) = bytes[2..]
        .iter()
        .position(|byte| (0x40..=0x7e).contains(byte))
    else {
        // A sequence whose end never came is ignored.
        return is_idle.then_some((bytes.len(), None));
    };
    let key = (&bytes[2..=2 + end] == b"Z").then_some(TypedKey::ShiftTab);
    Some((3 + end, key))
}

fn character(bytes: &[u8]) -> Option<(usize, Option<TypedKey>)> {
    let valid = match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) if error.valid_up_to() > 0 => {
            std::str::from_utf8(&bytes[..error.valid_up_to()]).unwrap_or_default()
        }
        // The rest of the character has not arrived.
        Err(error) if error.error_len().is_none() => return None,
        Err(error) => return Some((error.error_len().unwrap_or(1), None)),
    };
    let c = valid.chars().next()?;
    Some((c.len_utf8(), Some(TypedKey::Char(c))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_parsed_as_keys() {
        let chars = |text: &str| text.chars().map(TypedKey::Char).collect::<Vec<_>>();
        for (pieces, want) in [
            (&["aé好"][..], chars("aé好")),
            (
                &["\r\n\x7f\x08\x04\x0f\x15\x17\x01\t"],
                vec![
                    TypedKey::Enter,
                    TypedKey::NewLine,
                    TypedKey::Backspace,
                    TypedKey::Backspace,
                    TypedKey::EndOfInput,
                    TypedKey::Unfold,
                    TypedKey::DeleteLine,
                    TypedKey::DeleteWord,
                ],
            ),
            (&["\x1b\r"], vec![TypedKey::NewLine]),
            (&["\x1b[Za"], vec![TypedKey::ShiftTab, TypedKey::Char('a')]),
            // Arrows, function keys and Alt with a character.
            (&["\x1b[A\x1b[15~\x1bOPa\x1bx"], chars("a")),
            (&["\x1b", ""], vec![TypedKey::Esc]),
            (&["\x1b\x1b", ""], vec![TypedKey::Esc, TypedKey::Esc]),
            (&["\x1b", "[Z"], vec![TypedKey::ShiftTab]),
            (&["\x1bO", "", "a"], chars("a")),
            (&["\x1b[", "", "a"], chars("a")),
            (
                &["\x1b[200~one\r\ntwo\rthree\x1b[201~x"],
                vec![
                    TypedKey::Paste("one\ntwo\nthree".to_owned()),
                    TypedKey::Char('x'),
                ],
            ),
            (
                &["\x1b[200~on", "", "e\x1b[20", "1~"],
                vec![TypedKey::Paste("one".to_owned())],
            ),
        ] {
            let mut parser = KeyParser::default();
            let keys: Vec<TypedKey> = pieces
                .iter()
                .flat_map(|piece| parser.parse(piece.as_bytes()))
                .collect();
            assert_eq!(keys, want, "{pieces:?}");
        }
        let mut parser = KeyParser::default();
        let keys: Vec<TypedKey> = "é"
            .as_bytes()
            .chunks(1)
            .flat_map(|byte| parser.parse(byte))
            .collect();
        assert_eq!(keys, chars("é"));
        assert_eq!(parser.parse(b"\xffa"), chars("a"));
    }
}
