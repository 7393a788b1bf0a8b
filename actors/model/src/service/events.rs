//! Incremental parser of server-sent events: [`sse_stream`], made as tolerant as the services
//! require.
//!
//! No I/O. The input is chunks of bytes with any boundaries, even inside a character. Only the data
//! of events is returned. Comments and everything that is not a valid field are ignored, and no
//! blank line is required at the end of the stream. Bytes that are no UTF-8 become `U+FFFD`. JSON
//! without a field name is kept: Gemini reports errors within a stream that way.
//!
//! Elsewhere: interpreting the data (`answer.rs`).

use std::{
    convert::Infallible,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
};

use bytes::Bytes;
use futures::{FutureExt, Stream, StreamExt};
use sse_stream::{ByteStreamBody, Error, Sse, SseStream};

/// Maximum number of bytes of JSON outside events that are kept.
const MAX_UNFRAMED_BYTES: usize = 16 * 1024;

/// The input of the parser: at most one piece, which it reads before it receives the next.
#[derive(Clone, Default)]
struct Input(Arc<Mutex<Option<Bytes>>>);

impl Input {
    fn replace(&self, piece: Option<Bytes>) -> Option<Bytes> {
        std::mem::replace(
            &mut *self.0.lock().unwrap_or_else(PoisonError::into_inner),
            piece,
        )
    }
}

impl Stream for Input {
    type Item = Result<Bytes, Infallible>;

    fn poll_next(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        // Nothing needs to be woken: the parser is polled whenever there is a piece.
        self.replace(None)
            .map_or(Poll::Pending, |piece| Poll::Ready(Some(Ok(piece))))
    }
}

/// Incremental parser of server-sent events.
pub(crate) struct EventReader {
    input: Input,
    events: SseStream<ByteStreamBody<Input, Bytes>>,
    /// Bytes received since the last event.
    pending_bytes: usize,
    /// JSON that began a line after the last event, and all that followed it.
    unframed: Vec<u8>,
    /// Whether the next byte begins a line.
    is_line_start: bool,
    /// First bytes of a character whose remaining bytes have not arrived.
    partial_character: Vec<u8>,
}

impl Default for EventReader {
    fn default() -> Self {
        let input = Input::default();
        Self {
            events: SseStream::from_bytes_stream(input.clone()),
            input,
            pending_bytes: 0,
            unframed: Vec::new(),
            is_line_start: true,
            partial_character: Vec::new(),
        }
    }
}

impl EventReader {
    /// Parses the next chunk, and calls `event` with the data of each event that it completes.
    pub(crate) fn take<E>(
        &mut self,
        bytes: &Bytes,
        mut event: impl FnMut(String) -> Result<(), E>,
    ) -> Result<(), E> {
        let bytes = self.decode(bytes);
        // After an error the parser drops the rest of its input, so it receives at most one line at
        // a time.
        for piece in bytes.split_inclusive(|byte| matches!(byte, b'\r' | b'\n')) {
            self.pending_bytes += piece.len();
            self.keep_unframed(piece);
            match self.parse(bytes.slice_ref(piece)) {
                None => {}
                Some(Ok(parsed)) => {
                    self.pending_bytes = 0;
                    self.unframed.clear();
                    if let Some(data) = parsed.data {
                        event(data)?;
                    }
                }
                // The line is ignored, but not its end: a comment tells the parser that `\n` may
                // follow the `\r`.
                Some(Err(_)) if piece.ends_with(b"\r") => {
                    drop(self.parse(Bytes::from_static(b":\r")))
                }
                Some(Err(_)) => {}
            }
        }
        Ok(())
    }

    /// Ends the stream. If the last event has no blank line after it, calls `event` with its data.
    pub(crate) fn end<E>(&mut self, event: impl FnMut(String) -> Result<(), E>) -> Result<(), E> {
        self.take(&Bytes::from_static(b"\n\n"), event)
    }

    /// Returns the next bytes as valid UTF-8. The beginning of a character at their end waits for
    /// the rest.
    fn decode(&mut self, bytes: &Bytes) -> Bytes {
        if self.partial_character.is_empty() && std::str::from_utf8(bytes).is_ok() {
            return bytes.clone();
        }
        let mut received = std::mem::take(&mut self.partial_character);
        received.extend_from_slice(bytes);
        let mut valid = Vec::with_capacity(received.len());
        let mut chunks = received.utf8_chunks().peekable();
        while let Some(chunk) = chunks.next() {
            valid.extend_from_slice(chunk.valid().as_bytes());
            let invalid = chunk.invalid();
            let is_cut =
                std::str::from_utf8(invalid).is_err_and(|error| error.error_len().is_none());
            if is_cut && chunks.peek().is_none() {
                self.partial_character = invalid.to_vec();
            } else if !invalid.is_empty() {
                valid.extend_from_slice("\u{fffd}".as_bytes());
            }
        }
        valid.into()
    }

    /// Returns the maximum number of buffered bytes of incomplete events.
    pub(crate) fn pending_bytes(&self) -> usize {
        self.pending_bytes
    }

    /// Returns the JSON that follows the last event without a field name, at most 16 KiB of it.
    /// Empty if there is none.
    pub(crate) fn unframed(&self) -> &[u8] {
        &self.unframed
    }

    fn keep_unframed(&mut self, piece: &[u8]) {
        let starts_json = self.is_line_start && matches!(piece.first(), Some(b'{' | b'['));
        if starts_json || !self.unframed.is_empty() {
            let room = MAX_UNFRAMED_BYTES
                .saturating_sub(self.unframed.len())
                .min(piece.len());
            self.unframed.extend_from_slice(&piece[..room]);
        }
        self.is_line_start = piece.ends_with(b"\n") || piece.ends_with(b"\r");
    }

    /// Parses at most one line. Returns the event that it completes, if any.
    fn parse(&mut self, piece: Bytes) -> Option<Result<Sse, Error>> {
        // A piece has at most one line end, so it completes at most one event: the parser has read
        // it when `next` returns.
        let unread = self.input.replace(Some(piece));
        debug_assert!(
            unread.is_none(),
            "the parser reads each piece before it receives the next"
        );
        self.events.next().now_or_never().flatten()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn events(pieces: &[&[u8]]) -> Vec<String> {
        let mut seen = Vec::new();
        let mut reader = EventReader::default();
        let mut note = |data: String| -> Result<(), ()> {
            seen.push(data);
            Ok(())
        };
        for piece in pieces {
            reader
                .take(&Bytes::copy_from_slice(piece), &mut note)
                .unwrap();
        }
        reader.end(&mut note).unwrap();
        seen
    }

    #[test]
    fn sse_variants_are_parsed() {
        for (bytes, want) in [
            ("data: a\n\ndata: b\n\n", vec!["a", "b"]),
            ("data:a\r\n\r\ndata: b\r\n\r\n", vec!["a", "b"]),
            (": ping\n\ndata: a\n: more\n\n", vec!["a"]),
            ("event: x\nid: 1\nretry: 5\ndata: a\n\n", vec!["a"]),
            ("data: a\ndata: b\n\n", vec!["a\nb"]),
            ("data: a", vec!["a"]),
            ("data: a\n", vec!["a"]),
            ("data\n\nevent: x\n\n", vec![]),
            ("data:\n\n", vec![""]),
            ("\u{feff}data: a\n\n", vec!["a"]),
            ("", vec![]),
            ("data: a\r\rdata: b\r", vec!["a", "b"]),
            (
                "data: a\r\nodd\r\nodd: x\r\nretry: x\r\ndata: b\r\n\r\n",
                vec!["a\nb"],
            ),
            (
                "event: x\nevent: x\nid: 1\nid: 1\nodd: x\ndata: a\n\ndata: b\n\n",
                vec!["a", "b"],
            ),
        ] {
            assert_eq!(events(&[bytes.as_bytes()]), want, "{bytes:?}");
        }
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
            reader
                .take(&Bytes::from_static(piece.as_bytes()), &mut ignored)
                .unwrap();
            assert_eq!(reader.unframed(), want.as_bytes(), "{piece:?}");
        }
    }

    #[test]
    fn incomplete_event_is_counted_until_its_end() {
        let mut reader = EventReader::default();
        let mut ignored = |_| Ok::<(), ()>(());
        for (piece, want) in [
            ("data: a", 7),
            ("b\nda", 11),
            ("ta: c\n", 17),
            ("\n", 0),
            ("data: d\n\ndata", 4),
        ] {
            reader
                .take(&Bytes::from_static(piece.as_bytes()), &mut ignored)
                .unwrap();
            assert_eq!(reader.pending_bytes(), want, "{piece:?}");
        }
    }

    proptest! {
        #[test]
        fn events_are_independent_of_chunk_boundaries(cuts in proptest::collection::vec(0usize..60, 0..8)) {
            let bytes = ": hi\r\ndata: {\"a\":\"好é\"}\r\n\r\ndata: 2\ndata: 3\n\ndata: 😀\n\n".as_bytes();
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
            cuts.sort_unstable();
            let mut pieces = Vec::new();
            let mut from = 0;
            for cut in cuts {
                pieces.push(&bytes[from..cut]);
                from = cut;
            }
            pieces.push(&bytes[from..]);
            prop_assert_eq!(events(&pieces), vec!["{\"a\":\"好é\"}", "2\n3", "😀"]);
        }
    }
}
