//! Skills: texts that people write once and agents are told where they need them (MEM-1).
//!
//! Files `skills/*.md` of the home; none are built in yet. Which go into a system prompt: those that the call names >
//! those of the preset > all that are built in.
//! Invariants: a skill is text and grants no tool; none comes from a project (SAFE-1).

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use soong_protocol::{ErrorCode, ErrorInfo};

use crate::{
    front_matter::{Fault, FrontMatter},
    home_file::{self, HomeFileError},
};

/// The folder in the home.
const FOLDER: &str = "skills";

/// A text that agents can be told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skill {
    /// Its name.
    pub name: String,
    /// What it is good for.
    pub description: String,
    /// What is told, in Markdown; at most 64 KiB.
    pub text: String,
    /// Its file; `None` = built in.
    pub file: Option<PathBuf>,
}

/// The skills that there are, by name.
#[derive(Debug, Clone, Default)]
pub struct Skills {
    by_name: BTreeMap<String, Skill>,
}

impl Skills {
    /// Reads the skills of a home, `skills/*.md`.
    ///
    /// # Errors
    /// `config_error` where a file cannot be used; it names file, line and key.
    pub fn load(home: &Path) -> Result<Self, ErrorInfo> {
        let (skills, faults) = Self::look(home);
        home_file::refuse(&faults).map(|()| skills)
    }

    /// Reads those that can be used, and tells what is wrong with the others.
    pub fn look(home: &Path) -> (Self, Vec<HomeFileError>) {
        let found = home_file::load(&home.join(FOLDER), skill);
        let with_file = |(name, (skill, file))| (name, Skill { file: Some(file), ..skill });
        (Self { by_name: found.by_name.into_iter().map(with_file).collect() }, found.faults)
    }

    /// Returns a skill by name.
    pub fn get(&self, name: &str) -> Option<&Skill> {
        self.by_name.get(name)
    }

    /// Lists them by name.
    pub fn list(&self) -> impl Iterator<Item = &Skill> {
        self.by_name.values()
    }

    /// Says which skills go into a system prompt, each once: those that the call names, else those of the preset, else
    /// all that are built in.
    ///
    /// # Errors
    /// `skill_not_found` for a name that none has; it names those that there are.
    pub fn chosen(&self, call: Option<&[String]>, preset: Option<&[String]>) -> Result<Vec<&Skill>, ErrorInfo> {
        let Some(names) = call.or(preset) else {
            return Ok(self.list().filter(|skill| skill.file.is_none()).collect());
        };
        let mut chosen: Vec<&Skill> = Vec::new();
        for name in names {
            let skill = self.get(name).ok_or_else(|| self.missing(name))?;
            if !chosen.iter().any(|other| other.name == skill.name) {
                chosen.push(skill);
            }
        }
        Ok(chosen)
    }

    fn missing(&self, name: &str) -> ErrorInfo {
        let known: Vec<&str> = self.by_name.keys().map(String::as_str).collect();
        let there_is = if known.is_empty() { "none at all".to_owned() } else { known.join(", ") };
        ErrorInfo::new(ErrorCode::SkillNotFound, format!("there is no skill {name:?}; there is: {there_is}"))
    }
}

/// Renders skills as they stand in a system prompt, behind what it begins with.
pub(crate) fn render(skills: &[&Skill]) -> String {
    skills.iter().map(|skill| format!("\n\n## Skill: {}\n\n{}", skill.name, skill.text)).collect()
}

fn skill(name: &str, file: &FrontMatter<'_>) -> Result<Skill, Fault> {
    file.only(&["name", "description"])?;
    if file.body.is_empty() {
        return Err(file.fault("name", "has no text: write the skill below the front matter"));
    }
    let description = file.required("description")?.to_owned();
    Ok(Skill { name: name.to_owned(), description, text: file.body.to_owned(), file: None })
}

#[cfg(test)]
mod tests;
