//! Level 1: leaves out the work of goals that are over; their summaries stand for it (CTX-2).
//!
//! What stays: what people said, the answers to them, the last messages, and the work of open goals,
//! of no goal, and of the focus with all above and below it. A call to the plan itself belongs to the
//! goal under which it was made: what it changed is in the goal tree.
//! Invariants: order is kept; calls and results stay together; applied twice it changes nothing more.
//! A stand-in is derived each time, never stored.

use std::{collections::HashMap, sync::Arc};

use soong_protocol::{Goal, GoalId, GoalStatus, GoalTree, Message, Role};

use super::{
    Entry,
    unit::{Unit, units},
};

/// How a stand-in begins, before the number of its goal.
const STAND_IN_MARK: &str = "[Goal ";
/// What it says of the goal, behind the number.
const ENDS: [&str; 2] = [" completed: ", " abandoned: "];
/// The tool that changes the plan.
const PLAN_TOOL: &str = "goal";

/// What a model is shown of a path.
#[derive(Debug)]
pub(crate) struct Built {
    pub(crate) messages: Vec<Arc<Message>>,
    /// Of all these messages together.
    pub(crate) tokens: u64,
    /// How many messages of the path are not shown.
    pub(crate) left_out: usize,
}

/// Returns whether a text stands for the left-out work of goals.
pub(crate) fn is_stand_in(text: &str) -> bool {
    let rest =
        text.strip_prefix(STAND_IN_MARK).map(|rest| rest.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.'));
    rest.is_some_and(|rest| ENDS.iter().any(|end| rest.starts_with(end)))
}

/// Builds what a model is shown of `path`, the last `keep_recent` messages whole; `count` sizes the
/// messages that it makes up.
pub(crate) fn level_one(
    path: &[Entry],
    goals: &GoalTree,
    keep_recent: usize,
    count: impl Fn(&Message) -> u64,
) -> Built {
    let over = goals_to_leave_out(goals);
    let recent = path.len().saturating_sub(keep_recent);
    let mut built = Built { messages: Vec::with_capacity(path.len()), tokens: 0, left_out: 0 };
    let mut stand_ins = StandIns { told: vec![false; goals.goals.len()], pending: None };
    for unit in units(path) {
        let left_out = if unit.range.end > recent { None } else { goal_left_out(path, &unit, &over) };
        let entries = &path[unit.range.clone()];
        if unit.is_orphan || left_out.is_some() {
            built.left_out += entries.len();
            if let Some(place) = left_out {
                stand_ins.leave_out(place, goals, &entries[0].message);
            }
            continue;
        }
        stand_ins.flush(&mut built, &count);
        for entry in entries {
            built.messages.push(Arc::clone(&entry.message));
            built.tokens += entry.tokens;
        }
    }
    stand_ins.flush(&mut built, &count);
    built
}

/// Finds the goals whose work is left out: closed ones off the focus path, with their places.
fn goals_to_leave_out(goals: &GoalTree) -> HashMap<&GoalId, usize> {
    let places: HashMap<&GoalId, usize> =
        goals.goals.iter().enumerate().map(|(place, goal)| (&goal.id, place)).collect();
    let parents: Vec<Option<usize>> =
        goals.goals.iter().map(|goal| goal.parent_id.as_ref().and_then(|id| places.get(id).copied())).collect();
    let mut on_focus_path = vec![false; goals.goals.len()];
    if let Some(focus) = goals.current_id.as_ref().and_then(|id| places.get(id).copied()) {
        on_focus_path[focus] = true;
        // Parents stand before their children: one pass reaches everything below.
        for place in focus + 1..goals.goals.len() {
            on_focus_path[place] = parents[place].is_some_and(|parent| on_focus_path[parent]);
        }
        let mut above = parents[focus];
        while let Some(place) = above.filter(|place| !on_focus_path[*place]) {
            on_focus_path[place] = true;
            above = parents[place];
        }
    }
    let over = |(_, place): &(&GoalId, usize)| !goals.goals[*place].status.is_open() && !on_focus_path[*place];
    places.into_iter().filter(over).collect()
}

/// Returns the place of the goal for whose sake a unit is left out; `None` = it stays.
fn goal_left_out(path: &[Entry], unit: &Unit, over: &HashMap<&GoalId, usize>) -> Option<usize> {
    let first = &path[unit.range.start].message;
    match first.role {
        Role::User | Role::System => return None,
        Role::Assistant if first.tool_calls.is_empty() => {
            let next = path.get(unit.range.end).map(|entry| entry.message.role);
            if next.is_none_or(|role| role == Role::User) {
                return None; // an answer to a person
            }
        }
        Role::Assistant | Role::Tool => {}
    }
    let place = *over.get(first.goal_id.as_ref()?)?;
    let is_over = |result: &Entry| {
        let goal = result.message.goal_id.as_ref();
        goal == first.goal_id.as_ref() || goal.is_some_and(|goal| over.contains_key(goal)) || is_of_plan(first, result)
    };
    path[unit.range.start + 1..unit.range.end].iter().all(is_over).then_some(place)
}

/// Whether `result` answers a call of `asking` that only changed the plan.
fn is_of_plan(asking: &Message, result: &Entry) -> bool {
    let id = result.message.tool_call_id.as_deref();
    asking.tool_calls.iter().any(|call| Some(call.id.as_str()) == id && call.name == PLAN_TOOL)
}

/// The messages that stand for goals: one where the first of each goal's messages stood.
struct StandIns {
    /// By place in the goal tree, whether it has been told of.
    told: Vec<bool>,
    /// Not shown yet: what comes next may be about another goal, and join it.
    pending: Option<Message>,
}

impl StandIns {
    fn leave_out(&mut self, place: usize, goals: &GoalTree, first: &Message) {
        if std::mem::replace(&mut self.told[place], true) {
            return;
        }
        let text = told(&goals.goals[place]);
        match &mut self.pending {
            Some(message) => message.content = format!("{}\n\n{text}", message.content),
            None => {
                let (trace, at) = (first.trace_id.clone(), first.created_at);
                self.pending = Some(Message::text(trace, first.sequence, None, Role::User, text, at));
            }
        }
    }

    fn flush(&mut self, built: &mut Built, count: impl Fn(&Message) -> u64) {
        if let Some(message) = self.pending.take() {
            built.tokens += count(&message);
            built.messages.push(Arc::new(message));
        }
    }
}

fn told(goal: &Goal) -> String {
    let end = ENDS[usize::from(goal.status == GoalStatus::Abandoned)];
    let head = format!("{STAND_IN_MARK}{}{end}{}]", goal.number, goal.description);
    match goal.summary.as_deref().map(str::trim).filter(|summary| !summary.is_empty()) {
        Some(summary) => format!("{head} {summary}"),
        None => head,
    }
}
