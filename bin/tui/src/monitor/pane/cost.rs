//! The Cost pane: tokens and cost of the run and of its children, and how much of each budget is
//! used.

use std::cmp::Reverse;

use soong_protocol::Trace;

use super::{PaneContext, RunFacts, facts};
use crate::{format, spent::Spent, styled_line::StyledLine, terminal::TextStyle, text};

pub(super) fn lines(facts: &RunFacts, page: &PaneContext<'_>) -> Vec<StyledLine> {
    let own = &facts.run.run.usage;
    let children = facts.children();
    let mut lines = vec![StyledLine::of(
        TextStyle::Dim,
        format!("{:<14}{:>8} {:>10}", "", "TOKENS", "COST"),
    )];
    let calls = format!(
        "{}, {}",
        format::plural(count(own.model_calls), "model call", "model calls"),
        format::plural(count(own.tool_calls), "tool call", "tool calls")
    );
    lines.push(amount("this run", Spent::from(own)).and(TextStyle::Dim, format!("  {calls}")));
    let dim = |text: String| StyledLine::of(TextStyle::Dim, text);
    let part = |name: &str, tokens: u64, whole: u64| {
        (tokens > 0).then(|| {
            dim(format!(
                "    {name:<11}{}",
                format::count_and_share(tokens, whole)
            ))
        })
    };
    lines.push(dim(format!(
        "  {:<12}{:>8}",
        "prompt",
        format::count(own.prompt_tokens)
    )));
    lines.extend(part("from cache", own.cached_tokens, own.prompt_tokens));
    lines.extend(part("to cache", own.cache_write_tokens, own.prompt_tokens));
    lines.push(dim(format!(
        "  {:<12}{:>8}",
        "answers",
        format::count(own.completion_tokens)
    )));
    lines.extend(part(
        "reasoning",
        own.reasoning_tokens,
        own.completion_tokens,
    ));
    if !children.is_empty() {
        let with = format::plural(children.len(), "child", "children");
        // Children of children are known when the run has ended.
        let with = if facts.run.stats.is_some() {
            format!("{with} and those below them")
        } else {
            with
        };
        lines.push(
            amount("total", facts.with_sub_agents()).and(TextStyle::Dim, format!("  with {with}")),
        );
    }
    if own.estimated {
        lines.push(StyledLine::of(
            TextStyle::Yellow,
            "~ partly estimated: the provider did not report all counts, or a call was cut off",
        ));
    }
    if let Some(run) = page
        .actor
        .view
        .run
        .as_ref()
        .filter(|run| !run.budget.is_empty())
    {
        lines.push(StyledLine::default());
        lines.extend(run.budget.iter().map(|share| facts::budget(share, page)));
    }
    lines.extend(expensive_children(children));
    lines
}

/// Lists children, the most expensive first.
fn expensive_children(mut children: Vec<&Trace>) -> Vec<StyledLine> {
    if children.is_empty() {
        return Vec::new();
    }
    children.sort_by_key(|child| Reverse((child.total_cost, child.total_tokens)));
    let line = |child: &&Trace| {
        let name = StyledLine::of(
            TextStyle::Bold,
            format!("  {}", text::safe_line(&child.agent_type)),
        );
        let mut line = amount("", Spent::from(*child));
        line.append(&name.and(
            TextStyle::Plain,
            format!(" {}", text::safe_line(&child.task)),
        ));
        line
    };
    let title = [
        StyledLine::default(),
        StyledLine::of(TextStyle::Bold, "Children, the most expensive first"),
    ];
    title.into_iter().chain(children.iter().map(line)).collect()
}

fn amount(name: &str, spent: Spent) -> StyledLine {
    let tokens = spent.tokens();
    let cost = spent.usd_or("unknown");
    StyledLine::of(
        TextStyle::Plain,
        format!("{name:<14}{tokens:>8} {cost:>10}"),
    )
}

fn count(n: u64) -> usize {
    usize::try_from(n).unwrap_or(usize::MAX)
}
