//! The text of the experiences file, block by block (MEM-2).
//!
//! Pure. A block consists of front matter that contains an `id`, and the text below it, up to the
//! next such front matter. Users edit this file, so text outside of blocks and blocks that cannot
//! be used are kept byte for byte whenever another part changes.
//!
//! Invariant: the concatenated parts are the whole file.
//!
//! Elsewhere: how blocks are found and parsed (`experience_file/file_lines.rs`).

mod file_lines;

use std::{collections::HashMap, ops::Range};

use file_lines::FileLines;
use soong_protocol::{Experience, ExperienceId, Metrics, Tags, Timestamp, TraceId};

use super::matching::{normalize_category, normalize_tags};

/// Beginning of a new file.
const TITLE: &str = "# Experiences\n\nNotes that runs have learned, for later runs. You may edit this file: text outside of blocks \
                     is kept unchanged.\n";
/// Line between a block whose front matter is not closed and a block appended after it.
const SEPARATOR: &str = "<!-- -->\n";
/// Maximum number of lines of a block whose counters are updated. It is less than `MAX_HEAD_LINES`,
/// because an update may add lines.
const MAX_CHANGED_LINES: usize = 200;
const FENCE: &str = "---";
/// Metrics of a new experience.
const INITIAL_METRICS: Metrics = Metrics {
    helpful: 1,
    harmful: 0,
};
/// Prefix of generated ids.
const ID_PREFIX: &str = "ex_";

/// Text of the experiences file and the experiences parsed from it.
#[derive(Debug, Clone, Default)]
pub struct ExperienceText {
    bytes: Vec<u8>,
    experiences: Vec<Experience>,
    /// Editable positions of each experience, in the same order.
    positions: Vec<BlockPositions>,
    faults: Vec<ExperienceFault>,
    /// Largest number in an id of the file, whether its block is usable or not.
    last_number: u64,
}

/// Problem in a block of the experiences file.
#[derive(Debug, Clone, PartialEq, Eq, Hash, thiserror::Error)]
#[error("line {line}: {message}")]
pub struct ExperienceFault {
    /// Line in the file, starting at 1.
    pub line: usize,
    /// Description of the problem and how to fix it.
    pub message: String,
    /// Whether the whole block is ignored. Otherwise only the faulty value is ignored.
    pub is_left_out: bool,
}

/// Positions in the file of the values of a block that may be changed.
#[derive(Debug, Clone, Default)]
struct BlockPositions {
    helpful: ValuePosition,
    harmful: ValuePosition,
    reflection: ValuePosition,
    /// Id of the reflection that changed the block last.
    last_reflection: Option<String>,
    /// End of the front matter, as a byte offset, and its number of lines.
    end: usize,
    line_count: usize,
}

/// Position of a value; without a range if the value is missing or is not a single text.
#[derive(Debug, Clone, Default)]
struct ValuePosition {
    range: Option<Range<usize>>,
    is_inline: bool,
}

/// Experience to be added to the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewExperience {
    /// Category, normalized to lowercase letters, digits and `_`.
    pub category: String,
    /// Tags that say when it applies, normalized by [`normalize_tags`].
    pub tags: Tags,
    /// Text of the experience; not empty.
    pub text: String,
}

/// Changes made by one reflection.
#[derive(Debug, Clone, Default)]
pub struct Changes {
    /// Id of the reflection, such as the id of its run: 1 to 64 letters (a-z, A-Z), digits, `-` or
    /// `_`. Blocks that this reflection has changed already are not changed again.
    pub reflection: String,
    /// Trace that was reflected on.
    pub trace_id: Option<TraceId>,
    /// Time of the reflection.
    pub at: Timestamp,
    /// New experiences. If the text of one is already known, the known experience is counted as
    /// helpful instead.
    pub new: Vec<NewExperience>,
    /// Ratings of known experiences: `true` if it helped, `false` if it did harm.
    pub rated: Vec<(ExperienceId, bool)>,
}

impl ExperienceText {
    /// Parses a file. Never fails: parts that cannot be used are listed as faults.
    pub fn read(bytes: Vec<u8>) -> Self {
        let mut book = Self::default();
        let lines = FileLines::of(&bytes);
        let heads = lines.heads();
        let mut existing: HashMap<String, usize> = HashMap::new();
        for (at, begin) in heads.iter().enumerate() {
            let until = heads.get(at + 1).map_or(lines.count(), |next| next.first);
            let number = begin.first + 1;
            let read = match begin.last {
                Some(last) => lines.block(begin.first, last, until),
                None => Err((
                    number,
                    "the front matter of this block is not closed: add a line `---`".to_owned(),
                )),
            };
            let checked = read.and_then(|(experience, index, fault)| {
                match existing.get(experience.id.as_str()) {
                    Some(other) => Err((
                        number,
                        format!(
                            "{} is already used in line {other}: use another id",
                            experience.id
                        ),
                    )),
                    None => Ok((experience, index, fault)),
                }
            });
            match checked {
                Ok((experience, index, fault)) => {
                    let fault = fault.map(|(line, message)| ExperienceFault {
                        line,
                        message,
                        is_left_out: false,
                    });
                    book.faults.extend(fault);
                    existing.insert(experience.id.to_string(), number);
                    book.experiences.push(experience);
                    book.positions.push(index);
                }
                Err((line, message)) => book.faults.push(ExperienceFault {
                    line,
                    message,
                    is_left_out: true,
                }),
            }
        }
        book.last_number = lines.last_number(&heads);
        book.bytes = bytes;
        book
    }

    /// Returns the usable experiences, in the order of the file.
    pub fn experiences(&self) -> &[Experience] {
        &self.experiences
    }

    /// Returns the problems of all blocks, including problems of usable blocks.
    pub fn faults(&self) -> &[ExperienceFault] {
        &self.faults
    }

    /// Returns the experience with this id.
    pub fn get(&self, id: &str) -> Option<&Experience> {
        self.experiences
            .iter()
            .find(|existing| existing.id.as_str() == id)
    }

    /// Returns the bytes of the file.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the content of the file after these changes. Also returns an id for each new
    /// experience, and whether it was added: if its text is already known, the id is that of the
    /// known experience.
    pub(crate) fn apply(&self, changes: &Changes) -> (Vec<u8>, Vec<(ExperienceId, bool)>) {
        let mut rates = Vec::new();
        let mut added = Vec::new();
        let mut blocks = Vec::new();
        let mut number = self.last_number;
        for new in &changes.new {
            let text = escape_fences(&new.text);
            let mut all = self.experiences.iter().zip(&self.positions);
            match all.find(|(existing, _)| same_text(&existing.text, &text)) {
                Some((known, positions)) => {
                    // This reflection may have added it earlier and been interrupted before it
                    // could report that.
                    let is_own_addition = positions.last_reflection.as_deref()
                        == Some(&changes.reflection)
                        && known.metrics == INITIAL_METRICS;
                    rates.push((known.id.clone(), true));
                    added.push((known.id.clone(), is_own_addition));
                }
                None => {
                    number += 1;
                    let id = ExperienceId::new(format!("{ID_PREFIX}{number:03}"));
                    blocks.push(block(&id, new, &text, changes));
                    added.push((id, true));
                }
            }
        }
        rates.extend(changes.rated.iter().cloned());
        let mut bytes = self.apply_ratings(&rates, &changes.reflection);
        for block in blocks {
            bytes = append_block(bytes, &block);
        }
        (bytes, added)
    }

    /// Increments the counters of the rated experiences, each once. Blocks that this reflection has
    /// changed before, and blocks with more than `MAX_CHANGED_LINES` lines, are left unchanged.
    fn apply_ratings(&self, rates: &[(ExperienceId, bool)], reflection: &str) -> Vec<u8> {
        let mut edits: Vec<(Range<usize>, String)> = Vec::new();
        for (at, (known, index)) in self.experiences.iter().zip(&self.positions).enumerate() {
            let Some((_, helped)) = rates.iter().find(|(id, _)| *id == known.id) else {
                continue;
            };
            if index.last_reflection.as_deref() == Some(reflection)
                || index.line_count > MAX_CHANGED_LINES
            {
                continue;
            }
            let Metrics {
                mut helpful,
                mut harmful,
            } = self.experiences[at].metrics;
            if *helped {
                helpful = helpful.saturating_add(1);
            } else {
                harmful = harmful.saturating_add(1);
            }
            index.rating_edits(helpful, harmful, reflection, &mut edits);
        }
        edits.sort_by_key(|(range, _)| (range.start, range.end));
        let mut bytes = Vec::with_capacity(self.bytes.len() + 64 * edits.len());
        let mut from = 0;
        for (range, text) in edits {
            bytes.extend_from_slice(&self.bytes[from..range.start]);
            bytes.extend_from_slice(text.as_bytes());
            from = range.end;
        }
        bytes.extend_from_slice(&self.bytes[from..]);
        bytes
    }
}

impl BlockPositions {
    /// Adds the edits that write new counters and the id of the reflection into the block.
    fn rating_edits(
        &self,
        helpful: u32,
        harmful: u32,
        reflection: &str,
        edits: &mut Vec<(Range<usize>, String)>,
    ) {
        let mut inserted = String::new();
        let mut set = |spot: &ValuePosition, text: String| {
            spot.range
                .clone()
                .map(|range| edits.push((range, text)))
                .is_some()
        };
        match (
            set(&self.helpful, helpful.to_string()),
            set(&self.harmful, harmful.to_string()),
        ) {
            (true, true) => {}
            (false, false) => {
                inserted.push_str(&format!(
                    "metrics:\n  helpful: {helpful}\n  harmful: {harmful}\n"
                ));
            }
            // One of the two counters is missing: insert it next to the other one.
            (has_helpful, _) => {
                let (other, key, count) = if has_helpful {
                    (&self.helpful, "harmful", harmful)
                } else {
                    (&self.harmful, "helpful", helpful)
                };
                // A missing counter means 0.
                if let Some(range) = other.range.as_ref().filter(|_| count > 0) {
                    let text = if other.is_inline {
                        format!(", {key}: {count}")
                    } else {
                        format!("\n  {key}: {count}")
                    };
                    edits.push((range.end..range.end, text));
                }
            }
        }
        match &self.reflection.range {
            Some(range) => edits.push((range.clone(), reflection.to_owned())),
            None => inserted.push_str(&format!("reflection: {reflection}\n")),
        }
        if !inserted.is_empty() {
            edits.push((self.end..self.end, inserted));
        }
    }
}

/// Formats the block of a new experience. Its values are normalized, so none can be parsed as a
/// fence or a key.
fn block(id: &ExperienceId, new: &NewExperience, text: &str, changes: &Changes) -> String {
    let category = normalize_category(&new.category);
    let tags = normalize_tags(&new.tags.intent, &new.tags.state);
    let trace = changes
        .trace_id
        .as_ref()
        .map(|trace| format!("trace_id: {trace}\n"))
        .unwrap_or_default();
    format!(
        "{FENCE}\nid: {id}\n{trace}category: {}\ntags:\n  intent: [{}]\n  state: [{}]\nmetrics:\n  helpful: 1\n  \
         harmful: 0\ncreated_at: {}\nreflection: {}\n{FENCE}\n{}\n",
        category,
        tags.intent.join(", "),
        tags.state.join(", "),
        changes.at,
        changes.reflection,
        text.trim()
    )
}

/// Replaces lines that could be parsed as a fence by another form of horizontal rule.
fn escape_fences(text: &str) -> String {
    let lines: Vec<&str> = text
        .lines()
        .map(|line| {
            if line.trim_end() == FENCE {
                "***"
            } else {
                line
            }
        })
        .collect();
    lines.join("\n")
}

/// Appends a block. Everything before it keeps its meaning, even if a block there is not closed.
fn append_block(bytes: Vec<u8>, block: &str) -> Vec<u8> {
    let before = ExperienceText::read(bytes);
    let mut whole = before.bytes.clone();
    match whole.last() {
        None => whole.extend_from_slice(format!("{TITLE}\n").as_bytes()),
        Some(b'\n') => whole.push(b'\n'),
        Some(_) => whole.extend_from_slice(b"\n\n"),
    }
    let end = whole.len();
    whole.extend_from_slice(block.as_bytes());
    let after = ExperienceText::read(whole);
    let is_intact = after.experiences.len() == before.experiences.len() + 1
        && after.faults == before.faults
        && after.experiences.starts_with(&before.experiences);
    if is_intact {
        after.bytes
    } else {
        [&after.bytes[..end], SEPARATOR.as_bytes(), block.as_bytes()].concat()
    }
}

/// Returns whether a text is a valid id.
pub(super) fn is_id(text: &str) -> bool {
    let is_good = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    !text.is_empty() && text.len() <= 64 && text.bytes().all(is_good)
}

/// Returns whether two texts are equal except for whitespace and case.
fn same_text(one: &str, other: &str) -> bool {
    one.split_whitespace()
        .map(str::to_lowercase)
        .eq(other.split_whitespace().map(str::to_lowercase))
}

#[cfg(test)]
mod tests;
