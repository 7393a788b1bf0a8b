//! Resources of the whole home: experiences, skills and presets.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::{Experience, Preset};

/// Experiences of the caller's runs.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Experiences {
    /// The experiences.
    pub experiences: Vec<Experience>,
}

/// A skill.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SkillView {
    /// Its name.
    pub name: String,
    /// When the skill is useful.
    pub description: String,
    /// `built in`, `home` or `project`.
    pub origin: String,
    /// File of the skill, unless it is built in.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<PathBuf>,
    /// Text of the skill; omitted in lists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
}

/// The skills of the home.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SkillList {
    /// The skills.
    pub skills: Vec<SkillView>,
}

/// A preset with its tools and its origin.
#[derive(Debug, Clone, Serialize, Deserialize)]
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

/// List of presets.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PresetList {
    /// The presets.
    pub presets: Vec<PresetView>,
}
