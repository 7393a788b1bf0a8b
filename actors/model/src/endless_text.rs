//! Recognizes a model that writes the same passage without an end.
//!
//! A passage of at least 32 characters that stands 20 times in a row, over at least 2,000
//! characters, is not meant. Shorter passages count by a multiple of their length. Pure.
//!
//! Elsewhere: whose answers are watched (`actors/src/gateway/call.rs`).

/// Minimum length of a passage, in characters.
const MIN_PASSAGE_CHARS: usize = 32;
/// Number of times that a passage stands in a row.
const REPETITIONS: usize = 20;
/// Minimum length of all of them, in characters.
const MIN_TOTAL_CHARS: usize = 2_000;
/// Number of characters at the end of the text that are looked at: the longest passage is a
/// twentieth of it.
const TAIL_CHARS: usize = 32_000;
/// Number of new characters after which the text is looked at again.
const STEP_CHARS: usize = 1_000;

/// Watches the text of an answer.
#[derive(Debug, Default)]
pub struct EndlessText {
    /// The end of the text.
    tail: Vec<char>,
    /// Number of characters since the last look.
    new_chars: usize,
}

impl EndlessText {
    /// Adds a piece of the text. Returns the passage that repeats at its end, if there is one.
    pub fn push(&mut self, piece: &str) -> Option<String> {
        let before = self.tail.len();
        self.tail.extend(piece.chars());
        self.new_chars += self.tail.len() - before;
        if self.new_chars < STEP_CHARS || self.tail.len() < MIN_TOTAL_CHARS {
            return None;
        }
        self.new_chars = 0;
        let excess = self.tail.len().saturating_sub(TAIL_CHARS);
        self.tail.drain(..excess);
        let length = repeated_length(&self.tail)?;
        Some(self.tail[self.tail.len() - length..].iter().collect())
    }
}

/// Returns the length of the shortest passage that counts and repeats at the end of a text.
fn repeated_length(text: &[char]) -> Option<usize> {
    let backwards: Vec<char> = text.iter().rev().copied().collect();
    let matches = prefix_matches(&backwards);
    (1..backwards.len()).find_map(|period| {
        // The last `matched + period` characters have this period.
        let periodic = matches[period] + period;
        let passage = period * MIN_PASSAGE_CHARS.div_ceil(period);
        (periodic >= MIN_TOTAL_CHARS.max(passage * REPETITIONS)).then_some(passage)
    })
}

/// Returns, for each position, how many characters from there on equal those from the beginning on
/// (the Z-function).
fn prefix_matches(text: &[char]) -> Vec<usize> {
    let mut matches = vec![0; text.len()];
    // The match that reaches furthest: its start and its end.
    let mut start = 0;
    let mut end = 0;
    for position in 1..text.len() {
        let known = if position < end {
            matches[position - start].min(end - position)
        } else {
            0
        };
        let mut length = known;
        while position + length < text.len() && text[length] == text[position + length] {
            length += 1;
        }
        matches[position] = length;
        if position + length > end {
            start = position;
            end = position + length;
        }
    }
    matches
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn found(text: &str, piece_chars: usize) -> Option<String> {
        let mut watched = EndlessText::default();
        let characters: Vec<char> = text.chars().collect();
        characters
            .chunks(piece_chars)
            .find_map(|piece| watched.push(&piece.iter().collect::<String>()))
    }

    #[test]
    fn only_a_passage_that_repeats_often_is_found() {
        let line = "and then it reads the file again, line by line,\n"; // 48 characters
        let numbered: String = (0..500).map(|number| format!("{line}{number}")).collect();
        let page = "x".repeat(3_000) + &"The quick brown fox jumps over the lazy dog. ".repeat(3);
        for (text, is_found) in [
            (line.repeat(100), true),
            (line.repeat(19), false),
            (format!("A plan.\n{}", line.repeat(80)), true),
            ("ha".repeat(1_500), true),
            ("多".repeat(3_000), true),
            (numbered, false),
            // The repetition is over.
            (
                format!(
                    "{}{}",
                    line.repeat(30),
                    "0123456789 abc\n"
                        .chars()
                        .cycle()
                        .take(9)
                        .collect::<String>()
                ),
                false,
            ),
            (page, true),
            ("| a | b |\n".repeat(100), false),
            (line.to_owned() + &"y".repeat(1_900), false),
        ] {
            assert_eq!(
                found(&text, 7).is_some(),
                is_found,
                "{}",
                &text.chars().take(60).collect::<String>()
            );
        }
        let passage = found(&line.repeat(100), 5).unwrap();
        assert_eq!(passage.chars().count(), 48);
        let short = found(&"ha".repeat(1_500), 5).unwrap();
        assert_eq!(short.chars().count(), MIN_PASSAGE_CHARS);
    }

    proptest! {
        #[test]
        fn any_passage_is_found_at_its_first_look(passage in "[a-z ]{32,200}", before in "[A-Z]{0,500}") {
            let text = before + &passage.repeat(130);
            prop_assert!(found(&text, 11).is_some());
        }

        #[test]
        fn text_without_a_period_is_not_found(words in proptest::collection::vec(0_u32..1_000_000, 900)) {
            let text: String = words.iter().map(|word| format!("{word} ")).collect();
            prop_assert_eq!(found(&text, 100), None);
        }
    }
}
