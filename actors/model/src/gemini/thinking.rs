//! The thinking that each Gemini model accepts, by its name.
//!
//! Rules as of November 2026: <https://ai.google.dev/gemini-api/docs/thinking>.

use serde::Serialize;
use soong_protocol::Effort::{self, High, Low, Medium, Minimal, None as NoEffort, Xhigh};

use crate::{reasoning::ReasoningSupport, service::Call};

/// The field `thinkingConfig` of a request.
#[derive(Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ThinkingConfig {
    include_thoughts: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking_level: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking_budget: Option<u64>,
}

/// Returns the version of a Gemini model. `None` for other models.
pub(super) fn version(model: &str) -> Option<(u32, u32)> {
    let name = model.to_ascii_lowercase();
    let (_, rest) = name.split_once("gemini-")?;
    let version = rest.split('-').next()?;
    let (major, minor) = version.split_once('.').unwrap_or((version, "0"));
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// Returns whether a model is of Gemini 3 or later, as the names without a version are.
pub(super) fn is_gemini_3(model: &str) -> bool {
    model.to_ascii_lowercase().contains("gemini-")
        && version(model).is_none_or(|version| version >= (3, 0))
}

/// Returns what a model accepts about its reasoning.
pub(super) fn support(model: &str) -> ReasoningSupport {
    let name = model.to_ascii_lowercase();
    let levels: &'static [Effort] = match version(model) {
        None => return ReasoningSupport::UNKNOWN,
        Some((0..=1, _) | (2, 0..=4)) => return ReasoningSupport::NONE,
        // A budget of 0 switches the thinking of these models off.
        Some((2, _)) if name.contains("flash") => {
            return ReasoningSupport {
                levels: Some(&[NoEffort]),
                takes_budget: Some(true),
            };
        }
        Some((2, _)) => {
            return ReasoningSupport {
                levels: Some(&[]),
                takes_budget: Some(true),
            };
        }
        Some((3, 0..=6)) if !name.contains("-pro") => &[Minimal, Low, Medium, High],
        Some(_) if name.contains("-lite") => &[Minimal, Low, Medium, High],
        Some(_) if name.contains("-hydrogen") => &[Low, Medium, High, Xhigh],
        Some(_) => &[Low, Medium, High],
    };
    ReasoningSupport::levels(levels)
}

/// Returns the thinking of a request. `None` if the model does not think, or nothing is known about
/// it.
pub(super) fn config(call: &Call<'_>) -> Option<ThinkingConfig> {
    let support = support(call.model);
    if call.adaptation.no_reasoning || support == ReasoningSupport::NONE {
        return None;
    }
    let thinking_budget = call.reasoning_budget_tokens;
    let level = call
        .effort
        .and_then(|effort| support.nearest(effort))
        .filter(|_| thinking_budget.is_none());
    let is_configured = level.is_some() || thinking_budget.is_some();
    if support == ReasoningSupport::UNKNOWN && !is_configured {
        return None;
    }
    let takes_budget = support.takes_budget == Some(true);
    let thinking_budget = thinking_budget
        .or((takes_budget && call.effort == Some(NoEffort) && level.is_some()).then_some(0));
    let thinking_level = level.filter(|level| *level != NoEffort).map(Effort::as_str);
    Some(ThinkingConfig {
        include_thoughts: true,
        thinking_level,
        thinking_budget,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_have_the_documented_levels() {
        for (model, levels, takes_budget) in [
            ("gemini-2.5-pro", Some(&[][..]), Some(true)),
            ("gemini-2.5-flash-lite", Some(&[NoEffort][..]), Some(true)),
            ("gemini-2.0-flash", Some(&[][..]), Some(false)),
            (
                "gemini-3.1-pro-preview",
                Some(&[Low, Medium, High][..]),
                Some(false),
            ),
            (
                "google/gemini-3.6-flash",
                Some(&[Minimal, Low, Medium, High][..]),
                Some(false),
            ),
            (
                "gemini-3.8-flash",
                Some(&[Low, Medium, High][..]),
                Some(false),
            ),
            (
                "gemini-4-hydrogen",
                Some(&[Low, Medium, High, Xhigh][..]),
                Some(false),
            ),
            ("gemini-flash-latest", None, None),
            ("gemma-4-31b-it", None, None),
        ] {
            let support = support(model);
            assert_eq!(
                (support.levels, support.takes_budget),
                (levels, takes_budget),
                "{model}"
            );
        }
    }
}
