//! `soong tools`: which tools agents may be given.

use serde::Serialize;
use soong::{
    protocol::{Effect, ToolSpec},
    tool::ToolRegistry,
};

use super::Context;
use crate::{
    cli,
    exit::{Exit, Failure},
    print,
};

/// A tool as it is shown.
#[derive(Debug, Serialize)]
struct Shown {
    #[serde(flatten)]
    spec: ToolSpec,
    /// Whether the configuration takes it away from every run.
    disabled: bool,
}

/// Returns the tools that this binary has, in the order in which models see them.
pub(super) fn builtins() -> Result<Vec<ToolSpec>, Failure> {
    let broken = |error| Failure::new(Exit::Failed, format!("a built-in tool: {error}"), "");
    let registry = ToolRegistry::with_builtins().map_err(broken)?;
    Ok(registry.specs().map(|spec| (**spec).clone()).collect())
}

pub(super) fn tools(context: &Context<'_>, options: &cli::List) -> Result<Exit, Failure> {
    let cli::List::List = options;
    let settings = context.settings()?;
    let disabled = &settings.config.tools.disabled;
    let shown: Vec<Shown> =
        builtins()?.into_iter().map(|spec| Shown { disabled: disabled.contains(&spec.name), spec }).collect();
    if context.global.json {
        print::json(&shown)?;
        return Ok(Exit::Done);
    }
    let rows: Vec<Vec<String>> = shown
        .iter()
        .map(|Shown { spec, disabled }| {
            let effect = match spec.effect {
                Effect::Read => "reads",
                Effect::Write => "writes",
            };
            vec![
                spec.name.clone(),
                effect.to_owned(),
                if spec.idempotent { "yes" } else { "no" }.to_owned(),
                if *disabled { "disabled" } else { "on" }.to_owned(),
                first_sentence(&spec.description).to_owned(),
            ]
        })
        .collect();
    print::table(&["TOOL", "EFFECT", "IDEMPOTENT", "STATE", "DESCRIPTION"], &rows)?;
    Ok(Exit::Done)
}

fn first_sentence(text: &str) -> &str {
    text.find(". ").map_or(text, |end| &text[..=end])
}
