//! Presets and skills under examination: their files in the home, and whether they name what is there.

use soong::{preset::PresetOrigin, skill::SkillOrigin};

use super::Check;
use crate::{config::Texts, figure};

/// What the checks are called.
pub(super) const NAME: &str = "texts";

/// Looks at `agents/*.md` and `skills/*.md` as they were read; where there are none, there is nothing to say.
pub(super) fn checks(texts: &Texts) -> Vec<Check> {
    let advice = "Correct it, or move it out of its folder: until then no run begins in this home.";
    let mut checks: Vec<Check> =
        texts.faults.iter().map(|fault| Check::broken(NAME, fault.to_string(), advice)).collect();
    let files = texts.presets.iter().filter(|known| matches!(known.origin, PresetOrigin::File(_))).count();
    let skills = texts.skills.list().filter(|skill| matches!(skill.origin, SkillOrigin::Home(_))).count();
    if checks.is_empty() && files + skills > 0 {
        let presets = figure::plural(files, "preset", "presets");
        let skills = figure::plural(skills, "skill", "skills");
        checks.push(Check::ok(NAME, format!("the home's files can be used: {presets}, {skills}")));
    }
    let ignored = "Take these keys out, or leave them for the other program: tools are limited by `allowed_tools`.";
    checks.extend(texts.warnings.iter().map(|warning| Check::warning(NAME, warning.to_string(), ignored)));
    let presets = texts.presets.iter().map(|known| &known.preset);
    checks.extend(presets.filter_map(|preset| {
        let error = texts.skills.chosen(None, preset.skills.as_deref()).err()?;
        let finding = format!("preset \"{}\" cannot be used: {}", preset.name, error.message);
        Some(Check::warning(NAME, finding, "Write the skill into skills/ of the home, or take its name out."))
    }));
    checks
}
