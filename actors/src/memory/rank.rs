//! Which experiences fit what is to be done (MEM-3).
//!
//! Pure.

use std::{cmp::Reverse, collections::HashSet};

use soong_protocol::{Experience, Tags};

/// Longest tag, in characters.
const MAX_TAG_CHARS: usize = 48;
/// Longest word for what kind of thing an experience is, in characters.
const MAX_CATEGORY_CHARS: usize = 32;
/// Most tags of a kind.
const MAX_TAGS: usize = 12;

/// Returns the experiences that share a tag with what is wanted, the best first, at most `limit` of them.
///
/// More shared intents come first, then more shared states, then what has helped more often than it has done harm; what
/// is alike in all of it stays in the order of the file. Tags are compared as they are written (see [`plain_tag`]).
pub fn matching<'a>(experiences: &'a [Experience], wanted: &Tags, limit: usize) -> Vec<&'a Experience> {
    let (intents, states) = (set(&wanted.intent), set(&wanted.state));
    let ranked = experiences.iter().filter_map(|known| {
        let shared = (shared(&known.tags.intent, &intents), shared(&known.tags.state, &states));
        (shared != (0, 0)).then_some((shared, known))
    });
    let mut ranked: Vec<((usize, usize), &Experience)> = ranked.collect();
    ranked.sort_by_key(|(shared, known)| Reverse((*shared, known.metrics.worth())));
    ranked.into_iter().take(limit).map(|(_, known)| known).collect()
}

fn set(tags: &[String]) -> HashSet<&str> {
    tags.iter().map(String::as_str).collect()
}

fn shared(tags: &[String], wanted: &HashSet<&str>) -> usize {
    if wanted.is_empty() { 0 } else { tags.iter().filter(|tag| wanted.contains(tag.as_str())).count() }
}

/// Writes a tag as all of them are: small letters and digits, one `-` for whatever is between. Empty = it is none.
pub fn plain_tag(text: &str) -> String {
    let mut tag = String::new();
    for c in text.chars().flat_map(char::to_lowercase) {
        match c.is_alphanumeric() {
            true => tag.push(c),
            false if !tag.is_empty() && !tag.ends_with('-') => tag.push('-'),
            false => {}
        }
    }
    let cut: String = tag.chars().take(MAX_TAG_CHARS).collect();
    cut.trim_end_matches('-').to_owned()
}

/// Writes what kind of thing an experience is as all of them are: small letters, digits and `_`.
pub(super) fn plain_category(text: &str) -> String {
    let plain = plain_tag(text).replace('-', "_");
    let cut: String = plain.chars().take(MAX_CATEGORY_CHARS).collect();
    if cut.is_empty() { "other".to_owned() } else { cut }
}

/// Makes tags of what somebody wrote: each once, and no more than are looked at.
pub fn plain_tags(intent: &[String], state: &[String]) -> Tags {
    let plain = |texts: &[String]| {
        let mut tags: Vec<String> = Vec::new();
        for tag in texts.iter().map(|text| plain_tag(text)).filter(|tag| !tag.is_empty()) {
            if tags.len() < MAX_TAGS && !tags.contains(&tag) {
                tags.push(tag);
            }
        }
        tags
    };
    Tags { intent: plain(intent), state: plain(state) }
}

#[cfg(test)]
mod tests;
