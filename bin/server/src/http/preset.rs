//! Routes of presets.

use soong::{
    Config,
    preset::{KnownPreset, PresetOrigin},
    protocol::{
        ToolSpec,
        api::{PresetList, PresetView, operation::ListPresets},
    },
};

use super::{caller::Access, error::ApiError};

/// Creates the view of a preset.
pub fn preset_view(known: &KnownPreset, config: &Config, tools: &[ToolSpec]) -> PresetView {
    let preset = known.preset.clone();
    let gets =
        |tool: &str| preset.allows(tool) && !config.tools.disabled.iter().any(|off| off == tool);
    let names = tools.iter().map(|tool| tool.name.as_str());
    let tools = names.filter(|tool| gets(tool)).map(str::to_owned).collect();
    let (origin, file) = match &known.origin {
        PresetOrigin::BuiltIn => ("built in", None),
        PresetOrigin::File(file) => ("file", Some(file.clone())),
        PresetOrigin::Config => ("config", None),
        PresetOrigin::Code => ("code", None),
    };
    PresetView {
        preset,
        tools,
        origin: origin.to_owned(),
        file,
    }
}

pub(super) async fn list(access: &Access, _: ListPresets) -> Result<PresetList, ApiError> {
    let runtime = access.runtime();
    let tools = runtime.info().tools();
    let view = |known| preset_view(known, runtime.info().config(), &tools);
    Ok(PresetList {
        presets: runtime.info().presets().iter().map(view).collect(),
    })
}
