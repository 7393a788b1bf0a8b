//! Items of event streams: stored events, and items that are only sent live, as clients receive
//! them.

use std::{borrow::Cow, sync::Arc};

use serde::{Deserialize, Deserializer, Serialize, Serializer, ser::SerializeMap};

use crate::{Delta, ErrorInfo, EventRecord, RunId, SessionId, Timestamp, TraceId};

/// Streamed text of a model or a tool, with the ids of its run.
#[derive(Debug, Clone)]
pub struct LiveDelta {
    /// The trace.
    pub trace_id: TraceId,
    /// The session.
    pub session_id: SessionId,
    /// The run.
    pub run_id: RunId,
    /// Time of arrival.
    pub ts: Timestamp,
    /// The text.
    pub delta: Delta,
}

impl LiveDelta {
    fn kind(&self) -> &'static str {
        match &self.delta {
            Delta::Text { .. } => "model_text_delta",
            Delta::Reasoning { .. } => "model_reasoning_delta",
            Delta::ToolProgress { .. } => "tool_progress",
        }
    }
}

impl Serialize for LiveDelta {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (call, text) = match &self.delta {
            Delta::Text { text } | Delta::Reasoning { text } => (None, text),
            Delta::ToolProgress { tool_call_id, text } => {
                (Some(("tool_call_id", tool_call_id)), text)
            }
        };
        let data: std::collections::BTreeMap<_, _> =
            call.into_iter().chain([("text", text)]).collect();
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("event", self.kind())?;
        map.serialize_entry("trace_id", &self.trace_id)?;
        map.serialize_entry("session_id", &self.session_id)?;
        map.serialize_entry("run_id", &self.run_id)?;
        map.serialize_entry("ts", &self.ts)?;
        map.serialize_entry("data", &data)?;
        map.end()
    }
}

impl<'de> Deserialize<'de> for LiveDelta {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Received {
            trace_id: TraceId,
            session_id: SessionId,
            run_id: RunId,
            ts: Timestamp,
            #[serde(flatten)]
            delta: Delta,
        }
        let Received {
            trace_id,
            session_id,
            run_id,
            ts,
            delta,
        } = Received::deserialize(deserializer)?;
        Ok(Self {
            trace_id,
            session_id,
            run_id,
            ts,
            delta,
        })
    }
}

/// One item of a stream.
#[derive(Debug, Clone)]
pub enum StreamItem {
    /// A stored event.
    Event(Arc<EventRecord>),
    /// Streamed text; live only.
    Delta(Arc<LiveDelta>),
    /// A run of which no more events follow, because its end cannot be recorded; live only. The
    /// last item of the run's own stream.
    Lost(Arc<UnrecordedRun>),
}

impl StreamItem {
    /// Returns the cursor after which a stream of the trace continues (an `event_id`). `None` for
    /// live-only items.
    pub fn id(&self) -> Option<u64> {
        match self {
            Self::Event(record) => Some(record.event_id),
            Self::Delta(_) | Self::Lost(_) => None,
        }
    }

    /// Returns the name of the event, such as `run_completed` or `model_text_delta`.
    pub fn kind(&self) -> &str {
        match self {
            Self::Event(record) => record.event.kind(),
            Self::Delta(delta) => delta.kind(),
            Self::Lost(_) => UnrecordedRun::KIND,
        }
    }
}

impl Serialize for StreamItem {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Event(record) => record.serialize(serializer),
            Self::Delta(delta) => delta.serialize(serializer),
            Self::Lost(lost) => lost.serialize(serializer),
        }
    }
}

/// A run whose end cannot be recorded, because the store is permanently damaged. In the store it
/// has not ended.
#[derive(Debug, Clone)]
pub struct UnrecordedRun {
    /// Its trace.
    pub trace_id: TraceId,
    /// Its session.
    pub session_id: SessionId,
    /// The run.
    pub run_id: RunId,
    /// Time of the failure.
    pub ts: Timestamp,
    /// The error of the store.
    pub error: ErrorInfo,
}

impl UnrecordedRun {
    /// Event name of this item.
    pub const KIND: &str = "run_lost";
}

/// Form in which clients receive an [`UnrecordedRun`]: an event without a number.
#[derive(Serialize, Deserialize)]
struct Envelope<'a, T> {
    event: Cow<'a, str>,
    trace_id: Cow<'a, TraceId>,
    session_id: Cow<'a, SessionId>,
    run_id: Cow<'a, RunId>,
    ts: Timestamp,
    data: T,
}

#[derive(Serialize, Deserialize)]
struct LostData<'a> {
    error: Cow<'a, ErrorInfo>,
}

impl Serialize for UnrecordedRun {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self {
            trace_id,
            session_id,
            run_id,
            ts,
            error,
        } = self;
        Envelope {
            event: Self::KIND.into(),
            trace_id: Cow::Borrowed(trace_id),
            session_id: Cow::Borrowed(session_id),
            run_id: Cow::Borrowed(run_id),
            ts: *ts,
            data: LostData {
                error: Cow::Borrowed(error),
            },
        }
        .serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for UnrecordedRun {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Envelope {
            event,
            trace_id,
            session_id,
            run_id,
            ts,
            data,
        } = Envelope::<'_, LostData<'_>>::deserialize(deserializer)?;
        if event != Self::KIND {
            return Err(serde::de::Error::custom(format!(
                "{event} is not {}",
                Self::KIND
            )));
        }
        Ok(Self {
            trace_id: trace_id.into_owned(),
            session_id: session_id.into_owned(),
            run_id: run_id.into_owned(),
            ts,
            error: data.error.into_owned(),
        })
    }
}
