//! The text of a run's answers, as it is streamed.

use futures::Stream;
use soong_protocol::{Delta, ErrorInfo, Event, MessageEvent, ModelEvent, Role, RunId};

use crate::events::{EventStream, StreamItem};

/// Text of the answer that is being streamed.
#[derive(Debug, Default)]
struct AnswerText {
    /// Text that was passed on since the last stored answer.
    passed: String,
    /// Whether the run has called its model. Assistant messages before that are given, not answers.
    has_called: bool,
}

impl AnswerText {
    /// Returns the text that an item adds. A stored answer adds what was not streamed of it.
    fn added(&mut self, item: &StreamItem) -> Option<String> {
        match item {
            StreamItem::Delta(delta) => match &delta.delta {
                Delta::Text { text } => {
                    self.passed.push_str(text);
                    Some(text.clone())
                }
                _ => None,
            },
            StreamItem::Event(record) => match &record.event {
                Event::Message(MessageEvent::Added {
                    role: Role::Assistant,
                    content,
                    ..
                }) if self.has_called => {
                    let passed = std::mem::take(&mut self.passed);
                    content.as_ref()?.strip_prefix(&passed).map(str::to_owned)
                }
                Event::Model(ModelEvent::Started { .. }) => {
                    self.passed.clear();
                    self.has_called = true;
                    None
                }
                _ => None,
            },
            StreamItem::Lost(_) => None,
        }
        .filter(|text| !text.is_empty())
    }
}

/// Streams the text of a run's answers, from its event stream.
pub(super) fn text_stream(
    events: EventStream,
    run: RunId,
) -> impl Stream<Item = Result<String, ErrorInfo>> + Send + 'static {
    futures::stream::unfold(
        (events, AnswerText::default()),
        move |(mut events, mut answer)| {
            let run = run.clone();
            async move {
                loop {
                    match events.next().await? {
                        Err(error) => return Some((Err(error), (events, answer))),
                        Ok(StreamItem::Lost(lost)) if lost.run_id == run => {
                            return Some((Err(lost.error.clone()), (events, answer)));
                        }
                        Ok(item) => {
                            if let Some(text) = answer.added(&item) {
                                return Some((Ok(text), (events, answer)));
                            }
                        }
                    }
                }
            }
        },
    )
}
