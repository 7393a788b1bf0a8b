//! Index of all actors that the monitor knows, built from snapshots of the tree and from changes.
//!
//! Pure. An actor that has ended is removed, except ended runs and their parents: the newest
//! [`MAX_ENDED_RUNS`] runs stay, so that their results can be inspected. Elsewhere: the display
//! order (`rows.rs`).

use std::{
    cell::OnceCell,
    collections::{BTreeMap, HashMap, HashSet, VecDeque},
};

use soong_protocol::{
    RunId, Session, SessionId, Timestamp,
    tree::{ActorKind, ActorRun, ActorView, TreeEvent},
};

use super::{
    actor::{Actor, Alert, EndRecord, Key},
    usage_history::UsageHistory,
};
use crate::spent::Spent;

/// Maximum number of ended runs that are kept.
pub(crate) const MAX_ENDED_RUNS: usize = 500;

/// All known actors.
#[derive(Debug, Default)]
pub(crate) struct ActorIndex {
    actors: HashMap<Key, Actor>,
    root: Option<Key>,
    /// Ended runs, the oldest first.
    ended: VecDeque<Key>,
    /// Number of changes that the owner dropped because the monitor read too slowly.
    pub(crate) dropped: u64,
    /// Number of changes so far.
    pub(crate) version: u64,
    /// Number of changes to the set of actors, or to whether one has ended or has an alarm.
    pub(crate) structure_version: u64,
    /// Computed on demand, and kept until the next change.
    summary: OnceCell<ActorSummary>,
    /// Recent usage of all runs.
    pub(crate) usage_history: UsageHistory,
}

impl ActorIndex {
    pub(crate) fn get(&self, key: &str) -> Option<&Actor> {
        self.actors.get(key)
    }

    pub(crate) fn root(&self) -> Option<&Actor> {
        self.get(self.root.as_ref()?)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Actor> {
        self.actors.values()
    }

    pub(crate) fn run(&self, id: &RunId) -> Option<&Actor> {
        self.get(&format!("run:{id}"))
    }

    pub(crate) fn session(&self, id: &SessionId) -> Option<&Actor> {
        self.get(&format!("session:{id}"))
    }

    /// Stores the record of a session, for the actors that are named after it.
    pub(crate) fn store_session(&mut self, session: &Session) {
        for kind in [ActorKind::Session, ActorKind::WorkingSet] {
            if let Some(actor) =
                self.actors
                    .get_mut(&*format!("{}:{}", kind.as_str(), session.session_id))
            {
                actor.session_record = Some(Box::new(session.clone()));
                self.version += 1;
            }
        }
    }

    /// Applies a tree event that was received at `now`.
    pub(crate) fn apply(&mut self, event: TreeEvent, now: Timestamp) {
        self.version += 1;
        match event {
            TreeEvent::Snapshot { tree, dropped } => {
                self.dropped = dropped;
                self.root = Some(tree.actor_id.as_str().into());
                let mut present = HashSet::new();
                let mut open = vec![*tree];
                while let Some(mut view) = open.pop() {
                    open.append(&mut view.children);
                    present.insert(self.upsert(view, now, false));
                }
                let gone: Vec<Key> = self
                    .actors
                    .keys()
                    .filter(|key| !present.contains(*key))
                    .cloned()
                    .collect();
                gone.iter().for_each(|key| self.mark_ended(key));
            }
            TreeEvent::Changed {
                changed,
                gone,
                ended,
                dropped,
            } => {
                self.dropped = dropped;
                for id in gone.iter() {
                    self.mark_ended(id);
                }
                for end in ended.iter() {
                    self.record(&end.run_id, end.into());
                }
                for view in changed.iter() {
                    self.upsert(view.clone(), now, true);
                }
            }
        }
        self.prune();
        self.summary.take();
    }

    /// Stores the record of a run that has ended.
    pub(crate) fn record(&mut self, run: &RunId, record: EndRecord) {
        if let Some(actor) = self
            .actors
            .get_mut(&*format!("run:{run}"))
            .filter(|actor| actor.has_ended)
        {
            actor.record = Some(Box::new(record));
            self.version += 1;
            self.structure_version += 1;
            self.summary.take();
        }
    }

    /// Adds or updates an actor. If `counts_usage` is true, usage beyond the previous value counts
    /// as used at `now`.
    fn upsert(&mut self, view: ActorView, now: Timestamp, counts_usage: bool) -> Key {
        let key: Key = view.actor_id.as_str().into();
        let spent = |view: &ActorView| match (&view.run, &view.gateway) {
            (Some(run), _) => (run.tokens, run.events),
            (None, Some(gateway)) => (0, gateway.sent),
            (None, None) => (0, 0),
        };
        let after = spent(&view);
        let before = match self.actors.get_mut(&key) {
            Some(actor) => {
                let before = spent(&actor.view);
                let was = (actor.has_ended, actor.alarm().is_some());
                if actor.has_ended {
                    self.ended.retain(|ended| *ended != key);
                }
                actor.view = view;
                actor.has_ended = false;
                actor.record = None;
                self.structure_version += u64::from(was != (false, actor.alarm().is_some()));
                before
            }
            None => {
                self.actors.insert(key.clone(), Actor::new(view));
                self.structure_version += 1;
                (0, 0)
            }
        };
        let before = if counts_usage { before } else { after };
        // A run that another process resumes counts its events from its previous position.
        let events = if before.1 == 0 && before.0 > 0 {
            0
        } else {
            after.1.saturating_sub(before.1)
        };
        let tokens = after.0.saturating_sub(before.0);
        if (tokens > 0 || events > 0)
            && let Some(actor) = self.actors.get_mut(&key)
        {
            actor.pulse.record(now, tokens, events);
            if actor.view.run.is_some() {
                self.usage_history.record(now, tokens, events);
            }
        }
        key
    }

    fn mark_ended(&mut self, key: &str) {
        let Some((key, actor)) = self
            .actors
            .get_key_value(key)
            .map(|(key, actor)| (key.clone(), actor))
        else {
            return;
        };
        if actor.has_ended {
            return;
        }
        let stays = matches!(
            actor.view.kind,
            ActorKind::Run
                | ActorKind::Session
                | ActorKind::RunSupervisor
                | ActorKind::SubAgentSupervisor
        );
        self.structure_version += 1;
        if !stays {
            self.actors.remove(&key);
            return;
        }
        let is_run = actor.view.run.is_some();
        if let Some(actor) = self.actors.get_mut(&key) {
            actor.has_ended = true;
        }
        if is_run {
            self.ended.push_back(key);
        }
    }

    /// Removes the oldest ended runs, and ended actors of other kinds with nothing below them.
    fn prune(&mut self) {
        while self.ended.len() > MAX_ENDED_RUNS {
            if let Some(oldest) = self.ended.pop_front() {
                self.actors.remove(&oldest);
            }
        }
        let is_empty_shell = |actor: &&Actor| actor.has_ended && actor.view.run.is_none();
        if !self.actors.values().any(|actor| is_empty_shell(&actor)) {
            return;
        }
        // Bottom up; the parent of a session never ends.
        for kind in [
            ActorKind::RunSupervisor,
            ActorKind::SubAgentSupervisor,
            ActorKind::Session,
        ] {
            let parents: HashSet<&str> = self
                .actors
                .values()
                .filter_map(|actor| actor.view.parent.as_deref())
                .collect();
            let is_bare = |actor: &&Actor| {
                is_empty_shell(actor) && actor.view.kind == kind && !parents.contains(&*actor.key)
            };
            let bare: Vec<Key> = self
                .actors
                .values()
                .filter(is_bare)
                .map(|actor| actor.key.clone())
                .collect();
            bare.iter().for_each(|key| drop(self.actors.remove(key)));
        }
    }

    /// Returns the actors that need attention, the most urgent and the oldest first.
    pub(crate) fn alerts(&self) -> impl ExactSizeIterator<Item = (Alert, &Key)> {
        self.summary()
            .alarms
            .iter()
            .map(|(alarm, _, key)| (*alarm, key))
    }

    pub(crate) fn summary(&self) -> &ActorSummary {
        self.summary.get_or_init(|| ActorSummary::of(self))
    }

    /// Returns ended runs without a record, the newest first.
    pub(crate) fn unrecorded(&self) -> impl Iterator<Item = RunId> {
        let gone = self.ended.iter().rev().filter_map(|key| self.get(key));
        gone.filter(|actor| actor.record.is_none())
            .filter_map(Actor::run_id)
    }

    /// Returns a run and the active runs below it.
    pub(crate) fn tree_of(&self, run: &RunId) -> Vec<&Actor> {
        let mut below: HashMap<&RunId, Vec<&Actor>> = HashMap::new();
        for actor in self.iter().filter(|actor| !actor.has_ended) {
            if let Some(parent) = actor
                .view
                .run
                .as_ref()
                .and_then(|run| run.parent_run_id.as_ref())
            {
                below.entry(parent).or_default().push(actor);
            }
        }
        let mut found: Vec<&Actor> = self.run(run).into_iter().collect();
        let mut at = 0;
        while at < found.len() {
            let id = RunId::new(found[at].view.id.as_str());
            found.extend(below.remove(&id).unwrap_or_default());
            at += 1;
        }
        found
    }
}

/// Summary of all actors.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct ActorSummary {
    /// Number of active and queued runs.
    pub(crate) runs: usize,
    /// Number of these that are child runs.
    pub(crate) children: usize,
    /// Number of these by state.
    pub(crate) states: BTreeMap<String, usize>,
    /// Usage of these.
    pub(crate) spent: Spent,
    /// Number of ended runs that are kept.
    pub(crate) ended: usize,
    /// Usage of these.
    pub(crate) ended_spent: Spent,
    /// Number of actors that are not runs.
    pub(crate) others: usize,
    /// Whether any run has its own budget.
    pub(crate) has_budgets: bool,
    /// Runs with pending requests: key, number of requests, and number of recorded events.
    pub(crate) pending_requests: Vec<(Key, u32, u64)>,
    alarms: Vec<(Alert, Timestamp, Key)>,
}

impl ActorSummary {
    fn of(actors: &ActorIndex) -> Self {
        let mut sum = Self::default();
        for actor in actors.iter() {
            if let Some(alarm) = actor.alarm() {
                sum.alarms
                    .push((alarm, actor.view.since, actor.key.clone()));
            }
            match &actor.view.run {
                Some(_) if actor.has_ended => {
                    sum.ended += 1;
                    sum.ended_spent = sum.ended_spent.plus(actor.spent());
                }
                None if actor.has_ended => {}
                Some(run) => sum.take(actor, run),
                None => sum.others += 1,
            }
        }
        sum.pending_requests.sort();
        sum.alarms.sort_by(|(a, one, key), (b, other, other_key)| {
            b.cmp(a).then((one, key).cmp(&(other, other_key)))
        });
        sum
    }

    fn take(&mut self, actor: &Actor, run: &ActorRun) {
        self.runs += 1;
        self.children += usize::from(run.parent_run_id.is_some());
        match self.states.get_mut(actor.state()) {
            Some(count) => *count += 1,
            None => drop(self.states.insert(actor.state().to_owned(), 1)),
        }
        self.spent = self.spent.plus(Spent::from(run));
        self.has_budgets |= !run.budget.is_empty();
        if run.asks > 0 {
            self.pending_requests
                .push((actor.key.clone(), run.asks, run.events));
        }
    }
}

#[cfg(test)]
mod tests {
    use soong_protocol::{ErrorCode, ErrorInfo, RunStatus, tree::RunEnd};

    use super::*;
    use crate::monitor::sample::{actor, changed, run, tree};

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_millis(seconds * 1_000)
    }

    fn names(actors: &ActorIndex) -> Vec<String> {
        let mut names: Vec<String> = actors
            .iter()
            .map(|actor| format!("{} {}", actor.key, actor.state()))
            .collect();
        names.sort();
        names
    }

    #[test]
    fn ended_actors_are_dropped_except_runs_and_their_parents() {
        let mut actors = ActorIndex::default();
        actors.apply(tree(vec![run("r1", None), run("r2", Some("r1"))]), at(0));
        actors.apply(
            changed(vec![], &["run:r2", "journal:0", "sub_agent_supervisor:s"]),
            at(1),
        );
        assert_eq!(
            names(&actors),
            [
                "run:r1 running",
                "run:r2 ended",
                "run_supervisor:s running",
                "runtime_supervisor:0 running",
                "session:s running",
                "session_supervisor:0 running",
                "sub_agent_supervisor:s stopped",
            ]
        );
        // When a session is started again, its runs are below it again.
        actors.apply(changed(vec![], &["session:s"]), at(2));
        assert!(actors.get("session:s").unwrap().has_ended);
        actors.apply(
            changed(
                vec![actor(ActorKind::Session, "s", Some("session_supervisor:0"))],
                &[],
            ),
            at(3),
        );
        assert!(!actors.get("session:s").unwrap().has_ended);
        // Actors missing from a snapshot have ended.
        actors.apply(tree(vec![]), at(4));
        assert_eq!(actors.iter().filter(|actor| actor.has_ended).count(), 2);
    }

    #[test]
    fn run_end_is_taken_from_event_or_marked_unrecorded() {
        let mut actors = ActorIndex::default();
        actors.apply(
            tree(vec![run("recorded", None), run("missed", None)]),
            at(0),
        );
        let end = RunEnd {
            run_id: RunId::new("recorded"),
            status: RunStatus::Failed,
            error: Some(ErrorInfo::new(ErrorCode::Overloaded, "no")),
            completed_at: at(1),
            turn: 7,
            tokens: 70,
            cost: None,
            estimated: false,
        };
        let gone = ["run:recorded", "run:missed"].map(str::to_owned).into();
        actors.apply(
            TreeEvent::Changed {
                changed: [].into(),
                gone,
                ended: [end].into(),
                dropped: 0,
            },
            at(2),
        );
        let reported = actors.get("run:recorded").unwrap();
        assert_eq!(
            (reported.state(), reported.alarm(), reported.turn()),
            ("failed", Some(Alert::Failed), 7)
        );
        assert_eq!(
            (
                actors.summary().ended_spent.tokens,
                actors.summary().ended_spent.cost
            ),
            (70, None)
        );
        assert_eq!(
            actors.unrecorded().collect::<Vec<_>>(),
            [RunId::new("missed")]
        );
    }

    #[test]
    fn only_newest_ended_runs_are_kept() {
        let mut actors = ActorIndex::default();
        actors.apply(tree(vec![]), at(0));
        for n in 0..MAX_ENDED_RUNS + 10 {
            let id = format!("r{n}");
            actors.apply(changed(vec![run(&id, None)], &[]), at(1));
            actors.apply(changed(vec![], &[&format!("run:{id}")]), at(2));
        }
        assert_eq!(
            actors
                .iter()
                .filter(|actor| actor.view.run.is_some())
                .count(),
            MAX_ENDED_RUNS
        );
        assert!(actors.get("run:r9").is_none() && actors.get("run:r10").is_some());
    }

    #[test]
    fn usage_before_first_snapshot_is_not_counted_as_recent() {
        let mut actors = ActorIndex::default();
        let with = |id: &str, tokens: u64| {
            let mut view = run(id, None);
            view.run.as_mut().unwrap().tokens = tokens;
            view
        };
        actors.apply(tree(vec![with("old", 500)]), at(0));
        assert_eq!(actors.usage_history.sum().0, 0);
        actors.apply(changed(vec![with("old", 530), with("new", 7)], &[]), at(1));
        assert_eq!(actors.usage_history.sum().0, 37);
        assert_eq!(actors.summary().spent.tokens, 537);
    }

    #[test]
    fn alerts_are_sorted_by_urgency() {
        let mut actors = ActorIndex::default();
        let mut views = Vec::new();
        for (id, stuck, asks, restarts) in [
            ("calm", false, 0, 0),
            ("back", false, 0, 1),
            ("asks", false, 2, 1),
            ("hangs", true, 1, 0),
        ] {
            let mut view = run(id, None);
            view.restarts = restarts;
            let about = view.run.as_mut().unwrap();
            about.stuck = stuck;
            about.asks = asks;
            views.push(view);
        }
        actors.apply(tree(views), at(0));
        let alarms: Vec<(Alert, &str)> = actors
            .alerts()
            .map(|(alarm, key)| (alarm, &**key))
            .collect();
        assert_eq!(
            alarms,
            [
                (Alert::Stuck, "run:hangs"),
                (Alert::NeedsInput, "run:asks"),
                (Alert::Restarted, "run:back")
            ]
        );
    }
}
