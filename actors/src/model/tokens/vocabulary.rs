//! The vocabulary `o200k_base`: read once, in a thread of its own, when somebody wants it.
//!
//! It takes some 0.1 to 0.2 s to read and some 46 MiB to hold, so it is neither read at the start of
//! the process nor where somebody waits, and counting alone does not ask for it: where an estimate is
//! far below what counts, nobody needs it. Where no thread can be had, the estimate stays.

use std::sync::{Once, OnceLock};

use tiktoken_rs::CoreBPE;

/// Longest stretch that is tokenized at once: a word of that length takes about 3 ms, and its time
/// grows faster than its length.
const PIECE_BYTES: usize = 16 * 1024;
/// Longest text that is counted whole.
const WHOLE_BYTES: usize = 256 * 1024;
/// From how many places of a longer one pieces are counted.
const SAMPLES: usize = 8;

static LOADED: OnceLock<CoreBPE> = OnceLock::new();
static LOADING: Once = Once::new();

/// Returns whether the vocabulary is there.
pub(super) fn is_loaded() -> bool {
    LOADED.get().is_some()
}

/// Has the vocabulary read in the background, the first time; does not wait.
pub(super) fn load_soon() {
    LOADING.call_once(|| {
        let thread = std::thread::Builder::new().name("vocabulary".to_owned());
        if let Err(error) = thread.spawn(load) {
            tracing::warn!(%error, "no thread to read the vocabulary: tokens are estimated");
        }
    });
}

/// Counts a text; `None` = the vocabulary is not there.
pub(super) fn count(text: &str) -> Option<u64> {
    let vocabulary = LOADED.get()?;
    Some(counted(text, |piece| vocabulary.count_ordinary(piece) as u64))
}

/// Reads the vocabulary, unless it is there.
pub(super) fn load() {
    match tiktoken_rs::o200k_base() {
        Ok(vocabulary) => drop(LOADED.set(vocabulary)),
        Err(error) => tracing::warn!(%error, "the vocabulary cannot be read: tokens are estimated"),
    }
}

/// Counts a text in pieces; of a very long one only some, for the rest like them.
pub(super) fn counted(text: &str, count: impl Fn(&str) -> u64) -> u64 {
    if text.len() <= WHOLE_BYTES {
        let mut tokens = 0;
        let mut rest = text;
        while !rest.is_empty() {
            let (piece, behind) = rest.split_at(piece_end(rest));
            tokens += count(piece);
            rest = behind;
        }
        return tokens;
    }
    let (mut tokens, mut bytes) = (0, 0);
    for sample in 0..SAMPLES {
        let start = text.floor_char_boundary((text.len() - PIECE_BYTES) / (SAMPLES - 1) * sample);
        let piece = &text[start..text.floor_char_boundary(start + PIECE_BYTES)];
        tokens += u128::from(count(piece));
        bytes += piece.len() as u128;
    }
    u64::try_from(tokens * text.len() as u128 / bytes).unwrap_or(u64::MAX)
}

/// Finds where the first piece of a text ends: behind a line or before a word, where tokens end too.
fn piece_end(text: &str) -> usize {
    if text.len() <= PIECE_BYTES {
        return text.len();
    }
    let most = text.floor_char_boundary(PIECE_BYTES);
    let later_half = text.floor_char_boundary(PIECE_BYTES / 2);
    let head = &text[later_half..most];
    let line = head.rfind('\n').map(|at| later_half + at + 1);
    line.or_else(|| head.rfind(' ').map(|at| later_half + at)).unwrap_or(most)
}
