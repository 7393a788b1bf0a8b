//! The complete picture: the end of a text that is still being streamed, the tree of runs, a
//! footer, and what the user types.
//!
//! Pure. The footer has one line. The text gets the lines that the tree does not need, and up to a
//! third of the screen in any case. The first line of the tree has priority over all other parts,
//! then the last lines of what the user types. Elsewhere: rows of the tree (`lines`), text as lines
//! (`markdown`).

use super::{
    lines::{PictureFormat, lines},
    run_table::RunTable,
};
use crate::{styled_line::StyledLine, terminal::TextStyle, text};

/// Parts of the picture besides the tree of runs.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Parts<'a> {
    /// End of a text that is still being streamed.
    pub(super) tail: &'a [StyledLine],
    /// Parts of the line below the runs.
    pub(super) foot: &'a [String],
    /// Text that the user types.
    pub(super) typed: &'a [StyledLine],
}

/// Renders all parts into the frame; of the tail and of what is typed, only the last lines.
pub(super) fn picture(
    board: &RunTable,
    parts: Parts<'_>,
    frame: &PictureFormat,
) -> Vec<StyledLine> {
    let Parts { tail, foot, typed } = parts;
    let typed = &typed[typed.len() - typed.len().min(frame.height.saturating_sub(1))..];
    let shares = part_heights(
        frame.height - typed.len(),
        tail.len(),
        board.entries.len(),
        !foot.is_empty(),
    );
    let cut = |line: &StyledLine| line.cut(frame.width, frame.ellipsis());
    let mut picture: Vec<StyledLine> = tail[tail.len() - shares.tail..].iter().map(cut).collect();
    picture.extend(lines(
        board,
        &PictureFormat {
            height: shares.tree,
            ..*frame
        },
    ));
    if shares.foot > 0 {
        picture.push(cut(&StyledLine::of(
            TextStyle::Dim,
            fitting(foot, frame.width),
        )));
    }
    picture.extend(typed.iter().map(cut));
    picture
}

/// Joins the parts that fit; the first one is always included.
fn fitting(parts: &[String], width: usize) -> String {
    let mut foot = String::new();
    for part in parts {
        let next = if foot.is_empty() {
            part.clone()
        } else {
            format!("{foot}   {part}")
        };
        if !foot.is_empty() && text::width(&next) > width {
            break;
        }
        foot = next;
    }
    foot
}

/// Number of lines of each part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct PartHeights {
    tail: usize,
    tree: usize,
    foot: usize,
}

fn part_heights(height: usize, tail: usize, runs: usize, has_foot: bool) -> PartHeights {
    let foot = usize::from(has_foot && height > 1);
    let free = (height - foot).saturating_sub(runs.max(1));
    let tail = tail.min(free.max(height / 3));
    PartHeights {
        tail,
        tree: height - foot - tail,
        foot,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use soong_protocol::{RunId, Timestamp};

    use super::*;
    use crate::terminal::Paint;

    fn drawn(height: usize, width: usize, runs: usize, tail: usize, foot: &str) -> Vec<String> {
        drawn_with(height, width, runs, tail, foot, 0)
    }

    fn drawn_with(
        height: usize,
        width: usize,
        runs: usize,
        tail: usize,
        foot: &str,
        typed: usize,
    ) -> Vec<String> {
        let mut board = RunTable::default();
        for n in 0..runs {
            board
                .entries
                .extend(RunTable::with_root(RunId::new(n.to_string()), "explore", "look").entries);
        }
        let numbered = |count: usize, of: &str| -> Vec<StyledLine> {
            (0..count)
                .map(|n| StyledLine::of(TextStyle::Plain, format!("line {n} of {of}")))
                .collect()
        };
        let tail = numbered(tail, "a text");
        let typed = numbered(typed, "input");
        let frame = PictureFormat {
            width,
            height,
            unicode: true,
            now: Timestamp::from_millis(0),
        };
        let foot: Vec<String> = foot
            .split("   ")
            .filter(|part| !part.is_empty())
            .map(str::to_owned)
            .collect();
        let lines = picture(
            &board,
            Parts {
                tail: &tail,
                foot: &foot,
                typed: &typed,
            },
            &frame,
        );
        lines
            .iter()
            .map(|line| line.to_ansi(Paint { on: false }).trim_end().to_owned())
            .collect()
    }

    #[test]
    fn tree_has_priority_and_text_gets_a_third_plus_free_lines() {
        for (height, tail, has_foot, want) in [
            (0, 5, true, (0, 0, 0)),
            (1, 5, true, (0, 1, 0)),
            (2, 5, true, (0, 1, 1)),
            (3, 5, true, (1, 1, 1)),
            (3, 0, false, (0, 3, 0)),
            (23, 50, true, (7, 15, 1)),
            (23, 2, true, (2, 20, 1)),
        ] {
            let (tail_lines, tree, foot) = want;
            let want = PartHeights {
                tail: tail_lines,
                tree,
                foot,
            };
            assert_eq!(
                part_heights(height, tail, 30, has_foot),
                want,
                "{tail} of text on {height} lines"
            );
        }
        // A small tree leaves room for the text.
        assert_eq!(
            part_heights(23, 50, 2, true),
            PartHeights {
                tail: 20,
                tree: 2,
                foot: 1
            }
        );
        assert_eq!(
            part_heights(2, 5, 1, true),
            PartHeights {
                tail: 0,
                tree: 1,
                foot: 1
            }
        );
    }

    #[test]
    fn text_end_is_above_the_tree_and_footer_below() {
        assert_eq!(
            drawn(6, 16, 1, 9, "Ctrl-C cancels it"),
            [
                "line 5 of a text",
                "line 6 of a text",
                "line 7 of a text",
                "line 8 of a text",
                "○ explore look",
                "Ctrl-C cancels …"
            ]
        );
        assert_eq!(drawn(6, 10, 0, 1, ""), ["line 0 of…"]);
        // A part of the footer is shown completely or not at all.
        assert_eq!(
            drawn(2, 16, 1, 0, "12 s   Ctrl-C   session")[1],
            "12 s   Ctrl-C"
        );
    }

    #[test]
    fn typed_lines_are_below_the_footer() {
        assert_eq!(
            drawn_with(4, 20, 1, 9, "12 s", 2),
            [
                "○ explore look",
                "12 s",
                "line 0 of input",
                "line 1 of input"
            ]
        );
        assert_eq!(
            drawn_with(2, 20, 1, 9, "12 s", 2),
            ["○ explore look", "line 1 of input"]
        );
    }

    proptest! {
        #[test]
        fn any_frame_fits_its_size(
            height in 0usize..40, width in 0usize..90, runs in 0usize..30, tail in 0usize..30, has_foot: bool,
            typed in 0usize..10,
        ) {
            let lines = drawn_with(height, width, runs, tail, if has_foot { "foot" } else { "" }, typed);
            prop_assert!(lines.len() <= height);
            prop_assert!(lines.iter().all(|line| crate::text::width(line) <= width));
        }
    }
}
