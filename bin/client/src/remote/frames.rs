//! Frames of an event stream: turns the bytes of server-sent events into stream items.

use std::sync::Arc;

use bytes::Bytes;
use futures::{
    Stream, StreamExt,
    stream::{self, BoxStream},
};
use serde::de::DeserializeOwned;
use soong_http::{EventParser, ServerSentEvent};
use soong_protocol::{
    ErrorCode, ErrorInfo, StreamItem, UnrecordedRun,
    api::{Accepted, ERROR_FRAME, ErrorBody},
};

use super::{connection_lost, transport::root_cause};

/// Content of a frame.
#[derive(Debug)]
pub(super) enum SseFrame {
    /// The run whose stream this is was accepted.
    Accepted(Accepted),
    /// A stream item.
    Item(StreamItem),
}

/// Frames, in order. An error is the last one: the connection was lost, a frame is invalid, or the
/// owner reported why the stream ends.
pub(super) type Frames = BoxStream<'static, Result<SseFrame, ErrorInfo>>;

/// Parses the bytes of an event stream. Comments (`: ping`) and lines that are no field are
/// skipped.
pub(super) fn frames<E>(bytes: impl Stream<Item = Result<Bytes, E>> + Send + 'static) -> Frames
where
    E: std::error::Error + Send + Sync + 'static,
{
    let mut parser = EventParser::default();
    let frames = bytes.flat_map(move |chunk| {
        let mut frames = Vec::new();
        match chunk {
            Ok(chunk) => {
                let mut rest: &[u8] = &chunk;
                while let Some(event) = parser.next_event(&mut rest) {
                    frames.push(frame(&event));
                }
            }
            Err(error) => frames.push(Err(connection_lost(&root_cause(&error)))),
        }
        stream::iter(frames)
    });
    // Nothing that follows an error can be trusted.
    let until_error = frames.scan(false, |has_failed, frame| {
        let item = (!*has_failed).then_some(frame);
        *has_failed |= item.as_ref().is_some_and(Result::is_err);
        futures::future::ready(item)
    });
    until_error.boxed()
}

/// Parses one event.
fn frame(event: &ServerSentEvent) -> Result<SseFrame, ErrorInfo> {
    let data = event.data.as_slice();
    let item = match event.name.as_deref() {
        Some("accepted") => return read(data).map(SseFrame::Accepted),
        Some(ERROR_FRAME) => {
            let body: ErrorBody = read(data)?;
            return Err(body.error.into());
        }
        _ if event.id.is_some() => read(data).map(|record| StreamItem::Event(Arc::new(record))),
        Some(UnrecordedRun::KIND) => read(data).map(|lost| StreamItem::Lost(Arc::new(lost))),
        _ => read(data).map(|delta| StreamItem::Delta(Arc::new(delta))),
    };
    item.map(SseFrame::Item)
}

fn read<T: DeserializeOwned>(data: &[u8]) -> Result<T, ErrorInfo> {
    serde_json::from_slice(data).map_err(|error| unexpected(&error))
}

fn unexpected(error: &dyn std::fmt::Display) -> ErrorInfo {
    let message = format!("unexpected event; the owner process may run another version: {error}");
    ErrorInfo::new(ErrorCode::InternalError, message)
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use proptest::prelude::*;
    use soong_protocol::Delta;

    use super::*;

    const STREAM: &str = concat!(
        ": ping\n\n",
        "odd\nodder: x\n\n",
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
            let pieces: Vec<_> = cuts
                .windows(2)
                .map(|pair| Ok::<_, std::io::Error>(Bytes::from_static(&STREAM.as_bytes()[pair[0]..pair[1]])))
                .collect();
            let read = frames(stream::iter(pieces)).collect::<Vec<_>>().now_or_never();
            let mut read = read.expect("the bytes are there").into_iter();
            let Some(Ok(SseFrame::Accepted(accepted))) = read.next() else { panic!("nothing accepted") };
            prop_assert_eq!(accepted.status, "started");
            let Some(Ok(SseFrame::Item(StreamItem::Event(record)))) = read.next() else { panic!("no event") };
            prop_assert_eq!((record.event_id, record.event.kind()), (4, "cancel_requested"));
            let Some(Ok(SseFrame::Item(StreamItem::Delta(delta)))) = read.next() else { panic!("no delta") };
            prop_assert_eq!(delta.delta.clone(), Delta::Text { text: "hé".into() });
            prop_assert!(matches!(read.next(), Some(Err(_))));
            prop_assert!(read.next().is_none());
        }
    }
}
