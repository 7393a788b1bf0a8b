//! `soong experiences`: lists and shows recorded experiences.

use soong::{
    memory::{ExperienceText, MemoryFile, matching, normalize_tags},
    protocol::Experience,
};
use soong_tui::{table::Column, text};

use crate::{
    cli,
    context::Context,
    exit::{Exit, Failure},
    print,
};

/// Maximum width of the text in the table, in columns.
const TEXT_COLUMNS: usize = 60;

/// Columns of the list.
const COLUMNS: [Column; 7] = [
    Column::whole("ID"),
    Column::text("CATEGORY", 8),
    Column::text("INTENT", 8).drops(3),
    Column::text("STATE", 8).drops(4),
    Column::whole("HELPFUL").drops(1),
    Column::whole("HARMFUL").drops(2),
    Column::text("TEXT", 16),
];

pub(super) fn experiences(
    context: &Context<'_>,
    options: &cli::Experiences,
) -> Result<Exit, Failure> {
    let settings = context.settings()?;
    let home = context.home()?;
    let file = MemoryFile::of_home(&home, &settings.config, &context.environment);
    let book = file.read().map_err(|error| {
        Failure::new(
            Exit::Failed,
            error.message,
            "Fix its permissions, or set another file: memory.experiences_path.",
        )
    })?;
    match options {
        cli::Experiences::List { intent, state } => list(context, &book, intent, state),
        cli::Experiences::Show { id } => show(context, &book, id),
    }
}

fn list(
    context: &Context<'_>,
    text: &ExperienceText,
    intent: &[String],
    state: &[String],
) -> Result<Exit, Failure> {
    let wanted = normalize_tags(intent, state);
    let shown: Vec<&Experience> = if intent.is_empty() && state.is_empty() {
        text.experiences().iter().collect()
    } else {
        matching(text.experiences(), &wanted, usize::MAX)
    };
    if context.global.json {
        print::json(&shown)?;
    } else if shown.is_empty() {
        print::line(
            "no experiences; runs record them when they reflect on a conversation (`soong guide memory`)",
        )?;
    } else {
        let row = |known: &&Experience| {
            vec![
                known.id.to_string(),
                text::safe_line(&known.category),
                known.tags.intent.join(" "),
                known.tags.state.join(" "),
                known.metrics.helpful.to_string(),
                known.metrics.harmful.to_string(),
                text::cut(&text::safe_line(&known.text), TEXT_COLUMNS, "…"),
            ]
        };
        print::table(
            context.terminal,
            &COLUMNS,
            &shown.iter().map(row).collect::<Vec<_>>(),
        )?;
    }
    for fault in text.faults() {
        let what = if fault.is_left_out { "skipped" } else { "note" };
        print::error_line(&format!("{what}: {}", text::safe_line(&fault.to_string())));
    }
    Ok(Exit::Success)
}

fn show(context: &Context<'_>, text: &ExperienceText, id: &str) -> Result<Exit, Failure> {
    let known = text.get(id).ok_or_else(|| {
        Failure::new(
            Exit::NotFound,
            format!("no experience {id:?}"),
            "See `soong experiences list`.",
        )
    })?;
    if context.global.json {
        print::json(known)?;
        return Ok(Exit::Success);
    }
    let mut lines = vec![
        format!("{} · {}", known.id, text::safe_line(&known.category)),
        format!("intent: {}", known.tags.intent.join(", ")),
        format!("state: {}", known.tags.state.join(", ")),
        format!(
            "helpful {}, harmful {}",
            known.metrics.helpful, known.metrics.harmful
        ),
    ];
    lines.extend(
        known
            .trace_id
            .as_ref()
            .map(|trace| format!("learned in trace {}", text::safe_line(trace.as_str()))),
    );
    lines.extend(known.created_at.map(|at| format!("recorded {at}")));
    lines.extend([String::new(), text::safe_block(&known.text)]);
    print::line(&lines.join("\n"))?;
    Ok(Exit::Success)
}
