//! Events of the goal tree.

use crate::{AffectedGoal, Goal, GoalChanges, GoalId, event_macro::events};

events! {
    /// What happened to a trace's goals.
    GoalEvent {
        /// A goal was added.
        Added = "goal_added" {
            /// The goal.
            goal: Box<Goal>,
            /// The sibling it comes after; absent = last.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            after: Option<GoalId>,
        },
        /// A goal changed.
        Updated = "goal_updated" {
            /// The goal.
            goal_id: GoalId,
            /// What changed.
            changes: GoalChanges,
            /// Goals that changed along with it.
            affected_goals: Vec<AffectedGoal>,
        },
        /// A goal is worked on from now on.
        Focused = "goal_focused" {
            /// The goal.
            goal_id: GoalId,
        },
    }
}
