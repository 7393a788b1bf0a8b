//! Reading one answer from its connection: a stream of events, or a whole completion.
//!
//! Decides how long to wait for data after a finished answer, and limits the size of an answer.
//! Data between events that is no JSON object is skipped; an object that cannot be read is an
//! error, because a piece of the answer would be missing.
//!
//! Elsewhere: error statuses (`failure.rs`), and the events of each API (implementations of
//! [`AnswerFormat`]).

use std::{borrow::Cow, time::Duration};

use bytes::Bytes;
use soong_protocol::{ProviderItem, Usage};

use super::{
    events::EventReader,
    failure::{ErrorBody, ServiceInfo},
    http::RecordedResponse,
    surrogates::without_lone_surrogates,
};
use crate::{
    AnswerProgress, Completion, DeltaSink, ModelError,
    limits::{AnswerLimits, AnswerSize},
};

/// Maximum time to wait for the usage after the finish reason. After that, the answer is returned
/// without it.
const USAGE_GRACE: Duration = Duration::from_secs(2);
/// Maximum time to wait for the end of the body after the last event. A connection whose body was
/// read to the end can be reused.
const END_GRACE: Duration = Duration::from_millis(100);
/// Description of an answer with data that is no event.
const NOT_A_CHUNK: &str = "contains an event that is not a chunk";
/// Maximum number of bytes of an invalid answer that an error quotes.
const QUOTED_BYTES: usize = 1024;

/// An answer in progress, in the form of one API.
pub(crate) trait AnswerFormat {
    /// Adds the data of an event, which is not empty.
    fn take_event(&mut self, data: &[u8], deltas: &mut dyn DeltaSink) -> Result<(), EventError>;

    /// Adds an answer that arrived in one piece although a stream was requested.
    fn take_whole(&mut self, body: &[u8], deltas: &mut dyn DeltaSink) -> Result<(), EventError>;

    /// Returns how much of the answer has arrived.
    fn progress(&self) -> Progress;

    /// Returns the size of the answer so far.
    fn size(&self) -> AnswerSize;

    /// Returns the usage that the service has reported so far.
    fn usage(&self) -> Option<Usage>;

    /// Returns the completion and its parts for the service, or a description of what is wrong with
    /// it. There are no parts if the service expects nothing to be returned.
    fn finish(self) -> Result<(Completion, Vec<ProviderItem>), &'static str>;
}

/// How much of an answer has arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Progress {
    /// The answer is not complete.
    Open,
    /// The answer is complete. Only its usage may follow.
    Finished,
    /// The last event has arrived.
    Ended,
}

/// Why an event cannot be added.
pub(crate) enum EventError {
    /// It is not an event of this API.
    Unknown,
    /// It is an error of the service.
    Service(ErrorBody),
    /// The answer exceeds its limits.
    TooLarge(ModelError),
}

impl EventError {
    /// Returns the error for a body that is not an answer.
    pub(crate) fn of_body(body: &[u8]) -> Self {
        ErrorBody::parse(body).map_or(Self::Unknown, Self::Service)
    }
}

impl From<ModelError> for EventError {
    fn from(error: ModelError) -> Self {
        Self::TooLarge(error)
    }
}

/// Reads the answer to its end. Also returns its parts for the service.
pub(crate) async fn read<F: AnswerFormat>(
    mut response: RecordedResponse<'_>,
    service: &ServiceInfo,
    limits: AnswerLimits,
    answer: F,
    deltas: &mut dyn DeltaSink,
) -> Result<(Completion, Vec<ProviderItem>), ModelError> {
    let mut reader = AnswerReader::new(service, limits, answer);
    loop {
        let limit = reader.read_timeout();
        let Ok(piece) = tokio::time::timeout(limit, response.chunk()).await else {
            if reader.answer.progress() == Progress::Open {
                return Err(service.silence_error(reader.kind != BodyKind::Unknown));
            }
            break;
        };
        match piece {
            Ok(Some(bytes)) => reader.take(&bytes, deltas)?,
            Ok(None) => break,
            Err(_) if reader.answer.progress() != Progress::Open => break,
            Err(error) if error.is_timeout() => {
                return Err(service.silence_error(reader.kind != BodyKind::Unknown));
            }
            Err(error) => return Err(service.transport_error(&error)),
        }
    }
    reader.finish(deltas)
}

/// Kind of body, judged by its first character, because content types are unreliable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BodyKind {
    Unknown,
    Events,
    Whole,
}

struct AnswerReader<'a, F> {
    service: &'a ServiceInfo,
    limits: AnswerLimits,
    kind: BodyKind,
    events: EventReader,
    /// The whole body, or, for a stream, its beginning until the first event.
    body: Vec<u8>,
    answer: AnswerState<F>,
}

/// The answer as received so far.
struct AnswerState<F> {
    answer: F,
    event_count: u64,
    /// Whether `[DONE]` has arrived.
    is_done: bool,
    /// The beginning of the first data that was skipped.
    skipped: Option<Vec<u8>>,
    /// Size of all skipped data.
    skipped_bytes: usize,
}

impl<'a, F: AnswerFormat> AnswerReader<'a, F> {
    fn new(service: &'a ServiceInfo, limits: AnswerLimits, answer: F) -> Self {
        Self {
            service,
            limits,
            kind: BodyKind::Unknown,
            events: EventReader::default(),
            body: Vec::new(),
            answer: AnswerState {
                answer,
                event_count: 0,
                is_done: false,
                skipped: None,
                skipped_bytes: 0,
            },
        }
    }

    /// Returns how long to wait for more bytes.
    fn read_timeout(&self) -> Duration {
        match self.answer.progress() {
            Progress::Open if self.kind == BodyKind::Unknown => self.service.first_byte_timeout,
            Progress::Open => self.service.timeout,
            Progress::Finished => USAGE_GRACE,
            Progress::Ended => END_GRACE,
        }
    }

    fn take(&mut self, bytes: &Bytes, deltas: &mut dyn DeltaSink) -> Result<(), ModelError> {
        if self.kind == BodyKind::Unknown {
            match bytes.iter().find(|byte| !byte.is_ascii_whitespace()) {
                None => return Ok(()),
                Some(b'{' | b'[' | b'<') => self.kind = BodyKind::Whole,
                Some(_) => self.kind = BodyKind::Events,
            }
        }
        if self.kind == BodyKind::Whole {
            self.body.extend_from_slice(bytes);
        } else {
            if self.answer.event_count == 0 {
                let room = QUOTED_BYTES
                    .saturating_sub(self.body.len())
                    .min(bytes.len());
                self.body.extend_from_slice(&bytes[..room]);
            }
            let service = self.service;
            let answer = &mut self.answer;
            let outcome = self
                .events
                .take(bytes, |data| answer.take_event(data, service, deltas));
            deltas.progress(self.answer.reported());
            outcome?;
        }
        let mut size = self.answer.answer.size();
        size.text_bytes +=
            self.body.len() + self.events.pending_bytes() + self.answer.skipped_bytes;
        self.limits.check(size)
    }

    fn finish(
        mut self,
        deltas: &mut dyn DeltaSink,
    ) -> Result<(Completion, Vec<ProviderItem>), ModelError> {
        let service = self.service;
        match self.kind {
            BodyKind::Unknown => return Err(service.invalid_response("is empty", b"")),
            BodyKind::Whole => {
                let mut outcome = self.answer.answer.take_whole(&self.body, deltas);
                if let Err(EventError::Unknown) = outcome
                    && let Some(repaired) = repaired(&self.body)
                {
                    outcome = self.answer.answer.take_whole(&repaired, deltas);
                }
                deltas.progress(self.answer.reported());
                outcome.map_err(|error| match error {
                    EventError::Unknown => {
                        service.invalid_response("is not a completion", quoted(&self.body))
                    }
                    EventError::Service(error) => service.stream_error(&error),
                    EventError::TooLarge(error) => error,
                })?;
            }
            BodyKind::Events => {
                let answer = &mut self.answer;
                let outcome = self
                    .events
                    .end(|data| answer.take_event(data, service, deltas));
                deltas.progress(self.answer.reported());
                outcome?;
                // Skipped data may be the reason that the answer is not complete, also if the
                // stream has a proper end.
                if let Some(skipped) = &self.answer.skipped
                    && self.answer.answer.progress() == Progress::Open
                {
                    return Err(service.invalid_response(NOT_A_CHUNK, skipped));
                }
                if self.answer.event_count == 0 {
                    return Err(service.invalid_response("contains no event", quoted(&self.body)));
                }
                if self.answer.progress() == Progress::Open {
                    if let Some(error) = ErrorBody::parse(self.events.unframed()) {
                        return Err(service.stream_error(&error));
                    }
                    return Err(service.invalid_response("ended before it was complete", b""));
                }
            }
        }
        self.answer
            .answer
            .finish()
            .map_err(|what| service.invalid_response(&format!("contains {what}"), b""))
    }
}

impl<F: AnswerFormat> AnswerState<F> {
    fn progress(&self) -> Progress {
        if self.is_done {
            Progress::Ended
        } else {
            self.answer.progress()
        }
    }

    fn reported(&self) -> AnswerProgress {
        AnswerProgress {
            argument_bytes: self.answer.size().argument_bytes,
            usage: self.answer.usage(),
            is_complete: self.progress() != Progress::Open,
        }
    }

    fn take_event(
        &mut self,
        data: String,
        service: &ServiceInfo,
        deltas: &mut dyn DeltaSink,
    ) -> Result<(), ModelError> {
        if self.progress() == Progress::Ended {
            return Ok(());
        }
        let data = data.as_bytes().trim_ascii();
        if data.is_empty() {
            return Ok(());
        }
        if data == b"[DONE]" {
            self.is_done = true;
            return Ok(());
        }
        let mut outcome = self.answer.take_event(data, deltas);
        if let Err(EventError::Unknown) = outcome
            && let Some(repaired) = repaired(data)
        {
            outcome = self.answer.take_event(&repaired, deltas);
        }
        match outcome {
            Ok(()) => self.event_count += 1,
            Err(EventError::Unknown) if data.starts_with(b"{") => {
                return Err(service.invalid_response(NOT_A_CHUNK, quoted(data)));
            }
            Err(EventError::Unknown) => {
                self.skipped_bytes += data.len();
                if self.skipped.is_none() {
                    tracing::warn!(
                        host = service.host,
                        "skipped data of a stream that is no JSON object"
                    );
                    self.skipped = Some(quoted(data).to_vec());
                }
            }
            Err(EventError::Service(error)) => return Err(service.stream_error(&error)),
            Err(EventError::TooLarge(error)) => return Err(error),
        }
        Ok(())
    }
}

/// Returns JSON that a tolerant client could read in a form that ours reads. `None` if nothing is
/// repaired.
fn repaired(json: &[u8]) -> Option<Vec<u8>> {
    let text = String::from_utf8_lossy(json);
    let whole = without_lone_surrogates(&text);
    match without_non_numbers(whole.as_bytes()) {
        Some(repaired) => Some(repaired),
        None if matches!(whole, Cow::Owned(_)) => Some(whole.into_owned().into_bytes()),
        None => None,
    }
}

/// Returns JSON with `null` in place of `NaN` and `Infinity`, which some servers write. `None` if
/// it contains neither.
fn without_non_numbers(json: &[u8]) -> Option<Vec<u8>> {
    const NON_NUMBERS: [&[u8]; 3] = [b"NaN", b"-Infinity", b"Infinity"];
    let mut repaired = Vec::with_capacity(json.len());
    let mut is_repaired = false;
    let mut is_in_text = false;
    let mut rest = json;
    while let Some(first) = rest.first() {
        let found = if is_in_text {
            None
        } else {
            NON_NUMBERS.iter().find(|word| rest.starts_with(word))
        };
        if let Some(word) = found {
            repaired.extend_from_slice(b"null");
            rest = &rest[word.len()..];
            is_repaired = true;
            continue;
        }
        // An escaped quote does not end the text.
        let length = if is_in_text && *first == b'\\' {
            rest.len().min(2)
        } else {
            1
        };
        is_in_text ^= *first == b'"';
        repaired.extend_from_slice(&rest[..length]);
        rest = &rest[length..];
    }
    is_repaired.then_some(repaired)
}

fn quoted(body: &[u8]) -> &[u8] {
    &body[..body.len().min(QUOTED_BYTES)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        anthropic::Messages,
        gemini::Gemini,
        openai::ChatCompletions,
        responses::Responses,
        service::{
            Api,
            testing::{
                ask, request,
                scripted::{Reply, ScriptedServer},
                service,
            },
        },
    };

    /// Returns the answers of a service with an API that streams these events with others between
    /// them: with data that is no JSON object, with an object that is cut off, and without the last
    /// event.
    async fn answers_with_odd_events<A: Api>(
        events: [&'static str; 3],
    ) -> [Result<Completion, ModelError>; 3] {
        let [first, second, last] = events;
        let cut = &second[..second.len() / 2];
        let mut answers = Vec::new();
        for data in [
            vec![first, "stray", "[1]", second, "-", last],
            vec![first, cut, last],
            vec![first, second, "the server failed", "[DONE]"],
        ] {
            let stream: Vec<String> = data
                .iter()
                .map(|data| format!("data: {data}\n\n"))
                .collect();
            let server = ScriptedServer::start(move |_| Reply::stream(stream.clone()));
            answers.push(ask(&service::<A>(&server, "m"), &request()).await);
        }
        answers.try_into().unwrap()
    }

    #[tokio::test]
    async fn data_that_is_no_object_is_skipped_and_a_cut_object_is_an_error() {
        let chat = [
            r#"{"choices": [{"delta": {"content": "one "}, "logprob": NaN}]}"#,
            r#"{"choices": [{"delta": {"content": "two\ud83d"}}]}"#,
            r#"{"choices": [{"delta": {}, "finish_reason": "stop"}]}"#,
        ];
        let responses = [
            r#"{"type": "response.output_text.delta", "delta": "one ", "score": NaN}"#,
            r#"{"type": "response.output_text.delta", "delta": "two\ud83d"}"#,
            r#"{"type": "response.completed", "response": {"status": "completed"}}"#,
        ];
        let messages = [
            r#"{"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "one "}, "p": NaN}"#,
            r#"{"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "two\ud83d"}}"#,
            r#"{"type": "message_delta", "delta": {"stop_reason": "end_turn"}}"#,
        ];
        let gemini = [
            r#"{"candidates": [{"content": {"parts": [{"text": "one "}]}, "avgLogprobs": NaN}]}"#,
            r#"{"candidates": [{"content": {"parts": [{"text": "two\ud83d"}]}}]}"#,
            r#"{"candidates": [{"finishReason": "STOP"}]}"#,
        ];
        for (api, [answer, cut, failed]) in [
            (
                "chat completions",
                answers_with_odd_events::<ChatCompletions>(chat).await,
            ),
            (
                "responses",
                answers_with_odd_events::<Responses>(responses).await,
            ),
            (
                "messages",
                answers_with_odd_events::<Messages>(messages).await,
            ),
            ("gemini", answers_with_odd_events::<Gemini>(gemini).await),
        ] {
            assert_eq!(
                answer.unwrap().text,
                "one two\u{fffd}",
                "half a character is replaced: {api}"
            );
            for (error, part) in [
                (cut.unwrap_err(), "not a chunk"),
                (failed.unwrap_err(), "the server failed"),
            ] {
                assert!(error.message.contains(part), "{api}: {error}");
            }
        }
    }

    #[test]
    fn non_numbers_outside_texts_become_null() {
        for (json, wanted) in [
            (
                r#"{"a": NaN, "b": [-Infinity, Infinity]}"#,
                Some(r#"{"a": null, "b": [null, null]}"#),
            ),
            (
                r#"{"a": "NaN \" NaN", "b": NaN}"#,
                Some(r#"{"a": "NaN \" NaN", "b": null}"#),
            ),
            (
                r#"{"a": "\\", "b": NaN}"#,
                Some(r#"{"a": "\\", "b": null}"#),
            ),
            (r#"{"NaN": "Infinity"}"#, None),
            (r#"{"a": 1}"#, None),
            ("\"\\", None),
        ] {
            let repaired =
                without_non_numbers(json.as_bytes()).map(|bytes| String::from_utf8(bytes).unwrap());
            assert_eq!(repaired.as_deref(), wanted, "{json}");
        }
    }
}
