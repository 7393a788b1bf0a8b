//! Ids: opaque text for clients, with one type per noun so that they cannot be confused.
//!
//! All ids of sessions, traces and runs are created here. The root trace of a session has the id of
//! the session; the id of a sub-trace contains the id of its parent (SUB-3).

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::{ChildMode, Timestamp};

/// Error for an invalid id from a client. Contains the id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a valid id: use 1 to 128 letters, digits, '_', '-' or '.', starting with a letter, digit or '_'; \
         \"running\" is reserved"
)]
pub struct IdError(pub String);

macro_rules! text_id {
    ($(#[$meta:meta])* $name:ident) => {
        $(#[$meta])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(value_type = String))]
        #[serde(transparent)]
        pub struct $name(Arc<str>);

        impl $name {
            /// Wraps an id that the store or a trusted caller assigned. Does not validate it.
            pub fn new(text: impl Into<Arc<str>>) -> Self {
                Self(text.into())
            }

            /// Returns the id as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(&self.0)
            }
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, "{}", &self.0)
            }
        }
    };
}

text_id! {
    /// Id of an experience: `ex_` and a number, or another name that a user chose.
    ExperienceId
}
text_id! {
    /// Id of a session, and of its root trace.
    SessionId
}
text_id! {
    /// Id of a trace: the session's id for a root trace, else `{parent}@{mode}-…`.
    TraceId
}
text_id! {
    /// Id of a run, which is one execution of the agent loop.
    RunId
}
text_id! {
    /// Id of a goal within its trace: "1", "2", …. Never reused (GOAL-1).
    GoalId
}
text_id! {
    /// Id of an artifact. Independent of the artifact's name.
    ArtifactId
}
text_id! {
    /// Id of a question to a user. Derived from the trace and the message that asks.
    QuestionId
}
text_id! {
    /// Id of a permission request. Derived from the trace and the message that contains the tool
    /// call.
    PermissionId
}

impl SessionId {
    /// Returns a new unique id. Ids are ordered by time.
    pub fn generate() -> Self {
        Self::new(Uuid::now_v7().to_string())
    }

    /// Parses an id from a client (RT-2a): `^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$`. Rejects
    /// `running`, because it is part of a route (`/api/traces/running`).
    pub fn parse(text: &str) -> Result<Self, IdError> {
        let head = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let tail = |c: char| head(c) || c == '.' || c == '-';
        let valid = text.len() <= 128 && text.starts_with(head) && text.chars().all(tail);
        (valid && text != "running")
            .then(|| Self::new(text))
            .ok_or_else(|| IdError(text.to_owned()))
    }
}

impl TraceId {
    /// Returns the id of the root trace of `session`.
    pub fn root(session: &SessionId) -> Self {
        Self(session.0.clone())
    }

    /// Returns the id of a child trace that is started at `at` as number `number` of its mode
    /// (SUB-3).
    ///
    /// `index` is the position in the task list of an `Explore` call, from 1. Other modes ignore
    /// it.
    pub fn child(&self, mode: ChildMode, index: usize, at: Timestamp, number: u64) -> Self {
        let stamp = at.compact();
        Self::new(match mode {
            ChildMode::Explore => format!("{self}@explore-{index:03}-{stamp}-{number:03}"),
            ChildMode::Delegate => format!("{self}@delegate-{stamp}-{number:03}"),
            ChildMode::Evaluate => format!("{self}@evaluate-{stamp}-{number:03}"),
        })
    }

    /// Returns the mode that the id contains. `None` for a root trace.
    pub fn child_mode(&self) -> Option<ChildMode> {
        let (_, segment) = self.0.rsplit_once('@')?;
        [ChildMode::Explore, ChildMode::Delegate, ChildMode::Evaluate]
            .into_iter()
            .find(|mode| segment.split('-').next() == Some(mode.as_str()))
    }

    /// Returns the trace that started this one. `None` for a root trace.
    pub fn parent(&self) -> Option<Self> {
        self.0.rsplit_once('@').map(|(parent, _)| Self::new(parent))
    }

    /// Returns whether this is `other` or a trace below it.
    pub fn is_within(&self, other: &Self) -> bool {
        self.0
            .strip_prefix(other.as_str())
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('@'))
    }

    /// Returns the last segment, which distinguishes siblings.
    pub fn last_segment(&self) -> &str {
        self.0.rsplit('@').next().unwrap_or(&self.0)
    }
}

impl RunId {
    /// Returns a new unique id. Ids are ordered by time.
    pub fn generate() -> Self {
        Self::new(Uuid::now_v7().to_string())
    }
}

impl QuestionId {
    /// Returns the id of the question that a tool call asks, in this incarnation of the session.
    /// `call_index` is the index of the call in its message, from 0.
    pub fn for_call(trace: &TraceId, incarnation: u64, sequence: u64, call_index: usize) -> Self {
        Self::new(request_id(trace, incarnation, 'q', sequence, call_index))
    }
}

impl PermissionId {
    /// Returns the id of the permission request for a tool call, in this incarnation of the
    /// session. `call_index` is the index of the call in its message, from 0.
    pub fn asked_in(trace: &TraceId, incarnation: u64, sequence: u64, call_index: usize) -> Self {
        Self::new(request_id(trace, incarnation, 'p', sequence, call_index))
    }
}

/// Returns the id of a request that a tool call makes: `s.p3`, for a later call of its message
/// `s.p3.1`. From the second incarnation of the session on, the id contains it (`s+2.p3`), so that
/// an answer to a request of a deleted session fits no other one. No session id contains a `+`.
fn request_id(
    trace: &TraceId,
    incarnation: u64,
    kind: char,
    sequence: u64,
    call_index: usize,
) -> String {
    let mut id = trace.to_string();
    if incarnation > 1 {
        id.push_str(&format!("+{incarnation}"));
    }
    id.push_str(&format!(".{kind}{sequence}"));
    if call_index > 0 {
        id.push_str(&format!(".{call_index}"));
    }
    id
}

impl ArtifactId {
    /// Returns a new unique id. Ids are ordered by time.
    pub fn generate() -> Self {
        Self::new(Uuid::now_v7().to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn session_id_is_validated() {
        let long = "a".repeat(129);
        for (text, valid) in [
            ("a", true),
            ("_x.y-z", true),
            ("9lives", true),
            (&long[..128], true),
            (&long, false),
            ("", false),
            (".hidden", false),
            ("-flag", false),
            ("a/b", false),
            ("a@b", false),
            ("é", false),
            ("a b", false),
            ("running", false),
            ("running-1", true),
        ] {
            assert_eq!(SessionId::parse(text).is_ok(), valid, "{text:?}");
        }
    }

    #[test]
    fn ids_of_requests_contain_later_incarnations() {
        let root = TraceId::new("s");
        assert_eq!(PermissionId::asked_in(&root, 1, 3, 0).as_str(), "s.p3");
        assert_eq!(PermissionId::asked_in(&root, 1, 3, 1).as_str(), "s.p3.1");
        assert_eq!(PermissionId::asked_in(&root, 2, 3, 0).as_str(), "s+2.p3");
        let child = TraceId::new("s@delegate-20251121044001-012");
        assert_eq!(
            QuestionId::for_call(&child, 2, 3, 1).as_str(),
            "s@delegate-20251121044001-012+2.q3.1"
        );
    }

    #[test]
    fn sub_trace_id_contains_parent_and_mode() {
        let root = TraceId::new("s");
        let at = Timestamp::from_millis(1_763_700_001_234);
        assert_eq!(
            root.child(ChildMode::Explore, 2, at, 7).as_str(),
            "s@explore-002-20251121044001-007"
        );
        assert_eq!(
            root.child(ChildMode::Delegate, 1, at, 12).as_str(),
            "s@delegate-20251121044001-012"
        );
        assert_eq!(
            root.child(ChildMode::Evaluate, 1, at, 3).last_segment(),
            "evaluate-20251121044001-003"
        );
        assert_eq!(
            root.child(ChildMode::Delegate, 1, at, 3).child_mode(),
            Some(ChildMode::Delegate)
        );
        assert_eq!(root.child_mode(), None);
        let child = root.child(ChildMode::Delegate, 1, at, 3);
        assert!(root.is_within(&root) && child.is_within(&root) && !root.is_within(&child));
        assert!(!TraceId::new("s2").is_within(&root));
    }
}
