//! `soong tools`: lists the tools that agents can be given.

use serde::Serialize;
use soong::{
    protocol::{ToolEffect, ToolSpec},
    tool::ToolEnvironment,
};
use soong_tui::table::Column;

use crate::{
    builtin_tools, cli,
    context::Context,
    exit::{Exit, Failure},
    print,
};

/// Printed form of a tool.
#[derive(Debug, Serialize)]
struct ToolRow {
    #[serde(flatten)]
    spec: ToolSpec,
    /// Whether the configuration disables it for every run.
    disabled: bool,
    /// Missing requirement, if any; the tool is then not offered.
    #[serde(skip_serializing_if = "Option::is_none")]
    lacks: Option<String>,
}

pub(super) fn tools(context: &Context<'_>, options: &cli::List) -> Result<Exit, Failure> {
    let cli::List::List = options;
    let settings = context.settings()?;
    let tool_environment = ToolEnvironment {
        tools: settings.config.tools.clone(),
        permissions: settings.config.permissions.clone(),
        environment: context.environment.clone(),
        ..ToolEnvironment::default()
    };
    let disabled = &settings.config.tools.disabled;
    let registry = builtin_tools::registry(&tool_environment)?;
    let shown: Vec<ToolRow> = registry
        .entries()
        .map(|entry| ToolRow {
            disabled: disabled.contains(&entry.spec.name),
            lacks: entry.missing_requirement(),
            spec: (*entry.spec).clone(),
        })
        .collect();
    if context.global.json {
        print::json(&shown)?;
        return Ok(Exit::Success);
    }
    let rows: Vec<Vec<String>> = shown
        .iter()
        .map(
            |ToolRow {
                 spec,
                 disabled,
                 lacks,
             }| {
                let effect = match spec.effect {
                    ToolEffect::Read => "reads",
                    ToolEffect::Write => "writes",
                    ToolEffect::Dangerous => "dangerous",
                };
                vec![
                    spec.name.clone(),
                    effect.to_owned(),
                    if spec.idempotent { "yes" } else { "no" }.to_owned(),
                    match lacks {
                        _ if *disabled => "disabled".to_owned(),
                        Some(what) => format!("off: {what}"),
                        None => "on".to_owned(),
                    },
                    first_sentence(&spec.description).to_owned(),
                ]
            },
        )
        .collect();
    print::table(
        context.terminal,
        &[
            Column::whole("TOOL"),
            Column::whole("EFFECT").drops(1),
            Column::whole("IDEMPOTENT").drops(2),
            Column::text("STATE", 12),
            Column::text("DESCRIPTION", 32),
        ],
        &rows,
    )?;
    Ok(Exit::Success)
}

fn first_sentence(text: &str) -> &str {
    text.find(". ").map_or(text, |end| &text[..=end])
}
