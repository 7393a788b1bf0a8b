//! Incremental parser of server-sent events.
//!
//! Pure. The input is chunks of bytes with any boundaries, even inside a character: the parser decodes no text. It
//! returns only the data of events. It accepts lines that end with `\n` or `\r\n`, ignores comments and other fields,
//! and does not require a blank line at the end of the stream.
//!
//! Elsewhere: interpreting the data (`answer.rs`).

/// Incremental parser of server-sent events. Its buffers are reused, so that it does not allocate for each event.
#[derive(Debug, Default)]
pub(super) struct EventReader {
    /// Bytes of a line whose end has not arrived yet.
    line: Vec<u8>,
    /// Data lines of the current event, joined with `\n`.
    data: Vec<u8>,
    has_data: bool,
}

impl EventReader {
    /// Parses the next chunk, and calls `event` with the data of each event that it completes.
    pub(super) fn take<E>(&mut self, bytes: &[u8], mut event: impl FnMut(&[u8]) -> Result<(), E>) -> Result<(), E> {
        let mut rest = bytes;
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            let (head, tail) = (&rest[..end], &rest[end + 1..]);
            rest = tail;
            if self.line.is_empty() {
                self.take_line(head, &mut event)?;
            } else {
                let mut line = std::mem::take(&mut self.line);
                line.extend_from_slice(head);
                let taken = self.take_line(&line, &mut event);
                line.clear();
                self.line = line;
                taken?;
            }
        }
        self.line.extend_from_slice(rest);
        Ok(())
    }

    /// Ends the stream. If the last event has no blank line after it, calls `event` with its data.
    pub(super) fn end<E>(&mut self, mut event: impl FnMut(&[u8]) -> Result<(), E>) -> Result<(), E> {
        let line = std::mem::take(&mut self.line);
        self.take_line(&line, &mut event)?;
        self.take_line(b"", &mut event)
    }

    /// Returns the number of buffered bytes of incomplete events.
    pub(super) fn pending_bytes(&self) -> usize {
        self.line.len() + self.data.len()
    }

    fn take_line<E>(&mut self, line: &[u8], event: &mut impl FnMut(&[u8]) -> Result<(), E>) -> Result<(), E> {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.is_empty() {
            let had_data = std::mem::take(&mut self.has_data);
            let result = if had_data { event(&self.data) } else { Ok(()) };
            self.data.clear();
            return result;
        }
        // A byte order mark is allowed only at the start of the stream. Removing it from every line is harmless,
        // because no field name starts with it.
        let line = line.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(line);
        if let Some(value) = line.strip_prefix(b"data:") {
            if self.has_data {
                self.data.push(b'\n');
            }
            self.data.extend_from_slice(value.strip_prefix(b" ").unwrap_or(value));
            self.has_data = true;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn events(pieces: &[&[u8]]) -> Vec<String> {
        let mut seen = Vec::new();
        let mut reader = EventReader::default();
        let mut note = |data: &[u8]| -> Result<(), ()> {
            seen.push(String::from_utf8(data.to_vec()).unwrap());
            Ok(())
        };
        for piece in pieces {
            reader.take(piece, &mut note).unwrap();
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
        ] {
            assert_eq!(events(&[bytes.as_bytes()]), want, "{bytes:?}");
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
