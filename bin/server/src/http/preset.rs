//! Routes of presets.

use std::path::PathBuf;

use axum::Json;
use serde::{Deserialize, Serialize};
use soong::{
    Config,
    preset::{KnownPreset, PresetOrigin},
    protocol::{Preset, ToolSpec},
};

use super::caller::Access;

/// A preset with its tools and its origin.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PresetView {
    /// The preset.
    #[serde(flatten)]
    pub preset: Preset,
    /// Tools that the preset gets: those that exist, are not disabled, and are allowed by the
    /// preset.
    pub tools: Vec<String>,
    /// `built in`, `file`, `config` or `code`.
    pub origin: String,
    /// File of the preset, if its origin is `file`.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<PathBuf>,
}

impl PresetView {
    /// Creates the view of a preset.
    pub fn of(known: &KnownPreset, config: &Config, tools: &[ToolSpec]) -> Self {
        let preset = known.preset.clone();
        let gets = |tool: &str| {
            preset.allows(tool) && !config.tools.disabled.iter().any(|off| off == tool)
        };
        let names = tools.iter().map(|tool| tool.name.as_str());
        let tools = names.filter(|tool| gets(tool)).map(str::to_owned).collect();
        let (origin, file) = match &known.origin {
            PresetOrigin::BuiltIn => ("built in", None),
            PresetOrigin::File(file) => ("file", Some(file.clone())),
            PresetOrigin::Config => ("config", None),
            PresetOrigin::Code => ("code", None),
        };
        Self {
            preset,
            tools,
            origin: origin.to_owned(),
            file,
        }
    }
}

/// List of presets.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub(crate) struct PresetList {
    pub presets: Vec<PresetView>,
}

/// Lists the presets.
#[cfg_attr(feature = "openapi", utoipa::path(get, path = "/api/presets", tag = "home", responses((status = OK, body = PresetList))))]
pub(super) async fn list(access: Access) -> Json<PresetList> {
    let runtime = access.runtime();
    let tools = runtime.info().tools();
    let view = |known| PresetView::of(known, runtime.info().config(), &tools);
    Json(PresetList {
        presets: runtime.info().presets().iter().map(view).collect(),
    })
}
