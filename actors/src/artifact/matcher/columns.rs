//! The distance matrix of two texts, a column per character of the text, 64 rows per word.
//!
//! Myers' bit-parallel algorithm as Hyyrö writes it: a column is kept as the differences of its
//! neighbouring cells, one bit for +1 and one for −1. Only blocks that may hold a cell within the
//! limit are computed (Ukkonen's cut-off): a cell within the limit is exact, any other is only
//! known to be beyond it. Memory does not depend on the text, and is bounded for any pattern.
//!
//! Not here: what the distances mean for a match.

use std::{collections::HashMap, ops::Range};

/// What stands for every character that the pattern does not have.
const FOREIGN: u32 = 0;

/// Rows per block.
const ROWS: usize = u64::BITS as usize;

/// How far beyond the limit the lowest cell must be for its block to be left: a block's height, as
/// its highest cell may be so much less, and some more, so that blocks do not come and go.
const MARGIN: isize = 96;

/// Numbers the characters of one text, so that others can be written in them.
pub(super) struct Alphabet {
    /// By code point, up to the highest one that is not astral.
    plane: Vec<u32>,
    astral: HashMap<char, u32>,
    size: u32,
}

impl Alphabet {
    pub(super) fn of(text: &str) -> Self {
        let mut alphabet = Self { plane: Vec::new(), astral: HashMap::new(), size: FOREIGN + 1 };
        for ch in text.chars() {
            let code = ch as usize;
            let number = if code > 0xFFFF {
                alphabet.astral.entry(ch).or_insert(FOREIGN)
            } else {
                if alphabet.plane.len() <= code {
                    alphabet.plane.resize(code + 1, FOREIGN);
                }
                &mut alphabet.plane[code]
            };
            if *number == FOREIGN {
                *number = alphabet.size;
                alphabet.size += 1;
            }
        }
        alphabet
    }

    /// Writes a text in the numbers; what has none is foreign.
    pub(super) fn encode(&self, text: &str) -> Vec<u32> {
        text.chars()
            .map(|ch| match self.plane.get(ch as usize) {
                Some(&number) => number,
                None if self.astral.is_empty() => FOREIGN,
                None => self.astral.get(&ch).copied().unwrap_or(FOREIGN),
            })
            .collect()
    }
}

/// Where a symbol's rows are.
#[derive(Clone)]
enum Rows {
    /// As words, from here in `Pattern::words`.
    Words(usize),
    /// One by one, in `Pattern::positions`.
    Positions(Range<usize>),
}

/// What the text is compared with.
pub(super) struct Pattern {
    len: usize,
    blocks: usize,
    /// By symbol.
    rows: Vec<Rows>,
    words: Vec<u64>,
    positions: Vec<usize>,
}

impl Pattern {
    /// How many words the symbols' rows may take: 8 MB. Rarer symbols than fit are written anew
    /// in each column that has them; they are rare because they have few rows.
    const WORDS: usize = 1 << 20;

    /// Prepares a text that its alphabet has encoded; it may not be empty.
    pub(super) fn new(symbols: impl Iterator<Item = u32> + Clone) -> Self {
        Self::within(symbols, Self::WORDS)
    }

    pub(super) fn within(symbols: impl Iterator<Item = u32> + Clone, max_words: usize) -> Self {
        let len = symbols.clone().count();
        let blocks = len.div_ceil(ROWS);
        let mut counts = vec![0_usize; symbols.clone().max().unwrap_or(FOREIGN) as usize + 1];
        symbols.clone().for_each(|symbol| counts[symbol as usize] += 1);

        let mut by_count: Vec<usize> = (1..counts.len()).collect();
        by_count.sort_by_key(|&symbol| std::cmp::Reverse(counts[symbol]));
        let dense = (max_words / blocks.max(1)).min(by_count.len());
        // The foreign symbol has no row: its words are the first, and zero.
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
        Self { len, blocks, rows, words, positions }
    }

    /// Returns the rows of a block that count.
    fn height(&self, block: usize) -> usize {
        (self.len - block * ROWS).min(ROWS)
    }
}

/// What a block hands to the block below: its horizontal differences, and the carry of the sum.
struct Flow {
    /// 0 or 1.
    carry: u64,
    plus: u64,
    minus: u64,
}

/// Differences between neighbouring cells of a column, a word per block.
struct Blocks {
    plus: Vec<u64>,
    minus: Vec<u64>,
    /// Between the two loops of `advance`.
    sums: Vec<u64>,
}

impl Blocks {
    /// Makes blocks in which each cell is one more than the cell above.
    fn rising(count: usize) -> Self {
        Self { plus: vec![u64::MAX; count], minus: vec![0; count], sums: vec![0; count] }
    }

    fn reset(&mut self, block: usize) {
        self.plus[block] = u64::MAX;
        self.minus[block] = 0;
    }

    /// Takes some blocks, from the top, to the next column.
    ///
    /// Always inline: at one call there is one block, at the other there are many, and the loops
    /// are a third faster for knowing it. The carry runs from word to word; all else is a second loop, so that the compiler can do
    /// several words at once.
    #[inline(always)]
    fn advance(&mut self, range: Range<usize>, equals: &[u64], flow: &mut Flow) {
        let count = range.len();
        let equals = &equals[range.clone()][..count];
        let plus = &mut self.plus[range.clone()][..count];
        let minus = &mut self.minus[range.clone()][..count];
        let sums = &mut self.sums[range][..count];
        for at in 0..count {
            // A carry passes a word only where the sum without it is all ones: so the words do not
            // wait for each other's sums.
            let (sum, over) = (equals[at] & plus[at]).overflowing_add(plus[at]);
            let passes = u64::from(sum == u64::MAX);
            let sum = sum.wrapping_add(flow.carry);
            flow.carry = u64::from(over) | (passes & flow.carry);
            sums[at] = (sum ^ plus[at]) | equals[at];
        }
        let (mut above_plus, mut above_minus) = (flow.plus, flow.minus);
        for at in 0..count {
            // Cells that are equal to the one before them on the diagonal.
            let diagonal = sums[at] | minus[at];
            let across_plus = minus[at] | !(diagonal | plus[at]);
            let across_minus = plus[at] & diagonal;
            let shifted_plus = (across_plus << 1) | (above_plus >> (ROWS - 1));
            let shifted_minus = (across_minus << 1) | (above_minus >> (ROWS - 1));
            (above_plus, above_minus) = (across_plus, across_minus);
            plus[at] = shifted_minus | !(diagonal | shifted_plus);
            minus[at] = shifted_plus & diagonal;
        }
        (flow.plus, flow.minus) = (above_plus, above_minus);
    }

    /// Returns by how much the lowest of some rows of a block differs from the row above them.
    fn rise(&self, block: usize, rows: usize) -> isize {
        let counting = u64::MAX >> (ROWS - rows);
        let up = (self.plus[block] & counting).count_ones();
        let down = (self.minus[block] & counting).count_ones();
        up as isize - down as isize
    }
}

impl Flow {
    /// Returns the horizontal difference in one row of the last block.
    #[inline]
    fn step(&self, row: usize) -> isize {
        ((self.plus >> row) & 1) as isize - ((self.minus >> row) & 1) as isize
    }
}

/// The current column.
pub(super) struct Columns<'a> {
    pattern: &'a Pattern,
    /// Whether the text must be taken from its start; otherwise any character may be the first.
    anchored: bool,
    limit: isize,
    blocks: Blocks,
    /// How many blocks, from the top, may have a cell within the limit.
    active: usize,
    /// The lowest cell of the active blocks.
    bottom: isize,
    /// The rows of a symbol that has no words; zero between columns.
    scratch: Vec<u64>,
}

impl<'a> Columns<'a> {
    /// Starts before the first character of a text; `limit` is the largest distance of interest.
    pub(super) fn new(pattern: &'a Pattern, limit: usize, anchored: bool) -> Self {
        let active = limit.div_ceil(ROWS).clamp(1, pattern.blocks);
        Self {
            pattern,
            anchored,
            limit: limit.cast_signed(),
            blocks: Blocks::rising(pattern.blocks),
            active,
            bottom: (active * ROWS).min(pattern.len).cast_signed(),
            scratch: vec![0; if pattern.positions.is_empty() { 0 } else { pattern.blocks }],
        }
    }

    /// Returns how many blocks the next column takes; 0 = every cell is and stays beyond the limit.
    pub(super) fn width(&self) -> usize {
        self.active
    }

    /// Loses interest in distances above `limit`; it may not rise.
    pub(super) fn tighten(&mut self, limit: usize) {
        self.limit = limit.cast_signed();
    }

    /// Takes the next character; returns the distance of the whole pattern if within the limit.
    #[inline]
    pub(super) fn push(&mut self, symbol: u32) -> Option<usize> {
        let pattern = self.pattern;
        match pattern.rows.get(symbol as usize).unwrap_or(&Rows::Words(0)) {
            Rows::Words(start) => self.advance(&pattern.words[*start..][..pattern.blocks]),
            Rows::Positions(range) => {
                let positions = &pattern.positions[range.clone()];
                let mut rows = std::mem::take(&mut self.scratch);
                positions.iter().for_each(|row| rows[row / ROWS] |= 1 << (row % ROWS));
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
        let mut flow = Flow { carry: 0, plus: top, minus: 0 };
        let last = self.active.checked_sub(1)?;
        self.blocks.advance(0..self.active, rows, &mut flow);
        let before = self.bottom;
        let step = flow.step(self.pattern.height(last) - 1);
        self.bottom += step;

        let below = self.active;
        if below < self.pattern.blocks && before <= self.limit && (step < 0 || rows[below] & 1 == 1) {
            // The first cell below may come within the limit now: by an equal character from the
            // diagonal, or from a cell above that has just become smaller.
            self.blocks.reset(below);
            self.blocks.advance(below..below + 1, rows, &mut flow);
            let height = self.pattern.height(below);
            self.bottom = before + height.cast_signed() + flow.step(height - 1);
            self.active += 1;
        } else {
            self.retreat();
        }
        let is_whole = self.active == self.pattern.blocks && self.bottom <= self.limit;
        is_whole.then_some(self.bottom.cast_unsigned())
    }

    /// Leaves the lowest blocks whose cells are all beyond the limit.
    #[inline]
    fn retreat(&mut self) {
        // Where any character may be the first, the row above the first block is zero: it may
        // always come back.
        let least = usize::from(!self.anchored);
        while self.active > least && self.bottom >= self.limit + MARGIN {
            self.active -= 1;
            self.bottom -= self.blocks.rise(self.active, self.pattern.height(self.active));
        }
    }
}
