//! Rewinding the goal tree together with the conversation (MSG-4).

use super::{GoalStatus, GoalTree};

impl GoalTree {
    /// Rewinds the tree to a message. Goals that were created after it are dropped, and their ids
    /// are never reused. The remaining goals are reset by [`GoalTree::reset_progress`].
    pub fn rewind(&mut self, after_sequence: u64) {
        self.dropped_id = self.last_id();
        // Children are never older than their parent, so no remaining goal loses its parent.
        self.goals
            .retain(|goal| goal.created_sequence <= after_sequence);
        self.reset_progress();
    }

    /// Prepares the tree for a continuation: clears the focus and resets goals in progress to
    /// pending.
    pub fn reset_progress(&mut self) {
        self.current_id = None;
        for goal in &mut self.goals {
            if goal.status == GoalStatus::InProgress {
                goal.status = GoalStatus::Pending;
            }
        }
        self.renumber();
    }

    /// Removes the fields that are set only in responses to clients: sub-traces and statistics.
    #[must_use]
    pub fn without_computed_fields(mut self) -> Self {
        for goal in &mut self.goals {
            goal.sub_trace_ids.clear();
            goal.sub_trace_metadata.clear();
            goal.self_stats = None;
            goal.cumulative_stats = None;
        }
        self
    }

    /// Replaces the tree by its state at another time. Ids that were used since then are not
    /// reused.
    pub fn restore(&mut self, other: Self) {
        let dropped_id = self.last_id().max(other.last_id());
        *self = Self {
            dropped_id,
            ..other
        };
    }
}

#[cfg(test)]
mod tests {
    use crate::{GoalStatus, GoalTree, Timestamp};

    fn add(tree: &mut GoalTree, description: &str, under: Option<&str>, sequence: u64) {
        let planned = tree.plan_add(
            &[description.to_owned()],
            "",
            under,
            None,
            sequence,
            Timestamp::default(),
        );
        planned.unwrap().iter().for_each(|event| tree.apply(event));
    }

    #[test]
    fn rewind_drops_later_goals_and_never_reuses_ids() {
        let mut tree = GoalTree::new("m");
        add(&mut tree, "a", None, 2);
        add(&mut tree, "a1", Some("1"), 5);
        add(&mut tree, "b", None, 7);
        tree.plan_focus("1")
            .unwrap()
            .iter()
            .for_each(|event| tree.apply(event));
        let before = tree.clone();
        tree.rewind(5);
        let left: Vec<_> = tree
            .goals
            .iter()
            .map(|goal| (goal.id.as_str(), goal.number.as_str(), goal.status))
            .collect();
        assert_eq!(
            left,
            [
                ("1", "1", GoalStatus::Pending),
                ("2", "1.1", GoalStatus::Pending)
            ]
        );
        assert_eq!(tree.current_id, None);
        add(&mut tree, "c", None, 9);
        assert_eq!(
            tree.goals.last().unwrap().id.as_str(),
            "4",
            "3 is not given again"
        );
        tree.restore(before);
        add(&mut tree, "d", None, 11);
        assert_eq!(tree.goals.last().unwrap().id.as_str(), "5");
    }
}
