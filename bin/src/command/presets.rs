//! `soong presets`: which agent types there are.

use serde::Serialize;
use soong::{
    Config,
    protocol::{Preset, ToolSpec, builtin_presets},
};

use super::{Context, tools};
use crate::{
    cli,
    exit::{Exit, Failure},
    print,
};

/// An agent type as it is shown.
#[derive(Debug, Serialize)]
struct Shown {
    #[serde(flatten)]
    preset: Preset,
    /// The tools that it gets, as things are: those that exist, are not disabled, and that it allows.
    tools: Vec<String>,
    /// `built in` or `config`.
    origin: &'static str,
}

pub(super) fn presets(context: &Context<'_>, options: &cli::List) -> Result<Exit, Failure> {
    let cli::List::List = options;
    let settings = context.settings()?;
    let tools = tools::builtins()?;
    let shown = shown(&settings.config, &tools);
    if context.global.json {
        print::json(&shown)?;
        return Ok(Exit::Done);
    }
    let rows: Vec<Vec<String>> = shown
        .iter()
        .map(|Shown { preset, tools: own, origin }| {
            let own = if own.len() == tools.len() { "all".to_owned() } else { own.join(", ") };
            vec![
                preset.name.clone(),
                (*origin).to_owned(),
                preset.model.clone().unwrap_or_else(|| "as the run".to_owned()),
                preset.max_iterations.map_or_else(|| "-".to_owned(), |turns| turns.to_string()),
                preset.description.clone(),
                own,
            ]
        })
        .collect();
    print::table(&["PRESET", "ORIGIN", "MODEL", "MAX TURNS", "DESCRIPTION", "TOOLS"], &rows)?;
    Ok(Exit::Done)
}

/// Lists the agent types: built-in ones, made anew where the configuration does so, then its own.
fn shown(config: &Config, tools: &[ToolSpec]) -> Vec<Shown> {
    let mut presets = builtin_presets();
    presets.retain(|preset| !config.presets.contains_key(&preset.name));
    let own = config.presets.iter().map(|(name, preset)| (preset.preset(name), "config"));
    let all = presets.into_iter().map(|preset| (preset, "built in")).chain(own);
    let gets =
        |preset: &Preset, tool: &str| preset.allows(tool) && !config.tools.disabled.iter().any(|off| off == tool);
    all.map(|(preset, origin)| {
        let names = tools.iter().map(|tool| tool.name.as_str());
        let tools = names.filter(|tool| gets(&preset, tool)).map(str::to_owned).collect();
        Shown { preset, tools, origin }
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_preset_of_ones_own_stands_in_for_a_built_in_one_of_its_name() {
        let text = "[presets.explore]\nallowed_tools = [\"grep\", \"nothing\"]\n[presets.mine]\ndenied_tools = [\"grep\"]\n\
                    [tools]\ndisabled = [\"glob\"]\n";
        let shown = shown(&Config::parse("c", text).unwrap(), &tools::builtins().unwrap());
        let names: Vec<&str> = shown.iter().map(|shown| shown.preset.name.as_str()).collect();
        assert_eq!(names, ["default", "analyst", "evaluator", "orchestrator", "explore", "mine"]);
        let of = |name: &str| shown.iter().find(|shown| shown.preset.name == name).unwrap();
        assert_eq!((of("default").origin, of("explore").origin), ("built in", "config"));
        assert_eq!(of("explore").tools, ["grep"], "only what exists");
        assert!(!of("mine").tools.contains(&"grep".to_owned()) && !of("default").tools.contains(&"glob".to_owned()));
    }
}
