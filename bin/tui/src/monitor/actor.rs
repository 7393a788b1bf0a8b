//! An actor of the monitor: its last status, its record, and whether it needs attention.
//!
//! Pure. Elsewhere: the set of actors (`actor_index.rs`).

use std::sync::Arc;

use soong_protocol::{
    Run, RunId, RunStatus, Session, SessionId, Timestamp,
    tree::{ActorKind, ActorView, RunEnd},
};

use super::usage_history::UsageHistory;
use crate::{spent::Spent, terminal::TextStyle, text};

/// Unique name of an actor: `kind:id`.
pub(crate) type Key = Arc<str>;

/// One actor.
#[derive(Debug)]
pub(crate) struct Actor {
    pub(crate) key: Key,
    /// Last known status, without children.
    pub(crate) view: ActorView,
    /// Whether the actor has ended.
    pub(crate) has_ended: bool,
    /// Record of an ended run, once it is known.
    pub(crate) record: Option<Box<EndRecord>>,
    /// Record of its session, once it is known. Only actors that are named after their session have
    /// one.
    pub(crate) session_record: Option<Box<Session>>,
    pub(crate) pulse: UsageHistory,
    /// Keys of its parent run and its session.
    pub(crate) logical_parents: [Option<Key>; 2],
}

/// Recorded result of a run.
#[derive(Debug)]
pub(crate) struct EndRecord {
    pub(crate) status: RunStatus,
    /// Error message of a failed run.
    pub(crate) error: Option<String>,
    pub(crate) completed_at: Option<Timestamp>,
    turn: u32,
    spent: Spent,
}

impl From<&RunEnd> for EndRecord {
    fn from(end: &RunEnd) -> Self {
        Self {
            status: end.status,
            error: end.error.as_ref().map(|error| error.message.clone()),
            completed_at: Some(end.completed_at),
            turn: end.turn,
            spent: Spent::from(end),
        }
    }
}

impl From<Run> for EndRecord {
    fn from(run: Run) -> Self {
        Self {
            status: run.status,
            error: run.error.map(|error| error.message),
            completed_at: run.completed_at,
            turn: run.turn,
            spent: Spent::from(&run.usage),
        }
    }
}

/// Reason why an actor needs attention, the most urgent last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Alert {
    /// It crashed and was restarted.
    Restarted,
    /// It has failed.
    Failed,
    /// It waits for input or permission.
    NeedsInput,
    /// It makes no progress.
    Stuck,
}

impl Actor {
    pub(super) fn new(view: ActorView) -> Self {
        let key: Key = view.actor_id.as_str().into();
        let mut actor = Self {
            key,
            view,
            has_ended: false,
            record: None,
            session_record: None,
            pulse: UsageHistory::default(),
            logical_parents: [None, None],
        };
        let parent = actor
            .view
            .run
            .as_ref()
            .and_then(|run| run.parent_run_id.as_ref());
        let session = actor
            .session()
            .filter(|_| matches!(actor.view.kind, ActorKind::Run | ActorKind::WorkingSet));
        actor.logical_parents = [
            parent.map(|run| format!("run:{run}").into()),
            session.map(|id| format!("session:{id}").into()),
        ];
        actor
    }

    pub(crate) fn alarm(&self) -> Option<Alert> {
        let run = self.view.run.as_ref();
        match () {
            () if self.has_ended => {
                let has_failed = self
                    .record
                    .as_ref()
                    .is_some_and(|run| run.status == RunStatus::Failed);
                has_failed.then_some(Alert::Failed)
            }
            () if run.is_some_and(|run| run.stuck) => Some(Alert::Stuck),
            () if run.is_some_and(|run| run.asks > 0) => Some(Alert::NeedsInput),
            () if self.is_down() || matches!(&*self.view.state, "broken" | "failed") => {
                Some(Alert::Failed)
            }
            () if self.view.restarts > 0 => Some(Alert::Restarted),
            () => None,
        }
    }

    /// Returns whether the provider of a gateway is unreachable.
    fn is_down(&self) -> bool {
        self.view
            .gateway
            .as_ref()
            .is_some_and(|gateway| gateway.is_down)
    }

    /// Returns the name of its state, as shown in lists.
    pub(crate) fn state(&self) -> &str {
        match (&self.record, self.alarm()) {
            (Some(record), _) => record.status.as_str(),
            (None, _) if self.has_ended && self.view.run.is_some() => "ended",
            (None, _) if self.has_ended => "stopped",
            (None, Some(Alert::Stuck)) => "stuck",
            (None, Some(Alert::NeedsInput)) => "asking",
            _ if self.is_down() => "down",
            (None, _) => &self.view.state,
        }
    }

    /// Returns the color of its state.
    pub(crate) fn style(&self) -> TextStyle {
        match (self.alarm(), self.state()) {
            (Some(Alert::Stuck | Alert::Failed), _) => TextStyle::Red,
            (Some(Alert::NeedsInput), _) => TextStyle::Yellow,
            (_, "completed") => TextStyle::Green,
            (_, "idle" | "queued" | "ended" | "stopped" | "cancelled") => TextStyle::Dim,
            (_, "running") => TextStyle::Cyan,
            _ => TextStyle::Yellow,
        }
    }

    /// Returns a display name.
    pub(crate) fn name(&self) -> String {
        match &self.view.run {
            Some(run) => {
                format!(
                    "{} {:?}",
                    text::safe_line(&run.agent_type),
                    text::cut(&text::safe_line(&run.task), 40, "...")
                )
            }
            None => match self.slug() {
                Some(slug) => format!("{} {}", kind_name(self.view.kind), text::safe_line(slug)),
                None => text::safe_line(&self.view.actor_id),
            },
        }
    }

    /// Returns the slug of its session, once it is known. `None` for actors that are not named
    /// after a session.
    pub(crate) fn slug(&self) -> Option<&str> {
        self.session_record.as_ref()?.slug.as_deref()
    }

    /// Returns whether it is named after its session, but the record of the session is missing, or
    /// was read before the session's first run.
    pub(crate) fn needs_session_record(&self) -> bool {
        let is_known = self
            .session_record
            .as_ref()
            .is_some_and(|session| session.last_run_at.is_some());
        matches!(self.view.kind, ActorKind::Session | ActorKind::WorkingSet) && !is_known
    }

    /// Returns its own usage: the recorded one, once it has ended.
    pub(crate) fn spent(&self) -> Spent {
        match (&self.record, &self.view.run) {
            (Some(record), _) => record.spent,
            (None, Some(run)) => Spent::from(run),
            (None, None) => Spent::NOTHING,
        }
    }

    /// Returns the number of turns that a run has started.
    pub(crate) fn turn(&self) -> u32 {
        let recorded = self.record.as_ref().map(|run| run.turn);
        recorded
            .or(self.view.run.as_ref().map(|run| run.turn))
            .unwrap_or(0)
    }

    pub(crate) fn run_id(&self) -> Option<RunId> {
        self.view
            .run
            .as_ref()
            .map(|_| RunId::new(self.view.id.as_str()))
    }

    /// Returns the session that it belongs to.
    pub(crate) fn session(&self) -> Option<SessionId> {
        let of = |key: &str| {
            let (kind, id) = key.split_once(':')?;
            matches!(
                kind,
                "session" | "run_supervisor" | "sub_agent_supervisor" | "working_set"
            )
            .then(|| SessionId::new(id))
        };
        of(&self.key).or_else(|| of(self.view.parent.as_deref()?))
    }
}

/// Returns the display name of a kind of actors.
pub(crate) fn kind_name(kind: ActorKind) -> String {
    kind.as_str().replace('_', " ")
}
