//! The Goals pane: the goal tree of the run's trace, with the current goal.

use soong_protocol::GoalStatus;

use super::{PaneContext, RunFacts, paragraph};
use crate::{format, styled_line::StyledLine, terminal::TextStyle, text};

pub(super) fn lines(facts: &RunFacts, page: &PaneContext<'_>) -> Vec<StyledLine> {
    let tree = &facts.trace.goal_tree;
    let mut lines = paragraph(TextStyle::Bold, &tree.mission, 0, page, 3);
    if tree.goals.is_empty() {
        lines.push(StyledLine::of(TextStyle::Dim, "no goals"));
    }
    for goal in &tree.goals {
        let depth = goal.number.matches('.').count();
        let (style, status) = match goal.status {
            GoalStatus::Pending => (TextStyle::Dim, "pending"),
            GoalStatus::InProgress => (TextStyle::Cyan, "in progress"),
            GoalStatus::Completed => (TextStyle::Green, "completed"),
            GoalStatus::Abandoned => (TextStyle::Dim, "abandoned"),
        };
        let is_current = tree.current_id.as_ref() == Some(&goal.id);
        let mark = if is_current { "> " } else { "  " };
        let mut line = StyledLine::of(TextStyle::Cyan, format!("{mark}{}", "  ".repeat(depth)))
            .and(TextStyle::Bold, format!("{} ", goal.number))
            .and(
                if is_current {
                    TextStyle::Bold
                } else {
                    TextStyle::Plain
                },
                text::safe_line(&goal.description),
            )
            .and(style, format!("  {status}"));
        if let Some(stats) = goal.cumulative_stats.filter(|stats| stats.total_tokens > 0) {
            line.push(
                TextStyle::Dim,
                &format!("  {} tokens", format::count(stats.total_tokens)),
            );
        }
        lines.push(line);
        if let Some(summary) = &goal.summary {
            lines.extend(paragraph(TextStyle::Dim, summary, 4 + 2 * depth, page, 2));
        }
    }
    lines
}
