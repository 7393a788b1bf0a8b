//! Distance matrix of two texts: one column per character of the text, 64 rows per word.
//!
//! Myers' bit-parallel algorithm in Hyyrö's formulation: a column is stored as the differences
//! between neighboring cells, one bit for +1 and one for −1. Only blocks that may contain a cell
//! within the limit are computed (Ukkonen's cut-off): cells within the limit are exact, all others
//! are only known to exceed it. Memory use does not depend on the length of the text, and is
//! bounded for any pattern.
//!
//! Elsewhere: how a distance is turned into a match (`approximate.rs`).

use std::{collections::HashMap, ops::Range};

/// Symbol of all characters that do not occur in the alphabet's text.
const UNKNOWN_SYMBOL: u32 = 0;

/// Rows per block.
const ROWS: usize = u64::BITS as usize;

/// Distance above the limit at which the lowest active block is dropped, measured at its lowest
/// cell: the height of a block, because its highest cell may be that much smaller, plus a reserve
/// that keeps blocks from being dropped and added repeatedly.
const DROP_MARGIN: isize = 96;

/// Numbers the distinct characters of one text, so that other texts can be encoded as these
/// numbers.
pub(super) struct Alphabet {
    /// Symbols by code point, for the basic multilingual plane, up to the highest character in use.
    plane: Vec<u32>,
    astral: HashMap<char, u32>,
    size: u32,
}

impl Alphabet {
    pub(super) fn of(text: &str) -> Self {
        let mut alphabet = Self {
            plane: Vec::new(),
            astral: HashMap::new(),
            size: UNKNOWN_SYMBOL + 1,
        };
        for ch in text.chars() {
            let code = ch as usize;
            let number = if code > 0xFFFF {
                alphabet.astral.entry(ch).or_insert(UNKNOWN_SYMBOL)
            } else {
                if alphabet.plane.len() <= code {
                    alphabet.plane.resize(code + 1, UNKNOWN_SYMBOL);
                }
                &mut alphabet.plane[code]
            };
            if *number == UNKNOWN_SYMBOL {
                *number = alphabet.size;
                alphabet.size += 1;
            }
        }
        alphabet
    }

    /// Encodes a text. Characters without a number become `UNKNOWN_SYMBOL`.
    pub(super) fn encode(&self, text: &str) -> Vec<u32> {
        text.chars()
            .map(|ch| match self.plane.get(ch as usize) {
                Some(&number) => number,
                None if self.astral.is_empty() => UNKNOWN_SYMBOL,
                None => self.astral.get(&ch).copied().unwrap_or(UNKNOWN_SYMBOL),
            })
            .collect()
    }
}

/// Storage of the rows in which a symbol occurs.
#[derive(Clone)]
enum Rows {
    /// As bit words, starting at this index of `GuardedPattern::words`.
    Words(usize),
    /// As row numbers, in this range of `GuardedPattern::positions`.
    Positions(Range<usize>),
}

/// Encoded text whose occurrences are searched for.
pub(super) struct Pattern {
    len: usize,
    blocks: usize,
    /// Rows of each symbol, by symbol.
    rows: Vec<Rows>,
    words: Vec<u64>,
    positions: Vec<usize>,
}

impl Pattern {
    /// Maximum number of words for the rows of symbols: 8 MB. The words of the rarest symbols,
    /// which have few rows, are rebuilt in each column that needs them.
    const MAX_WORDS: usize = 1 << 20;

    /// Prepares a text encoded by its own alphabet. The text must not be empty.
    pub(super) fn new(symbols: impl Iterator<Item = u32> + Clone) -> Self {
        Self::within(symbols, Self::MAX_WORDS)
    }

    pub(super) fn within(symbols: impl Iterator<Item = u32> + Clone, max_words: usize) -> Self {
        let len = symbols.clone().count();
        let blocks = len.div_ceil(ROWS);
        let mut counts =
            vec![0_usize; symbols.clone().max().unwrap_or(UNKNOWN_SYMBOL) as usize + 1];
        symbols
            .clone()
            .for_each(|symbol| counts[symbol as usize] += 1);

        let mut by_count: Vec<usize> = (1..counts.len()).collect();
        by_count.sort_by_key(|&symbol| std::cmp::Reverse(counts[symbol]));
        let dense = (max_words / blocks.max(1)).min(by_count.len());
        // The foreign symbol occurs in no row: it uses the first words, which stay zero.
        let mut rows = vec![Rows::Words(0); counts.len()];
        let mut next = 0;
        for (rank, &symbol) in by_count.iter().enumerate() {
            rows[symbol] = if rank < dense {
                Rows::Words((rank + 1) * blocks)
            } else {
                next += counts[symbol];
                Rows::Positions(next - counts[symbol]..next - counts[symbol])
            };
        }
        let mut words = vec![0_u64; (dense + 1) * blocks];
        let mut positions = vec![0; next];
        for (row, symbol) in symbols.enumerate() {
            match &mut rows[symbol as usize] {
                Rows::Words(start) => words[*start + row / ROWS] |= 1 << (row % ROWS),
                Rows::Positions(range) => {
                    positions[range.end] = row;
                    range.end += 1;
                }
            }
        }
        Self {
            len,
            blocks,
            rows,
            words,
            positions,
        }
    }

    /// Returns the number of rows in use of a block.
    fn height(&self, block: usize) -> usize {
        (self.len - block * ROWS).min(ROWS)
    }
}

/// Values passed from a block to the block below: its horizontal differences, and the carry of the
/// addition.
struct BlockCarry {
    /// 0 or 1.
    carry: u64,
    plus: u64,
    minus: u64,
}

/// Vertical differences of a column, one word per block.
struct Blocks {
    plus: Vec<u64>,
    minus: Vec<u64>,
    /// Intermediate results, passed from the first loop of `advance` to the second.
    sums: Vec<u64>,
}

impl Blocks {
    /// Creates blocks in which each cell is one greater than the cell above.
    fn rising(count: usize) -> Self {
        Self {
            plus: vec![u64::MAX; count],
            minus: vec![0; count],
            sums: vec![0; count],
        }
    }

    fn reset(&mut self, block: usize) {
        self.plus[block] = u64::MAX;
        self.minus[block] = 0;
    }

    /// Advances a range of blocks, from top to bottom, to the next column.
    ///
    /// Always inlined: one caller passes a single block and the other many, and the loops are a
    /// third faster if the compiler knows which. Only the first loop carries a value from word to
    /// word; the remaining work is in a second loop, so that the compiler can vectorize it.
    #[inline(always)]
    fn advance(&mut self, range: Range<usize>, equals: &[u64], flow: &mut BlockCarry) {
        let count = range.len();
        let equals = &equals[range.clone()][..count];
        let plus = &mut self.plus[range.clone()][..count];
        let minus = &mut self.minus[range.clone()][..count];
        let sums = &mut self.sums[range][..count];
        for at in 0..count {
            // A carry is passed on only if the sum without it is all ones, so the sums of the words
            // do not depend on each other.
            let (sum, over) = (equals[at] & plus[at]).overflowing_add(plus[at]);
            let passes = u64::from(sum == u64::MAX);
            let sum = sum.wrapping_add(flow.carry);
            flow.carry = u64::from(over) | (passes & flow.carry);
            sums[at] = (sum ^ plus[at]) | equals[at];
        }
        let mut above_plus = flow.plus;
        let mut above_minus = flow.minus;
        for at in 0..count {
            // Cells that are equal to their predecessor on the diagonal.
            let diagonal = sums[at] | minus[at];
            let across_plus = minus[at] | !(diagonal | plus[at]);
            let across_minus = plus[at] & diagonal;
            let shifted_plus = (across_plus << 1) | (above_plus >> (ROWS - 1));
            let shifted_minus = (across_minus << 1) | (above_minus >> (ROWS - 1));
            above_plus = across_plus;
            above_minus = across_minus;
            plus[at] = shifted_minus | !(diagonal | shifted_plus);
            minus[at] = shifted_plus & diagonal;
        }
        flow.plus = above_plus;
        flow.minus = above_minus;
    }

    /// Returns the difference between the cell above a block and the cell in row `rows` of the
    /// block.
    fn vertical_difference(&self, block: usize, rows: usize) -> isize {
        let counting = u64::MAX >> (ROWS - rows);
        let up = (self.plus[block] & counting).count_ones();
        let down = (self.minus[block] & counting).count_ones();
        up as isize - down as isize
    }
}

impl BlockCarry {
    /// Returns the horizontal difference in one row of the last block.
    #[inline]
    fn horizontal_difference(&self, row: usize) -> isize {
        ((self.plus >> row) & 1) as isize - ((self.minus >> row) & 1) as isize
    }
}

/// The current column of the distance matrix.
pub(super) struct Columns<'a> {
    pattern: &'a Pattern,
    /// Whether a match must start at the first character of the text. Otherwise it may start at any
    /// character.
    anchored: bool,
    limit: isize,
    blocks: Blocks,
    /// Number of blocks, from the top, that may contain a cell within the limit.
    active: usize,
    /// Value of the lowest cell of the active blocks.
    bottom: isize,
    /// Words of a symbol that has none in `GuardedPattern::words`; zero between columns.
    scratch: Vec<u64>,
}

impl<'a> Columns<'a> {
    /// Creates the column before the first character. `limit` is the largest distance of interest.
    pub(super) fn new(pattern: &'a Pattern, limit: usize, anchored: bool) -> Self {
        let active = limit.div_ceil(ROWS).clamp(1, pattern.blocks);
        Self {
            pattern,
            anchored,
            limit: limit.cast_signed(),
            blocks: Blocks::rising(pattern.blocks),
            active,
            bottom: (active * ROWS).min(pattern.len).cast_signed(),
            scratch: vec![
                0;
                if pattern.positions.is_empty() {
                    0
                } else {
                    pattern.blocks
                }
            ],
        }
    }

    /// Returns the number of blocks that the next column computes. 0: every cell exceeds the limit
    /// from now on.
    pub(super) fn width(&self) -> usize {
        self.active
    }

    /// Lowers the largest distance of interest to `limit`, which must not be greater than the
    /// previous one.
    pub(super) fn tighten(&mut self, limit: usize) {
        self.limit = limit.cast_signed();
    }

    /// Processes the next character. Returns the distance of the whole pattern if it is within the
    /// limit.
    #[inline]
    pub(super) fn push(&mut self, symbol: u32) -> Option<usize> {
        let pattern = self.pattern;
        match pattern.rows.get(symbol as usize).unwrap_or(&Rows::Words(0)) {
            Rows::Words(start) => self.advance(&pattern.words[*start..][..pattern.blocks]),
            Rows::Positions(range) => {
                let positions = &pattern.positions[range.clone()];
                let mut rows = std::mem::take(&mut self.scratch);
                positions
                    .iter()
                    .for_each(|row| rows[row / ROWS] |= 1 << (row % ROWS));
                let distance = self.advance(&rows);
                positions.iter().for_each(|row| rows[row / ROWS] = 0);
                self.scratch = rows;
                distance
            }
        }
    }

    #[inline(always)]
    fn advance(&mut self, rows: &[u64]) -> Option<usize> {
        let top = if self.anchored { 1 << (ROWS - 1) } else { 0 };
        let mut flow = BlockCarry {
            carry: 0,
            plus: top,
            minus: 0,
        };
        let last = self.active.checked_sub(1)?;
        self.blocks.advance(0..self.active, rows, &mut flow);
        let before = self.bottom;
        let step = flow.horizontal_difference(self.pattern.height(last) - 1);
        self.bottom += step;

        let below = self.active;
        if below < self.pattern.blocks && before <= self.limit && (step < 0 || rows[below] & 1 == 1)
        {
            // The first cell below may now come within the limit: through an equal character on the
            // diagonal, or from the cell above, which has become smaller.
            self.blocks.reset(below);
            self.blocks.advance(below..below + 1, rows, &mut flow);
            let height = self.pattern.height(below);
            self.bottom = before + height.cast_signed() + flow.horizontal_difference(height - 1);
            self.active += 1;
        } else {
            self.drop_inactive_blocks();
        }
        let is_whole = self.active == self.pattern.blocks && self.bottom <= self.limit;
        is_whole.then_some(self.bottom.cast_unsigned())
    }

    /// Drops the lowest blocks as long as all their cells exceed the limit.
    #[inline]
    fn drop_inactive_blocks(&mut self) {
        // If a match may start at any character, the row above the first block is always zero, so
        // the first block stays active.
        let least = usize::from(!self.anchored);
        while self.active > least && self.bottom >= self.limit + DROP_MARGIN {
            self.active -= 1;
            self.bottom -= self
                .blocks
                .vertical_difference(self.active, self.pattern.height(self.active));
        }
    }
}
