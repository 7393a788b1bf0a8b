//! The lines of the experiences file: finds its blocks and parses them.

use std::borrow::Cow;

use soong_protocol::{Experience, ExperienceId, Metrics, TraceId};

use super::{BlockPositions, FENCE, ID_PREFIX, ValuePosition, is_id};
use crate::{
    front_matter::value::Value,
    memory::{
        date::read_date,
        matching::normalize_tags,
        metadata::{self, Metadata},
    },
};

/// Maximum number of lines of a block's front matter.
const MAX_HEAD_LINES: usize = 256;
/// Upper bound of generated numbers. An id with a larger number was chosen by a user and is ignored
/// when numbering.
const MAX_GENERATED_NUMBER: u64 = 1 << 40;

/// First and last line of the front matter of a block. `last` is `None` if it is not closed.
pub(super) struct HeadRange {
    pub(super) first: usize,
    pub(super) last: Option<usize>,
}

/// Lines of a file: the start offset and the text of each, and whether it is not valid UTF-8.
pub(super) struct FileLines<'a> {
    lines: Vec<(usize, Cow<'a, str>, bool)>,
    /// Length of the file, in bytes.
    end: usize,
    bytes: &'a [u8],
}

impl<'a> FileLines<'a> {
    pub(super) fn of(bytes: &'a [u8]) -> Self {
        let mut lines = Vec::new();
        let mut at = 0;
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            let text = line.strip_suffix(b"\n").unwrap_or(line);
            let mark = "\u{feff}".as_bytes();
            let skipped = if at == 0 && text.starts_with(mark) {
                mark.len()
            } else {
                0
            };
            let text = String::from_utf8_lossy(&text[skipped..]);
            let is_lossy = matches!(text, Cow::Owned(_));
            lines.push((at + skipped, text, is_lossy));
            at += line.len();
        }
        Self {
            lines,
            end: at,
            bytes,
        }
    }

    pub(super) fn count(&self) -> usize {
        self.lines.len()
    }

    fn text(&self, line: usize) -> &str {
        &self.lines[line].1
    }

    fn start(&self, line: usize) -> usize {
        self.lines.get(line).map_or(self.end, |(start, ..)| *start)
    }

    fn is_fence(&self, line: usize) -> bool {
        self.text(line).trim_end() == FENCE
    }

    /// Finds the front matter of all blocks: lines between two fences, one of which contains an id.
    pub(super) fn heads(&self) -> Vec<HeadRange> {
        let mut found = Vec::new();
        let mut line = 0;
        while line < self.count() {
            if !self.is_fence(line) {
                line += 1;
                continue;
            }
            let rest = line + 1..self.count().min(line + 1 + MAX_HEAD_LINES);
            let end = rest
                .clone()
                .find(|next| !metadata::is_metadata_line(self.text(*next)));
            let last = end.filter(|end| self.is_fence(*end));
            let lines = line + 1..end.unwrap_or(rest.end);
            let names_id = lines.clone().any(|line| self.text(line).starts_with("id:"));
            // Without an id it is a horizontal rule in the text, or front matter of something else.
            if names_id {
                found.push(HeadRange { first: line, last });
            }
            line = match last {
                Some(last) if names_id => last + 1,
                _ => line + 1,
            };
        }
        found
    }

    /// Parses a block: its front matter, and the text up to the next block. Also returns a problem
    /// that leaves the block usable.
    pub(super) fn block(
        &self,
        first: usize,
        last: usize,
        until: usize,
    ) -> Result<(Experience, BlockPositions, Option<metadata::LineFault>), metadata::LineFault>
    {
        if let Some(line) = (first..until).find(|line| self.lines[*line].2) {
            return Err((
                line + 1,
                "this is not UTF-8: save the file as UTF-8".to_owned(),
            ));
        }
        let lines = (first + 1..last).map(|line| (line + 1, self.start(line), self.text(line)));
        let head = Metadata::read(lines, self.start(last))?;
        let at = |message: &str| (first + 1, message.to_owned());
        let id = head.text("id")?.filter(|id| is_id(id)).ok_or_else(|| {
            at("`id` must be 1 to 64 letters (a-z), digits, - or _, such as ex_001")
        })?;
        let date = head.text("created_at")?;
        let created_at = date.and_then(read_date);
        let fault = date.filter(|_| created_at.is_none()).map(|_| {
            let line = head.get("created_at").map_or(first + 1, |entry| entry.line);
            (line, "`created_at` must be a date such as 2026-11-22 or 2026-11-22T08:00:00Z: it is ignored".to_owned())
        });
        let body = &self.bytes[self.start(last + 1)..self.start(until)];
        let text = String::from_utf8_lossy(body).trim().replace("\r\n", "\n");
        if text.is_empty() {
            return Err(at(
                "this block has no text: write what was learned below its front matter",
            ));
        }
        let spot = |key: &str| match head.get(key) {
            Some(entry) if matches!(entry.value, Value::Plain(_) | Value::Quoted(_)) => {
                ValuePosition {
                    range: Some(entry.range.clone()),
                    is_inline: entry.is_inline,
                }
            }
            _ => ValuePosition::default(),
        };
        let positions = BlockPositions {
            helpful: spot("metrics.helpful"),
            harmful: spot("metrics.harmful"),
            reflection: spot("reflection"),
            last_reflection: head.text("reflection")?.map(str::to_owned),
            end: head.end,
            line_count: last - first,
        };
        let experience = Experience {
            id: ExperienceId::new(id),
            trace_id: head.text("trace_id")?.map(TraceId::new),
            category: head.text("category")?.unwrap_or("other").to_owned(),
            tags: normalize_tags(&head.list("tags.intent"), &head.list("tags.state")),
            metrics: Metrics {
                helpful: head.number("metrics.helpful")?.unwrap_or_default(),
                harmful: head.number("metrics.harmful")?.unwrap_or_default(),
            },
            created_at,
            text,
        };
        Ok((experience, positions, fault))
    }

    /// Finds the largest number in an id, including blocks that cannot be used, so that no id is
    /// assigned twice.
    pub(super) fn last_number(&self, heads: &[HeadRange]) -> u64 {
        let number = |line: usize| {
            let id = self
                .text(line)
                .strip_prefix("id:")?
                .trim()
                .trim_matches(['"', '\'']);
            id.strip_prefix(ID_PREFIX)?
                .parse::<u64>()
                .ok()
                .filter(|number| *number < MAX_GENERATED_NUMBER)
        };
        let lines = heads.iter().flat_map(|head| {
            let end = head
                .last
                .unwrap_or((head.first + 1 + MAX_HEAD_LINES).min(self.count()));
            head.first + 1..end
        });
        lines.filter_map(number).max().unwrap_or_default()
    }
}
