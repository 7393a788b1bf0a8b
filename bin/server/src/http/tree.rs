//! The supervision tree: current state, changes, and test crashes.
//!
//! A user sees the actors that all users share, and those of their own sessions. Elsewhere: the
//! WebSocket (`watch.rs`).

use std::collections::{HashMap, HashSet};

use soong::{
    ActorKind, ActorView, ErrorCode, ErrorInfo, RunEnd, TreeEvent,
    protocol::{
        RunId, SessionId, TraceId,
        api::{
            Killed,
            operation::{CrashActor, ReadTree},
        },
    },
};

use super::{
    caller::Access,
    error::{ApiError, validation_error},
};

pub(super) async fn show(access: &Access, _: ReadTree) -> Result<ActorView, ApiError> {
    let closed = || ErrorInfo::retryable(ErrorCode::Closing, "the runtime is closed");
    let mut tree = access.runtime().tree().snapshot().ok_or_else(closed)?;
    TreeFilter::default().prune(access, &mut tree).await?;
    Ok(tree)
}

pub(super) async fn crash_actor(access: &Access, request: CrashActor) -> Result<Killed, ApiError> {
    let CrashActor { actor_id } = request;
    let _passing = access.begin_change()?;
    let gone = || {
        ErrorInfo::new(
            ErrorCode::ActorNotFound,
            format!("there is no actor {actor_id:?}: see the actor tree"),
        )
    };
    let (kind, id) = actor_id.split_once(':').unwrap_or((&actor_id, ""));
    let is = |wanted: ActorKind| kind == wanted.as_str();
    if is(ActorKind::Run) {
        access.run(&RunId::new(id)).await.map_err(|_| gone())?;
    } else if is(ActorKind::Session) || is(ActorKind::WorkingSet) {
        access
            .session(&SessionId::new(id))
            .await
            .map_err(|_| gone())?;
    } else if is(ActorKind::ModelGateway) {
        access.require_operator("crashing an actor that all users share")?;
    } else {
        let mut tree = access.runtime().tree().snapshot().ok_or_else(gone)?;
        TreeFilter::default().prune(access, &mut tree).await?;
        if !contains(&tree, &actor_id) {
            return Err(gone().into());
        }
        return Err(validation_error(format!(
            "{actor_id:?} cannot be made to crash here: only runs, sessions, working sets and model gateways"
        )));
    }
    access.runtime().tree().inject_crash(&actor_id)?;
    Ok(Killed { actor_id })
}

/// The actors that a caller may see and has seen.
#[derive(Debug, Default)]
pub(super) struct TreeFilter {
    /// Sessions that belong to the caller.
    own_sessions: HashMap<SessionId, bool>,
    /// Ids of the actors that were sent to the caller.
    sent_actors: HashSet<String>,
}

impl TreeFilter {
    /// Removes the actors of other users.
    pub(super) async fn prune(
        &mut self,
        access: &Access,
        tree: &mut ActorView,
    ) -> Result<(), ErrorInfo> {
        self.load_owners(access, sessions_of(tree)).await?;
        // An actor that is removed and added again may belong to another user.
        self.sent_actors.clear();
        self.retain_own(access, tree);
        Ok(())
    }

    /// Removes the actors of other users from an event; `None` if nothing remains.
    pub(super) async fn filter_event(
        &mut self,
        access: &Access,
        event: TreeEvent,
    ) -> Result<Option<TreeEvent>, ErrorInfo> {
        Ok(match event {
            TreeEvent::Snapshot { mut tree, dropped } => {
                self.own_sessions.clear();
                self.prune(access, &mut tree).await?;
                Some(TreeEvent::Snapshot { tree, dropped })
            }
            event if access.caller.visible_uid().is_none() => Some(event),
            TreeEvent::Changed {
                changed,
                gone,
                ended,
                dropped,
            } => {
                // An actor that is both gone and changed has been started again.
                let gone: Vec<String> = gone
                    .iter()
                    .filter(|id| self.sent_actors.remove(*id))
                    .cloned()
                    .collect();
                for id in &gone {
                    // A session with that id may belong to another user next time.
                    if let Some(("session" | "working_set", session)) = id.split_once(':') {
                        self.own_sessions.remove(&SessionId::new(session));
                    }
                }
                self.load_owners(access, changed.iter().filter_map(session_of).collect())
                    .await?;
                let changed: Vec<ActorView> = changed
                    .iter()
                    .filter(|view| self.is_seen(view))
                    .cloned()
                    .collect();
                self.sent_actors
                    .extend(changed.iter().map(|view| view.actor_id.clone()));
                let is_theirs = |end: &&RunEnd| {
                    gone.iter()
                        .any(|id| id.strip_prefix("run:") == Some(end.run_id.as_str()))
                };
                let ended = ended.iter().filter(is_theirs).cloned().collect();
                let is_empty = changed.is_empty() && gone.is_empty();
                (!is_empty).then(|| TreeEvent::Changed {
                    changed: changed.into(),
                    gone: gone.into(),
                    ended,
                    dropped,
                })
            }
        })
    }

    /// Loads the owners of unknown sessions.
    async fn load_owners(
        &mut self,
        access: &Access,
        sessions: HashSet<SessionId>,
    ) -> Result<(), ErrorInfo> {
        if access.caller.visible_uid().is_none() {
            return Ok(());
        }
        let unknown: Vec<SessionId> = sessions
            .into_iter()
            .filter(|session| !self.own_sessions.contains_key(session))
            .collect();
        if unknown.is_empty() {
            return Ok(());
        }
        // A session that is not found may not be stored yet: it is looked up again with its next
        // change.
        let owners = access.runtime().sessions().owners(unknown).await?;
        let own = owners
            .into_iter()
            .filter(|(_, uid)| access.caller.uid() == uid);
        self.own_sessions
            .extend(own.map(|(session, _)| (session, true)));
        Ok(())
    }

    fn is_seen(&self, view: &ActorView) -> bool {
        session_of(view).is_none_or(|session| self.own_sessions.contains_key(&session))
    }

    fn retain_own(&mut self, access: &Access, view: &mut ActorView) {
        if access.caller.visible_uid().is_some() {
            view.children.retain(|child| self.is_seen(child));
            self.sent_actors.insert(view.actor_id.clone());
        }
        for child in &mut view.children {
            self.retain_own(access, child);
        }
    }
}

/// Returns whether a tree has an actor with this id.
fn contains(tree: &ActorView, actor_id: &str) -> bool {
    tree.actor_id == actor_id || tree.children.iter().any(|child| contains(child, actor_id))
}

fn sessions_of(tree: &ActorView) -> HashSet<SessionId> {
    let below = tree.children.iter().flat_map(sessions_of);
    session_of(tree).into_iter().chain(below).collect()
}

/// Returns the session that an actor belongs to; `None` if all users share the actor.
fn session_of(view: &ActorView) -> Option<SessionId> {
    match view.kind {
        ActorKind::Session
        | ActorKind::RunSupervisor
        | ActorKind::SubAgentSupervisor
        | ActorKind::WorkingSet => Some(SessionId::new(view.id.as_str())),
        // A run without a trace has no known owner, so no user sees it.
        ActorKind::Run => {
            let root = |trace: &TraceId| {
                trace
                    .as_str()
                    .split('@')
                    .next()
                    .unwrap_or_default()
                    .to_owned()
            };
            Some(SessionId::new(
                view.run
                    .as_ref()
                    .map(|run| root(&run.trace_id))
                    .unwrap_or_default(),
            ))
        }
        _ => None,
    }
}
