//! Planning of changes to the goal tree: a request becomes events, or is rejected (GOAL-1, GOAL-2).
//!
//! Pure. The tree is not changed: [`GoalTree::apply`] does that.

use std::collections::BTreeMap;

use super::{
    AffectedGoal, Goal, GoalChanges, GoalError, GoalEvent, GoalKind, GoalStatus, GoalTree,
    MAX_MISSION_GOAL_CHARS,
};
use crate::{GoalId, Timestamp, message::one_line};

/// Reason of the mission goal. It also identifies that goal.
const MISSION_GOAL_REASON: &str = "it is the mission";

impl GoalTree {
    /// Plans new goals with these descriptions.
    ///
    /// The goals become children of `under`, else siblings of `after`, else top-level goals. They
    /// follow `after`, or all existing siblings if it is not given.
    pub fn plan_add(
        &self,
        descriptions: &[String],
        reason: &str,
        under: Option<&str>,
        after: Option<&str>,
        sequence: u64,
        at: Timestamp,
    ) -> Result<Vec<GoalEvent>, GoalError> {
        let after = after.map(|name| self.find(name)).transpose()?;
        let under = under.map(|name| self.find(name)).transpose()?;
        if let (Some(after), Some(under)) = (after, under)
            && after.parent_id.as_ref() != Some(&under.id)
        {
            return Err(GoalError::NotSiblings {
                after: after.number.clone(),
                under: under.number.clone(),
            });
        }
        let parent_id = under
            .map(|goal| goal.id.clone())
            .or_else(|| after.and_then(|goal| goal.parent_id.clone()));
        let mut previous = after.map(|goal| goal.id.clone());
        let mut events = Vec::new();
        for (next, description) in (self.next_id()..).zip(descriptions) {
            if description.trim().is_empty() {
                return Err(GoalError::Empty);
            }
            let id = GoalId::new(next.to_string());
            let goal = Goal {
                id: id.clone(),
                number: String::new(),
                description: description.trim().to_owned(),
                reason: reason.to_owned(),
                parent_id: parent_id.clone(),
                kind: GoalKind::Normal,
                status: GoalStatus::Pending,
                summary: None,
                sub_trace_ids: Vec::new(),
                agent_call_mode: None,
                sub_trace_metadata: BTreeMap::new(),
                self_stats: None,
                cumulative_stats: None,
                created_sequence: sequence,
                created_at: at,
            };
            let after = previous.take();
            if after.is_some() {
                previous = Some(id);
            }
            events.push(GoalEvent::Added {
                goal: Box::new(goal),
                after,
            });
        }
        self.with_display_numbers(events)
    }

    /// Returns the id of the next goal.
    fn next_id(&self) -> u64 {
        self.last_id() + 1
    }

    /// Sets the display numbers that the planned goals will have.
    fn with_display_numbers(
        &self,
        mut events: Vec<GoalEvent>,
    ) -> Result<Vec<GoalEvent>, GoalError> {
        let mut planned = self.clone();
        for event in &events {
            planned.apply(event);
        }
        for event in &mut events {
            if let GoalEvent::Added { goal, .. } = event
                && let Some(placed) = planned.get(&goal.id)
            {
                goal.number.clone_from(&placed.number);
            }
        }
        Ok(events)
    }

    /// Returns the open goal that was created from the mission.
    pub fn open_mission_goal(&self) -> Option<&Goal> {
        self.goals
            .iter()
            .find(|goal| goal.reason == MISSION_GOAL_REASON && goal.status.is_open())
    }

    /// Returns whether a run that calls tools without a plan gets a goal for its task.
    ///
    /// This is the case if the tree has no goal yet, or if the last mission goal was abandoned and
    /// no goal is open.
    pub fn needs_mission_goal(&self) -> bool {
        let last = self
            .goals
            .iter()
            .rev()
            .find(|goal| goal.reason == MISSION_GOAL_REASON);
        let was_abandoned = last.is_some_and(|goal| goal.status == GoalStatus::Abandoned);
        self.goals.is_empty()
            || was_abandoned && !self.goals.iter().any(|goal| goal.status.is_open())
    }

    /// Plans a focused goal from the task of a run that calls tools without a plan (GOAL-2).
    pub fn plan_mission_goal(&self, task: &str, sequence: u64, at: Timestamp) -> Vec<GoalEvent> {
        let description = match one_line(task, MAX_MISSION_GOAL_CHARS) {
            empty if empty.is_empty() => "the task".to_owned(),
            line => line,
        };
        let Ok(mut events) = self.plan_add(
            &[description],
            MISSION_GOAL_REASON,
            None,
            None,
            sequence,
            at,
        ) else {
            return Vec::new();
        };
        if let Some(GoalEvent::Added { goal, .. }) = events.first() {
            let goal_id = goal.id.clone();
            events.push(GoalEvent::Focused { goal_id });
        }
        events
    }

    /// Plans to focus a goal.
    pub fn plan_focus(&self, name: &str) -> Result<Vec<GoalEvent>, GoalError> {
        let goal = self.open_goal(name)?;
        Ok(vec![GoalEvent::Focused {
            goal_id: goal.id.clone(),
        }])
    }

    /// Plans to close a goal (default: the focused one) as completed or abandoned.
    ///
    /// Completing the last open child of a goal completes the goal as well, and so on up the tree.
    pub fn plan_close(
        &self,
        name: Option<&str>,
        status: GoalStatus,
        summary: &str,
    ) -> Result<Vec<GoalEvent>, GoalError> {
        let goal = match name {
            Some(name) => self.open_goal(name)?,
            None => self
                .current()
                .ok_or_else(|| GoalError::NotFound("the focused goal".to_owned()))?,
        };
        let mut affected_goals = Vec::new();
        if status == GoalStatus::Completed {
            let mut completed = goal.id.clone();
            let mut parent = goal.parent_id.as_ref();
            while let Some(ancestor) = parent.and_then(|id| self.get(id)) {
                let still_open = |child: &&Goal| {
                    child.parent_id.as_ref() == Some(&ancestor.id)
                        && child.id != completed
                        && child.status.is_open()
                };
                if !ancestor.status.is_open() || self.goals.iter().any(|child| still_open(&child)) {
                    break;
                }
                affected_goals.push(AffectedGoal {
                    goal_id: ancestor.id.clone(),
                    status,
                });
                completed = ancestor.id.clone();
                parent = ancestor.parent_id.as_ref();
            }
        }
        if status == GoalStatus::Abandoned {
            // The descendants are abandoned together with the goal.
            let mut given_up = std::collections::HashSet::from([&goal.id]);
            for descendant in &self.goals {
                if descendant
                    .parent_id
                    .as_ref()
                    .is_some_and(|parent| given_up.contains(parent))
                {
                    given_up.insert(&descendant.id);
                    if descendant.status.is_open() {
                        affected_goals.push(AffectedGoal {
                            goal_id: descendant.id.clone(),
                            status,
                        });
                    }
                }
            }
        }
        let changes = GoalChanges {
            status: Some(status),
            summary: Some(summary.to_owned()),
            ..GoalChanges::default()
        };
        Ok(vec![GoalEvent::Updated {
            goal_id: goal.id.clone(),
            changes,
            affected_goals,
        }])
    }

    fn open_goal(&self, name: &str) -> Result<&Goal, GoalError> {
        let goal = self.find(name)?;
        match goal.status {
            GoalStatus::Completed => Err(GoalError::Closed(goal.number.clone(), "completed")),
            GoalStatus::Abandoned => Err(GoalError::Closed(goal.number.clone(), "abandoned")),
            GoalStatus::Pending | GoalStatus::InProgress => Ok(goal),
        }
    }
}
