//! Level 1: omits the messages of finished goals; their summaries replace them (CTX-2).
//!
//! The following messages are kept: messages of users and the answers to them, the most recent
//! messages, and the messages of open goals, of no goal, and of the goals on the focus path (the
//! focused goal, its ancestors and its descendants). A call that changes the plan belongs to the
//! goal under which it was made, because its result is visible in the goal tree.
//!
//! Invariants: the order of messages is kept; calls and results stay together; the operation is
//! idempotent. Replacement messages are derived each time and never stored.

use std::{collections::HashMap, sync::Arc};

use soong_protocol::{Goal, GoalId, GoalStatus, GoalTree, Message, OmittedGoal, Role};

use super::{
    SizedMessage,
    message_group::{MessageGroup, message_groups},
};

/// Beginning of a replacement message, before the number of its goal.
const REPLACEMENT_MARK: &str = "[Goal ";
/// Text after the number of the goal.
const OUTCOMES: [&str; 2] = [" completed: ", " abandoned: "];
/// Name of the tool that changes the plan.
const PLAN_TOOL: &str = "goal";

/// Messages of a path as a model receives them.
#[derive(Debug)]
pub(crate) struct PrunedContext {
    pub(crate) messages: Vec<Arc<Message>>,
    /// Total tokens of these messages.
    pub(crate) tokens: u64,
    /// Number of messages of the path that are omitted.
    pub(crate) omitted: usize,
}

/// Returns whether a text replaces omitted messages of goals.
pub(crate) fn is_replacement(text: &str) -> bool {
    let rest = text
        .strip_prefix(REPLACEMENT_MARK)
        .map(|rest| rest.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.'));
    rest.is_some_and(|rest| OUTCOMES.iter().any(|end| rest.starts_with(end)))
}

/// Builds the messages for a model from `path`, without those of the goals `omitted`. The last
/// `keep_recent` messages are always kept. `count` returns the tokens of the replacement messages.
pub(crate) fn prune(
    path: &[SizedMessage],
    omitted: &[OmittedGoal],
    keep_recent: usize,
    count: impl Fn(&Message) -> u64,
) -> PrunedContext {
    let finished: HashMap<&GoalId, usize> = omitted
        .iter()
        .enumerate()
        .map(|(index, goal)| (&goal.goal_id, index))
        .collect();
    let recent = path.len().saturating_sub(keep_recent);
    let mut built = PrunedContext {
        messages: Vec::with_capacity(path.len()),
        tokens: 0,
        omitted: 0,
    };
    let mut replacements = Replacements {
        replaced: vec![false; omitted.len()],
        pending: None,
    };
    for unit in message_groups(path) {
        let omitted_goal = if unit.range.end > recent {
            None
        } else {
            omitting_goal(path, &unit, &finished)
        };
        let entries = &path[unit.range.clone()];
        if unit.is_orphan || omitted_goal.is_some() {
            built.omitted += entries.len();
            if let Some(index) = omitted_goal {
                replacements.add(index, &omitted[index].text, &entries[0].message);
            }
            continue;
        }
        replacements.flush(&mut built, &count);
        for entry in entries {
            built.messages.push(Arc::clone(&entry.message));
            built.tokens += entry.tokens;
        }
    }
    replacements.flush(&mut built, &count);
    built
}

/// Returns the goals whose messages can be omitted: closed goals that are not on the focus path.
pub(crate) fn goals_to_omit(goals: &GoalTree) -> Vec<OmittedGoal> {
    let indexes: HashMap<&GoalId, usize> = goals
        .goals
        .iter()
        .enumerate()
        .map(|(index, goal)| (&goal.id, index))
        .collect();
    let parents: Vec<Option<usize>> = goals
        .goals
        .iter()
        .map(|goal| {
            goal.parent_id
                .as_ref()
                .and_then(|id| indexes.get(id).copied())
        })
        .collect();
    let mut on_focus_path = vec![false; goals.goals.len()];
    if let Some(focus) = goals
        .current_id
        .as_ref()
        .and_then(|id| indexes.get(id).copied())
    {
        on_focus_path[focus] = true;
        // Parents precede their children, so one pass reaches all descendants.
        for index in focus + 1..goals.goals.len() {
            on_focus_path[index] = parents[index].is_some_and(|parent| on_focus_path[parent]);
        }
        let mut above = parents[focus];
        while let Some(index) = above.filter(|index| !on_focus_path[*index]) {
            on_focus_path[index] = true;
            above = parents[index];
        }
    }
    let all = goals.goals.iter().zip(&on_focus_path);
    let omitted = all.filter(|(goal, on_path)| !goal.status.is_open() && !**on_path);
    omitted
        .map(|(goal, _)| OmittedGoal {
            goal_id: goal.id.clone(),
            text: replacement_text(goal),
        })
        .collect()
}

/// Returns the index of the goal because of which a unit is omitted, or `None` if it is kept.
fn omitting_goal(
    path: &[SizedMessage],
    unit: &MessageGroup,
    finished: &HashMap<&GoalId, usize>,
) -> Option<usize> {
    let first = &path[unit.range.start].message;
    match first.role {
        Role::User | Role::System => return None,
        Role::Assistant if first.tool_calls.is_empty() => {
            let next = path.get(unit.range.end).map(|entry| entry.message.role);
            if next.is_none_or(|role| role == Role::User) {
                return None; // final answer to a user
            }
        }
        Role::Assistant | Role::Tool => {}
    }
    let index = *finished.get(first.goal_id.as_ref()?)?;
    let is_over = |result: &SizedMessage| {
        let goal = result.message.goal_id.as_ref();
        goal == first.goal_id.as_ref()
            || goal.is_some_and(|goal| finished.contains_key(goal))
            || is_plan_call(first, result)
    };
    path[unit.range.start + 1..unit.range.end]
        .iter()
        .all(is_over)
        .then_some(index)
}

/// Returns whether `result` answers a call of `asking` that only changed the plan.
fn is_plan_call(asking: &Message, result: &SizedMessage) -> bool {
    let id = result.message.tool_call_id.as_deref();
    asking
        .tool_calls
        .iter()
        .any(|call| Some(call.id.as_str()) == id && call.name == PLAN_TOOL)
}

/// Replacement messages: one at the position of each goal's first omitted message. Adjacent ones
/// are merged.
struct Replacements {
    /// Whether a goal has been replaced already, by index.
    replaced: Vec<bool>,
    /// Not added yet, because the next omitted goal is merged into it.
    pending: Option<Message>,
}

impl Replacements {
    fn add(&mut self, index: usize, text: &str, first: &Message) {
        if std::mem::replace(&mut self.replaced[index], true) {
            return;
        }
        match &mut self.pending {
            Some(message) => message.content.push_str(&format!("\n\n{text}")),
            None => {
                let trace = first.trace_id.clone();
                let at = first.created_at;
                self.pending = Some(Message::new(
                    trace,
                    first.sequence,
                    None,
                    Role::User,
                    text,
                    at,
                ));
            }
        }
    }

    fn flush(&mut self, built: &mut PrunedContext, count: impl Fn(&Message) -> u64) {
        if let Some(message) = self.pending.take() {
            built.tokens += count(&message);
            built.messages.push(Arc::new(message));
        }
    }
}

fn replacement_text(goal: &Goal) -> String {
    let end = OUTCOMES[usize::from(goal.status == GoalStatus::Abandoned)];
    let head = format!(
        "{REPLACEMENT_MARK}{}{end}{}]",
        goal.number, goal.description
    );
    match goal
        .summary
        .as_deref()
        .map(str::trim)
        .filter(|summary| !summary.is_empty())
    {
        Some(summary) => format!("{head} {summary}"),
        None => head,
    }
}
