//! The visible rows of the tree, and the selected one.
//!
//! Pure. Invariant: the selection follows its actor when the row moves; if the row disappears, a
//! neighbor is selected.

use super::{
    actor::Key,
    actor_index::ActorIndex,
    keys::RowMove,
    rows::{ActorRow, TreeView, parent, rows},
};

/// The rows of the tree.
#[derive(Debug, Default)]
pub(crate) struct RowList {
    pub(crate) view: TreeView,
    rows: Vec<ActorRow>,
    /// Version of the actor index that the rows show; `None` if they must be rebuilt.
    arranged: Option<u64>,
    selected: Option<Key>,
    at: usize,
    top: usize,
    /// Whether the selection moves to the most recently active run.
    pub(crate) follows: bool,
}

impl RowList {
    pub(crate) fn rows(&self) -> &[ActorRow] {
        &self.rows
    }

    pub(crate) fn selected(&self) -> Option<&Key> {
        self.selected.as_ref()
    }

    pub(crate) fn row(&self) -> Option<&ActorRow> {
        self.rows.get(self.at)
    }

    /// Returns the position of the selected row for display, starting at 1.
    pub(crate) fn display_position(&self) -> usize {
        (self.at + 1).min(self.rows.len())
    }

    /// Rebuilds the rows if the actor index or the view has changed.
    pub(crate) fn refresh(&mut self, actors: &ActorIndex) {
        // Rows that are sorted or filtered by the content of actors may change with every update.
        let changes = if self.view.depends_on_structure_only() && !self.follows {
            actors.structure_version
        } else {
            actors.version
        };
        if self.arranged == Some(changes) {
            return;
        }
        self.arranged = Some(changes);
        self.rows = rows(actors, &self.view);
        if self.follows
            && let Some(busy) = most_recent_progress(actors, &self.rows)
        {
            self.selected = Some(busy);
        }
        let mut found = None;
        // If the selected actor is inside a folded row, that row is selected.
        let mut sought = self.selected.as_ref().and_then(|key| actors.get(key));
        while let (None, Some(actor)) = (found, sought) {
            found = self.rows.iter().position(|row| row.key == actor.key);
            sought = parent(actors, &self.view, actor);
        }
        self.at = found.unwrap_or(self.at.min(self.rows.len().saturating_sub(1)));
        self.selected = self.rows.get(self.at).map(|row| row.key.clone());
    }

    /// Changes the view and rebuilds the rows.
    pub(crate) fn change(&mut self, actors: &ActorIndex, change: impl FnOnce(&mut TreeView)) {
        change(&mut self.view);
        self.arranged = None;
        self.refresh(actors);
    }

    pub(crate) fn step(&mut self, step: RowMove, page: usize) {
        self.follows = false;
        let last = self.rows.len().saturating_sub(1);
        self.at = match step {
            RowMove::Up => self.at.saturating_sub(1),
            RowMove::Down => (self.at + 1).min(last),
            RowMove::PageUp => self.at.saturating_sub(page.max(1)),
            RowMove::PageDown => (self.at + page.max(1)).min(last),
            RowMove::First => 0,
            RowMove::Last => last,
        };
        self.selected = self.rows.get(self.at).map(|row| row.key.clone());
    }

    /// Selects an actor, and removes everything that hides it.
    pub(crate) fn select(&mut self, actors: &ActorIndex, key: &Key) {
        self.follows = false;
        if !self.rows.iter().any(|row| row.key == *key) {
            // Remove folding and filters.
            self.view.folded.clear();
            self.view.filter.clear();
            self.view.only_urgent = false;
            self.view.with_ended = true;
        }
        self.selected = Some(key.clone());
        self.arranged = None;
        self.refresh(actors);
    }

    /// Unfolds the selected row, or selects the first row below it.
    pub(crate) fn unfold_or_descend(&mut self, actors: &ActorIndex) {
        let Some(row) = self.row().cloned() else {
            return;
        };
        if row.hidden > 0 {
            self.change(actors, |view| _ = view.folded.remove(&row.key));
        } else if row.has_children {
            self.step(RowMove::Down, 1);
        }
    }

    /// Folds the selected row, or selects its parent row.
    pub(crate) fn fold_or_ascend(&mut self, actors: &ActorIndex) {
        let Some(row) = self.row().cloned() else {
            return;
        };
        if row.has_children && row.hidden == 0 {
            self.change(actors, |view| _ = view.folded.insert(row.key.clone()));
            return;
        }
        let above = self.rows[..self.at]
            .iter()
            .rposition(|above| above.branches.len() < row.branches.len());
        if let Some(above) = above {
            self.at = above;
            self.selected = Some(self.rows[above].key.clone());
        }
    }

    /// Folds all rows that have children, except the root; or unfolds all rows.
    pub(crate) fn fold_all(&mut self, actors: &ActorIndex) {
        let parents = self
            .rows
            .iter()
            .filter(|row| row.has_children && !row.branches.is_empty());
        let parents: Vec<Key> = parents.map(|row| row.key.clone()).collect();
        self.change(actors, |view| {
            if view.folded.is_empty() {
                view.folded.extend(parents)
            } else {
                view.folded.clear()
            }
        });
    }

    /// Returns this number of rows, from the scroll position of the last picture on.
    pub(crate) fn visible(&self, room: usize) -> &[ActorRow] {
        let from = self.top.min(self.rows.len());
        &self.rows[from..(from + room).min(self.rows.len())]
    }

    /// Returns the first visible row for a number of rows, so that the selected row is visible.
    pub(crate) fn scroll(&mut self, room: usize) -> usize {
        let room = room.max(1);
        let most = self.rows.len().saturating_sub(room);
        self.top = self
            .top
            .min(self.at)
            .max((self.at + 1).saturating_sub(room))
            .min(most);
        self.top
    }
}

/// Returns the run with the most recent progress. Runs without progress count as the oldest.
fn most_recent_progress(actors: &ActorIndex, rows: &[ActorRow]) -> Option<Key> {
    let actors = rows
        .iter()
        .filter_map(|row| actors.get(&row.key))
        .filter(|actor| !actor.has_ended);
    let runs = actors.filter_map(|actor| Some((actor.view.run.as_ref()?.last_progress, actor)));
    runs.max_by_key(|(progress, _)| *progress)
        .map(|(_, actor)| actor.key.clone())
}

#[cfg(test)]
mod tests {
    use soong_protocol::Timestamp;

    use super::*;
    use crate::monitor::sample::{changed, run, tree};

    fn sample_actors(runs: &[(&str, Option<&str>)]) -> ActorIndex {
        let mut actors = ActorIndex::default();
        actors.apply(
            tree(runs.iter().map(|(id, parent)| run(id, *parent)).collect()),
            Timestamp::default(),
        );
        actors
    }

    #[test]
    fn selection_is_kept_or_moves_to_a_remaining_row() {
        let mut actors = sample_actors(&[("m", None), ("a", Some("m")), ("b", Some("m"))]);
        let mut list = RowList::default();
        list.refresh(&actors);
        list.select(&actors, &"run:b".into());
        assert_eq!(list.display_position(), 5);
        actors.apply(
            changed(vec![run("aa", Some("m"))], &[]),
            Timestamp::default(),
        );
        list.refresh(&actors);
        assert_eq!(
            (list.display_position(), list.selected().map(|key| &**key)),
            (6, Some("run:b"))
        );
        list.change(&actors, |view| view.filter = "run aa".to_owned());
        assert_eq!(
            list.selected().map(|key| &**key),
            Some("run:m"),
            "what it hangs below"
        );
        actors.apply(tree(vec![run("m", None)]), Timestamp::default());
        list.change(&actors, |view| view.filter.clear());
        actors.apply(tree(vec![]), Timestamp::default());
        list.refresh(&actors);
        assert!(list.selected().is_some());
    }

    #[test]
    fn new_run_is_selected_before_its_first_progress() {
        let mut fresh = run("m", None);
        fresh.run.as_mut().unwrap().last_progress = None;
        let mut actors = sample_actors(&[]);
        let mut list = RowList {
            follows: true,
            ..RowList::default()
        };
        list.refresh(&actors);
        actors.apply(changed(vec![fresh], &[]), Timestamp::default());
        list.refresh(&actors);
        assert_eq!(list.selected().map(|key| &**key), Some("run:m"));
        actors.apply(changed(vec![run("n", None)], &[]), Timestamp::default());
        list.refresh(&actors);
        assert_eq!(list.selected().map(|key| &**key), Some("run:n"));
    }

    #[test]
    fn rows_fold_unfold_and_scroll() {
        let actors = sample_actors(&[("m", None), ("a", Some("m")), ("b", Some("m"))]);
        let mut list = RowList::default();
        list.refresh(&actors);
        list.select(&actors, &"run:a".into());
        list.fold_or_ascend(&actors);
        assert_eq!(list.selected().map(|key| &**key), Some("run:m"));
        list.fold_or_ascend(&actors);
        assert_eq!((list.row().unwrap().hidden, list.rows().len()), (2, 4));
        list.unfold_or_descend(&actors);
        list.unfold_or_descend(&actors);
        assert_eq!(list.selected().map(|key| &**key), Some("run:a"));
        list.fold_all(&actors);
        assert_eq!(list.rows().len(), 3, "the root, its session, the journal");
        assert_eq!(
            list.selected().map(|key| &**key),
            Some("session:s"),
            "what it is folded into"
        );
        list.fold_all(&actors);
        assert_eq!((list.rows().len(), list.scroll(2)), (6, 0));
        list.step(RowMove::Last, 1);
        assert_eq!(list.scroll(2), 4);
        list.step(RowMove::Up, 1);
        assert_eq!(list.scroll(2), 4, "it is still in sight");
        list.step(RowMove::PageUp, 2);
        assert_eq!(list.scroll(2), 2);
    }
}
