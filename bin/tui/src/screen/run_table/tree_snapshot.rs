//! Updates the table of runs from snapshots of the supervision tree.

use soong_protocol::{
    RunId,
    tree::{ActorRun, ActorView},
};

use super::{DisplayState, RunRow, RunTable, RunUsage, format_activity};
use crate::{spent::Spent, text};

impl RunTable {
    /// Updates the runs of the table that have not ended from a snapshot of the supervision tree.
    /// Adds sub-agents that started before the events were followed, for example those of a resumed
    /// run.
    pub fn apply_tree(&mut self, view: &ActorView) {
        if let Some(run) = &view.run
            && let Some(entry) = self.entry_or_add(view, run)
            && !entry.state.has_ended()
        {
            if !entry.awaits_input {
                entry.state = match &*view.state {
                    "queued" | "starting" => DisplayState::Queued,
                    "waiting" => DisplayState::Waiting,
                    _ => DisplayState::Active,
                };
                entry.activity = match &*view.state {
                    "running" | "queued" => text::safe_line(&view.activity),
                    other => format_activity(other, &view.activity),
                };
            }
            entry.goal = run.goal.as_deref().map(text::safe_line).unwrap_or_default();
            entry.update_usage(RunUsage {
                turn: run.turn,
                spent: Spent::from(run),
            });
        }
        for child in &view.children {
            self.apply_tree(child);
        }
    }

    /// Returns the row of a run of the tree. Adds it for a sub-agent of the top-level run; events
    /// of that run report its end. Returns `None` for another run without a row, and for a
    /// sub-agent that has ended.
    fn entry_or_add(&mut self, view: &ActorView, run: &ActorRun) -> Option<&mut RunRow> {
        let id = RunId::new(view.id.as_str());
        if let Some(at) = self.entries.iter().position(|entry| entry.run_id == id) {
            return self.entries.get_mut(at);
        }
        let top = self.entries.first()?.run_id.clone();
        if run.parent_run_id.as_ref() != Some(&top) || self.ended_without_row.contains(&id) {
            return None;
        }
        self.entries
            .push(RunRow::new(id, Some(top), &run.agent_type, &run.task));
        self.entries.last_mut()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        monitor::sample::run as run_actor, sample::record, screen::run_table::tests::child_ended,
    };

    #[test]
    fn children_that_started_earlier_are_added_from_the_tree() {
        let mut board = RunTable::with_root(RunId::new("root"), "default", "all");
        let run = |id: &str, parent: &str| run_actor(id, Some(parent));
        let mut tree = run("root", "elsewhere");
        tree.children = vec![run("a", "root"), run("b", "root"), run("a1", "a")];
        board.apply(&record("root", 1, child_ended("b")));
        board.apply_tree(&tree);
        board.apply_tree(&tree);
        let rows: Vec<_> = board
            .entries
            .iter()
            .map(|entry| (entry.run_id.as_str(), entry.state))
            .collect();
        assert_eq!(
            rows,
            [("root", DisplayState::Active), ("a", DisplayState::Active)]
        );
        board.apply(&record("root", 2, child_ended("a")));
        board.apply_tree(&tree);
        assert_eq!(board.entries[1].state, DisplayState::Failed);
    }
}
