//! The Cost pane: tokens and money of the run and of its sub-agents, and how much of each budget is used.

use std::cmp::Reverse;

use soong_protocol::{Trace, Usd};

use super::{PaneContext, RunFacts, facts};
use crate::monitor::actor_index::add_cost;
use crate::{format, styled_line::StyledLine, terminal::TextStyle, text};

pub(super) fn lines(facts: &RunFacts, page: &PaneContext<'_>) -> Vec<StyledLine> {
    let own = &facts.run.run.usage;
    let children = facts.children();
    let mut lines = vec![StyledLine::of(TextStyle::Dim, format!("{:<14}{:>8} {:>10}", "", "TOKENS", "COST"))];
    let calls = format!(
        "{}, {}",
        format::plural(count(own.model_calls), "model call", "model calls"),
        format::plural(count(own.tool_calls), "tool call", "tool calls")
    );
    lines.push(amount("this run", own.total_tokens, own.cost).and(TextStyle::Dim, format!("  {calls}")));
    for (name, tokens, whole) in [
        ("prompt", own.prompt_tokens, 0),
        ("  from cache", own.cached_tokens, own.prompt_tokens),
        ("  to cache", own.cache_write_tokens, own.prompt_tokens),
        ("answers", own.completion_tokens, 0),
        ("  reasoning", own.reasoning_tokens, own.completion_tokens),
    ] {
        if tokens > 0 || whole == 0 {
            let share = if whole > 0 { format::count_and_share(tokens, whole) } else { format::count(tokens) };
            lines.push(StyledLine::of(TextStyle::Dim, format!("  {name:<12}{share:>8}")));
        }
    }
    if !children.is_empty() {
        let (tokens, cost) = children.iter().fold((0, Some(Usd::default())), |sum, child| {
            (sum.0 + child.total_tokens, add_cost(sum.1, child.total_cost))
        });
        lines.push(amount(&format::plural(children.len(), "sub-agent", "sub-agents"), tokens, cost));
        let (tokens, cost) = facts.with_sub_agents();
        lines.push(amount("total", tokens, cost));
    }
    if own.estimated {
        lines.push(StyledLine::of(TextStyle::Yellow, "partly estimated: the provider did not report all counts"));
    }
    if let Some(run) = page.actor.view.run.as_ref().filter(|run| !run.budget.is_empty()) {
        lines.push(StyledLine::default());
        lines.extend(run.budget.iter().map(|share| facts::budget(share, page)));
    }
    lines.extend(sub_agents(children));
    lines
}

/// Lists sub-agents, the most expensive first.
fn sub_agents(mut children: Vec<&Trace>) -> Vec<StyledLine> {
    if children.is_empty() {
        return Vec::new();
    }
    children.sort_by_key(|child| Reverse((child.total_cost, child.total_tokens)));
    let line = |child: &&Trace| {
        let name = StyledLine::of(TextStyle::Plain, "")
            .and(TextStyle::Bold, format!("  {}", text::safe_line(&child.agent_type)));
        let mut line = amount("", child.total_tokens, child.total_cost);
        line.append(&name.and(TextStyle::Plain, format!(" {}", text::safe_line(&child.task))));
        line
    };
    let title = [StyledLine::default(), StyledLine::of(TextStyle::Bold, "Sub-agents, the most expensive first")];
    title.into_iter().chain(children.iter().map(line)).collect()
}

fn amount(name: &str, tokens: u64, cost: Option<Usd>) -> StyledLine {
    StyledLine::of(
        TextStyle::Plain,
        format!("{name:<14}{:>8} {:>10}", format::count(tokens), format::usd_or_unknown(cost)),
    )
}

fn count(n: u64) -> usize {
    usize::try_from(n).unwrap_or(usize::MAX)
}
