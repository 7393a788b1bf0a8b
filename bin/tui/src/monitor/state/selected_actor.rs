//! Actions on the selected actor: cancel, crash and export. Each opens a dialog, or shows a note on
//! why it is not possible.

use soong_protocol::{RunId, Timestamp, tree::ActorKind};

use super::{Monitor, MonitorRequest};
use crate::monitor::{actor::Actor, command::Command, dialog::Dialog, prompt::Prompt};
use crate::{format, terminal::TextStyle};

impl Monitor {
    pub(super) fn cancel(&mut self, now: Timestamp) -> Option<MonitorRequest> {
        let actor = self.list.selected().and_then(|key| self.actors.get(key))?;
        let what = match (actor.run_id().filter(|_| !actor.has_ended), actor.view.kind) {
            (Some(run), _) => {
                let below = match self.actors.tree_of(&run).len().saturating_sub(1) {
                    0 => String::new(),
                    below => format!(
                        " and its {}",
                        format::plural(below, "sub-agent", "sub-agents")
                    ),
                };
                Some((format!("the run {}{below}", actor.name()), vec![run]))
            }
            (None, ActorKind::Session) => {
                let of_session = |run: &&Actor| {
                    let is_users = run
                        .view
                        .run
                        .as_ref()
                        .is_some_and(|run| run.parent_run_id.is_none());
                    is_users && !run.has_ended && run.session() == actor.session()
                };
                let runs: Vec<RunId> = self
                    .actors
                    .iter()
                    .filter(of_session)
                    .filter_map(Actor::run_id)
                    .collect();
                let count = format::plural(runs.len(), "run", "runs");
                (!runs.is_empty()).then(|| {
                    (
                        format!("{count} of the session, including sub-agents"),
                        runs,
                    )
                })
            }
            _ => None,
        };
        let Some((what, runs)) = what else {
            self.show_note(
                TextStyle::Yellow,
                "nothing to cancel: select an active run, or a session with an active run",
                now,
            );
            return None;
        };
        self.open(Dialog::Confirm {
            question: format!("Cancel {what}?"),
            command: Command::Cancel(runs),
        })
    }

    pub(super) fn kill(&mut self, now: Timestamp) -> Option<MonitorRequest> {
        let actor = self.list.selected().and_then(|key| self.actors.get(key))?;
        let may = matches!(
            actor.view.kind,
            ActorKind::Run | ActorKind::Session | ActorKind::WorkingSet | ActorKind::ModelGateway
        );
        if may && actor.has_ended {
            self.show_note(
                TextStyle::Yellow,
                "the actor has already stopped: nothing to crash",
                now,
            );
            return None;
        }
        if !may {
            self.show_note(
                TextStyle::Yellow,
                "only runs, sessions, working sets and model gateways can be crashed",
                now,
            );
            return None;
        }
        let limit = &actor.view.restart_limit;
        let question = format!(
            "Crash the actor of {} to test its restart? {} restarts so far, limit {limit}",
            actor.name(),
            actor.view.restarts
        );
        let command = Command::Kill(actor.view.actor_id.clone());
        self.open(Dialog::Confirm { question, command })
    }

    pub(super) fn export(&mut self, now: Timestamp) -> Option<MonitorRequest> {
        let actor = self.list.selected().and_then(|key| self.actors.get(key))?;
        let Some(run) = &actor.view.run else {
            self.show_note(
                TextStyle::Yellow,
                "only runs can be exported: select a run",
                now,
            );
            return None;
        };
        let trace = run.trace_id.clone();
        let typed = Prompt::with(format!("soong-{}", trace.last_segment()));
        self.open(Dialog::Folder { trace, typed })
    }
}
