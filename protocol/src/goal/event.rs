//! Events of the goal tree.

use crate::{AffectedGoal, Goal, GoalChanges, GoalId, event_macro::events};

events! {
    /// A change of a trace's goal tree.
    GoalEvent {
        /// A goal was added.
        Added = "goal_added" {
            /// The new goal.
            goal: Box<Goal>,
            /// Sibling that precedes the goal. Absent if the goal is the last child.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            after: Option<GoalId>,
        },
        /// A goal was changed.
        Updated = "goal_updated" {
            /// The changed goal.
            goal_id: GoalId,
            /// Changed fields.
            changes: GoalChanges,
            /// Goals whose status changed as a consequence.
            affected_goals: Vec<AffectedGoal>,
        },
        /// A goal was focused.
        Focused = "goal_focused" {
            /// The focused goal.
            goal_id: GoalId,
        },
    }
}
