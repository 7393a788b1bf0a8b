//! Runs of users on the trace of a sub-agent: they wait in the queue of the session, with the
//! preset and the tools of the sub-agent.

use soong_protocol::{ErrorInfo, Preset, RunMode};

use super::invalid;
use crate::runtime::{RunRequest, RunSetting, settings::InheritedSettings};

/// Checks a request for a run on the trace of a sub-agent, whose last run had these settings and
/// this preset: preset and mode stay, and the tools may only be narrowed.
pub(super) fn check(
    start: &RunRequest,
    before: &InheritedSettings,
    preset: Option<&Preset>,
) -> Result<(), ErrorInfo> {
    let unchangeable = |what: &str| {
        Err(invalid(format!(
            "{what} cannot be changed on the trace of a sub-agent"
        )))
    };
    let wanted_preset = start.settings.preset.as_set();
    if wanted_preset.is_some_and(|preset| *preset != before.settings.agent_type) {
        return unchangeable(RunSetting::Preset.as_str());
    }
    let wanted_mode = start.settings.mode.as_set();
    if start.driven || wanted_mode.is_some_and(|mode| *mode != RunMode::Normal) {
        return unchangeable(RunSetting::Mode.as_str());
    }
    for setting in [RunSetting::Preset, RunSetting::Mode, RunSetting::Tools] {
        if start.settings.is_reset(setting) {
            return unchangeable(setting.as_str());
        }
    }
    let Some(wanted) = start.settings.tools.as_set() else {
        return Ok(());
    };
    let allowed = before.settings.options.tools.as_ref();
    let is_allowed = |tool: &&String| {
        allowed.is_none_or(|allowed| allowed.contains(tool))
            && preset.is_none_or(|preset| preset.allows(tool))
    };
    match wanted.iter().find(|tool| !is_allowed(tool)) {
        Some(tool) => Err(invalid(format!(
            "tools: {tool:?} is not among the tools of the sub-agent, which a run on its trace can only narrow"
        ))),
        None => Ok(()),
    }
}
