//! The vocabulary `o200k_base`: read once, on request, in a separate thread.
//!
//! Reading takes about 0.1 to 0.2 s, and the vocabulary occupies about 46 MiB. So it is not read at
//! the start of the process nor while a caller waits. Counting alone does not request it: far below
//! the limit, an estimate is sufficient. If no thread can be started, counts stay estimated.

use std::{
    io::Read,
    sync::{Once, OnceLock},
};

use flate2::read::ZlibDecoder;
use tiktoken_rs::{CoreBPE, O200K_BASE_PAT_STR, Rank};

/// The tokens of `o200k_base` in the order of their ranks, from 0: the length of each token as one
/// byte, then the bytes of all tokens, compressed with zlib. This is a quarter of the size of the
/// vocabulary in `tiktoken_rs`, which the linker drops because nothing uses it. A test compares
/// both.
const TOKENS: &[u8] = include_bytes!("../../vocabulary/o200k_base.zlib");
/// Number of tokens in [`TOKENS`].
const TOKEN_COUNT: usize = 199_998;

/// Maximum number of bytes tokenized in one piece. A word of that length takes about 3 ms, and the
/// time grows faster than the length.
const PIECE_BYTES: usize = 16 * 1024;
/// Maximum size of a text that is counted completely, in bytes.
const MAX_WHOLE_BYTES: usize = 256 * 1024;
/// Number of samples counted of a longer text.
const SAMPLES: usize = 8;

static LOADED: OnceLock<CoreBPE> = OnceLock::new();
static LOADING: Once = Once::new();

/// Returns whether the vocabulary is loaded.
pub(super) fn is_loaded() -> bool {
    LOADED.get().is_some()
}

/// Starts to read the vocabulary in the background on the first call. Does not wait.
pub(super) fn load_soon() {
    LOADING.call_once(|| {
        let thread = std::thread::Builder::new().name("vocabulary".to_owned());
        if let Err(error) = thread.spawn(load) {
            tracing::warn!(%error, "could not start a thread to read the tokenizer vocabulary; token counts are estimated");
        }
    });
}

/// Counts a text. `None` if the vocabulary is not loaded.
pub(super) fn count(text: &str) -> Option<u64> {
    let vocabulary = LOADED.get()?;
    Some(count_in_pieces(text, |piece| {
        vocabulary.count_ordinary(piece) as u64
    }))
}

/// Reads the vocabulary, unless it is loaded.
pub(super) fn load() {
    match read() {
        Ok(vocabulary) => drop(LOADED.set(vocabulary)),
        Err(error) => {
            tracing::warn!(%error, "could not read the tokenizer vocabulary; token counts are estimated")
        }
    }
}

/// Reads [`TOKENS`].
pub(super) fn read() -> Result<CoreBPE, String> {
    let mut data = Vec::new();
    ZlibDecoder::new(TOKENS)
        .read_to_end(&mut data)
        .map_err(|error| error.to_string())?;
    let (lengths, mut rest) = data
        .split_at_checked(TOKEN_COUNT)
        .ok_or("the vocabulary is cut off")?;
    let mut ranks = Vec::with_capacity(TOKEN_COUNT);
    for (length, rank) in lengths.iter().zip(0 as Rank..) {
        let (token, following) = rest
            .split_at_checked(usize::from(*length))
            .ok_or("the vocabulary is cut off")?;
        ranks.push((token.to_vec(), rank));
        rest = following;
    }
    // Special tokens are not needed: texts are counted as ordinary ones.
    CoreBPE::new(
        ranks.into_iter().collect(),
        Default::default(),
        O200K_BASE_PAT_STR,
    )
    .map_err(|error| error.to_string())
}

/// Counts a text in pieces. A very long text is extrapolated from samples.
pub(super) fn count_in_pieces(text: &str, count: impl Fn(&str) -> u64) -> u64 {
    if text.len() <= MAX_WHOLE_BYTES {
        let mut tokens = 0;
        let mut rest = text;
        while !rest.is_empty() {
            let (piece, behind) = rest.split_at(piece_end(rest));
            tokens += count(piece);
            rest = behind;
        }
        return tokens;
    }
    let mut tokens = 0;
    let mut bytes = 0;
    for sample in 0..SAMPLES {
        let start = text.floor_char_boundary((text.len() - PIECE_BYTES) / (SAMPLES - 1) * sample);
        let piece = &text[start..text.floor_char_boundary(start + PIECE_BYTES)];
        tokens += u128::from(count(piece));
        bytes += piece.len() as u128;
    }
    u64::try_from(tokens * text.len() as u128 / bytes).unwrap_or(u64::MAX)
}

/// Returns the end of the first piece of a text: after a line or before a word, where tokens end
/// too.
fn piece_end(text: &str) -> usize {
    if text.len() <= PIECE_BYTES {
        return text.len();
    }
    let most = text.floor_char_boundary(PIECE_BYTES);
    let later_half = text.floor_char_boundary(PIECE_BYTES / 2);
    let head = &text[later_half..most];
    let line = head.rfind('\n').map(|at| later_half + at + 1);
    line.or_else(|| head.rfind(' ').map(|at| later_half + at))
        .unwrap_or(most)
}
