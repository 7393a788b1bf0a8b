//! Goal tree of a trace, which is the agent's plan (GOAL-1, GOAL-2).
//!
//! Pure. The functions in `plan.rs` turn a request into events, or reject it. [`GoalTree::apply`]
//! changes a tree by events, in the same way for a live run and for a rebuild; `rewind.rs` resets
//! it.
//!
//! Invariants: ids grow and are never reused; a parent precedes its children; the focused goal is
//! open.
//!
//! Elsewhere: which sub-traces belong to a goal (they are linked in the traces) and the cost of a
//! goal (computed from its messages).

mod event;
mod plan;
mod rewind;

pub use event::GoalEvent;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{ChildMode, GoalId, RunId, Stats, Timestamp, TraceId, message::one_line};

/// Kind of a goal, by the agents that work on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum GoalKind {
    /// The agent that owns the goal tree.
    #[default]
    Normal,
    /// Sub-agents (GOAL-3).
    AgentCall,
}

/// How sub-agents work on a goal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum AgentCallMode {
    /// Several sub-agents in parallel.
    Explore,
    /// One sub-agent.
    Delegate,
    /// One sub-agent that judges whether the goal is met.
    Evaluate,
}

/// Status of a goal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum GoalStatus {
    /// Not started.
    #[default]
    Pending,
    /// Focused at least once and not closed.
    InProgress,
    /// Completed successfully.
    Completed,
    /// Given up; the summary holds the reason.
    Abandoned,
}

impl GoalStatus {
    /// Returns whether the goal is neither completed nor abandoned.
    pub const fn is_open(self) -> bool {
        matches!(self, Self::Pending | Self::InProgress)
    }

    const fn checkbox(self) -> &'static str {
        match self {
            Self::Pending => "[ ]",
            Self::InProgress => "[→]",
            Self::Completed => "[✓]",
            Self::Abandoned => "[✗]",
        }
    }
}

/// A goal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Goal {
    /// Unique id within the trace. Never reused.
    pub id: GoalId,
    /// Display number, such as `1.2`. Recomputed when the tree changes.
    #[serde(default)]
    pub number: String,
    /// Result that the goal aims for.
    pub description: String,
    /// Reason for adding the goal.
    #[serde(default)]
    pub reason: String,
    /// Parent goal. Absent for a top-level goal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_id: Option<GoalId>,
    /// Kind of the goal, by the agents that work on it.
    #[serde(rename = "type", default)]
    pub kind: GoalKind,
    /// Status of the goal.
    #[serde(default)]
    pub status: GoalStatus,
    /// Outcome of a completed goal, or the reason why it was abandoned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
    /// Sub-traces that work on the goal. Set only in responses to clients.
    #[serde(default)]
    pub sub_trace_ids: Vec<TraceId>,
    /// Details of these sub-traces, by id. Set only in responses to clients.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub sub_trace_metadata: BTreeMap<TraceId, SubTraceMetadata>,
    /// How sub-agents work on the goal. Absent if none do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_call_mode: Option<AgentCallMode>,
    /// Statistics of the messages that were added while the goal was focused. Set only in responses
    /// to clients.
    ///
    /// `model_calls` counts answers, `tool_calls` counts results, and `duration_ms` is the total
    /// time of the answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub self_stats: Option<Stats>,
    /// The same statistics including descendant goals and their sub-traces. Set only in responses
    /// to clients.
    ///
    /// Durations are summed, even if sub-traces ran in parallel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cumulative_stats: Option<Stats>,
    /// Last message when the goal was created. A rewind compares this number and never the clock
    /// (MSG-4).
    #[serde(default)]
    pub created_sequence: u64,
    /// Creation time.
    pub created_at: Timestamp,
}

/// A sub-trace that works on a goal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SubTraceMetadata {
    /// Mode of the call that started the sub-trace. A later call of another mode may have continued
    /// it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<ChildMode>,
    /// Preset of the sub-agent.
    pub agent_type: String,
    /// Task of the sub-agent.
    pub task: String,
    /// Runs of the sub-trace, oldest first.
    pub run_ids: Vec<RunId>,
    /// Result of the last run. Absent while that run is open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
    /// Statistics of the sub-trace without its descendants.
    pub self_stats: Stats,
    /// Statistics including descendants. Durations are summed.
    pub cumulative_stats: Stats,
}

/// Changes of a `goal_updated` event. Absent fields are unchanged.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct GoalChanges {
    /// New status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<GoalStatus>,
    /// New summary, or the reason why the goal was abandoned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
    /// New kind.
    #[serde(rename = "type", default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<GoalKind>,
    /// New way in which sub-agents work on the goal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_call_mode: Option<AgentCallMode>,
}

/// A goal whose status changes as a consequence of another goal's change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AffectedGoal {
    /// Id of the goal.
    pub goal_id: GoalId,
    /// New status.
    pub status: GoalStatus,
}

/// Why a goal command was rejected. The tree is unchanged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GoalError {
    /// No goal has this id or display number.
    #[error("there is no goal {0:?}: use an id or display number of the goal tree")]
    NotFound(String),
    /// The goal is already completed or abandoned.
    #[error("goal {0} is already {1}")]
    Closed(String, &'static str),
    /// A description is empty.
    #[error("a goal needs a description")]
    Empty,
    /// `after` is not a child of `under`.
    #[error("goal {after} is not a child of {under}")]
    NotSiblings {
        /// Sibling after which the goal should be inserted.
        after: String,
        /// Requested parent.
        under: String,
    },
}

/// Mission, focused goal and goals of one trace.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct GoalTree {
    /// Task of the trace.
    pub mission: String,
    /// Focused goal. Absent if no goal is focused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current_id: Option<GoalId>,
    /// All goals. Parents precede their children; siblings are in order.
    pub goals: Vec<Goal>,
    /// Highest goal id that a rewind has dropped. 0 if none was dropped.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub dropped_id: u64,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// Maximum length of the description of the mission goal, in characters (GOAL-2).
const MAX_MISSION_GOAL_CHARS: usize = 200;

impl GoalTree {
    /// Creates an empty tree for a mission.
    pub fn new(mission: impl Into<String>) -> Self {
        Self {
            mission: mission.into(),
            ..Self::default()
        }
    }

    /// Finds a goal by id.
    pub fn get(&self, id: &GoalId) -> Option<&Goal> {
        self.goals.iter().find(|goal| goal.id == *id)
    }

    /// Finds a goal by the name that a model used: a display number, else an id.
    pub fn find(&self, name: &str) -> Result<&Goal, GoalError> {
        let name = name.trim();
        let by_number = self.goals.iter().find(|goal| goal.number == name);
        by_number
            .or_else(|| self.goals.iter().find(|goal| goal.id.as_str() == name))
            .ok_or_else(|| GoalError::NotFound(name.to_owned()))
    }

    /// Returns the focused goal.
    pub fn current(&self) -> Option<&Goal> {
        self.current_id.as_ref().and_then(|id| self.get(id))
    }

    /// Applies one event. Ignores changes to unknown goals.
    pub fn apply(&mut self, event: &GoalEvent) {
        match event {
            GoalEvent::Added { goal, after } => self.insert(goal.as_ref().clone(), after.as_ref()),
            GoalEvent::Focused { goal_id } => {
                self.current_id = Some(goal_id.clone());
                self.set_status(goal_id, GoalStatus::InProgress);
            }
            GoalEvent::Updated {
                goal_id,
                changes,
                affected_goals,
            } => {
                if let Some(goal) = self.goals.iter_mut().find(|goal| goal.id == *goal_id) {
                    goal.summary = changes.summary.clone().or(goal.summary.take());
                    goal.kind = changes.kind.unwrap_or(goal.kind);
                    goal.agent_call_mode = changes.agent_call_mode.or(goal.agent_call_mode);
                }
                if let Some(status) = changes.status {
                    self.set_status(goal_id, status);
                }
                for affected in affected_goals {
                    self.set_status(&affected.goal_id, affected.status);
                }
            }
        }
    }

    fn set_status(&mut self, id: &GoalId, status: GoalStatus) {
        if let Some(goal) = self.goals.iter_mut().find(|goal| goal.id == *id) {
            goal.status = status;
        }
        if !status.is_open() && self.current_id.as_ref() == Some(id) {
            self.current_id = None;
        }
    }

    fn insert(&mut self, goal: Goal, after: Option<&GoalId>) {
        if self.get(&goal.id).is_some() {
            return;
        }
        let parent = goal.parent_id.as_ref().and_then(|id| self.position(id));
        let at = match after.and_then(|id| self.position(id)) {
            Some(sibling) => self.subtree_end(sibling),
            None => parent.map_or(self.goals.len(), |parent| self.subtree_end(parent)),
        };
        if self.goals.is_empty() {
            // Most agents have exactly one goal, and there may be many agents.
            self.goals.reserve_exact(1);
        }
        // Insert the goal after its parent, even if `after` names an earlier position.
        self.goals
            .insert(at.max(parent.map_or(0, |parent| parent + 1)), goal);
        self.renumber();
    }

    fn position(&self, id: &GoalId) -> Option<usize> {
        self.goals.iter().position(|goal| goal.id == *id)
    }

    /// Returns the index after a goal and all its descendants.
    fn subtree_end(&self, index: usize) -> usize {
        let mut descendant = std::collections::HashSet::from([&self.goals[index].id]);
        let mut end = index + 1;
        while let Some(goal) = self.goals.get(end)
            && goal
                .parent_id
                .as_ref()
                .is_some_and(|parent| descendant.contains(parent))
        {
            descendant.insert(&goal.id);
            end += 1;
        }
        end
    }

    fn renumber(&mut self) {
        let mut counters: std::collections::HashMap<Option<GoalId>, usize> =
            std::collections::HashMap::new();
        let mut numbers: std::collections::HashMap<GoalId, String> =
            std::collections::HashMap::new();
        for goal in &mut self.goals {
            let counter = counters.entry(goal.parent_id.clone()).or_default();
            *counter += 1;
            goal.number = match goal
                .parent_id
                .as_ref()
                .and_then(|parent| numbers.get(parent))
            {
                Some(parent) => format!("{parent}.{counter}"),
                None => counter.to_string(),
            };
            numbers.insert(goal.id.clone(), goal.number.clone());
        }
    }

    fn last_id(&self) -> u64 {
        let ids = self
            .goals
            .iter()
            .filter_map(|goal| goal.id.as_str().parse::<u64>().ok());
        ids.max().unwrap_or(0).max(self.dropped_id)
    }

    /// Renders the tree for a prompt or a user, one line per goal (GOAL-4).
    pub fn render(&self, with_summaries: bool) -> String {
        let mut text = format!(
            "Mission: {}\n",
            one_line(&self.mission, MAX_MISSION_GOAL_CHARS)
        );
        for goal in &self.goals {
            let depth = goal.number.matches('.').count();
            let focus = if self.current_id.as_ref() == Some(&goal.id) {
                " ← current"
            } else {
                ""
            };
            text.push_str(&"  ".repeat(depth));
            text.push_str(&format!(
                "{} {}. {}{focus}\n",
                goal.status.checkbox(),
                goal.number,
                goal.description
            ));
            if with_summaries && let Some(summary) = &goal.summary {
                text.push_str(&format!(
                    "{}    {}\n",
                    "  ".repeat(depth),
                    one_line(summary, MAX_MISSION_GOAL_CHARS)
                ));
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn tree(goals: &[(&str, Option<&str>)]) -> GoalTree {
        let mut tree = GoalTree::new("mission");
        for (description, under) in goals {
            let at = Timestamp::default();
            for event in tree
                .plan_add(&[(*description).to_owned()], "", *under, None, 0, at)
                .unwrap()
            {
                tree.apply(&event);
            }
        }
        tree
    }

    fn numbers(tree: &GoalTree) -> Vec<String> {
        tree.goals
            .iter()
            .map(|goal| format!("{} {}", goal.number, goal.description))
            .collect()
    }

    #[test]
    fn goals_are_numbered_by_position() {
        let mut tree = tree(&[
            ("a", None),
            ("b", None),
            ("a1", Some("1")),
            ("a2", Some("1")),
        ]);
        assert_eq!(numbers(&tree), ["1 a", "1.1 a1", "1.2 a2", "2 b"]);
        for event in tree
            .plan_add(
                &["x".into(), "y".into()],
                "",
                None,
                Some("1"),
                0,
                Timestamp::default(),
            )
            .unwrap()
        {
            tree.apply(&event);
        }
        assert_eq!(
            numbers(&tree),
            ["1 a", "1.1 a1", "1.2 a2", "2 x", "3 y", "4 b"]
        );
    }

    #[test]
    fn closing_the_last_open_child_closes_the_parent() {
        let mut tree = tree(&[
            ("a", None),
            ("a1", Some("1")),
            ("a2", Some("1")),
            ("b", None),
        ]);
        for name in ["1.1", "1.2"] {
            for event in tree
                .plan_close(Some(name), GoalStatus::Completed, "ok")
                .unwrap()
            {
                tree.apply(&event);
            }
        }
        let status = |name: &str| tree.find(name).unwrap().status;
        assert_eq!(
            (status("1"), status("2")),
            (GoalStatus::Completed, GoalStatus::Pending)
        );
        assert_eq!(
            tree.plan_focus("1"),
            Err(GoalError::Closed("1".into(), "completed"))
        );
    }

    #[test]
    fn abandoning_a_goal_abandons_descendants() {
        let mut tree = tree(&[
            ("a", None),
            ("a1", Some("1")),
            ("a11", Some("1.1")),
            ("a2", Some("1")),
            ("b", None),
        ]);
        for event in tree
            .plan_close(Some("1.2"), GoalStatus::Completed, "ok")
            .unwrap()
        {
            tree.apply(&event);
        }
        for event in tree
            .plan_close(Some("1"), GoalStatus::Abandoned, "why")
            .unwrap()
        {
            tree.apply(&event);
        }
        use GoalStatus::{Abandoned, Completed, Pending};
        let statuses: Vec<_> = tree.goals.iter().map(|goal| goal.status).collect();
        assert_eq!(
            statuses,
            [Abandoned, Abandoned, Abandoned, Completed, Pending]
        );
    }

    #[test]
    fn unknown_goal_is_rejected() {
        let tree = tree(&[("a", None), ("b", None)]);
        assert!(matches!(tree.plan_focus("7"), Err(GoalError::NotFound(_))));
        assert!(matches!(
            tree.plan_close(None, GoalStatus::Completed, ""),
            Err(GoalError::NotFound(_))
        ));
        let at = Timestamp::default();
        assert_eq!(
            tree.plan_add(&[" ".into()], "", None, None, 0, at),
            Err(GoalError::Empty)
        );
        assert!(matches!(
            tree.plan_add(&["x".into()], "", Some("1"), Some("2"), 0, at),
            Err(GoalError::NotSiblings { .. })
        ));
    }

    #[test]
    fn unplanned_trace_gets_mission_goal() {
        let mut tree = GoalTree::new("do it ".repeat(100));
        assert!(tree.needs_mission_goal());
        for event in tree.plan_mission_goal(&tree.mission.clone(), 0, Timestamp::default()) {
            tree.apply(&event);
        }
        assert_eq!(tree.goals.len(), 1);
        assert_eq!(tree.current().unwrap().status, GoalStatus::InProgress);
        assert!(tree.goals[0].description.chars().count() <= MAX_MISSION_GOAL_CHARS + 1);
        assert!(!tree.needs_mission_goal(), "it has one");
        tree.set_status(&GoalId::new("1"), GoalStatus::Completed);
        assert!(!tree.needs_mission_goal(), "its task is done");
        tree.set_status(&GoalId::new("1"), GoalStatus::Abandoned);
        assert!(tree.needs_mission_goal());
    }

    proptest! {
        #[test]
        fn any_history_keeps_tree_invariants(
            steps in prop::collection::vec((0u8..4, 1usize..8, 1usize..8), 0..40)
        ) {
            let mut tree = GoalTree::new("m");
            for (kind, a, b) in steps {
                let (a, b) = (a.to_string(), b.to_string());
                let at = Timestamp::default();
                let planned = match kind {
                    0 => tree.plan_add(&["g".into()], "", Some(a.as_str()).filter(|_| !tree.goals.is_empty()), None, 0, at),
                    1 => tree.plan_add(&["g".into(), "h".into()], "", None, Some(b.as_str()).filter(|_| !tree.goals.is_empty()), 0, at),
                    2 => tree.plan_focus(&a),
                    _ => tree.plan_close(Some(&a), GoalStatus::Completed, "s"),
                };
                for event in planned.unwrap_or_default() {
                    tree.apply(&event);
                }
                let mut seen = std::collections::HashSet::new();
                for goal in &tree.goals {
                    prop_assert!(goal.parent_id.as_ref().is_none_or(|parent| seen.contains(parent)));
                    prop_assert!(seen.insert(goal.id.clone()));
                }
                prop_assert!(tree.current_id.is_none() || tree.current().is_some_and(|goal| goal.status.is_open()));
            }
        }
    }
}
