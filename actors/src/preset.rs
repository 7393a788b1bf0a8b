//! Presets: which there are, and where each comes from (SUB-5).
//!
//! Built in < files `agents/*.md` of the home < `[presets.NAME]` of the configuration < registered by a program: what
//! comes later stands in for what is before it of the same name, as a whole.
//! Invariant: no file of a project is a preset (SAFE-1).
//! Not here: what a preset lets a run do (`run/resolver.rs`).

use std::path::{Path, PathBuf};

use soong_protocol::{Config, McpConfig, Preset, builtin_presets};

use crate::{
    front_matter::{Fault, FrontMatter},
    home_file::{self, Format, HomeFileError},
    permission::{GrantError, check_tool},
};

/// The folder in the home.
const FOLDER: &str = "agents";

const KEYS: [&str; 9] = [
    "name",
    "description",
    "allowed_tools",
    "denied_tools",
    "max_iterations",
    "temperature",
    "skills",
    "model",
    "coordinates",
];

/// Keys of agent files that other programs read; `model` and `skills` are ours as well.
const FOREIGN_KEYS: [&str; 12] = [
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
    "effort",
    "initialPrompt",
];
/// Models of agent files that other programs read, which are names of no model here.
const FOREIGN_MODELS: [&str; 4] = ["inherit", "sonnet", "opus", "haiku"];

/// Where a preset comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PresetOrigin {
    /// Every runtime has it.
    BuiltIn,
    /// A file of the home.
    File(PathBuf),
    /// The configuration.
    Config,
    /// A program registered it.
    Code,
}

/// A preset with its origin.
#[derive(Debug, Clone, PartialEq)]
pub struct KnownPreset {
    /// The preset.
    pub preset: Preset,
    /// Where it comes from.
    pub origin: PresetOrigin,
}

/// The presets that are files of a home, and what is wrong with those that cannot be used.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PresetFiles {
    /// What can be used, by name, with the file.
    pub presets: Vec<(Preset, PathBuf)>,
    /// What cannot; a runtime is not built where there is any.
    pub faults: Vec<HomeFileError>,
    /// What is ignored of files that can be used: keys of other programs.
    pub warnings: Vec<HomeFileError>,
}

impl PresetFiles {
    /// Reads `agents/*.md` of a home; `tools` are the names that they may speak of, beside those of the servers that
    /// are configured: what these have is not known yet.
    pub fn read(home: &Path, tools: &[&str], config: &Config) -> Self {
        let format = Format { foreign: &FOREIGN_KEYS, in_folders: None };
        let found = home_file::load(&home.join(FOLDER), format, |name, file| preset(name, file, tools, config));
        Self { presets: found.by_name.into_values().collect(), faults: found.faults, warnings: found.warnings }
    }
}

/// Lists the presets of all origins: built-in ones first, as far as nothing stands in for them.
pub fn presets(files: &PresetFiles, config: &Config, registered: &[Preset]) -> Vec<KnownPreset> {
    let built_in = builtin_presets().into_iter().map(|preset| (preset, PresetOrigin::BuiltIn));
    let of_files = files.presets.iter().map(|(preset, file)| (preset.clone(), PresetOrigin::File(file.clone())));
    let of_config = config.presets.iter().map(|(name, preset)| (preset.preset(name), PresetOrigin::Config));
    let of_code = registered.iter().map(|preset| (preset.clone(), PresetOrigin::Code));
    let mut all: Vec<KnownPreset> = Vec::new();
    for (preset, origin) in built_in.chain(of_files).chain(of_config).chain(of_code) {
        all.retain(|earlier| earlier.preset.name != preset.name);
        all.push(KnownPreset { preset, origin });
    }
    all
}

fn preset(name: &str, file: &FrontMatter<'_>, tools: &[&str], config: &Config) -> Result<Preset, Fault> {
    file.only(&KEYS)?;
    let of_tools = |key: &str| {
        let list = file.list(key)?;
        let is_of_server = |tool: &str| McpConfig::server_of(tool).is_some_and(|name| config.mcp.contains_key(name));
        let is_known = |tool: &String| tools.contains(&tool.as_str()) || is_of_server(tool);
        match list.iter().flatten().find(|tool| !is_known(tool)) {
            None => Ok(list),
            Some(unknown) => {
                let known: Vec<String> = tools.iter().map(|tool| (*tool).to_owned()).collect();
                let message = match check_tool(unknown, &known) {
                    Err(GrantError::UnknownTool { tool, suggestion }) => {
                        format!(
                            "names a tool that does not exist: {tool:?}{suggestion}; there is: {}",
                            tools.join(", ")
                        )
                    }
                    _ => format!("names a tool of an MCP server that is not configured: {unknown:?}"),
                };
                Err(file.fault(key, message))
            }
        }
    };
    Ok(Preset {
        name: name.to_owned(),
        description: file.required("description")?.to_owned(),
        allowed_tools: of_tools("allowed_tools")?,
        denied_tools: of_tools("denied_tools")?.unwrap_or_default(),
        max_iterations: file.number("max_iterations", "a whole number from 1 on", |turns: &u32| *turns > 0)?,
        temperature: file.number("temperature", "a number from 0 to 2", |t: &f64| (0.0..=2.0).contains(t))?,
        skills: file.comma_list("skills")?,
        model: file.text("model")?.filter(|model| !is_foreign_model(model, config)).map(str::to_owned),
        instructions: file.body.to_owned(),
        coordinates: file.flag("coordinates")?.unwrap_or_default(),
    })
}

/// Returns whether a model is one of another program, which means as much as no model here.
fn is_foreign_model(model: &str, config: &Config) -> bool {
    FOREIGN_MODELS.contains(&model) && !config.model_profiles.contains_key(model)
}

#[cfg(test)]
mod tests;
