//! Parser of server-sent events: bytes in, stream items out.

use std::{collections::VecDeque, sync::Arc};

use serde::de::DeserializeOwned;
use soong::protocol::api::{Accepted, ERROR_FRAME, ErrorBody};
use soong::{ErrorCode, ErrorInfo, StreamItem, UnrecordedRun};

/// Content of a frame.
#[derive(Debug)]
pub(super) enum SseFrame {
    /// The run whose stream this is was accepted.
    Accepted(Accepted),
    /// A stream item.
    Item(StreamItem),
}

/// Splits incoming bytes into complete frames.
#[derive(Debug, Default)]
pub(super) struct FrameParser {
    /// Bytes of the incomplete frame.
    partial: Vec<u8>,
    complete: VecDeque<Result<SseFrame, ErrorInfo>>,
}

impl FrameParser {
    pub(super) fn pop(&mut self) -> Option<Result<SseFrame, ErrorInfo>> {
        self.complete.pop_front()
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        // The end of a frame may be split across two pieces, so the search starts one byte earlier.
        let mut from = self.partial.len().saturating_sub(1);
        self.partial.extend_from_slice(bytes);
        let mut begin = 0;
        while let Some(at) = self.partial[from..].windows(2).position(|pair| pair == b"\n\n") {
            let end = from + at;
            self.complete.extend(frame(&self.partial[begin..end]));
            begin = end + 2;
            from = begin;
        }
        self.partial.drain(..begin);
    }
}

/// Parses one frame; `None` for a comment (`: ping`).
fn frame(frame: &[u8]) -> Option<Result<SseFrame, ErrorInfo>> {
    let field = |name: &[u8]| frame.split(|byte| *byte == b'\n').find_map(|line| line.strip_prefix(name));
    let data = field(b"data: ")?;
    if field(b"event: ") == Some(b"accepted") {
        return Some(read(data).map(SseFrame::Accepted));
    }
    if field(b"event: ") == Some(ERROR_FRAME.as_bytes()) {
        return Some(Err(read::<ErrorBody>(data).map_or_else(|error| error, |body| body.error.into())));
    }
    let item = match field(b"id: ") {
        Some(_) => read(data).map(|record| StreamItem::Event(Arc::new(record))),
        None if field(b"event: ") == Some(UnrecordedRun::KIND.as_bytes()) => {
            read(data).map(|lost| StreamItem::Lost(Arc::new(lost)))
        }
        None => read(data).map(|delta| StreamItem::Delta(Arc::new(delta))),
    };
    Some(item.map(SseFrame::Item))
}

fn read<T: DeserializeOwned>(data: &[u8]) -> Result<T, ErrorInfo> {
    serde_json::from_slice(data).map_err(|error| {
        let message = format!("unexpected event; the owner process may run another version: {error}");
        ErrorInfo::new(ErrorCode::InternalError, message)
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const STREAM: &str = concat!(
        ": ping\n\n",
        "event: accepted\ndata: {\"trace_id\":\"s\",\"run_id\":\"r\",\"session_id\":\"s\",\"status\":\"started\"}\n\n",
        "id: 4\ndata: {\"event_id\":4,\"event\":\"cancel_requested\",\"trace_id\":\"s\",\"session_id\":\"s\",",
        "\"run_id\":\"r\",\"run_seq\":2,\"session_seq\":9,\"ts\":\"1970-01-01T00:00:00.000Z\",\"level\":\"info\",\"data\":{}}\n\n",
        "data: {\"event\":\"model_text_delta\",\"trace_id\":\"s\",\"session_id\":\"s\",\"run_id\":\"r\",",
        "\"ts\":\"1970-01-01T00:00:00.000Z\",\"data\":{\"text\":\"hé\"}}\n\n",
        "id: 5\ndata: nonsense\n\n",
    );

    proptest! {
        #[test]
        fn items_are_parsed_for_any_chunk_boundaries(cuts in prop::collection::vec(0..STREAM.len(), 0..8)) {
            let mut cuts = cuts;
            cuts.extend([0, STREAM.len()]);
            cuts.sort_unstable();
            let mut frames = FrameParser::default();
            for pair in cuts.windows(2) {
                frames.push(&STREAM.as_bytes()[pair[0]..pair[1]]);
            }
            let Some(Ok(SseFrame::Accepted(accepted))) = frames.pop() else { panic!("nothing accepted") };
            prop_assert_eq!(accepted.status, "started");
            let Some(Ok(SseFrame::Item(StreamItem::Event(record)))) = frames.pop() else { panic!("no event") };
            prop_assert_eq!((record.event_id, record.event.kind()), (4, "cancel_requested"));
            let Some(Ok(SseFrame::Item(StreamItem::Delta(delta)))) = frames.pop() else { panic!("no delta") };
            prop_assert_eq!(delta.delta.clone(), soong::protocol::Delta::Text { text: "hé".into() });
            prop_assert!(matches!(frames.pop(), Some(Err(_))));
            prop_assert!(frames.pop().is_none() && frames.partial.is_empty());
        }
    }
}
