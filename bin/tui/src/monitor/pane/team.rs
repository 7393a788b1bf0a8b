//! The Team pane: collaborators of the run, and results and usage of its children.

use soong_protocol::TraceStatus;

use super::{PaneContext, RunFacts};
use crate::monitor::actor::Actor;
use crate::{format, spent::Spent, styled_line::StyledLine, terminal::TextStyle, text};

pub(super) fn lines(facts: &RunFacts, page: &PaneContext<'_>) -> Vec<StyledLine> {
    let collaborators = &facts.trace.trace.context.collaborators;
    let mut lines = vec![StyledLine::of(
        TextStyle::Bold,
        format!("Collaborators ({})", collaborators.len()),
    )];
    for one in collaborators {
        let kind = one.trace_id.as_ref().map_or("user", |_| "agent");
        lines.push(
            StyledLine::of(
                TextStyle::Plain,
                format!("  {} ", text::safe_line(&one.name)),
            )
            .and(TextStyle::Dim, format!("{kind}, {}  ", one.status.as_str()))
            .and(TextStyle::Plain, text::safe_line(&one.summary)),
        );
    }
    let children = &facts.trace.sub_traces;
    lines.push(StyledLine::default());
    lines.push(StyledLine::of(
        TextStyle::Bold,
        format!("Children ({})", children.len()),
    ));
    for child in children {
        // An active child has a more precise state than its record, for example stuck.
        let of_child = |actor: &&Actor| {
            actor
                .view
                .run
                .as_ref()
                .is_some_and(|run| run.trace_id == child.trace_id)
        };
        let live_actor = page
            .actors
            .iter()
            .filter(|actor| !actor.has_ended)
            .find(of_child);
        let (style, status) = match (live_actor, child.status) {
            (Some(actor), TraceStatus::Running) => (actor.style(), actor.state()),
            (Some(actor), TraceStatus::Interrupted) => (actor.style(), actor.state()),
            (None, TraceStatus::Running) => (TextStyle::Cyan, "running"),
            (None, TraceStatus::Interrupted) => (TextStyle::Yellow, "interrupted"),
            (_, TraceStatus::Completed) => (TextStyle::Green, "completed"),
            (_, TraceStatus::Failed) => (TextStyle::Red, "failed"),
            (_, TraceStatus::Stopped) => (TextStyle::Dim, "stopped"),
        };
        let spent = Spent::from(child);
        let tokens = spent.tokens();
        let cost = spent.usd_or("?");
        let time = match child.status {
            TraceStatus::Running | TraceStatus::Interrupted => {
                page.now.millis_since(child.created_at)
            }
            _ => child.total_duration_ms,
        };
        lines.push(
            StyledLine::of(style, format!("  {status:<9} "))
                .and(
                    TextStyle::Plain,
                    format!("{tokens:>8} {cost:>9} {:>11}  ", format::duration(time)),
                )
                .and(TextStyle::Bold, text::safe_line(&child.agent_type))
                .and(
                    TextStyle::Plain,
                    format!(" {}", text::safe_line(&child.task)),
                ),
        );
        if let Some(error) = &child.error_message {
            lines.push(StyledLine::of(
                TextStyle::Red,
                format!("            {}", text::safe_line(error)),
            ));
        }
    }
    lines
}
