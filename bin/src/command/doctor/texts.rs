//! Checks of presets and skills: the files in the home, and whether presets name skills that exist.

use soong::{preset::PresetOrigin, skill::SkillOrigin};
use soong_tui::format;

use super::Check;
use crate::config::HomeFiles;

/// Name of the checks.
pub(super) const NAME: &str = "texts";

/// Checks `agents/*.md` and `skills/*.md` from the result of reading them. Returns no check if
/// there are no such files.
pub(super) fn checks(texts: &HomeFiles) -> Vec<Check> {
    let advice =
        "Correct the file or move it out of its folder; until then no run can start in this home.";
    let mut checks: Vec<Check> = texts
        .faults
        .iter()
        .map(|fault| Check::broken(NAME, fault.to_string(), advice))
        .collect();
    let files = texts
        .presets
        .iter()
        .filter(|known| matches!(known.origin, PresetOrigin::File(_)))
        .count();
    let skills = texts
        .skills
        .list()
        .filter(|skill| matches!(skill.origin, SkillOrigin::Home(_)))
        .count();
    if checks.is_empty() && files + skills > 0 {
        let presets = format::plural(files, "preset", "presets");
        let skills = format::plural(skills, "skill", "skills");
        checks.push(Check::ok(
            NAME,
            format!("the files of the home are valid: {presets}, {skills}"),
        ));
    }
    let ignored = "Remove these keys unless another program uses them; soong limits tools with `allowed_tools`.";
    checks.extend(
        texts
            .warnings
            .iter()
            .map(|warning| Check::warning(NAME, warning.to_string(), ignored)),
    );
    let presets = texts.presets.iter().map(|known| &known.preset);
    checks.extend(presets.filter_map(|preset| {
        let error = texts.skills.select(None, preset.skills.as_deref()).err()?;
        let finding = format!(
            "preset \"{}\" cannot be used: {}",
            preset.name, error.message
        );
        Some(Check::warning(
            NAME,
            finding,
            "Add the skill to skills/ of the home, or remove its name.",
        ))
    }));
    checks
}
