//! The summarizer: derives a summary from the text of a conversation, by rules (CTX-3).
//!
//! It quotes requests, and lists artifacts and files, counts of tool calls, errors, open goals and
//! the last action. It includes the contents of an earlier summary of its own. It understands
//! nothing, and says so.
//!
//! Elsewhere: the request, and how the conversation is written (`context/`).

use std::collections::BTreeMap;

use super::{
    NOTICE, Turn,
    conversation::{Conversation, is_error},
    count, plain_line,
};
use crate::context::{CONVERSATION_HEADING, GOALS_HEADING, SECTIONS, SUMMARY_PROMPT_START};

/// Maximum number of lines of a section, and maximum length of a line in characters.
const MAX_LINES: usize = 10;
const MAX_CHARS: usize = 160;
/// Text of an empty section.
const NONE: &str = "none";

/// Returns whether the request asks for a summary.
pub(super) fn is_asked(conversation: &Conversation<'_>) -> bool {
    conversation.system_contains(SUMMARY_PROMPT_START)
}

/// Answers with the summary.
pub(super) fn next(conversation: &Conversation<'_>) -> Turn {
    let shown = SummaryInput::read(conversation.task);
    let earlier = shown
        .passages
        .iter()
        .rfind(|passage| passage.author == "earlier summary");
    let earlier = earlier
        .map(|passage| sections_of(&passage.text))
        .unwrap_or_default();
    let lines = [
        requests(&shown),
        artifacts(&shown),
        tools(&shown, &earlier),
        errors(&shown),
    ];
    let [requests, artifacts, tools, errors] = lines;
    let taken_over = |section: usize, new: Vec<String>| {
        let mut all = earlier.get(SECTIONS[section]).cloned().unwrap_or_default();
        all.retain(|line| !new.contains(line));
        all.extend(new);
        all
    };
    let bodies = [
        taken_over(0, requests),
        taken_over(1, artifacts),
        tools,
        taken_over(3, errors),
        open_goals(&shown),
        current_work(&shown),
        next_step(&shown),
    ];
    let sections = SECTIONS
        .iter()
        .zip(bodies)
        .map(|(section, lines)| format!("## {section}\n{}", list(&lines)));
    let text = sections.collect::<Vec<_>>().join("\n\n");
    Turn::answer(format!(
        "{text}\n\n({NOTICE}: quoted and counted, nothing is judged.)"
    ))
}

/// Data that the reflector extracts from a conversation.
#[derive(Debug, Default)]
pub(super) struct ConversationFacts {
    /// The first request.
    pub(super) request: String,
    /// The errors.
    pub(super) errors: Vec<String>,
    /// The tools that were called, with counts.
    pub(super) tools: Vec<String>,
    /// Ids of the experiences that the run received.
    pub(super) experience_ids: Vec<String>,
}

impl ConversationFacts {
    /// Parses the text of a conversation.
    pub(super) fn read(text: &str) -> Self {
        let shown = SummaryInput::read(text);
        let listed = shown.by("user").flat_map(str::lines);
        let listed =
            listed.filter_map(|line| Some(line.strip_prefix("- [")?.split_once(']')?.0.to_owned()));
        Self {
            request: shown.by("user").next().unwrap_or_default().to_owned(),
            errors: errors(&shown),
            tools: tools(&shown, &BTreeMap::new()),
            experience_ids: listed.collect(),
        }
    }
}

/// One message in the text of the request.
#[derive(Debug, PartialEq)]
struct Passage {
    /// `user`, `assistant`, `assistant calls read`, `result of read`, `earlier summary`.
    author: String,
    text: String,
}

/// Contents of the request.
#[derive(Debug, Default)]
struct SummaryInput<'a> {
    goals: Vec<&'a str>,
    passages: Vec<Passage>,
}

impl<'a> SummaryInput<'a> {
    fn read(request: &'a str) -> Self {
        let mut shown = Self::default();
        let mut in_goals = false;
        for line in request.lines() {
            if let Some(text) = line.strip_prefix("  ") {
                match shown.passages.last_mut() {
                    _ if in_goals => shown.goals.push(text),
                    Some(passage) => {
                        passage.text.push_str(text);
                        passage.text.push('\n');
                    }
                    None => {}
                }
            } else if line == GOALS_HEADING || line == CONVERSATION_HEADING {
                in_goals = line == GOALS_HEADING;
            } else if let Some(who) = head(line) {
                shown.passages.push(Passage {
                    author: who.to_owned(),
                    text: String::new(),
                });
            }
        }
        shown
    }

    /// Returns the names and arguments of all calls, in order.
    fn calls(&self) -> impl DoubleEndedIterator<Item = (&str, &str)> {
        self.passages.iter().filter_map(|passage| {
            Some((
                passage.author.strip_prefix("assistant calls ")?,
                passage.text.as_str(),
            ))
        })
    }

    fn by<'s>(&'s self, who: &'s str) -> impl DoubleEndedIterator<Item = &'s str> {
        self.passages
            .iter()
            .filter(move |passage| passage.author == who)
            .map(|passage| passage.text.as_str())
    }
}

/// Parses `[12] assistant (goal id 3):`, and returns the author without the goal.
fn head(line: &str) -> Option<&str> {
    let (number, who) = line
        .strip_prefix('[')?
        .strip_suffix(':')?
        .split_once("] ")?;
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| who.split(" (goal id ").next().unwrap_or(who))
}

fn quote(text: &str) -> String {
    format!("\"{}\"", plain_line(text, MAX_CHARS))
}

fn requests(shown: &SummaryInput<'_>) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for line in shown.by("user").map(quote) {
        if !lines.contains(&line) {
            lines.push(line);
        }
    }
    lines
}

/// Lists artifacts and files, each with the tools that used it.
fn artifacts(shown: &SummaryInput<'_>) -> Vec<String> {
    let mut touched: Vec<(String, Vec<&str>)> = Vec::new();
    for (tool, arguments) in shown.calls() {
        let noun = if tool.ends_with("_artifact") {
            "artifact"
        } else {
            "file"
        };
        let Some(name) = argument(arguments, if noun == "artifact" { "name" } else { "path" })
        else {
            continue;
        };
        let name = format!("{noun} {}", plain_line(name, MAX_CHARS));
        match touched.iter_mut().find(|(known, _)| *known == name) {
            Some((_, tools)) if tools.contains(&tool) => {}
            Some((_, tools)) => tools.push(tool),
            None => touched.push((name, vec![tool])),
        }
    }
    // Artifacts first, since there may be many files.
    touched.sort_by_key(|(name, _)| !name.starts_with("artifact"));
    touched
        .into_iter()
        .map(|(name, tools)| format!("{name} ({})", tools.join(", ")))
        .collect()
}

/// Finds a text argument, even in truncated arguments.
fn argument<'a>(arguments: &'a str, name: &str) -> Option<&'a str> {
    let (_, behind) = arguments.split_once(&format!("\"{name}\""))?;
    let value = behind
        .trim_start()
        .strip_prefix(':')?
        .trim_start()
        .strip_prefix('"')?;
    value
        .split_once('"')
        .map(|(value, _)| value)
        .filter(|value| !value.is_empty())
}

/// Counts the calls of each tool, including those counted by an earlier summary.
fn tools(shown: &SummaryInput<'_>, earlier: &BTreeMap<&str, Vec<String>>) -> Vec<String> {
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    for line in earlier.get(SECTIONS[2]).into_iter().flatten() {
        if let Some((tool, rest)) = line.split_once(": ")
            && let Some(number) = rest
                .split(' ')
                .next()
                .and_then(|number| number.parse::<u64>().ok())
        {
            *counts.entry(tool.to_owned()).or_default() += number;
        }
    }
    for (tool, _) in shown.calls() {
        *counts.entry(tool.to_owned()).or_default() += 1;
    }
    counts
        .into_iter()
        .map(|(tool, number)| format!("{tool}: {}", count(number, "call")))
        .collect()
}

fn errors(shown: &SummaryInput<'_>) -> Vec<String> {
    let results = shown
        .passages
        .iter()
        .filter_map(|passage| Some((passage.author.strip_prefix("result of ")?, &passage.text)));
    let failed = results.filter(|(_, text)| is_error(text));
    failed
        .map(|(tool, text)| format!("{tool}: {}", plain_line(text, MAX_CHARS)))
        .collect()
}

fn open_goals(shown: &SummaryInput<'_>) -> Vec<String> {
    let is_open = |line: &&str| {
        ["[ ]", "[→]"]
            .iter()
            .any(|mark| line.trim_start().starts_with(mark))
    };
    shown
        .goals
        .iter()
        .copied()
        .filter(is_open)
        .map(|line| plain_line(line, MAX_CHARS))
        .collect()
}

fn current_goal<'a>(shown: &SummaryInput<'a>) -> Option<&'a str> {
    shown
        .goals
        .iter()
        .find_map(|line| line.trim_end().strip_suffix(" ← current"))
}

fn current_work(shown: &SummaryInput<'_>) -> Vec<String> {
    let goal = current_goal(shown).map(|goal| {
        format!(
            "goal {}",
            plain_line(goal.trim_start_matches([' ', '[', ']', '→']), MAX_CHARS)
        )
    });
    let last_text = shown
        .by("assistant")
        .rfind(|text| !text.trim().is_empty())
        .map(|text| format!("last said: {}", quote(text)));
    let called = shown
        .calls()
        .next_back()
        .map(|(tool, arguments)| format!("last call: {tool} {}", plain_line(arguments, MAX_CHARS)));
    [goal, last_text, called].into_iter().flatten().collect()
}

fn next_step(shown: &SummaryInput<'_>) -> Vec<String> {
    let last_request = shown
        .by("user")
        .next_back()
        .map(|text| format!("continue with the last request: {}", quote(text)));
    let goal = current_goal(shown).map(|_| "continue with the current goal".to_owned());
    last_request.or(goal).into_iter().collect()
}

/// Formats the lines of a section: the first and the last ones, if there are too many.
fn list(lines: &[String]) -> String {
    if lines.is_empty() {
        return NONE.to_owned();
    }
    let item = |line: &String| format!("- {line}");
    if lines.len() <= MAX_LINES {
        return lines.iter().map(item).collect::<Vec<_>>().join("\n");
    }
    let head = lines.iter().take(MAX_LINES / 2);
    let tail = lines.iter().skip(lines.len() - MAX_LINES / 2);
    let gone = format!("- [… {} more …]", lines.len() - MAX_LINES);
    head.map(item)
        .chain([gone])
        .chain(tail.map(item))
        .collect::<Vec<_>>()
        .join("\n")
}

/// Parses an earlier summary of this model: the lines of each section.
fn sections_of(text: &str) -> BTreeMap<&'static str, Vec<String>> {
    let mut sections: BTreeMap<&'static str, Vec<String>> = BTreeMap::new();
    let mut current = None;
    for line in text.lines() {
        if let Some(title) = line.strip_prefix("## ") {
            current = SECTIONS
                .iter()
                .find(|section| **section == title.trim())
                .copied();
        } else if let (Some(section), Some(item)) = (current, line.strip_prefix("- "))
            && !item.starts_with("[…")
        {
            sections.entry(section).or_default().push(item.to_owned());
        }
    }
    sections
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;
    use soong_model::ModelRequest;
    use soong_protocol::{GoalTree, Message, Role, Timestamp, ToolCall, TraceId};

    use super::{super::decide, *};
    use crate::context::{SizedMessage, accept_summary, summary_message, summary_request};

    fn entry(sequence: u64, role: Role, content: &str, call: Option<(&str, &str)>) -> SizedMessage {
        let at = Timestamp::default();
        let mut message = Message::new(
            TraceId::new("t"),
            sequence,
            None,
            role,
            content.to_owned(),
            at,
        );
        let covers = soong_protocol::Covers {
            first: 1,
            last: 3,
            next: 5,
            system: None,
            request: None,
        };
        message.covers = content
            .starts_with("# Summary of messages")
            .then_some(covers);
        let id = format!("c{}", sequence - u64::from(role == Role::Tool));
        if let Some((name, arguments)) = call {
            message.tool_calls = vec![ToolCall {
                id,
                name: name.to_owned(),
                arguments: arguments.to_owned(),
            }];
        } else if role == Role::Tool {
            message.tool_call_id = Some(id);
        }
        SizedMessage {
            tokens: 0,
            message: Arc::new(message),
        }
    }

    fn goals() -> GoalTree {
        let mut tree = GoalTree::new("the mission");
        let wanted = ["look around".to_owned(), "write it down".to_owned()];
        let added = tree
            .plan_add(&wanted, "", None, None, 0, Timestamp::default())
            .unwrap();
        added.iter().for_each(|event| tree.apply(event));
        tree.plan_focus("2")
            .unwrap()
            .iter()
            .for_each(|event| tree.apply(event));
        tree
    }

    fn summed_up(covered: &[SizedMessage], goals: &GoalTree) -> String {
        let (system, user) = summary_request(covered, goals, 50_000).unwrap();
        answer_to(&system, &user)
    }

    fn answer_to(system: &str, user: &str) -> String {
        let messages = vec![Arc::clone(&entry(1, Role::User, user, None).message)];
        let system = vec![system.into()];
        let request = ModelRequest {
            system,
            messages,
            tools: Vec::new().into(),
            ..ModelRequest::default()
        };
        let turn = decide(&Conversation::read(&request));
        assert!(turn.calls.is_empty());
        turn.text
    }

    #[test]
    fn summary_quotes_requests_and_counts_tool_calls() {
        let covered = [
            entry(1, Role::User, "Describe the project,\nplease", None),
            entry(
                2,
                Role::Assistant,
                "",
                Some(("read", "{\"path\": \"src/main.rs\"}")),
            ),
            entry(3, Role::Tool, "fn main() {}", None),
            entry(
                4,
                Role::Assistant,
                "",
                Some(("create_artifact", "{\"name\":\"report\",\"content\":\"x\"}")),
            ),
            entry(
                5,
                Role::Tool,
                "Error [artifact_exists]: report exists",
                None,
            ),
            entry(
                6,
                Role::Assistant,
                "Half of it is there.",
                Some(("read", "{\"path\":\"src/main.rs\"}")),
            ),
            entry(7, Role::Tool, "fn main() {}", None),
        ];
        let text = summed_up(&covered, &goals());
        assert_eq!(accept_summary(&text).as_ref(), Ok(&text));
        for part in [
            "## Request and intent\n- \"Describe the project, please\"",
            "## Artifacts\n- artifact report (create_artifact)\n- file src/main.rs (read)",
            "## Tool interactions\n- create_artifact: 1 call\n- read: 2 calls",
            "## Errors and fixes\n- create_artifact: Error [artifact_exists]: report exists",
            "## Pending tasks\n- [ ] 1. look around\n- [→] 2. write it down ← current",
            "## Current work\n- goal 2. write it down\n- last said: \"Half of it is there.\"\n- last call: read {",
            "## Next step\n- continue with the last request: \"Describe the project, please\"",
            "no language model",
        ] {
            assert!(text.contains(part), "{part}\n---\n{text}");
        }
        assert_eq!(summed_up(&covered, &goals()), text);
    }

    #[test]
    fn second_summary_keeps_content_of_the_first() {
        let first = summed_up(
            &[
                entry(1, Role::User, "Describe the project", None),
                entry(
                    2,
                    Role::Assistant,
                    "",
                    Some(("create_artifact", "{\"name\":\"report\"}")),
                ),
                entry(
                    3,
                    Role::Tool,
                    "Error [artifact_exists]: report exists",
                    None,
                ),
            ],
            &goals(),
        );
        let second = summed_up(
            &[
                entry(
                    4,
                    Role::User,
                    &summary_message(&first, 1, 3, &goals()),
                    None,
                ),
                entry(5, Role::User, "Now in French", None),
                entry(
                    6,
                    Role::Assistant,
                    "",
                    Some(("create_artifact", "{\"name\":\"rapport\"}")),
                ),
                entry(7, Role::Tool, "ok", None),
            ],
            &goals(),
        );
        for part in [
            "- \"Describe the project\"\n- \"Now in French\"",
            "- artifact report (create_artifact)\n- artifact rapport (create_artifact)",
            "- create_artifact: 2 calls",
            "report exists",
            "last request: \"Now in French\"",
        ] {
            assert!(second.contains(part), "{part}\n---\n{second}");
        }
    }

    #[test]
    fn empty_request_gets_all_sections() {
        let text = summed_up(&[], &GoalTree::new(""));
        assert!(
            SECTIONS
                .iter()
                .all(|section| text.contains(&format!("## {section}\nnone"))),
            "{text}"
        );
        assert!(!is_asked(&Conversation::read(&ModelRequest {
            system: vec!["You help.".into()],
            messages: vec![entry(1, Role::User, "Sum up, please", None).message],
            tools: Vec::new().into(),
            ..ModelRequest::default()
        })));
    }

    proptest! {
        #[test]
        fn any_request_gets_a_short_summary(text in "([\\[\\]0-9 :a-z=\n\"{}…-]|  |earlier summary|assistant calls |user){0,80}") {
            let answer = answer_to(SUMMARY_PROMPT_START, &text);
            prop_assert!(answer.contains("## Next step") && answer.len() < 20_000);
        }
    }
}
