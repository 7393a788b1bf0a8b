//! Events of an answer: [`EventParser`], made as tolerant as the services require.
//!
//! Only the data of events is returned. Bytes that are no UTF-8 become `U+FFFD`. JSON outside events
//! is kept: Gemini reports errors within a stream that way.
//!
//! Elsewhere: interpreting the data (`answer.rs`).

use soong_http::{EventParser, ServerSentEvent};

/// Maximum number of bytes of JSON outside events that are kept.
const MAX_UNFRAMED_BYTES: usize = 16 * 1024;

/// Reads the events of an answer from chunks of bytes.
#[derive(Default)]
pub(crate) struct EventReader {
    parser: EventParser,
    /// JSON that began a line after the last event, and all that followed it.
    unframed: Vec<u8>,
    /// Whether the next byte continues a line.
    is_within_line: bool,
}

impl EventReader {
    /// Parses the next chunk, and calls `event` with the data of each event that it completes.
    pub(crate) fn take<E>(
        &mut self,
        bytes: &[u8],
        mut event: impl FnMut(String) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut rest = bytes;
        loop {
            let unread = rest;
            let Some(parsed) = self.parser.next_event(&mut rest) else {
                self.keep_unframed(unread);
                return Ok(());
            };
            self.unframed.clear();
            self.is_within_line = false;
            event(data(parsed))?;
        }
    }

    /// Ends the stream. If the last event has no blank line after it, calls `event` with its data.
    pub(crate) fn end<E>(
        &mut self,
        mut event: impl FnMut(String) -> Result<(), E>,
    ) -> Result<(), E> {
        match self.parser.finish() {
            Some(parsed) => event(data(parsed)),
            None => Ok(()),
        }
    }

    /// Returns the maximum number of buffered bytes of incomplete events.
    pub(crate) fn pending_bytes(&self) -> usize {
        self.parser.pending_bytes()
    }

    /// Returns the JSON that follows the last event without a field name, at most 16 KiB of it.
    /// Empty if there is none.
    pub(crate) fn unframed(&self) -> &[u8] {
        &self.unframed
    }

    /// Keeps what follows the last event, from the first line that begins like JSON.
    fn keep_unframed(&mut self, bytes: &[u8]) {
        for line in bytes.split_inclusive(|byte| matches!(byte, b'\r' | b'\n')) {
            let starts_json = !self.is_within_line && matches!(line.first(), Some(b'{' | b'['));
            if starts_json || !self.unframed.is_empty() {
                let room = MAX_UNFRAMED_BYTES - self.unframed.len();
                self.unframed
                    .extend_from_slice(&line[..line.len().min(room)]);
            }
            self.is_within_line = !line.ends_with(b"\n") && !line.ends_with(b"\r");
        }
    }
}

fn data(event: ServerSentEvent) -> String {
    String::from_utf8(event.data)
        .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events(pieces: &[&[u8]]) -> Vec<String> {
        let mut seen = Vec::new();
        let mut reader = EventReader::default();
        let mut note = |data: String| -> Result<(), ()> {
            seen.push(data);
            Ok(())
        };
        for piece in pieces {
            reader.take(piece, &mut note).unwrap();
        }
        reader.end(&mut note).unwrap();
        seen
    }

    #[test]
    fn bytes_that_are_no_utf8_are_replaced() {
        for (pieces, want) in [
            (
                vec![&b"data: \xffa\n\ndata: b\n\n"[..]],
                vec!["\u{fffd}a", "b"],
            ),
            // Half a character, at the end of an event and of the stream.
            (vec![b"data: a\xc3\n\ndata: b\n\n"], vec!["a\u{fffd}", "b"]),
            (vec![b"data: a\xe2\x82"], vec!["a\u{fffd}"]),
            (
                vec![b"data: a\xe2", b"\x82", b"\xac\n\n"],
                vec!["a\u{20ac}"],
            ),
            (vec![b"data: a\xe2", b"\n\n"], vec!["a\u{fffd}"]),
        ] {
            assert_eq!(events(&pieces), want, "{pieces:?}");
        }
    }

    #[test]
    fn json_outside_events_is_kept_until_the_next_event() {
        let mut reader = EventReader::default();
        let mut ignored = |_| Ok::<(), ()>(());
        for (piece, want) in [
            ("data: {\"a\": 1}\n\n", ""),
            ("{\n  \"err", "{\n  \"err"),
            ("or\": 1\n}\n", "{\n  \"error\": 1\n}\n"),
            ("data: x\n\n", ""),
            ("odd {\n", ""),
        ] {
            reader.take(piece.as_bytes(), &mut ignored).unwrap();
            assert_eq!(reader.unframed(), want.as_bytes(), "{piece:?}");
        }
    }
}
