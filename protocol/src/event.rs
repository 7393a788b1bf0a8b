//! Events: durable facts on the timeline of a trace (EVT-1, EVT-2).
//!
//! Each noun has one enum, and all events share one envelope. An event is serialized as `{"event":
//! kind, "data": {…}}`. The store keeps kind and data in separate columns. An event of an unknown
//! kind is kept unchanged.
//!
//! A [`Delta`] is streamed text. It is delivered live only, is not an event, and is never stored.

mod artifact;
mod budget;
mod context;
mod ended_model_call;
mod memory;
mod message;
mod model;
mod permission;
mod run;
mod stats;
mod sub_agent;
mod tool;

pub use artifact::ArtifactEvent;
pub use budget::BudgetEvent;
pub use context::ContextEvent;
pub use ended_model_call::EndedModelCall;
pub use memory::MemoryEvent;
pub use message::MessageEvent;
pub use model::{AnswerCheck, ModelEvent};
pub use permission::{HookEvent, PermissionEvent};
pub use run::RunEvent;
use serde::{Deserialize, Deserializer, Serialize, Serializer, ser::SerializeMap};
use serde_json::value::RawValue;
pub use sub_agent::SubAgentEvent;
pub use tool::ToolEvent;

use crate::{GoalEvent, Level, RunId, SessionId, Timestamp, TraceId};

/// An event of any noun.
#[derive(Debug, Clone)]
pub enum Event {
    /// Event of a run.
    Run(RunEvent),
    /// Event of the message tree.
    Message(MessageEvent),
    /// Event of a model call.
    Model(ModelEvent),
    /// Event of a tool call.
    Tool(ToolEvent),
    /// Event of the goal tree.
    Goal(GoalEvent),
    /// Event of a sub-agent, a question or a collaborator.
    SubAgent(SubAgentEvent),
    /// Event of an artifact.
    Artifact(ArtifactEvent),
    /// Event of a compaction of the conversation.
    Context(ContextEvent),
    /// Event of the budget that a run draws on.
    Budget(BudgetEvent),
    /// Event of a permission request.
    Permission(PermissionEvent),
    /// Event of a hook.
    Hook(HookEvent),
    /// Event of experiences.
    Memory(MemoryEvent),
    /// Event of a kind that this build does not know, or whose data it cannot parse.
    Unknown {
        /// Kind of the event.
        kind: String,
        /// Data as stored.
        data: Box<RawValue>,
    },
}

macro_rules! by_noun {
    ($($noun:ident($type:ident)),* $(,)?) => {
        $(impl From<$type> for Event {
            fn from(event: $type) -> Self {
                Self::$noun(event)
            }
        })*

        impl Event {
            /// The kinds of each noun.
            #[cfg(test)]
            const KINDS: &[&[&str]] = &[$($type::KINDS),*];

            /// Returns the kind as clients see it.
            pub fn kind(&self) -> &str {
                match self {
                    $(Self::$noun(event) => event.kind(),)*
                    Self::Unknown { kind, .. } => kind,
                }
            }

            /// Returns the severity of the event.
            pub fn level(&self) -> Level {
                match self {
                    $(Self::$noun(event) => event.level(),)*
                    Self::Unknown { .. } => Level::Info,
                }
            }

            /// Serializes the data as JSON, without the kind.
            ///
            /// # Panics
            /// Never: events hold only values that JSON can represent.
            pub fn data_json(&self) -> String {
                let tagged = match self {
                    $(Self::$noun(event) => serde_json::to_string(event),)*
                    Self::Unknown { data, .. } => return data.get().to_owned(),
                };
                let mut json = tagged.unwrap_or_default();
                // Extract the text between the colon of `data` and the last brace of
                // `{"event":"kind","data":{…}}`.
                json.pop();
                json.drain(..self.kind().len() + r#"{"event":"","data":"#.len());
                json
            }

            /// Decodes an event from its kind and data.
            ///
            /// Data that does not fit a known kind is kept as [`Event::Unknown`], so that a
            /// timeline of another version stays readable.
            pub fn decode(kind: &str, data: &str) -> Self {
                let tagged = || format!(r#"{{"event":"{kind}","data":{data}}}"#);
                let known = match kind {
                    $(_ if $type::KINDS.contains(&kind) => serde_json::from_str::<$type>(&tagged()).ok().map(Self::$noun),)*
                    _ => None,
                };
                known.unwrap_or_else(|| Self::Unknown {
                    kind: kind.to_owned(),
                    data: RawValue::from_string(data.to_owned()).unwrap_or_default(),
                })
            }
        }
    };
}

by_noun! {
    Run(RunEvent), Message(MessageEvent), Model(ModelEvent), Tool(ToolEvent),
    Goal(GoalEvent), SubAgent(SubAgentEvent), Artifact(ArtifactEvent), Context(ContextEvent), Budget(BudgetEvent),
    Permission(PermissionEvent), Hook(HookEvent), Memory(MemoryEvent),
}

impl Event {
    /// Returns whether the event ends its run. Such an event is the last one of the run.
    pub fn is_terminal(&self) -> bool {
        matches!(self, Self::Run(event) if event.is_terminal())
    }
}

/// An event that is not yet stored: it lacks only the numbers that the store assigns.
#[derive(Debug, Clone)]
pub struct EventDraft {
    /// The trace on whose timeline the event is recorded.
    pub trace_id: TraceId,
    /// The run that caused the event. `None` if no run did.
    pub run_id: Option<RunId>,
    /// Time of the event.
    pub ts: Timestamp,
    /// The event itself.
    pub event: Event,
    /// JSON data of the event. The sender serializes it, so that the writer thread does not have
    /// to.
    pub data: String,
}

impl EventDraft {
    /// Creates a draft and serializes its data.
    pub fn new(
        trace_id: TraceId,
        run_id: Option<RunId>,
        ts: Timestamp,
        event: impl Into<Event>,
    ) -> Self {
        let event = event.into();
        Self {
            data: event.data_json(),
            trace_id,
            run_id,
            ts,
            event,
        }
    }
}

/// A stored event with its envelope.
#[derive(Debug, Clone)]
pub struct EventRecord {
    /// Position in the store, increasing over all traces.
    pub lsn: u64,
    /// Position on the timeline of the trace, from 1 without gaps. It is the cursor for resuming a
    /// stream.
    pub event_id: u64,
    /// The trace.
    pub trace_id: TraceId,
    /// The session.
    pub session_id: SessionId,
    /// The run that caused the event. `None` if no run did.
    pub run_id: Option<RunId>,
    /// Position among the events of the run, from 1.
    pub run_seq: Option<u64>,
    /// Position among the events of the session, from 1.
    pub session_seq: u64,
    /// Time of the event. It never orders events.
    pub ts: Timestamp,
    /// The event itself.
    pub event: Event,
    /// JSON data of the event.
    pub data: String,
}

impl Serialize for EventRecord {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let data: &RawValue =
            serde_json::from_str(&self.data).map_err(serde::ser::Error::custom)?;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("event_id", &self.event_id)?;
        map.serialize_entry("event", self.event.kind())?;
        map.serialize_entry("trace_id", &self.trace_id)?;
        map.serialize_entry("session_id", &self.session_id)?;
        if let (Some(run_id), Some(run_seq)) = (&self.run_id, self.run_seq) {
            map.serialize_entry("run_id", run_id)?;
            map.serialize_entry("run_seq", &run_seq)?;
        }
        map.serialize_entry("session_seq", &self.session_seq)?;
        map.serialize_entry("ts", &self.ts)?;
        map.serialize_entry("level", &self.event.level())?;
        map.serialize_entry("data", data)?;
        map.end()
    }
}

/// Serialized form of a stored event. It does not contain `lsn`.
#[derive(Deserialize)]
struct Envelope {
    event_id: u64,
    event: String,
    trace_id: TraceId,
    session_id: SessionId,
    #[serde(default)]
    run_id: Option<RunId>,
    #[serde(default)]
    run_seq: Option<u64>,
    session_seq: u64,
    ts: Timestamp,
    data: Box<RawValue>,
}

impl<'de> Deserialize<'de> for EventRecord {
    /// Deserializes a stored event. `lsn` is 0, because clients do not receive it.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let envelope = Envelope::deserialize(deserializer)?;
        Ok(Self {
            lsn: 0,
            event_id: envelope.event_id,
            trace_id: envelope.trace_id,
            session_id: envelope.session_id,
            run_id: envelope.run_id,
            run_seq: envelope.run_seq,
            session_seq: envelope.session_seq,
            ts: envelope.ts,
            event: Event::decode(&envelope.event, envelope.data.get()),
            data: envelope.data.get().to_owned(),
        })
    }
}

impl Delta {
    /// Returns the piece of text.
    pub fn text(&self) -> &str {
        match self {
            Self::Text { text } | Self::Reasoning { text } | Self::ToolProgress { text, .. } => {
                text
            }
        }
    }
}

/// A piece of streamed text: delivered live, never stored, and dropped for slow readers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", content = "data")]
pub enum Delta {
    /// Piece of an answer.
    #[serde(rename = "model_text_delta")]
    Text {
        /// The piece of text.
        text: String,
    },
    /// Piece of the reasoning.
    #[serde(rename = "model_reasoning_delta")]
    Reasoning {
        /// The piece of text.
        text: String,
    },
    /// Progress message of a running tool.
    #[serde(rename = "tool_progress")]
    ToolProgress {
        /// The tool call.
        tool_call_id: String,
        /// The message.
        text: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{GoalId, GoalStatus};

    fn samples() -> Vec<Event> {
        vec![
            RunEvent::Queued { position: 1 }.into(),
            RunEvent::CancelRequested {}.into(),
            ModelEvent::Waiting {
                reason: "concurrency".into(),
                for_ms: 3,
            }
            .into(),
            GoalEvent::Updated {
                goal_id: GoalId::new("1"),
                changes: crate::GoalChanges {
                    status: Some(GoalStatus::Completed),
                    ..Default::default()
                },
                affected_goals: vec![],
            }
            .into(),
        ]
    }

    #[test]
    fn event_round_trips() {
        for event in samples() {
            let data = event.data_json();
            let back = Event::decode(event.kind(), &data);
            assert_eq!(format!("{event:?}"), format!("{back:?}"));
            assert_eq!(back.data_json(), data);
        }
    }

    #[test]
    fn unknown_event_kind_is_preserved() {
        for (kind, data) in [
            ("from_the_future", r#"{"a":[1,2]}"#),
            ("run_queued", r#"{"position":"third"}"#),
        ] {
            let event = Event::decode(kind, data);
            assert!(matches!(event, Event::Unknown { .. }));
            assert_eq!((event.kind(), event.data_json().as_str()), (kind, data));
        }
    }

    #[test]
    fn envelope_has_documented_json_format() {
        let draft = EventDraft::new(
            TraceId::new("s"),
            Some(RunId::new("r")),
            Timestamp::default(),
            RunEvent::Queued { position: 2 },
        );
        let record = EventRecord {
            lsn: 9,
            event_id: 1,
            trace_id: draft.trace_id,
            session_id: SessionId::new("s"),
            run_id: draft.run_id,
            run_seq: Some(1),
            session_seq: 4,
            ts: draft.ts,
            event: draft.event,
            data: draft.data,
        };
        assert_eq!(
            serde_json::to_string(&record).unwrap(),
            r#"{"event_id":1,"event":"run_queued","trace_id":"s","session_id":"s","run_id":"r","run_seq":1,"session_seq":4,"ts":"1970-01-01T00:00:00.000Z","level":"info","data":{"position":2}}"#
        );
        let back: EventRecord =
            serde_json::from_str(&serde_json::to_string(&record).unwrap()).unwrap();
        assert_eq!(
            format!("{back:?}"),
            format!("{:?}", EventRecord { lsn: 0, ..record })
        );
    }

    #[test]
    fn event_kinds_are_unique() {
        let all = Event::KINDS.concat();
        assert_eq!(
            all.iter().collect::<std::collections::HashSet<_>>().len(),
            all.len()
        );
    }
}
