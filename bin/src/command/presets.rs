//! `soong presets`: lists the agent types.

use soong::protocol::api::PresetView;
use soong::{Config, preset::KnownPreset, protocol::ToolSpec};
use soong_server::http::preset_view;
use soong_tui::{table::Column, text};

use crate::{
    builtin_tools, cli,
    config::HomeFiles,
    context::Context,
    exit::{Exit, Failure},
    print,
};

pub(super) fn presets(context: &Context<'_>, options: &cli::List) -> Result<Exit, Failure> {
    let cli::List::List = options;
    let settings = context.settings()?;
    let tools = builtin_tools::builtins()?;
    let texts = HomeFiles::look(&context.home()?, &settings.config, &tools);
    if let Some(fault) = texts.faults.first() {
        return Err(Failure::usage(
            fault.to_string(),
            "Correct that file; `soong doctor` lists all invalid files.",
        ));
    }
    let shown = shown(&texts.presets, &settings.config, &tools);
    if context.global.json {
        print::json(&shown)?;
        return Ok(Exit::Success);
    }
    let rows: Vec<Vec<String>> = shown
        .iter()
        .map(
            |PresetView {
                 preset,
                 tools: own,
                 origin,
                 ..
             }| {
                let own = if own.len() == tools.len() {
                    "all".to_owned()
                } else {
                    own.join(", ")
                };
                vec![
                    preset.name.clone(),
                    origin.clone(),
                    preset
                        .model
                        .clone()
                        .unwrap_or_else(|| "model of the run".to_owned()),
                    preset
                        .max_turns
                        .map_or_else(|| "-".to_owned(), |turns| turns.to_string()),
                    preset.description.clone(),
                    own,
                ]
            },
        )
        .collect();
    for warning in texts
        .warnings
        .iter()
        .filter(|warning| !texts.skills.warnings().contains(warning))
    {
        print::error_line(&format!(
            "warning: {}",
            text::safe_line(&warning.to_string())
        ));
    }
    print::table(
        context.terminal,
        &[
            Column::whole("PRESET"),
            Column::text("ORIGIN", 8).drops(3),
            Column::text("MODEL", 12).drops(2),
            Column::whole("MAX TURNS").drops(4),
            Column::text("DESCRIPTION", 24),
            Column::text("TOOLS", 12).drops(1),
        ],
        &rows,
    )?;
    Ok(Exit::Success)
}

/// Adds the origin and the available tools to each agent type.
fn shown(presets: &[KnownPreset], config: &Config, tools: &[ToolSpec]) -> Vec<PresetView> {
    presets
        .iter()
        .map(|known| preset_view(known, config, tools))
        .collect()
}

#[cfg(test)]
mod tests {
    use soong::preset::{PresetFiles, presets};

    use super::*;

    #[test]
    fn user_preset_overrides_built_in_one() {
        let text = "[presets.explore]\nallowed_tools = [\"grep\", \"nothing\"]\n[presets.mine]\ndenied_tools = [\"grep\"]\n\
                    [tools]\ndisabled = [\"glob\"]\n";
        let config = Config::parse("c", text).unwrap();
        let presets = presets(&PresetFiles::default(), &config, &[]);
        let shown = shown(&presets, &config, &builtin_tools::builtins().unwrap());
        let names: Vec<&str> = shown
            .iter()
            .map(|shown| shown.preset.name.as_str())
            .collect();
        assert_eq!(
            names,
            [
                "default",
                "small",
                "analyst",
                "evaluator",
                "orchestrator",
                "explore",
                "mine"
            ]
        );
        let of = |name: &str| {
            shown
                .iter()
                .find(|shown| shown.preset.name == name)
                .unwrap()
        };
        assert_eq!(
            (of("default").origin.as_str(), of("explore").origin.as_str()),
            ("built in", "config")
        );
        assert_eq!(of("explore").tools, ["grep"], "only what exists");
        assert!(
            !of("mine").tools.contains(&"grep".to_owned())
                && !of("default").tools.contains(&"glob".to_owned())
        );
    }
}
