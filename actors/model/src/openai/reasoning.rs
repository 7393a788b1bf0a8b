//! The levels of reasoning that each model of OpenAI accepts, by its name.
//!
//! Rules as of November 2026: <https://developers.openai.com/api/docs/guides/reasoning>. Nothing is
//! known about other names, which are models of compatible services or deployments.

use soong_protocol::Effort::{self, High, Low, Max, Medium, Minimal, None as NoEffort, Xhigh};

use crate::reasoning::ReasoningSupport;

/// Beginnings of names, and the levels of these models. The first one that fits counts.
const FAMILIES: [(&str, &[Effort]); 19] = [
    ("gpt-6-astra", &[Low, Medium, High, Xhigh, Max]),
    ("gpt-6.1", &[Low, Medium, High, Xhigh, Max]),
    ("gpt-6.2", &[Low, Medium, High, Xhigh, Max]),
    ("gpt-6", &[NoEffort, Low, Medium, High, Xhigh, Max]),
    ("gpt-5.6", &[NoEffort, Low, Medium, High, Xhigh, Max]),
    ("gpt-5.5-pro", &[Medium, High, Xhigh]),
    ("gpt-5.5", &[NoEffort, Low, Medium, High, Xhigh]),
    ("gpt-5.4-pro", &[Medium, High, Xhigh]),
    ("gpt-5.4", &[NoEffort, Low, Medium, High, Xhigh]),
    ("gpt-5.3", &[Low, Medium, High, Xhigh]),
    ("gpt-5.2-pro", &[Medium, High, Xhigh]),
    ("gpt-5.2", &[NoEffort, Low, Medium, High, Xhigh]),
    ("gpt-5.1-codex-max", &[NoEffort, Low, Medium, High, Xhigh]),
    ("gpt-5.1", &[NoEffort, Low, Medium, High]),
    ("gpt-5-pro", &[High]),
    ("gpt-5", &[Minimal, Low, Medium, High]),
    ("gpt-4", &[]),
    ("o3", &[Low, Medium, High]),
    ("o4-mini", &[Low, Medium, High]),
];

/// Returns what a model accepts about its reasoning.
pub(crate) fn support(model: &str) -> ReasoningSupport {
    // Gateways use names like `openai/gpt-6-sol`.
    let name = model
        .rsplit('/')
        .next()
        .unwrap_or(model)
        .to_ascii_lowercase();
    let family = FAMILIES.iter().find(|(start, _)| name.starts_with(start));
    family.map_or(ReasoningSupport::UNKNOWN, |(_, levels)| {
        ReasoningSupport::levels(levels)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn longest_family_name_comes_first() {
        for (later, (start, _)) in FAMILIES.iter().enumerate() {
            for (earlier, _) in &FAMILIES[..later] {
                assert!(
                    !start.starts_with(earlier),
                    "{start} is never reached after {earlier}"
                );
            }
        }
        assert_eq!(
            support("openai/gpt-5.4-mini-2026-03-17").nearest(Max),
            Some(Xhigh)
        );
        assert_eq!(support("gpt-4.1-mini").nearest(High), None);
        assert_eq!(support("llama").nearest(High), Some(High));
    }
}
