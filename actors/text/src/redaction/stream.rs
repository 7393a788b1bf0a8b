//! Redacts text that arrives in pieces: text that may be the start of a secret is held back until
//! that is known.
//!
//! Pure. Invariant: the concatenated output equals the redaction of the whole text.

use std::ops::Range;

use bytes::Bytes;

use super::Redactor;

/// Maximum length of the end of a text that is searched for a token after `Bearer`, in bytes. A
/// longer token is split, and each piece is redacted.
const MAX_TOKEN_BYTES: usize = 512;
const BEARER: &str = "bearer";
const HEADER: &str = "authorization";
/// Maximum distance between the name of a header and its token at which both are kept together, in
/// bytes.
const MAX_HEADER_DISTANCE_BYTES: usize = 256;

/// Redacts a text piece by piece.
#[derive(Debug, Default)]
pub struct StreamRedactor {
    redactor: Redactor,
    pending: String,
}

impl StreamRedactor {
    /// Makes a redactor for one stream of text.
    pub fn new(redactor: &Redactor) -> Self {
        Self {
            redactor: redactor.clone(),
            pending: String::new(),
        }
    }

    /// Adds a piece and returns the text that can be shown now.
    pub fn push(&mut self, piece: &str) -> String {
        self.pending.push_str(piece);
        let clear = self.safe_end();
        // A secret that ends after the clear part also starts after it, so it is not split.
        let shown = self.redactor.text(&self.pending[..clear]).into_owned();
        self.pending.drain(..clear);
        shown
    }

    /// Ends the text and returns the rest.
    pub fn end(&mut self) -> String {
        let rest = std::mem::take(&mut self.pending);
        self.redactor.text(&rest).into_owned()
    }

    /// Returns the position up to which the text can no longer become part of a secret.
    fn safe_end(&self) -> usize {
        let by_form = self
            .redactor
            .index
            .as_ref()
            .map_or(self.pending.len(), |known| {
                let longest = known.forms.iter().map(String::len).max().unwrap_or(0);
                let from = self.pending.len().saturating_sub(longest.saturating_sub(1));
                let starts = self
                    .pending
                    .char_indices()
                    .map(|(at, _)| at)
                    .skip_while(|at| *at < from);
                let may_begin = |at: &usize| {
                    let tail = &self.pending[*at..];
                    known
                        .forms
                        .iter()
                        .any(|form| form.len() > tail.len() && form.starts_with(tail))
                };
                starts
                    .into_iter()
                    .find(may_begin)
                    .unwrap_or(self.pending.len())
            });
        let clear = by_form.min(self.token_start());
        // A whole secret or token that crosses the boundary is held back up to its end. A word that
        // starts like a secret is held back until its end arrives.
        let is_across = |range: &Range<usize>| {
            range.start < clear && (range.end > clear || range.end == self.pending.len())
        };
        let secret = self.redactor.index.as_ref().and_then(|known| {
            known
                .spans(&self.pending)
                .into_iter()
                .map(|(span, _)| span)
                .find(is_across)
        });
        let token = super::BEARER.as_ref().and_then(|pattern| {
            pattern
                .find_iter(&self.pending)
                .map(|found| found.range())
                .find(is_across)
        });
        secret
            .into_iter()
            .chain(token)
            .map(|range| range.start)
            .chain([clear])
            .min()
            .unwrap_or(clear)
    }

    /// Returns the position at which a header, or a token after `Bearer`, starts that may be
    /// incomplete.
    fn token_start(&self) -> usize {
        let mut from = self.pending.len().saturating_sub(MAX_TOKEN_BYTES);
        while !self.pending.is_char_boundary(from) {
            from += 1;
        }
        let tail = self.pending[from..].to_ascii_lowercase();
        let is_of_token = |byte: u8| byte.is_ascii_alphanumeric() || b"._~+/-=".contains(&byte);
        // The name of the header indicates that a token follows, so both are kept together.
        let header = tail.rfind(HEADER).filter(|at| {
            let after_header = &tail[at + HEADER.len()..];
            after_header.len() < MAX_HEADER_DISTANCE_BYTES
                && after_header
                    .bytes()
                    .all(|byte| is_of_token(byte) || b"\"': \t".contains(&byte))
        });
        let scheme = tail.rfind(BEARER).filter(|at| {
            tail[at + BEARER.len()..]
                .trim_start_matches([' ', '\t'])
                .bytes()
                .all(is_of_token)
        });
        let partial_keyword = [HEADER, BEARER].map(|word| {
            let length = (1..word.len().min(tail.len() + 1))
                .rev()
                .find(|length| tail.ends_with(&word[..*length]));
            tail.len() - length.unwrap_or(0)
        });
        from + header
            .into_iter()
            .chain(scheme)
            .chain(partial_keyword)
            .min()
            .unwrap_or(tail.len())
    }
}

/// Redacts bytes that should be text, piece by piece. Bytes that are not UTF-8 pass unchanged.
#[derive(Debug)]
pub struct ByteRedactor {
    stream: StreamRedactor,
    /// First bytes of a character whose remaining bytes have not arrived.
    partial_character: Vec<u8>,
}

impl ByteRedactor {
    /// Makes a redactor for one stream of bytes.
    pub fn new(redactor: &Redactor) -> Self {
        Self {
            stream: StreamRedactor::new(redactor),
            partial_character: Vec::new(),
        }
    }

    /// Adds a piece and returns the bytes that can be passed on now.
    pub fn push(&mut self, piece: &[u8]) -> Bytes {
        self.partial_character.extend_from_slice(piece);
        let bytes = std::mem::take(&mut self.partial_character);
        let mut done = Vec::with_capacity(piece.len());
        let mut chunks = bytes.utf8_chunks().peekable();
        while let Some(chunk) = chunks.next() {
            done.extend_from_slice(self.stream.push(chunk.valid()).as_bytes());
            let invalid = chunk.invalid();
            if chunks.peek().is_none() && invalid.len() < 4 && !invalid.is_empty() {
                // The next piece may complete it.
                self.partial_character = invalid.to_vec();
            } else if !invalid.is_empty() {
                done.extend_from_slice(self.stream.end().as_bytes());
                done.extend_from_slice(invalid);
            }
        }
        done.into()
    }

    /// Ends the text and returns the rest.
    pub fn end(&mut self) -> Bytes {
        let mut done = self.stream.end().into_bytes();
        done.append(&mut self.partial_character);
        done.into()
    }
}
