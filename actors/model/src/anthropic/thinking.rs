//! The thinking that each Claude model accepts, by its name.
//!
//! Rules as of version 2026-10-21 of the API:
//! <https://platform.claude.com/docs/en/build-with-claude/thinking>. A model whose name is not
//! understood is a model of a compatible service; nothing is sent to it that was not configured.

use serde::Serialize;
use soong_protocol::{Effort, ProviderItem, Role};

use crate::{
    reasoning::ReasoningSupport,
    service::{Call, conversation::own_data},
};

/// Minimum number of tokens of a thinking budget.
const MIN_BUDGET: u64 = 1_024;
/// Output limit for models that are not known, if the profile sets none.
const DEFAULT_MAX_TOKENS: u64 = 32_000;

use Effort::{High, Low, Max, Medium, None as NoEffort, Xhigh};

/// Version of a Claude model, and its family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Claude {
    family: ClaudeFamily,
    /// Major and minor version.
    version: (u32, u32),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ClaudeFamily {
    Haiku,
    Sonnet,
    Opus,
    /// Fable and Mythos, which share their rules.
    Fable,
}

/// The field `thinking` of a request.
#[derive(Debug, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum Thinking {
    Adaptive {
        display: &'static str,
    },
    Enabled {
        budget_tokens: u64,
        display: &'static str,
    },
    Disabled,
    BetweenTools,
}

/// Thinking and effort of a request.
#[derive(Debug, Default, PartialEq)]
pub(super) struct ThinkingSettings {
    pub(super) thinking: Option<Thinking>,
    pub(super) effort: Option<Effort>,
}

impl Claude {
    /// Reads a name such as `claude-opus-4-5-20251101`, `anthropic/claude-sonnet-5.5` or
    /// `claude-3-5-haiku-latest`.
    pub(super) fn parse(model: &str) -> Option<Self> {
        let name = model.to_ascii_lowercase();
        let (_, rest) = name.split_once("claude-")?;
        let words = || rest.split(['-', '.', '@', ':']);
        let family = words().find_map(|word| match word {
            "haiku" => Some(ClaudeFamily::Haiku),
            "sonnet" => Some(ClaudeFamily::Sonnet),
            "opus" => Some(ClaudeFamily::Opus),
            "fable" | "mythos" => Some(ClaudeFamily::Fable),
            _ => None,
        })?;
        // A date has eight digits.
        let mut numbers = words()
            .filter(|word| word.len() <= 2)
            .filter_map(|word| word.parse::<u32>().ok());
        let major = numbers.next()?;
        Some(Self {
            family,
            version: (major, numbers.next().unwrap_or(0)),
        })
    }

    fn is_from(self, major: u32, minor: u32) -> bool {
        self.version >= (major, minor)
    }

    fn is_adaptive(self) -> bool {
        self.is_from(4, 6)
    }

    /// Returns the levels of effort, in ascending order. `none` is one of them if thinking can be
    /// switched off.
    fn levels(self) -> &'static [Effort] {
        match (self.family, self.version) {
            (ClaudeFamily::Opus, (4, 5)) => &[NoEffort, Low, Medium, High],
            _ if !self.is_adaptive() => &[],
            _ if !self.is_from(4, 7) => &[NoEffort, Low, Medium, High, Max],
            _ if self.off().is_some() => &[NoEffort, Low, Medium, High, Xhigh, Max],
            _ => &[Low, Medium, High, Xhigh, Max],
        }
    }

    /// Returns the field that switches thinking off. `None` if the model always thinks.
    fn off(self) -> Option<Thinking> {
        match self.family {
            ClaudeFamily::Fable => None,
            ClaudeFamily::Sonnet if self.is_from(5, 5) => Some(Thinking::BetweenTools),
            ClaudeFamily::Opus if self.is_from(5, 5) => None,
            ClaudeFamily::Haiku | ClaudeFamily::Sonnet | ClaudeFamily::Opus => {
                Some(Thinking::Disabled)
            }
        }
    }

    /// Returns whether the model thinks if a request says nothing about it.
    fn thinks_by_default(self) -> bool {
        self.is_from(5, 0)
    }

    /// Returns the maximum number of tokens of an answer.
    fn max_output_tokens(self) -> u64 {
        match self.version {
            version if version >= (4, 6) => 128_000,
            version if version >= (4, 5) => 64_000,
            version if version >= (4, 0) => 32_000,
            _ => 8_192,
        }
    }
}

/// Returns what a model accepts about its reasoning.
pub(super) fn support(model: &str) -> ReasoningSupport {
    let Some(claude) = Claude::parse(model) else {
        return ReasoningSupport::UNKNOWN;
    };
    // Models 4.6 still accept a budget, but it is deprecated.
    let takes_budget = Some(claude.is_from(3, 7) && !claude.is_from(4, 7));
    ReasoningSupport {
        levels: Some(claude.levels()),
        takes_budget,
    }
}

/// Returns the output limit of a request, which the API requires.
pub(super) fn max_tokens(call: &Call<'_>) -> u64 {
    let known = || Claude::parse(call.model).map_or(DEFAULT_MAX_TOKENS, Claude::max_output_tokens);
    call.max_output_tokens.unwrap_or_else(known)
}

/// Returns whether the request ends with results of an answer whose thinking cannot be returned.
/// With a budget, the API requires that such an answer begins with thinking.
fn has_open_answer_without_thinking(call: &Call<'_>) -> bool {
    let messages = &call.request.messages;
    let mut since_answer = messages
        .iter()
        .rev()
        .take_while(|message| message.role != Role::Assistant);
    let is_open = since_answer.any(|message| message.role == Role::Tool);
    let last = messages
        .iter()
        .rev()
        .find(|message| message.role == Role::Assistant)
        .filter(|_| is_open);
    last.is_some_and(|message| {
        let items = own_data(call, message, true)
            .map(|data| data.items.as_slice())
            .unwrap_or_default();
        match items.first() {
            Some(ProviderItem::Reasoning { data, .. }) => data.is_null(),
            Some(ProviderItem::Opaque(_)) => false,
            _ => true,
        }
    })
}

/// Returns thinking and effort of a request. Summaries are requested wherever the model thinks,
/// because newer models send none by default.
pub(super) fn settings(call: &Call<'_>) -> ThinkingSettings {
    const DISPLAY: &str = "summarized";
    if call.adaptation.no_reasoning {
        return ThinkingSettings::default();
    }
    let wanted = call.effort;
    if let Some(budget_tokens) = call.reasoning_budget_tokens {
        // The budget must be smaller than the output limit.
        let budget_tokens = budget_tokens
            .max(MIN_BUDGET)
            .min(max_tokens(call).saturating_sub(1));
        if budget_tokens < MIN_BUDGET || has_open_answer_without_thinking(call) {
            return ThinkingSettings::default();
        }
        return ThinkingSettings {
            thinking: Some(Thinking::Enabled {
                budget_tokens,
                display: DISPLAY,
            }),
            effort: None,
        };
    }
    let Some(claude) = Claude::parse(call.model) else {
        let effort = wanted.filter(|effort| *effort != NoEffort);
        return ThinkingSettings {
            thinking: None,
            effort,
        };
    };
    let adaptive =
        || Some(Thinking::Adaptive { display: DISPLAY }).filter(|_| claude.is_adaptive());
    match wanted.and_then(|effort| support(call.model).nearest(effort)) {
        None => ThinkingSettings {
            thinking: adaptive().filter(|_| claude.thinks_by_default()),
            effort: None,
        },
        Some(NoEffort) => {
            let off = claude.off().filter(|_| claude.thinks_by_default());
            ThinkingSettings {
                thinking: off,
                effort: None,
            }
        }
        Some(effort) => ThinkingSettings {
            thinking: adaptive(),
            effort: Some(effort),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn family_and_version_are_read_from_names() {
        for (name, expected) in [
            (
                "claude-opus-4-5-20251101",
                Some((ClaudeFamily::Opus, (4, 5))),
            ),
            ("claude-haiku-5-5", Some((ClaudeFamily::Haiku, (5, 5)))),
            (
                "anthropic/claude-sonnet-4.6",
                Some((ClaudeFamily::Sonnet, (4, 6))),
            ),
            (
                "us.anthropic.claude-opus-5-5-v1:0",
                Some((ClaudeFamily::Opus, (5, 5))),
            ),
            (
                "claude-3-5-haiku-latest",
                Some((ClaudeFamily::Haiku, (3, 5))),
            ),
            (
                "claude-sonnet-4-20250514",
                Some((ClaudeFamily::Sonnet, (4, 0))),
            ),
            ("claude-mythos-5", Some((ClaudeFamily::Fable, (5, 0)))),
            ("claude-mythos-preview", None),
            ("deepseek-v4", None),
        ] {
            let parsed = Claude::parse(name).map(|claude| (claude.family, claude.version));
            assert_eq!(parsed, expected, "{name}");
        }
    }

    #[test]
    fn models_have_the_documented_levels() {
        let all = &[Low, Medium, High, Xhigh, Max][..];
        for (name, levels, takes_budget) in [
            ("claude-haiku-4-5", Some(&[][..]), Some(true)),
            (
                "claude-opus-4-5",
                Some(&[NoEffort, Low, Medium, High][..]),
                Some(true),
            ),
            (
                "claude-opus-4-6",
                Some(&[NoEffort, Low, Medium, High, Max][..]),
                Some(true),
            ),
            (
                "claude-opus-4-8",
                Some(&[NoEffort, Low, Medium, High, Xhigh, Max][..]),
                Some(false),
            ),
            ("claude-opus-5-5", Some(all), Some(false)),
            ("claude-fable-5", Some(all), Some(false)),
            ("claude-fable-5-2", Some(all), Some(false)),
            ("kimi-k3", None, None),
        ] {
            let support = support(name);
            assert_eq!(
                (support.levels, support.takes_budget),
                (levels, takes_budget),
                "{name}"
            );
        }
    }
}
