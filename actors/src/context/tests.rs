//! Helpers for the tests of context building: goal trees and conversations, each written on one
//! line.

mod compaction;
#[path = "../../../tests/support/pairing.rs"]
#[allow(unreachable_pub, reason = "shared with the suites")]
mod pairing;
mod prune;
mod summary;
mod summary_request;

use std::sync::Arc;

use proptest::prelude::*;
use serde_json::Value;
use soong_protocol::{
    GoalEvent, GoalId, GoalStatus, GoalTree, Message, Role, Timestamp, ToolCall, TraceId,
};

use super::SizedMessage;

/// Counts tokens in a way that is easy to verify by hand.
fn count(message: &Message) -> u64 {
    4 + message.content.len() as u64
}

/// Returns a tree of `(description, number of the parent, status, summary)`, in order; ids are 1,
/// 2, ….
fn goals(wanted: &[(&str, Option<&str>, GoalStatus, &str)], focus: Option<&str>) -> GoalTree {
    let mut tree = GoalTree::new("the mission");
    for (description, under, ..) in wanted {
        let added = tree
            .plan_add(
                &[(*description).to_owned()],
                "",
                *under,
                None,
                0,
                Timestamp::default(),
            )
            .unwrap();
        added.iter().for_each(|event| tree.apply(event));
    }
    for (index, (.., status, summary)) in wanted.iter().enumerate() {
        let goal_id = GoalId::new((index + 1).to_string());
        let summary = Some((*summary).to_owned()).filter(|summary| !summary.is_empty());
        let changes = soong_protocol::GoalChanges {
            status: Some(*status),
            summary,
            ..Default::default()
        };
        tree.apply(&GoalEvent::Updated {
            goal_id,
            changes,
            affected_goals: Vec::new(),
        });
    }
    tree.current_id = focus.map(GoalId::new);
    tree
}

/// A conversation, built message by message.
#[derive(Default)]
struct Talk(Vec<SizedMessage>);

impl Talk {
    fn add(
        &mut self,
        role: Role,
        goal: Option<&str>,
        content: &str,
        complete: impl FnOnce(&mut Message),
    ) {
        let sequence = self.0.len() as u64 + 1;
        let at = Timestamp::default();
        let mut message = Message::new(
            TraceId::new("t"),
            sequence,
            None,
            role,
            content.to_owned(),
            at,
        );
        message.goal_id = goal.map(GoalId::new);
        complete(&mut message);
        self.0.push(SizedMessage {
            tokens: count(&message),
            message: Arc::new(message),
        });
    }

    fn user(mut self, text: &str) -> Self {
        self.add(Role::User, None, text, |message| {
            // A message is a summary if it has `covers`.
            let covers = soong_protocol::Covers {
                first: 1,
                last: 9,
                next: 10,
                system: None,
                request: None,
            };
            message.covers = text.starts_with("# Summary of messages").then_some(covers);
        });
        self
    }

    fn says(mut self, goal: Option<&str>, text: &str) -> Self {
        self.add(Role::Assistant, goal, text, |_| {});
        self
    }

    /// Appends calls of tools and their results. A tool is `name` or `name@goal of its result`.
    fn calls(mut self, goal: Option<&str>, tools: &[&str]) -> Self {
        let first = self.0.len();
        let split = |tool: &&str| {
            let (name, after) = tool.split_once('@').map_or((*tool, None), |(name, after)| {
                (name, Some(after.to_owned()))
            });
            (name.to_owned(), after)
        };
        let tools: Vec<(String, Option<String>)> = tools.iter().map(split).collect();
        self.add(Role::Assistant, goal, "", |message| {
            let call = |(n, (name, _)): (usize, &(String, Option<String>))| ToolCall {
                id: format!("c{first}_{n}"),
                name: name.clone(),
                arguments: format!("{{\"n\":{n}}}"),
            };
            message.tool_calls = tools.iter().enumerate().map(call).collect();
        });
        for (n, (name, after)) in tools.iter().enumerate() {
            let result_goal = match after.as_deref() {
                Some("") => None,
                Some(after) => Some(after),
                None => goal,
            };
            self.add(
                Role::Tool,
                result_goal,
                &format!("output of {name}"),
                |message| {
                    message.tool_call_id = Some(format!("c{first}_{n}"));
                },
            );
        }
        self
    }
}

fn json(messages: &[Arc<Message>]) -> Vec<Value> {
    messages
        .iter()
        .map(|message| serde_json::to_value(message.as_ref()).unwrap())
        .collect()
}

#[track_caller]
fn assert_valid(messages: &[Arc<Message>]) {
    let json = json(messages);
    assert_eq!(pairing::openai(&json), Ok(()), "{json:#?}");
    assert_eq!(pairing::anthropic(&json), Ok(()), "{json:#?}");
}

/// Generates goal trees. Each goal may be below an earlier one.
fn any_goals() -> impl Strategy<Value = GoalTree> {
    let status = prop::sample::select(vec![
        GoalStatus::Pending,
        GoalStatus::InProgress,
        GoalStatus::Completed,
        GoalStatus::Completed,
        GoalStatus::Abandoned,
    ]);
    let goal = (
        prop::option::of(any::<prop::sample::Index>()),
        status,
        "[a-z ]{0,12}",
    );
    (
        prop::collection::vec(goal, 0..8),
        prop::option::of(any::<prop::sample::Index>()),
    )
        .prop_map(|(wanted, focus)| {
            let mut tree = GoalTree::new("m");
            for (index, (parent, ..)) in wanted.iter().enumerate() {
                let parent = parent
                    .filter(|_| index > 0)
                    .map(|parent| tree.goals[parent.index(index)].number.clone());
                let added = tree
                    .plan_add(
                        &["g".into()],
                        "",
                        parent.as_deref(),
                        None,
                        0,
                        Timestamp::default(),
                    )
                    .unwrap();
                added.iter().for_each(|event| tree.apply(event));
            }
            for (goal, (_, status, summary)) in tree.goals.iter_mut().zip(&wanted) {
                goal.status = *status;
                goal.summary = Some(summary.clone());
            }
            let open: Vec<GoalId> = tree
                .goals
                .iter()
                .filter(|goal| goal.status.is_open())
                .map(|goal| goal.id.clone())
                .collect();
            tree.current_id = focus
                .filter(|_| !open.is_empty())
                .map(|focus| open[focus.index(open.len())].clone());
            tree
        })
}

/// Generates valid conversations about goals 1 to 8 that start with a user message.
fn any_path() -> impl Strategy<Value = Vec<SizedMessage>> {
    let goal = || prop::option::weighted(0.8, 1u8..9);
    let step = (
        0u8..8,
        goal(),
        prop::collection::vec((any::<bool>(), goal()), 1..4),
    );
    prop::collection::vec(step, 0..30).prop_map(|steps| {
        let mut talk = Talk::default().user("begin");
        for (kind, goal, tools) in steps {
            let goal = goal.map(|goal| goal.to_string());
            talk = match kind {
                0 => talk.user("and now?"),
                1 => talk.says(goal.as_deref(), "so it is"),
                _ => {
                    let name = |(plan, after): &(bool, Option<u8>)| {
                        let after = after.map(|goal| goal.to_string()).unwrap_or_default();
                        format!("{}@{after}", if *plan { "goal" } else { "read" })
                    };
                    let names: Vec<String> = tools.iter().map(name).collect();
                    let same = kind > 3;
                    let names: Vec<&str> = names
                        .iter()
                        .map(|name| {
                            if same {
                                name.split('@').next().unwrap()
                            } else {
                                name.as_str()
                            }
                        })
                        .collect();
                    talk.calls(goal.as_deref(), &names)
                }
            };
        }
        talk.0
    })
}
