//! The Timeline pane: turns, tools, waits and children as bars over the duration of the run.

use std::collections::HashMap;

use soong_protocol::{
    Event, EventRecord, ModelEvent, PermissionEvent, RunEvent, RunStatus, SubAgentEvent, Timestamp,
    ToolEvent,
};

use super::PaneContext;
use crate::{format, styled_line::StyledLine, terminal::TextStyle, text};

/// Width of a bar's name and of its duration, in columns.
const NAME: usize = 26;
const TIME: usize = 12;
/// Minimum length of a common start of tasks that is left out, in bytes.
const MIN_COMMON_START: usize = 8;

/// A period of time with a name.
#[derive(Debug, Clone, PartialEq)]
struct TimelineSpan {
    name: String,
    style: TextStyle,
    begin: Timestamp,
    /// `None` if it has not ended.
    end: Option<Timestamp>,
    has_failed: bool,
    /// Whether it is that of a sub-agent.
    is_child: bool,
}

pub(super) fn lines(events: &[EventRecord], page: &PaneContext<'_>) -> Vec<StyledLine> {
    let run = page.actor.run_id();
    let events: Vec<&EventRecord> = events
        .iter()
        .filter(|record| record.run_id == run)
        .collect();
    // Number of the first turn with known events: earlier events may have been dropped.
    let begun = |record: &&&EventRecord| {
        matches!(
            record.event,
            Event::Model(ModelEvent::Started { attempt: 1, .. })
        )
    };
    let turns = u32::try_from(events.iter().filter(begun).count()).unwrap_or(u32::MAX);
    let spans = spans(&events, page.actor.turn().saturating_sub(turns));
    let (Some(first), Some(last)) = (events.first(), events.last()) else {
        return vec![StyledLine::of(TextStyle::Dim, "no events yet")];
    };
    let begin = first.ts;
    let end = if page.actor.has_ended {
        last.ts
    } else {
        page.now.max(last.ts)
    };
    let room = page.columns.saturating_sub(NAME + TIME + 2).max(4);
    let total = end.millis_since(begin).max(1);
    let mut lines = vec![
        StyledLine::of(TextStyle::Dim, text::pad(&clock(begin), NAME))
            .and(TextStyle::Dim, axis(total, room)),
    ];
    let starts = common_starts(&spans);
    for span in &spans {
        let until = span.end.unwrap_or(end);
        let column = |at: Timestamp| {
            let passed = u128::from(at.millis_since(begin)) * room as u128 / u128::from(total);
            usize::try_from(passed).unwrap_or(room).min(room)
        };
        let from = column(span.begin).min(room - 1);
        let to = column(until);
        let wide = (to.saturating_sub(from)).max(1);
        let bar = page.cells.bar(1.0, wide);
        let time = format::duration(until.millis_since(span.begin));
        let name = name(span, &starts, page.cells.ellipsis());
        let name = text::pad(
            &text::cut(
                &text::safe_line_keep_spaces(&name),
                NAME - 1,
                page.cells.ellipsis(),
            ),
            NAME,
        );
        let style = if span.has_failed {
            TextStyle::Red
        } else {
            span.style
        };
        lines.push(
            StyledLine::of(
                if span.end.is_none() {
                    TextStyle::Bold
                } else {
                    TextStyle::Plain
                },
                name,
            )
            .and(TextStyle::Plain, " ".repeat(from))
            .and(style, bar)
            .and(
                TextStyle::Plain,
                " ".repeat(room.saturating_sub(from + wide)),
            )
            .and(TextStyle::Dim, format!(" {time:>11}")),
        );
    }
    lines
}

/// Returns an axis of `columns`: the times at its start, its quarters and its end, as far as there
/// is room.
fn axis(total_ms: u64, columns: usize) -> String {
    let last = format::duration(total_ms);
    let end = columns.saturating_sub(text::width(&last));
    let mut axis = String::new();
    for quarter in 0..4_usize {
        let label = format::duration(total_ms * quarter as u64 / 4);
        let at = columns * quarter / 4;
        let is_free = quarter == 0 || at > text::width(&axis) + 1;
        if is_free && at + text::width(&label) < end {
            axis = text::pad(&axis, at) + &label;
        }
    }
    text::cut(&(text::pad(&axis, end) + &last), columns, "")
}

/// Returns the type of the sub-agent of a span.
fn agent_type(span: &TimelineSpan) -> &str {
    span.name.trim_start().split(' ').next().unwrap_or_default()
}

/// Returns, for each type of sub-agents, the length of the text with which the names of all of them
/// start, up to the end of a word. Texts that are too short to be worth leaving out are not
/// included.
fn common_starts(spans: &[TimelineSpan]) -> HashMap<&str, usize> {
    let mut starts: HashMap<&str, (&str, usize)> = HashMap::new();
    for span in spans.iter().filter(|span| span.is_child) {
        let (start, count) = starts.entry(agent_type(span)).or_insert((&span.name, 0));
        let same = start
            .char_indices()
            .zip(span.name.chars())
            .find(|((_, one), other)| one != other);
        let shorter = start.len().min(span.name.len());
        *start = &start[..same.map_or(shorter, |((at, _), _)| at)];
        *count += 1;
    }
    let several = starts.into_iter().filter(|(_, (_, count))| *count > 1);
    let words = several.map(|(kind, (start, _))| (kind, start.rfind(' ').map_or(0, |at| at + 1)));
    words
        .filter(|(kind, words)| *words >= kind.len() + MIN_COMMON_START)
        .collect()
}

/// Returns the name of a span: for a sub-agent, its type and what its task has not in common with
/// the others.
fn name(span: &TimelineSpan, starts: &HashMap<&str, usize>, ellipsis: &str) -> String {
    let kind = agent_type(span);
    match starts.get(kind).filter(|_| span.is_child) {
        Some(same) => format!("  {kind} {ellipsis}{}", &span.name[*same..]),
        None => span.name.clone(),
    }
}

fn clock(at: Timestamp) -> String {
    format::time(at).split_off(11)
}

/// Effect of an event on the periods. Periods are identified by their keys.
enum Change {
    Begin {
        key: String,
        name: String,
        style: TextStyle,
    },
    End {
        key: String,
        has_failed: bool,
    },
    /// Everything open ends with its run.
    EndAll,
}

fn begin(key: impl Into<String>, name: impl Into<String>, style: TextStyle) -> Vec<Change> {
    vec![Change::Begin {
        key: key.into(),
        name: name.into(),
        style,
    }]
}

fn end(key: impl Into<String>, has_failed: bool) -> Vec<Change> {
    vec![Change::End {
        key: key.into(),
        has_failed,
    }]
}

/// Returns what an event begins and ends. `turn` is the number of the turn that the event belongs
/// to.
fn changes(event: &Event, turn: u32) -> Vec<Change> {
    match event {
        Event::Model(ModelEvent::Retrying { .. }) => {
            begin("pause", "  retry delay", TextStyle::Yellow)
                .into_iter()
                .chain(end("model", true))
                .collect()
        }
        Event::Model(ModelEvent::Started { attempt, .. }) => {
            let attempt_text = if *attempt > 1 {
                format!(", attempt {attempt}")
            } else {
                String::new()
            };
            let call = begin(
                "model",
                format!("turn {turn}: model{attempt_text}"),
                TextStyle::Blue,
            );
            end("pause", false).into_iter().chain(call).collect()
        }
        Event::Model(ModelEvent::Fallback { to, .. }) => {
            let call = begin(
                "model",
                format!("turn {turn}: {}", text::safe_line(to)),
                TextStyle::Blue,
            );
            end("model", true)
                .into_iter()
                .chain(end("pause", false))
                .chain(call)
                .collect()
        }
        Event::Model(ModelEvent::Completed { .. }) => end("model", false),
        Event::Model(ModelEvent::Failed { .. }) => end("model", true),
        Event::Tool(ToolEvent::Started {
            tool_call_id, name, ..
        }) => begin(
            format!("tool {tool_call_id}"),
            format!("  {name}"),
            TextStyle::Green,
        ),
        Event::Tool(ToolEvent::Completed { tool_call_id, .. }) => {
            end(format!("tool {tool_call_id}"), false)
        }
        Event::Tool(
            ToolEvent::Failed { tool_call_id, .. } | ToolEvent::Denied { tool_call_id, .. },
        ) => end(format!("tool {tool_call_id}"), true),
        Event::SubAgent(SubAgentEvent::Started {
            run_id,
            agent_type,
            task,
            ..
        }) => begin(
            format!("child {run_id}"),
            format!("  {agent_type} {task}"),
            TextStyle::Cyan,
        ),
        Event::SubAgent(SubAgentEvent::Completed { run_id, status, .. }) => {
            end(format!("child {run_id}"), *status == RunStatus::Failed)
        }
        Event::SubAgent(SubAgentEvent::QuestionAsked { question_id, .. }) => begin(
            format!("ask {question_id}"),
            "  waits for an answer",
            TextStyle::Yellow,
        ),
        Event::SubAgent(SubAgentEvent::QuestionAnswered { question_id }) => {
            end(format!("ask {question_id}"), false)
        }
        Event::Permission(PermissionEvent::Requested {
            permission_id,
            tool,
            ..
        }) => begin(
            format!("ask {permission_id}"),
            format!("  waits for permission: {tool}"),
            TextStyle::Yellow,
        ),
        Event::Permission(PermissionEvent::Decided { permission_id, .. }) => {
            end(format!("ask {permission_id}"), false)
        }
        Event::Run(RunEvent::Queued { .. }) => begin("queue", "queued", TextStyle::Dim),
        Event::Run(RunEvent::Dequeued { .. } | RunEvent::LoopStarted { .. }) => end("queue", false),
        event if event.is_terminal() => vec![Change::EndAll],
        _ => Vec::new(),
    }
}

/// Finds the periods in the order of their start.
fn spans(events: &[&EventRecord], mut turn: u32) -> Vec<TimelineSpan> {
    let mut spans: Vec<TimelineSpan> = Vec::new();
    let mut open: HashMap<String, usize> = HashMap::new();
    for record in events {
        turn += u32::from(matches!(
            record.event,
            Event::Model(ModelEvent::Started { attempt: 1, .. })
        ));
        for change in changes(&record.event, turn) {
            match change {
                Change::Begin { key, name, style } => {
                    let is_child = key.starts_with("child ");
                    open.insert(key, spans.len());
                    spans.push(TimelineSpan {
                        name,
                        style,
                        begin: record.ts,
                        end: None,
                        has_failed: false,
                        is_child,
                    });
                }
                Change::End { key, has_failed } => {
                    if let Some(span) = open.remove(&key) {
                        spans[span].end = Some(record.ts);
                        spans[span].has_failed = has_failed;
                    }
                }
                Change::EndAll => open
                    .drain()
                    .for_each(|(_, span)| spans[span].end = Some(record.ts)),
            }
        }
    }
    spans
}

#[cfg(test)]
mod tests {
    use crate::sample::record;
    use soong_protocol::{ErrorCode, ErrorInfo, QuestionId};

    use super::*;

    #[test]
    fn names_of_sub_agents_omit_what_all_have_in_common() {
        let span = |name: &str, is_child| {
            let style = TextStyle::Cyan;
            let begin = Timestamp::from_millis(0);
            TimelineSpan {
                name: name.to_owned(),
                style,
                begin,
                end: None,
                has_failed: false,
                is_child,
            }
        };
        let spans = [
            span("  explore Explore the folder `src/` of", true),
            span("  explore Explore the folder `sources/` of", true),
            span("  default Write a report", true),
            span("  explore is a tool", false),
        ];
        let starts = common_starts(&spans);
        let names: Vec<String> = spans.iter().map(|span| name(span, &starts, "…")).collect();
        assert_eq!(
            names,
            [
                "  explore …`src/` of",
                "  explore …`sources/` of",
                "  default Write a report",
                "  explore is a tool"
            ]
        );
        let short = [span("  explore a b", true), span("  explore a c", true)];
        assert_eq!(common_starts(&short), HashMap::new());
    }

    #[test]
    fn axis_has_the_times_that_fit() {
        assert_eq!(axis(8_000, 40), "0.0 s     2.0 s     4.0 s          8.0 s");
        assert_eq!(
            axis(8_000, 60),
            "0.0 s          2.0 s          4.0 s          6.0 s     8.0 s"
        );
        assert_eq!(axis(8_000, 12), "0.0 s  8.0 s");
        assert_eq!(text::width(&axis(8_000, 3)), 3);
    }

    #[test]
    fn spans_have_times_and_open_ones_end_with_the_run() {
        let error = || ErrorInfo::new(ErrorCode::Timeout, "no");
        let started = |attempt| ModelEvent::Started {
            model: "m".to_owned(),
            attempt,
        };
        let events = [
            record("r", 0, RunEvent::Queued { position: 1 }),
            record("r", 1, RunEvent::Dequeued { cancelled: false }),
            record("r", 2, started(1)),
            record(
                "r",
                3,
                ModelEvent::Retrying {
                    attempt: 1,
                    error: error(),
                    wait_ms: 1,
                    usage: None,
                    cost: None,
                },
            ),
            record("r", 4, started(2)),
            record(
                "r",
                6,
                ModelEvent::Completed {
                    finish_reason: "stop".to_owned(),
                    tool_calls: 1,
                    usage: Default::default(),
                    cost: None,
                    duration_ms: 1,
                    waited_ms: 0,
                    answer_check: None,
                },
            ),
            record(
                "r",
                6,
                ToolEvent::Started {
                    tool_call_id: "c".to_owned(),
                    name: "read".to_owned(),
                    arguments_preview: String::new(),
                },
            ),
            record(
                "r",
                7,
                SubAgentEvent::QuestionAnswered {
                    question_id: QuestionId::new("unknown"),
                },
            ),
            record("r", 9, RunEvent::CancelRequested {}),
            record(
                "r",
                10,
                RunEvent::Cancelled {
                    queued: false,
                    end_reason: soong_protocol::EndReason::AbortedTools,
                    stats: Default::default(),
                },
            ),
        ];
        let found: Vec<(String, i64, Option<i64>, bool)> =
            spans(&events.iter().collect::<Vec<_>>(), 0)
                .into_iter()
                .map(|span| {
                    (
                        span.name,
                        span.begin.as_millis(),
                        span.end.map(|end| end.as_millis()),
                        span.has_failed,
                    )
                })
                .collect();
        let want = [
            ("queued", 0, 1, false),
            ("turn 1: model", 2, 3, true),
            ("  retry delay", 3, 4, false),
            ("turn 1: model, attempt 2", 4, 6, false),
            ("  read", 6, 10, false),
        ];
        let want =
            want.map(|(name, begin, end, failed)| (name.to_owned(), begin, Some(end), failed));
        assert_eq!(found, want);
    }
}
