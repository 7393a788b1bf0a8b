//! Reading one answer from its connection: a stream of events, or a whole completion.
//!
//! Decides how long to wait for data after a finished answer, and limits the size of an answer.
//!
//! Elsewhere: error statuses (`failure.rs`), and combining the chunks (`assemble.rs`).

use std::{str::Utf8Error, time::Duration};

use reqwest::Response;
use soong_protocol::ProviderItem;

use super::{assemble::Assembler, wire::Chunk};
use crate::{
    Completion, DeltaSink, ModelError,
    limits::AnswerLimits,
    service::{
        events::EventReader,
        failure::{ErrorBody, ServiceInfo},
    },
};

/// Maximum time to wait for the usage after the finish reason. After that, the answer is returned without it.
const USAGE_GRACE: Duration = Duration::from_secs(2);
/// Maximum time to wait for the end of the body after `[DONE]`. A connection whose body was read to the end can be
/// reused.
const END_GRACE: Duration = Duration::from_millis(100);
/// Maximum number of bytes of an invalid answer that an error quotes.
const QUOTED_BYTES: usize = 1024;

/// Reads the answer to its end. Also returns its parts for the service.
pub(super) async fn read(
    mut response: Response,
    origin: &ServiceInfo,
    limits: AnswerLimits,
    deltas: &mut dyn DeltaSink,
) -> Result<(Completion, Vec<ProviderItem>), ModelError> {
    let mut reader = AnswerReader::new(origin, limits);
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
            // The answer is already complete.
            Err(_) if reader.is_complete() => break,
            Err(error) => return Err(origin.transport_error(&error)),
        }
    }
    reader.finish(deltas)
}

/// Kind of body, judged by its first character, because content types are unreliable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BodyKind {
    Unknown,
    Events,
    Completion,
}

struct AnswerReader<'a> {
    origin: &'a ServiceInfo,
    limits: AnswerLimits,
    form: BodyKind,
    events: EventReader,
    /// The whole body, or, for a stream, its beginning until the first event.
    body: Vec<u8>,
    answer: AnswerState,
}

/// The answer as received so far.
struct AnswerState {
    assembler: Assembler,
    chunks: u64,
    done: bool,
}

impl<'a> AnswerReader<'a> {
    fn new(origin: &'a ServiceInfo, limits: AnswerLimits) -> Self {
        Self {
            origin,
            limits,
            form: BodyKind::Unknown,
            events: EventReader::default(),
            body: Vec::new(),
            answer: AnswerState { assembler: Assembler::new(limits), chunks: 0, done: false },
        }
    }

    fn is_complete(&self) -> bool {
        self.answer.done || self.answer.assembler.is_finished()
    }

    /// Returns how long to wait for more bytes. `None`: as long as the service may stay silent.
    fn read_timeout(&self) -> Option<Duration> {
        match (self.answer.done, self.answer.assembler.is_finished()) {
            (true, _) => Some(END_GRACE),
            (_, true) => Some(USAGE_GRACE),
            _ => None,
        }
    }

    fn take(&mut self, bytes: &[u8], deltas: &mut dyn DeltaSink) -> Result<(), ModelError> {
        if self.form == BodyKind::Unknown {
            match bytes.iter().find(|byte| !byte.is_ascii_whitespace()) {
                None => return Ok(()),
                Some(b'{' | b'[' | b'<') => self.form = BodyKind::Completion,
                Some(_) => self.form = BodyKind::Events,
            }
        }
        if self.form == BodyKind::Completion {
            self.body.extend_from_slice(bytes);
        } else {
            if self.answer.chunks == 0 {
                let room = QUOTED_BYTES.saturating_sub(self.body.len()).min(bytes.len());
                self.body.extend_from_slice(&bytes[..room]);
            }
            let (origin, answer) = (self.origin, &mut self.answer);
            self.events.take(bytes, |data| answer.take_event(data, origin, deltas))?;
        }
        let mut held = self.answer.assembler.size();
        held.text_bytes += self.body.len() + self.events.pending_bytes();
        self.limits.check(held)
    }

    fn finish(mut self, deltas: &mut dyn DeltaSink) -> Result<(Completion, Vec<ProviderItem>), ModelError> {
        let origin = self.origin;
        match self.form {
            BodyKind::Unknown => return Err(origin.invalid_response("is empty", b"")),
            BodyKind::Completion => self.answer.take_completion(&self.body, origin, deltas)?,
            BodyKind::Events => {
                let answer = &mut self.answer;
                self.events.end(|data| answer.take_event(data, origin, deltas))?;
                if self.answer.chunks == 0 {
                    return Err(origin.invalid_response("contains no event", quoted(&self.body)));
                }
                if !self.answer.done && !self.answer.assembler.is_finished() {
                    return Err(origin.invalid_response("ended before it was complete", b""));
                }
            }
        }
        self.answer.assembler.finish().map_err(|what| origin.invalid_response(&format!("contains {what}"), b""))
    }
}

impl AnswerState {
    fn take_event(
        &mut self,
        data: Result<String, Utf8Error>,
        origin: &ServiceInfo,
        deltas: &mut dyn DeltaSink,
    ) -> Result<(), ModelError> {
        if self.done {
            return Ok(());
        }
        let no_chunk = |data: &[u8]| origin.invalid_response("contains an event that is not a chunk", quoted(data));
        let data = data.map_err(|error| no_chunk(error.to_string().as_bytes()))?;
        let data = data.as_bytes().trim_ascii();
        if data.is_empty() {
            return Ok(());
        }
        if data == b"[DONE]" {
            self.done = true;
            return Ok(());
        }
        let chunk: Chunk<'_> = serde_json::from_slice(data).map_err(|_| no_chunk(data))?;
        if chunk.error.is_some() || (chunk.choices.is_none() && chunk.usage.is_none() && is_error(data)) {
            return Err(origin.stream_error(&ErrorBody::read(data)));
        }
        self.chunks += 1;
        self.assembler.take(chunk, deltas)
    }

    /// Processes an answer that arrived in one piece although a stream was requested.
    fn take_completion(
        &mut self,
        body: &[u8],
        origin: &ServiceInfo,
        deltas: &mut dyn DeltaSink,
    ) -> Result<(), ModelError> {
        let no_completion = || origin.invalid_response("is not a completion", quoted(body));
        if is_error(body) {
            return Err(origin.stream_error(&ErrorBody::read(body)));
        }
        let chunk: Chunk<'_> = serde_json::from_slice(body).map_err(|_| no_completion())?;
        if !chunk.choices.as_ref().is_some_and(|choices| choices.iter().any(|choice| choice.message.is_some())) {
            return Err(no_completion());
        }
        self.assembler.take(chunk, deltas)
    }
}

/// Returns whether JSON is an error: `{"error":…}`, or, without choices, `{"object":"error",…}`, `{"detail":…}` or
/// `{"message":…,"code":…}`, or a list that starts with one of them.
fn is_error(json: &[u8]) -> bool {
    let Ok(value) = serde_json::from_slice::<serde_json::Value>(json) else { return false };
    let value = value.get(0).unwrap_or(&value);
    let has = |name: &str| value.get(name).is_some_and(|field| !field.is_null());
    has("error")
        || (!has("choices") && (value["object"] == "error" || has("detail") || (has("message") && has("code"))))
}

fn quoted(body: &[u8]) -> &[u8] {
    &body[..body.len().min(QUOTED_BYTES)]
}
