//! Presets: the available presets and their origins (SUB-5).
//!
//! Origins, in ascending priority: built-in, files `agents/*.md` of the home, `[presets.NAME]` of
//! the configuration, and presets registered by the embedding program. A preset replaces one of
//! lower priority with the same name completely.
//!
//! Invariant: no file of a project defines a preset (SAFE-1).
//!
//! Elsewhere: what a preset allows a run to do (`run/resolver.rs`).

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use soong_protocol::{Config, Effort, McpConfig, Preset, builtin_presets};

use crate::{
    front_matter::{FrontMatter, FrontMatterFault},
    home_file::{self, FolderFormat, HomeFileError},
    permission::{GrantError, check_tool},
};

/// Name of the folder in the home.
const FOLDER: &str = "agents";

const KEYS: [&str; 11] = [
    "name",
    "description",
    "allowed_tools",
    "denied_tools",
    "max_iterations",
    "temperature",
    "effort",
    "reasoning_budget_tokens",
    "skills",
    "model",
    "coordinates",
];

/// Keys that other programs use in agent files. `model` and `skills` are not listed, because they
/// are also keys of this format.
const FOREIGN_KEYS: [&str; 11] = [
    "tools",
    "disallowedTools",
    "color",
    "permissionMode",
    "hooks",
    "mcpServers",
    "maxTurns",
    "isolation",
    "background",
    "memory",
    "initialPrompt",
];
/// Model names that other programs use in agent files and that are ignored here.
const FOREIGN_MODELS: [&str; 4] = ["inherit", "sonnet", "opus", "haiku"];

/// Origin of a preset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PresetOrigin {
    /// Built in; available in every runtime.
    BuiltIn,
    /// File of the home.
    File(PathBuf),
    /// Configuration.
    Config,
    /// Registered by the embedding program.
    Code,
}

/// A preset with its origin.
#[derive(Debug, Clone, PartialEq)]
pub struct KnownPreset {
    /// The preset.
    pub preset: Preset,
    /// Origin of the preset.
    pub origin: PresetOrigin,
}

/// Presets read from files of a home, and the errors in files that cannot be used.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PresetFiles {
    /// Usable presets, sorted by name, with their files.
    pub presets: Vec<(Preset, PathBuf)>,
    /// Errors in files that cannot be used.
    pub faults: Vec<HomeFileError>,
    /// Names that cannot be used because of such an error. Runs with one of them are rejected.
    pub unusable: BTreeMap<String, HomeFileError>,
    /// Error of the whole folder. A runtime is not built with it, because no name of a preset is
    /// known.
    pub folder_fault: Option<HomeFileError>,
    /// Warnings about ignored keys, which other programs use, in usable files.
    pub warnings: Vec<HomeFileError>,
}

impl PresetFiles {
    /// Reads `agents/*.md` of a home. The files may name the tools in `tools`, and any tool of a
    /// configured MCP server, because the tools of these servers are not known yet.
    pub fn read(home: &Path, tools: &[&str], config: &Config) -> Self {
        let format = FolderFormat {
            foreign: &FOREIGN_KEYS,
            ignored_except: None,
            in_folders: None,
        };
        let found = home_file::load(&home.join(FOLDER), format, |name, file| {
            parse(name, file, tools, config)
        });
        Self {
            presets: found.by_name.into_values().collect(),
            faults: found.faults,
            unusable: found.unusable,
            folder_fault: found.folder_fault,
            warnings: found.warnings,
        }
    }
}

/// Returns the presets of all origins, built-in ones first. Replaced presets are omitted.
pub fn presets(files: &PresetFiles, config: &Config, registered: &[Preset]) -> Vec<KnownPreset> {
    // Never the built-in preset in place of a file that cannot be used: it may have more rights.
    let is_usable = |preset: &Preset| !files.unusable.contains_key(&preset.name);
    let built_in = builtin_presets()
        .into_iter()
        .filter(is_usable)
        .map(|preset| (preset, PresetOrigin::BuiltIn));
    let of_files = files
        .presets
        .iter()
        .map(|(preset, file)| (preset.clone(), PresetOrigin::File(file.clone())));
    let of_config = config
        .presets
        .iter()
        .map(|(name, preset)| (preset.preset(name), PresetOrigin::Config));
    let of_code = registered
        .iter()
        .map(|preset| (preset.clone(), PresetOrigin::Code));
    let mut all: Vec<KnownPreset> = Vec::new();
    for (preset, origin) in built_in.chain(of_files).chain(of_config).chain(of_code) {
        all.retain(|earlier| earlier.preset.name != preset.name);
        all.push(KnownPreset { preset, origin });
    }
    all
}

/// Returns whether a preset is a built-in one, and not one that replaces it.
pub(crate) fn is_built_in(preset: &Preset) -> bool {
    builtin_presets().contains(preset)
}

fn parse(
    name: &str,
    file: &FrontMatter<'_>,
    tools: &[&str],
    config: &Config,
) -> Result<Preset, FrontMatterFault> {
    file.reject_unknown_keys(&KEYS)?;
    let tool_list = |key: &str| {
        let list = file.list(key)?;
        let is_of_server = |tool: &str| {
            McpConfig::server_of(tool).is_some_and(|name| config.mcp.contains_key(name))
        };
        let is_known = |tool: &String| tools.contains(&tool.as_str()) || is_of_server(tool);
        match list.iter().flatten().find(|tool| !is_known(tool)) {
            None => Ok(list),
            Some(unknown) => {
                let known: Vec<String> = tools.iter().map(|tool| (*tool).to_owned()).collect();
                let message = match check_tool(unknown, &known) {
                    Err(GrantError::UnknownTool { tool, suggestion }) => {
                        format!(
                            "names an unknown tool: {tool:?}{suggestion}; available: {}",
                            tools.join(", ")
                        )
                    }
                    _ => {
                        format!("names a tool of an MCP server that is not configured: {unknown:?}")
                    }
                };
                Err(file.fault(key, message))
            }
        }
    };
    let effort = file.text("effort")?.map(|text| {
        let known = Effort::ALL
            .into_iter()
            .find(|effort| effort.as_str() == text);
        let levels = || Effort::ALL.map(Effort::as_str).join(", ");
        known.ok_or_else(|| file.fault("effort", format!("must be one of {}", levels())))
    });
    let effort = effort.transpose()?;
    Ok(Preset {
        name: name.to_owned(),
        description: file.required("description")?.to_owned(),
        allowed_tools: tool_list("allowed_tools")?,
        denied_tools: tool_list("denied_tools")?.unwrap_or_default(),
        max_turns: file.number(
            "max_iterations",
            "a whole number, 1 or greater",
            |turns: &u32| *turns > 0,
        )?,
        temperature: file.number("temperature", "a number from 0 to 2", |t: &f64| {
            (0.0..=2.0).contains(t)
        })?,
        effort,
        reasoning_budget_tokens: file.number(
            "reasoning_budget_tokens",
            "a whole number, 1 or greater",
            |n| *n > 0,
        )?,
        skills: file.comma_list("skills")?,
        model: file
            .text("model")?
            .filter(|model| !is_foreign_model(model, config))
            .map(str::to_owned),
        instructions: file.body.to_owned(),
        coordinates: file.flag("coordinates")?.unwrap_or_default(),
    })
}

/// Returns whether a model name belongs to another program and is ignored, as if no model were
/// given.
fn is_foreign_model(model: &str, config: &Config) -> bool {
    FOREIGN_MODELS.contains(&model) && !config.model_profiles.contains_key(model)
}

#[cfg(test)]
mod tests;
