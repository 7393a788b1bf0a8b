//! Reading one answer from its connection: a stream of events, or a whole completion.
//!
//! Decides how long to wait for data after a finished answer, and limits the size of an answer.
//!
//! Elsewhere: error statuses (`failure.rs`), and the events of each API (implementations of [`AnswerFormat`]).

use std::{str::Utf8Error, time::Duration};

use bytes::Bytes;
use soong_protocol::{ProviderItem, Usage};

use super::{
    events::EventReader,
    failure::{ErrorBody, ServiceInfo},
    http::RecordedResponse,
};
use crate::{
    AnswerProgress, Completion, DeltaSink, ModelError,
    limits::{AnswerLimits, AnswerSize},
};

/// Maximum time to wait for the usage after the finish reason. After that, the answer is returned without it.
const USAGE_GRACE: Duration = Duration::from_secs(2);
/// Maximum time to wait for the end of the body after the last event. A connection whose body was read to the end can be
/// reused.
const END_GRACE: Duration = Duration::from_millis(100);
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

    /// Returns the completion and its parts for the service, or a description of what is wrong with it. There are no
    /// parts if the service expects nothing to be returned.
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
        let piece = match reader.read_timeout() {
            None => response.chunk().await,
            Some(limit) => match tokio::time::timeout(limit, response.chunk()).await {
                Ok(piece) => piece,
                Err(_) => break,
            },
        };
        match piece {
            Ok(Some(bytes)) => reader.take(&bytes, deltas)?,
            Ok(None) => break,
            Err(_) if reader.answer.progress() != Progress::Open => break,
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
}

impl<'a, F: AnswerFormat> AnswerReader<'a, F> {
    fn new(service: &'a ServiceInfo, limits: AnswerLimits, answer: F) -> Self {
        Self {
            service,
            limits,
            kind: BodyKind::Unknown,
            events: EventReader::default(),
            body: Vec::new(),
            answer: AnswerState { answer, event_count: 0, is_done: false },
        }
    }

    /// Returns how long to wait for more bytes. `None`: as long as the service may stay silent.
    fn read_timeout(&self) -> Option<Duration> {
        match self.answer.progress() {
            Progress::Open => None,
            Progress::Finished => Some(USAGE_GRACE),
            Progress::Ended => Some(END_GRACE),
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
                let room = QUOTED_BYTES.saturating_sub(self.body.len()).min(bytes.len());
                self.body.extend_from_slice(&bytes[..room]);
            }
            let (service, answer) = (self.service, &mut self.answer);
            let outcome = self.events.take(bytes, |data| answer.take_event(data, service, deltas));
            deltas.progress(self.answer.reported());
            outcome?;
        }
        let mut held = self.answer.answer.size();
        held.text_bytes += self.body.len() + self.events.pending_bytes();
        self.limits.check(held)
    }

    fn finish(mut self, deltas: &mut dyn DeltaSink) -> Result<(Completion, Vec<ProviderItem>), ModelError> {
        let service = self.service;
        match self.kind {
            BodyKind::Unknown => return Err(service.invalid_response("is empty", b"")),
            BodyKind::Whole => {
                let outcome = self.answer.answer.take_whole(&self.body, deltas);
                deltas.progress(self.answer.reported());
                outcome.map_err(|error| match error {
                    EventError::Unknown => service.invalid_response("is not a completion", quoted(&self.body)),
                    EventError::Service(error) => service.stream_error(&error),
                    EventError::TooLarge(error) => error,
                })?;
            }
            BodyKind::Events => {
                let answer = &mut self.answer;
                let outcome = self.events.end(|data| answer.take_event(data, service, deltas));
                deltas.progress(self.answer.reported());
                outcome?;
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
        self.answer.answer.finish().map_err(|what| service.invalid_response(&format!("contains {what}"), b""))
    }
}

impl<F: AnswerFormat> AnswerState<F> {
    fn progress(&self) -> Progress {
        if self.is_done { Progress::Ended } else { self.answer.progress() }
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
        data: Result<String, Utf8Error>,
        service: &ServiceInfo,
        deltas: &mut dyn DeltaSink,
    ) -> Result<(), ModelError> {
        if self.progress() == Progress::Ended {
            return Ok(());
        }
        let unknown = |data: &[u8]| service.invalid_response("contains an event that is not a chunk", quoted(data));
        let data = data.map_err(|error| unknown(error.to_string().as_bytes()))?;
        let data = data.as_bytes().trim_ascii();
        if data.is_empty() {
            return Ok(());
        }
        if data == b"[DONE]" {
            self.is_done = true;
            return Ok(());
        }
        self.answer.take_event(data, deltas).map_err(|error| match error {
            EventError::Unknown => unknown(data),
            EventError::Service(error) => service.stream_error(&error),
            EventError::TooLarge(error) => error,
        })?;
        self.event_count += 1;
        Ok(())
    }
}

fn quoted(body: &[u8]) -> &[u8] {
    &body[..body.len().min(QUOTED_BYTES)]
}
