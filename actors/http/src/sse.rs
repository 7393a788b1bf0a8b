//! Incremental parser of server-sent events, after the [HTML standard].
//!
//! No I/O. The input is chunks of bytes with any boundaries, even inside a character or between the
//! two bytes of a line end. Comments, unknown fields and `retry` are ignored.
//!
//! [HTML standard]: https://html.spec.whatwg.org/multipage/server-sent-events.html

/// The byte order mark that may begin a stream.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// A server-sent event that has data.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServerSentEvent {
    /// Name of the event; `None` if it has none.
    pub name: Option<String>,
    /// The id of this event; `None` if it has none, even if an earlier event had one.
    pub id: Option<String>,
    /// The lines of its data, joined with line feeds. Not necessarily UTF-8.
    pub data: Vec<u8>,
}

/// Incremental parser of a stream of server-sent events.
#[derive(Debug, Default)]
pub struct EventParser {
    /// The beginning of a line whose end has not arrived.
    line: Vec<u8>,
    has_read_line: bool,
    /// Whether the last byte was a carriage return. A line feed that follows belongs to it.
    is_after_return: bool,
    event: ServerSentEvent,
    /// Whether the event has a line of data. The line may be empty.
    has_data: bool,
    pending_bytes: usize,
}

impl EventParser {
    /// Reads from `input` until an event is complete, and returns it; `input` is then what follows
    /// it. Returns `None` when the whole input is read.
    pub fn next_event(&mut self, input: &mut &[u8]) -> Option<ServerSentEvent> {
        while let Some(first) = input.first() {
            if std::mem::take(&mut self.is_after_return) && *first == b'\n' {
                *input = &input[1..];
                continue;
            }
            let Some(end) = memchr::memchr2(b'\n', b'\r', input) else {
                self.line.extend_from_slice(input);
                self.pending_bytes += input.len();
                *input = &[];
                return None;
            };
            let line = &input[..end];
            self.is_after_return = input[end] == b'\r';
            self.pending_bytes += end + 1;
            *input = &input[end + 1..];
            let event = if self.line.is_empty() {
                self.end_line(line)
            } else {
                let mut whole = std::mem::take(&mut self.line);
                whole.extend_from_slice(line);
                self.end_line(&whole)
            };
            if event.is_some() {
                return event;
            }
        }
        None
    }

    /// Ends the stream. Returns its last event if the blank line after it is missing.
    pub fn finish(&mut self) -> Option<ServerSentEvent> {
        let line = std::mem::take(&mut self.line);
        if !line.is_empty() {
            self.end_line(&line);
        }
        self.end_line(b"")
    }

    /// Returns the number of bytes since the last blank line.
    pub fn pending_bytes(&self) -> usize {
        self.pending_bytes
    }

    /// Adds a line to the event. A blank line ends the event; returns it if it has data.
    fn end_line(&mut self, mut line: &[u8]) -> Option<ServerSentEvent> {
        if !std::mem::replace(&mut self.has_read_line, true) {
            line = line.strip_prefix(BYTE_ORDER_MARK).unwrap_or(line);
        }
        if line.is_empty() {
            self.pending_bytes = 0;
            let event = std::mem::take(&mut self.event);
            return std::mem::take(&mut self.has_data).then_some(event);
        }
        let mut field = line;
        let mut value: &[u8] = b"";
        if let Some(colon) = memchr::memchr(b':', line) {
            field = &line[..colon];
            value = &line[colon + 1..];
            value = value.strip_prefix(b" ").unwrap_or(value);
        }
        match field {
            b"data" => {
                if std::mem::replace(&mut self.has_data, true) {
                    self.event.data.push(b'\n');
                }
                self.event.data.extend_from_slice(value);
            }
            b"event" => self.event.name = Some(text(value)),
            b"id" if !value.contains(&0) => self.event.id = Some(text(value)),
            _ => {}
        }
        None
    }
}

fn text(value: &[u8]) -> String {
    String::from_utf8_lossy(value).into_owned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn events(pieces: &[&[u8]]) -> Vec<ServerSentEvent> {
        let mut parser = EventParser::default();
        let mut events = Vec::new();
        for piece in pieces {
            let mut input: &[u8] = piece;
            while let Some(event) = parser.next_event(&mut input) {
                events.push(event);
            }
            assert!(input.is_empty());
        }
        events.extend(parser.finish());
        events
    }

    fn data(pieces: &[&[u8]]) -> Vec<String> {
        events(pieces)
            .iter()
            .map(|event| text(&event.data))
            .collect()
    }

    #[test]
    fn data_is_read_as_the_standard_says() {
        for (stream, want) in [
            ("data: a\n\ndata: b\n\n", vec!["a", "b"]),
            ("data:a\r\n\r\ndata: b\r\n\r\n", vec!["a", "b"]),
            ("data: a\r\rdata: b\r", vec!["a", "b"]),
            ("data:  a \n\n", vec![" a "]),
            ("data: a: b\n\n", vec!["a: b"]),
            (": ping\n\ndata: a\n: more\n\n", vec!["a"]),
            ("event: x\nid: 1\nretry: 5\ndata: a\n\n", vec!["a"]),
            ("data: a\ndata: b\n\n", vec!["a\nb"]),
            ("data: a", vec!["a"]),
            ("data: a\n", vec!["a"]),
            ("data\n\nevent: x\n\n", vec![""]),
            ("data:\n\ndata\ndata\n\n", vec!["", "\n"]),
            ("\u{feff}data: a\n\n", vec!["a"]),
            ("data: \u{feff}a\n\n\u{feff}data: b\n\n", vec!["\u{feff}a"]),
            ("Data: a\n data: b\n\n", vec![]),
            ("", vec![]),
            (
                "data: a\r\nodd\r\nodd: x\r\nretry: x\r\ndata: b\r\n\r\n",
                vec!["a\nb"],
            ),
        ] {
            assert_eq!(data(&[stream.as_bytes()]), want, "{stream:?}");
        }
    }

    #[test]
    fn name_and_id_belong_to_one_event() {
        let stream = b"event: x\nevent: y\nid: 1\nid: 2\ndata: a\n\nid: 3\n\nid: \0\ndata: b\n\n";
        let want = [
            ServerSentEvent {
                name: Some("y".to_owned()),
                id: Some("2".to_owned()),
                data: b"a".to_vec(),
            },
            ServerSentEvent {
                name: None,
                id: None,
                data: b"b".to_vec(),
            },
        ];
        assert_eq!(events(&[stream]), want);
    }

    #[test]
    fn incomplete_event_is_counted_until_its_end() {
        let mut parser = EventParser::default();
        for (piece, want) in [
            ("data: a", 7),
            ("b\nda", 11),
            ("ta: c\n", 17),
            ("\n", 0),
            (": ping\n\n", 0),
            ("data: d\n\ndata", 4),
        ] {
            let mut input = piece.as_bytes();
            while parser.next_event(&mut input).is_some() {}
            assert_eq!(parser.pending_bytes(), want, "{piece:?}");
        }
    }

    proptest! {
        #[test]
        fn events_are_independent_of_chunk_boundaries(
            cuts in proptest::collection::vec(0usize..80, 0..8)
        ) {
            let stream = "\u{feff}: hi\r\ndata: {\"a\":\"好é\"}\r\n\r\nid: 7\rdata: 2\r\rdata: 3\n\ndata: 😀\n";
            let stream = stream.as_bytes();
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(stream.len())).collect();
            cuts.extend([0, stream.len()]);
            cuts.sort_unstable();
            let pieces: Vec<&[u8]> = cuts.windows(2).map(|cut| &stream[cut[0]..cut[1]]).collect();
            prop_assert_eq!(data(&pieces), vec!["{\"a\":\"好é\"}", "2", "3", "😀"]);
        }
    }
}
