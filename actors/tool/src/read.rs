//! Tool `read`: reads a text file of the project in pages, or an image or document that the model
//! takes.
//!
//! A file is read through a buffer, never as a whole, and each line is kept only up to its limit.
//! Elsewhere: artifacts (`read_artifact`), which files may be read (`path_policy.rs`).

use std::path::PathBuf;
use std::{
    fs::File,
    io::{BufRead, BufReader, Read as _, Seek as _},
    ops::ControlFlow,
    sync::Arc,
};

use futures::{FutureExt, future::BoxFuture};
use serde::Deserialize;
use serde_json::{Value, json};
use soong_protocol::{
    AccessRequest, ContentPart, ErrorCode, ErrorInfo, InputKind, ToolSpec, media_type,
};
use tokio_util::sync::CancellationToken;

use super::{
    Tool, ToolContext, ToolOutput, ToolResult, arguments,
    path_policy::{PathPolicy, path_changed_error},
    project_path::{
        OutputPage, RESERVED_NOTE_BYTES, ResolvedPath, blocking, check_cancelled, has_other_names,
        io_error,
    },
    safe_fs::open_file,
};

/// Default number of lines in a page.
const DEFAULT_LINES: u64 = 200;
/// Maximum number of lines in a page (TOOL-4).
const MAX_LINES: u64 = 1000;
/// Maximum number of bytes of a line that are shown (TOOL-4).
const MAX_LINE_BYTES: usize = 4096;
/// Maximum size of what is shown around a line: its number, and that it was cut.
const LINE_FRAME_BYTES: usize = 80;
/// Number of bytes that are checked to distinguish text from binary files.
const TEXT_DETECTION_BYTES: u64 = 8 * 1024;
/// Maximum number of bytes read after a page to count the remaining lines.
const MAX_COUNTED_BYTES: u64 = 64 * 1024 * 1024;
/// Maximum number of bytes read from a file. A sparse file can report any size.
const MAX_SCANNED_BYTES: u64 = 512 * 1024 * 1024;
/// Maximum size of an image or file that is passed to the model, in bytes.
const MAX_MEDIA_BYTES: u64 = 32 * 1024 * 1024;
const BUFFER_BYTES: usize = 64 * 1024;

/// The tool `read`.
pub(crate) struct ReadTool {
    spec: ToolSpec,
    roots: Arc<PathPolicy>,
}

#[derive(Deserialize)]
struct Arguments {
    path: String,
    #[serde(default = "default_start_line")]
    start_line: u64,
    #[serde(default = "default_lines")]
    max_lines: u64,
}

const fn default_start_line() -> u64 {
    1
}

const fn default_lines() -> u64 {
    DEFAULT_LINES
}

impl ReadTool {
    pub(crate) fn new(roots: Arc<PathPolicy>) -> Self {
        let parameters = json!({
            "type": "object",
            "properties": {
                "path": {"type": "string", "minLength": 1},
                "start_line": {"type": "integer", "minimum": 1, "default": 1},
                "max_lines": {"type": "integer", "minimum": 1, "maximum": MAX_LINES, "default": DEFAULT_LINES},
            },
            "required": ["path"],
            "additionalProperties": false,
        });
        let description = "Reads a file of the project: text with line numbers; images and PDF if you can see them. The last line says how to read on.";
        let spec = ToolSpec::read("read", "Read a file", description, parameters);
        Self {
            spec: ToolSpec {
                paged: true,
                ..spec
            },
            roots,
        }
    }
}

impl Tool for ReadTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn required_access(
        &self,
        context: &ToolContext,
        value: &Value,
    ) -> Result<Option<AccessRequest>, ErrorInfo> {
        let arguments: Arguments = arguments(value.clone())?;
        Ok(self.roots.read_access(
            &self
                .roots
                .resolve_existing(&context.project_dir, &arguments.path)?,
        ))
    }

    fn resolved_path(&self, context: &ToolContext, value: &Value) -> Option<PathBuf> {
        self.roots.path_argument(&context.project_dir, value)
    }

    fn call(&self, context: ToolContext, value: Value) -> BoxFuture<'static, ToolResult> {
        let roots = Arc::clone(&self.roots);
        async move {
            let arguments: Arguments = arguments(value)?;
            blocking(context, move |context, cancel| {
                let resolved = roots.resolve_existing(&context.project_dir, &arguments.path)?;
                if roots.read_access(&resolved) != context.granted_access {
                    return Err(path_changed_error(&resolved));
                }
                read(&resolved, &arguments, context, cancel)
            })
            .await
        }
        .boxed()
    }
}

fn read(
    resolved: &ResolvedPath,
    arguments: &Arguments,
    context: &ToolContext,
    cancel: &CancellationToken,
) -> ToolResult {
    let name = resolved.display_name();
    let (mut file, metadata) = open_file(resolved)?;
    if has_other_names(&metadata) && context.granted_access.is_none() {
        return Err(path_changed_error(resolved));
    }
    let size = metadata.len();
    let head = file_head(&mut file).map_err(|error| io_error(&name, &error))?;
    if let Some(content_type) = media_type(&head)
        && InputKind::of_content_type(content_type)
            .is_some_and(|kind| context.output_limit.kinds.contains(&kind))
    {
        return read_media(resolved, file, content_type);
    }
    if let Some(kind) = binary_kind(&head) {
        let message = format!("`{name}` is {kind}, {size} bytes: this tool shows you text only");
        return Err(ErrorInfo::new(ErrorCode::UnsupportedMedia, message));
    }
    let mut shown = LinePage::new(arguments, context.output_limit.bytes);
    let lines =
        each_line(file, cancel, |line| shown.add_line(line)).map_err(|failed| match failed {
            LineError::Io(error) => io_error(&name, &error),
            LineError::Cancelled(error) => error,
        })?;
    let first = arguments.start_line;
    if size == 0 && first == 1 {
        return Ok(ToolOutput::text(
            format!("`{name}` (empty)"),
            "[the file is empty: 0 bytes]",
        ));
    }
    if lines.count < first && lines.reached_end {
        let message = format!(
            "line {first} is behind the end: `{name}` has {} lines ({size} bytes)",
            lines.count
        );
        return Err(ErrorInfo::new(ErrorCode::ValidationError, message));
    }
    let title = format!("`{name}` lines {first}–{}", shown.last);
    let note = shown.note(&lines, size);
    Ok(ToolOutput::text(title, shown.page.finish(&note)))
}

/// Reads the first bytes of a file, and seeks to its start.
fn file_head(file: &mut File) -> std::io::Result<Vec<u8>> {
    let mut head = Vec::new();
    file.by_ref()
        .take(TEXT_DETECTION_BYTES)
        .read_to_end(&mut head)?;
    file.rewind()?;
    Ok(head)
}

/// Returns an image, PDF document or audio file as a part that the model reads.
fn read_media(resolved: &ResolvedPath, file: File, content_type: &str) -> ToolResult {
    let name = resolved.display_name();
    let mut bytes = Vec::new();
    file.take(MAX_MEDIA_BYTES + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| io_error(&name, &error))?;
    if bytes.len() as u64 > MAX_MEDIA_BYTES {
        let message =
            format!("`{name}` has more than {MAX_MEDIA_BYTES} bytes: it is too large to be shown");
        return Err(ErrorInfo::new(ErrorCode::PayloadTooLarge, message));
    }
    let filename = name.rsplit('/').next().map(str::to_owned);
    let part = ContentPart::inline(content_type, filename, bytes);
    let output = ToolOutput::text(format!("`{name}`"), format!("`{name}`:"));
    Ok(ToolOutput {
        files: vec![part],
        ..output
    })
}

/// Returns the kind of a binary file by its first bytes; `None` for text.
fn binary_kind(head: &[u8]) -> Option<&'static str> {
    if !head.contains(&0) {
        return None;
    }
    let known: [(&[u8], &str); 12] = [
        (b"\x89PNG", "a PNG image"),
        (b"\xff\xd8\xff", "a JPEG image"),
        (b"GIF8", "a GIF image"),
        (b"%PDF", "a PDF document"),
        (b"PK\x03\x04", "a ZIP archive (or a document in one)"),
        (b"\x1f\x8b", "gzip-compressed data"),
        (b"\x7fELF", "an ELF program or library"),
        (b"\0asm", "a WebAssembly module"),
        (b"SQLite format 3\0", "an SQLite database"),
        (b"MZ", "a Windows program or library"),
        (b"\xff\xfe", "UTF-16 text"),
        (b"\xfe\xff", "UTF-16 text"),
    ];
    Some(
        known
            .iter()
            .find(|(magic, _)| head.starts_with(magic))
            .map_or("a binary file", |(_, kind)| kind),
    )
}

/// First bytes of a line, and its length.
struct LineStart<'a> {
    number: u64,
    start: &'a [u8],
    length: u64,
}

/// Result of reading a file.
struct ReadEnd {
    /// Number of lines read.
    count: u64,
    /// Whether the end of the file was reached.
    reached_end: bool,
}

enum LineError {
    Io(std::io::Error),
    Cancelled(ErrorInfo),
}

/// Passes each line to `take`. After `take` breaks, only counts the remaining lines, up to a limit.
fn each_line(
    file: File,
    cancel: &CancellationToken,
    mut take: impl FnMut(&LineStart<'_>) -> ControlFlow<()>,
) -> Result<ReadEnd, LineError> {
    let mut reader = BufReader::with_capacity(BUFFER_BYTES, file);
    let mut line_start = Vec::with_capacity(MAX_LINE_BYTES);
    let mut length = 0_u64;
    let mut number = 1;
    let mut counting = false;
    let mut counted = 0;
    let mut scanned = 0;
    loop {
        check_cancelled(cancel).map_err(LineError::Cancelled)?;
        let buffer = reader.fill_buf().map_err(LineError::Io)?;
        let used = buffer.len();
        if used == 0 {
            break;
        }
        for piece in buffer.split_inclusive(|byte| *byte == b'\n') {
            let (text, ended) = piece
                .split_last()
                .filter(|(last, _)| **last == b'\n')
                .map_or((piece, false), |(_, text)| (text, true));
            // One byte more than is shown, so that a line that is too long is detected.
            let room = (MAX_LINE_BYTES + 1).saturating_sub(line_start.len());
            if !counting {
                line_start.extend_from_slice(&text[..text.len().min(room)]);
            }
            length += text.len() as u64;
            if ended {
                counting = counting
                    || take(&LineStart {
                        number,
                        start: &line_start,
                        length,
                    })
                    .is_break();
                number += 1;
                length = 0;
                line_start.clear();
            }
        }
        reader.consume(used);
        counted += if counting { used as u64 } else { 0 };
        scanned += used as u64;
        if counted > MAX_COUNTED_BYTES || scanned > MAX_SCANNED_BYTES {
            return Ok(ReadEnd {
                count: number - 1,
                reached_end: false,
            });
        }
    }
    if length > 0 {
        if !counting {
            let _ = take(&LineStart {
                number,
                start: &line_start,
                length,
            });
        }
        number += 1;
    }
    Ok(ReadEnd {
        count: number - 1,
        reached_end: true,
    })
}

/// Builds the page of the requested lines.
struct LinePage {
    page: OutputPage,
    first: u64,
    max: u64,
    /// Maximum number of bytes that are shown of a line, so that at least one line fits.
    max_line_bytes: usize,
    /// Number of the last line shown.
    last: u64,
    cut_lines: u64,
    has_invalid_utf8: bool,
    has_crlf: bool,
}

impl LinePage {
    fn new(wanted: &Arguments, limit_bytes: usize) -> Self {
        Self {
            page: OutputPage::new(limit_bytes),
            first: wanted.start_line,
            max: wanted.max_lines.clamp(1, MAX_LINES),
            max_line_bytes: limit_bytes
                .saturating_sub(RESERVED_NOTE_BYTES + LINE_FRAME_BYTES)
                .min(MAX_LINE_BYTES),
            last: wanted.start_line.saturating_sub(1),
            cut_lines: 0,
            has_invalid_utf8: false,
            has_crlf: false,
        }
    }

    fn add_line(&mut self, line: &LineStart<'_>) -> ControlFlow<()> {
        if line.number < self.first {
            return ControlFlow::Continue(());
        }
        let mut bytes = line.start;
        let too_long = line.length > self.max_line_bytes as u64;
        if too_long {
            bytes = &bytes[..character_start(bytes, self.max_line_bytes)];
        } else if let Some(text) = bytes.strip_suffix(b"\r") {
            self.has_crlf = true;
            bytes = text;
        }
        // A byte order mark is no part of the text.
        let bytes = if line.number == 1 {
            bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes)
        } else {
            bytes
        };
        let text = String::from_utf8_lossy(bytes);
        let mut row = format!("{:>5}\t{text}", line.number);
        if too_long {
            row.push_str(&format!("… [cut: the line has {} bytes]", line.length));
        }
        if !self.page.push_line(&row) {
            return ControlFlow::Break(());
        }
        self.has_invalid_utf8 |= std::str::from_utf8(bytes).is_err();
        self.cut_lines += u64::from(too_long);
        self.last = line.number;
        if self.last + 1 - self.first >= self.max {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    }

    fn note(&self, lines: &ReadEnd, size: u64) -> String {
        let total = if lines.reached_end {
            lines.count.to_string()
        } else {
            format!("more than {}", lines.count)
        };
        let mut note = format!(
            "lines {}–{} of {total}, {size} bytes",
            self.first, self.last
        );
        if self.last < self.first {
            note = format!(
                "line {} alone is larger than the output may be; {total} lines, {size} bytes",
                self.first
            );
        } else if self.last < lines.count {
            note.push_str(&format!("; continue with start_line={}", self.last + 1));
        }
        if self.page.is_full {
            note.push_str("; the page is shorter than asked because the output is limited");
        }
        if self.cut_lines > 0 {
            note.push_str(&format!(
                "; {} lines cut at {} bytes",
                self.cut_lines, self.max_line_bytes
            ));
        }
        if self.has_invalid_utf8 {
            note.push_str("; not valid UTF-8: � stands for bytes that are no text");
        }
        if self.has_crlf {
            note.push_str("; lines end in CR LF");
        }
        note
    }
}

/// Returns the last index at or before `at` at which a UTF-8 character starts.
fn character_start(bytes: &[u8], at: usize) -> usize {
    let is_start = |index: &usize| bytes.get(*index).is_none_or(|byte| byte & 0xc0 != 0x80);
    (at.saturating_sub(3)..=at.min(bytes.len()))
        .rev()
        .find(is_start)
        .unwrap_or(at.min(bytes.len()))
}

#[cfg(test)]
#[path = "read/tests.rs"]
mod tests;
