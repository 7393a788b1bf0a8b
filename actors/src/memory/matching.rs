//! Selects the experiences that match a task (MEM-3).
//!
//! Pure.

use std::{cmp::Reverse, collections::HashSet};

use soong_protocol::{Experience, Tags};

/// Maximum length of a tag, in characters.
const MAX_TAG_CHARS: usize = 48;
/// Maximum length of a category, in characters.
const MAX_CATEGORY_CHARS: usize = 32;
/// Maximum number of tags of each kind.
const MAX_TAGS: usize = 12;

/// Returns up to `limit` experiences that share at least one tag with `wanted`, the best first.
///
/// They are ordered by shared intents, then by shared states, then by how much more often they
/// helped than did harm. Equal ones keep the order of the file. Tags are compared in their
/// normalized form (see [`normalize_tag`]).
pub fn matching<'a>(
    experiences: &'a [Experience],
    wanted: &Tags,
    limit: usize,
) -> Vec<&'a Experience> {
    let intents = set(&wanted.intent);
    let states = set(&wanted.state);
    let ranked = experiences.iter().filter_map(|known| {
        let shared = (
            shared(&known.tags.intent, &intents),
            shared(&known.tags.state, &states),
        );
        (shared != (0, 0)).then_some((shared, known))
    });
    let mut ranked: Vec<((usize, usize), &Experience)> = ranked.collect();
    ranked.sort_by_key(|(shared, known)| Reverse((*shared, known.metrics.score())));
    ranked
        .into_iter()
        .take(limit)
        .map(|(_, known)| known)
        .collect()
}

fn set(tags: &[String]) -> HashSet<&str> {
    tags.iter().map(String::as_str).collect()
}

fn shared(tags: &[String], wanted: &HashSet<&str>) -> usize {
    if wanted.is_empty() {
        0
    } else {
        tags.iter()
            .filter(|tag| wanted.contains(tag.as_str()))
            .count()
    }
}

/// Normalizes a tag: lowercase letters and digits, with one `-` for every other sequence of
/// characters. The result is empty if nothing remains.
pub fn normalize_tag(text: &str) -> String {
    let mut tag = String::new();
    for c in text.chars().flat_map(char::to_lowercase) {
        if c.is_alphanumeric() {
            tag.push(c);
        } else if !tag.is_empty() && !tag.ends_with('-') {
            tag.push('-');
        }
    }
    let cut: String = tag.chars().take(MAX_TAG_CHARS).collect();
    cut.trim_end_matches('-').to_owned()
}

/// Normalizes a category: lowercase letters, digits and `_`. Returns `other` if nothing remains.
pub(super) fn normalize_category(text: &str) -> String {
    let plain = normalize_tag(text).replace('-', "_");
    let cut: String = plain.chars().take(MAX_CATEGORY_CHARS).collect();
    if cut.is_empty() {
        "other".to_owned()
    } else {
        cut
    }
}

/// Normalizes tags, removes duplicates, and keeps at most `MAX_TAGS` of each kind.
pub fn normalize_tags(intent: &[String], state: &[String]) -> Tags {
    let plain = |texts: &[String]| {
        let mut tags: Vec<String> = Vec::new();
        for tag in texts
            .iter()
            .map(|text| normalize_tag(text))
            .filter(|tag| !tag.is_empty())
        {
            if tags.len() < MAX_TAGS && !tags.contains(&tag) {
                tags.push(tag);
            }
        }
        tags
    };
    Tags {
        intent: plain(intent),
        state: plain(state),
    }
}

#[cfg(test)]
mod tests;
