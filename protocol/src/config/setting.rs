//! Settings: the individual keys of a configuration, each with its value and the line that sets it.
//!
//! Pure. Elsewhere: the meaning of the keys (`config.rs`), and environment variables that override
//! them.

use std::ops::Range;

use serde_json::Value;
use toml::de::{DeTable, DeValue};

use super::Config;

/// A key of a configuration.
#[derive(Debug, Clone, PartialEq)]
pub struct ConfigSetting {
    /// Dotted key. Parts that are not bare TOML keys are quoted.
    pub key: String,
    /// Current value. `None` if the key is not set and has no default.
    pub value: Option<Value>,
    /// Line that sets the key, from 1. `None` if the value is a default.
    pub line: Option<usize>,
}

/// Keys of `[model]` that may have no value.
const OPTIONAL_MODEL_KEYS: [&str; 12] = [
    "provider",
    "base_url",
    "api_key_env",
    "name",
    "effort",
    "reasoning_budget_tokens",
    "context_window",
    "max_output_tokens",
    "max_concurrency",
    "first_byte_timeout_ms",
    "input",
    "temperature",
];

impl Config {
    /// Returns all settings. `text` is the file that the configuration was parsed from.
    ///
    /// For tables with user-defined names (profiles, prices, presets), the list contains the keys
    /// that they set, and their defaults.
    pub fn settings(&self, text: &str) -> Vec<ConfigSetting> {
        // A configuration contains only values that JSON can represent: numbers, texts and maps
        // with text keys.
        let mut values = serde_json::to_value(self).unwrap_or_default();
        let mut absent = Vec::new();
        if let Some(model) = values["model"].as_object_mut() {
            absent.extend(
                OPTIONAL_MODEL_KEYS
                    .into_iter()
                    .filter(|key| !model.contains_key(*key)),
            );
            // These keys are listed first, also those without a value.
            let mut all = serde_json::Map::new();
            for key in OPTIONAL_MODEL_KEYS {
                all.insert(
                    key.to_owned(),
                    model.remove(key).unwrap_or_else(|| Value::from("")),
                );
            }
            all.append(model);
            *model = all;
        }
        let file = DeTable::parse(text).ok();
        let mut settings = Vec::new();
        let mut add = |path: &[&str], value: &Value| {
            let is_absent = path.len() == 2 && path[0] == "model" && absent.contains(&path[1]);
            settings.push(ConfigSetting {
                key: dotted(path),
                value: (!is_absent).then(|| value.clone()),
                line: file
                    .as_ref()
                    .and_then(|file| Some(line(text, find_key_span(file.get_ref(), path)?))),
            });
        };
        visit_values(&values, &mut Vec::new(), &mut add);
        settings
    }

    /// Returns the line of `text` that sets the key with these parts, from 1.
    pub fn line(text: &str, path: &[&str]) -> Option<usize> {
        let file = DeTable::parse(text).ok()?;
        find_key_span(file.get_ref(), path).map(|span| line(text, span))
    }
}

/// Calls `add` for each value that is not a table. Skips null values.
fn visit_values<'a>(
    value: &'a Value,
    path: &mut Vec<&'a str>,
    add: &mut impl FnMut(&[&str], &Value),
) {
    match value {
        Value::Null => {}
        Value::Object(table) => {
            for (key, value) in table {
                path.push(key);
                visit_values(value, path, add);
                path.pop();
            }
        }
        value => add(path, value),
    }
}

/// Returns the position of a key in the text.
fn find_key_span(table: &DeTable<'_>, path: &[&str]) -> Option<Range<usize>> {
    let (first, rest) = path.split_first()?;
    let (key, value) = table.iter().find(|(key, _)| key.get_ref() == first)?;
    match (rest, value.get_ref()) {
        ([], _) => Some(key.span()),
        (rest, DeValue::Table(table)) => find_key_span(table, rest),
        _ => None,
    }
}

/// Returns the key at a span, such as `agents.max_depth` or `hooks[0].event`: the innermost one
/// whose name or value contains it.
pub(super) fn key_at(text: &str, span: &Range<usize>) -> Option<String> {
    let file = DeTable::parse(text).ok()?;
    key_in_table(file.get_ref(), span)
}

fn key_in_table(table: &DeTable<'_>, span: &Range<usize>) -> Option<String> {
    table.iter().find_map(|(key, value)| {
        let name = key.get_ref();
        // First, because the span of a table is its whole header, which contains the keys of the
        // tables around it.
        if contains(&key.span(), span) {
            return Some(name.to_string());
        }
        let inner = below(value.get_ref(), span).map(|inner| joined(name, &inner));
        inner.or_else(|| contains(&value.span(), span).then(|| name.to_string()))
    })
}

/// Returns the part of the key below a value.
fn below(value: &DeValue<'_>, span: &Range<usize>) -> Option<String> {
    match value {
        DeValue::Table(table) => key_in_table(table, span),
        DeValue::Array(items) => items.iter().enumerate().find_map(|(index, item)| {
            let key = format!("[{index}]");
            let inner = below(item.get_ref(), span).map(|inner| joined(&key, &inner));
            inner.or_else(|| contains(&item.span(), span).then_some(key))
        }),
        _ => None,
    }
}

fn joined(key: &str, inner: &str) -> String {
    let dot = if inner.starts_with('[') { "" } else { "." };
    format!("{key}{dot}{inner}")
}

fn contains(outer: &Range<usize>, inner: &Range<usize>) -> bool {
    outer.start <= inner.start && inner.end <= outer.end
}

/// Returns the line on which a span starts, from 1.
pub(super) fn line(text: &str, span: Range<usize>) -> usize {
    let before = &text.as_bytes()[..span.start.min(text.len())];
    before.iter().filter(|byte| **byte == b'\n').count() + 1
}

/// Returns a key in TOML notation.
fn dotted(path: &[&str]) -> String {
    let is_bare = |part: &str| {
        !part.is_empty()
            && part
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'))
    };
    let parts: Vec<String> = path
        .iter()
        .map(|part| {
            if is_bare(part) {
                (*part).to_owned()
            } else {
                Value::from(*part).to_string()
            }
        })
        .collect();
    parts.join(".")
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
# name = \"not this\"
model.name = \"big\"
[model_profiles.small]
name = \"little\"
retry = { max_attempts = 2 }

[prices.\"gpt-4.1\"]
prompt_per_mtok = \"0.40\"
completion_per_mtok = '1.60'
[agents]
\"max_depth\" = 2
[tools]
disabled = [
  \"grep\",
]
[presets.reviewer]
description = \"Reviews.\"
";

    fn listed(text: &str) -> Vec<ConfigSetting> {
        Config::parse("c.toml", text).unwrap().settings(text)
    }

    #[test]
    fn settings_have_value_and_line() {
        let settings = listed(TEXT);
        for (key, value, line) in [
            ("model.name", Some("\"big\""), Some(2)),
            ("model.base_url", None, None),
            ("model.temperature", None, None),
            ("model.timeout_ms", Some("120000"), None),
            ("model.retry.max_attempts", Some("5"), None),
            ("model_profiles.small.name", Some("\"little\""), Some(4)),
            (
                "model_profiles.small.retry.max_attempts",
                Some("2"),
                Some(5),
            ),
            (
                "model_profiles.small.retry.max_backoff_ms",
                Some("30000"),
                None,
            ),
            (
                "prices.\"gpt-4.1\".completion_per_mtok",
                Some("\"1.60\""),
                Some(9),
            ),
            ("agents.max_depth", Some("2"), Some(11)),
            ("tools.disabled", Some("[\"grep\"]"), Some(13)),
            (
                "presets.reviewer.description",
                Some("\"Reviews.\""),
                Some(17),
            ),
            ("presets.reviewer.coordinates", Some("false"), None),
            ("storage.durability", Some("\"full\""), None),
        ] {
            let found = settings.iter().find(|setting| setting.key == key);
            let found = found.unwrap_or_else(|| panic!("{key} is missing in {settings:#?}"));
            let found_value = found.value.as_ref().map(Value::to_string);
            assert_eq!((found_value.as_deref(), found.line), (value, line), "{key}");
        }
        assert!(
            !settings
                .iter()
                .any(|setting| setting.key.starts_with("model_profiles.small.timeout"))
        );
    }

    #[test]
    fn every_key_is_listed_once() {
        let settings = listed("");
        let mut keys: Vec<&str> = settings
            .iter()
            .map(|setting| setting.key.as_str())
            .collect();
        let absent: Vec<&str> = settings
            .iter()
            .filter(|setting| setting.value.is_none())
            .map(|setting| setting.key.as_str())
            .collect();
        assert_eq!(absent.len(), OPTIONAL_MODEL_KEYS.len(), "{absent:?}");
        assert!(
            keys.len() > 20 && settings.iter().all(|setting| setting.line.is_none()),
            "{settings:#?}"
        );
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), settings.len());
    }

    #[test]
    fn line_belongs_to_exact_key() {
        for (path, want) in [
            (&["model", "name"][..], Some(2)),
            (&["model_profiles", "small", "name"], Some(4)),
            (&["model_profiles"], Some(3)),
            (&["model", "api_key_env"], None),
            (&["model", "name", "x"], None),
            (&[], None),
        ] {
            assert_eq!(Config::line(TEXT, path), want, "{path:?}");
        }
        assert_eq!(Config::line("no = toml = here", &["no"]), None);
    }
}
