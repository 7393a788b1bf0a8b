//! Renders a table of runs as lines: one line per run, cut to the screen.
//!
//! Pure. Invariants:
//! - The picture never exceeds the height or the width.
//! - A run is shown only together with its ancestors.
//! - Hidden runs are counted.

use std::collections::{HashMap, HashSet};

use soong_protocol::{RunId, Timestamp, Usd};

use super::{
    run_table::{DisplayState, RunRow, RunTable},
    totals::Counts,
};
use crate::{format, styled_line::StyledLine, terminal::TextStyle, text};

/// Minimum width of the task, in columns, before figures are dropped from the layout of the
/// picture.
const TASK_COLUMNS: usize = 30;
/// Minimum width of the task, in columns, before a row uses a narrower layout or shows no figures.
const SHORT_TASK_COLUMNS: usize = 12;
/// Columns of the tree branch per level.
const BRANCH_COLUMNS: usize = 3;

/// Size and style of a picture.
#[derive(Debug, Clone, Copy)]
pub struct PictureFormat {
    /// Width in columns.
    pub width: usize,
    /// Height in lines.
    pub height: usize,
    /// Whether symbols outside ASCII may be used.
    pub unicode: bool,
    /// Current time, for the duration of active runs.
    pub now: Timestamp,
}

impl PictureFormat {
    /// Returns the mark of omitted text.
    pub const fn ellipsis(&self) -> &'static str {
        if self.unicode { "…" } else { "..." }
    }
}

/// Renders the runs.
pub fn lines(board: &RunTable, frame: &PictureFormat) -> Vec<StyledLine> {
    let order = tree_order(board);
    let fits = order.len() <= frame.height;
    let shown = if fits {
        (0..order.len()).collect()
    } else {
        choose_rows(&order, frame.height.saturating_sub(1))
    };
    // The cost column is shown only if a run has a cost.
    let has_costs = board
        .entries
        .iter()
        .any(|entry| entry.spent.cost > Some(Usd::default()));
    let visible: Vec<&TreeRow> = order
        .iter()
        .enumerate()
        .filter(|(at, _)| shown.contains(at))
        .map(|(_, row)| row)
        .collect();
    let rooms = visible.iter().filter_map(|row| {
        text_columns(row, frame)?.checked_sub(text::width(&agent_label(row.entry)))
    });
    let layouts = layouts(rooms.max().unwrap_or(0), has_costs);
    let mut lines: Vec<StyledLine> = visible
        .iter()
        .enumerate()
        .map(|(at, row)| draw(row, &visible[at + 1..], layouts, frame))
        .collect();
    if !fits && frame.height > 0 {
        let hidden = order
            .iter()
            .enumerate()
            .filter(|(at, _)| !shown.contains(at))
            .map(|(_, row)| row.entry.state);
        let line = format!("{} {}", frame.ellipsis(), hidden_summary(hidden));
        lines.push(StyledLine::of(
            TextStyle::Dim,
            text::cut(&line, frame.width, frame.ellipsis()),
        ));
    }
    lines
}

/// A run with its position in the tree.
struct TreeRow<'a> {
    entry: &'a RunRow,
    depth: usize,
    /// Index of its parent in the order.
    above: Option<usize>,
}

/// Returns the runs in tree order: children below their parent, in the order of their start.
fn tree_order(board: &RunTable) -> Vec<TreeRow<'_>> {
    let known: HashSet<&RunId> = board.entries.iter().map(|entry| &entry.run_id).collect();
    let mut below: HashMap<Option<&RunId>, Vec<&RunRow>> = HashMap::new();
    for entry in &board.entries {
        // A run whose parent is unknown is placed at the top level.
        below
            .entry(
                entry
                    .parent
                    .as_ref()
                    .filter(|parent| known.contains(parent)),
            )
            .or_default()
            .push(entry);
    }
    let mut rows = Vec::new();
    let mut open: Vec<(&RunRow, usize, Option<usize>)> = below
        .remove(&None)
        .unwrap_or_default()
        .into_iter()
        .rev()
        .map(|entry| (entry, 0, None))
        .collect();
    while let Some((entry, depth, above)) = open.pop() {
        let at = rows.len();
        rows.push(TreeRow {
            entry,
            depth,
            above,
        });
        for child in below
            .remove(&Some(&entry.run_id))
            .unwrap_or_default()
            .into_iter()
            .rev()
        {
            open.push((child, depth + 1, Some(at)));
        }
    }
    rows
}

/// Chooses the rows to show, each with its ancestors: top-level runs first, then active and waiting
/// runs, failed and cancelled runs, finished runs, and queued runs. Among ended runs of one rank,
/// the latest comes first.
fn choose_rows(order: &[TreeRow<'_>], room: usize) -> HashSet<usize> {
    let rank = |row: &TreeRow<'_>| match row.entry.state {
        _ if row.above.is_none() => 0,
        DisplayState::Active | DisplayState::Waiting => 1,
        DisplayState::Failed | DisplayState::Cancelled => 2,
        DisplayState::Done => 3,
        DisplayState::Queued => 4,
    };
    let mut wanted: Vec<usize> = (0..order.len()).collect();
    wanted.sort_by_key(|at| {
        let row = &order[*at];
        let latest = row
            .entry
            .ended_at
            .map_or(0, |ended| i64::MAX - ended.as_millis());
        (rank(row), latest, *at)
    });
    let mut shown = HashSet::new();
    for at in wanted {
        let mut chain = Vec::new();
        let mut step = Some(at);
        while let Some(here) = step.filter(|here| !shown.contains(here)) {
            chain.push(here);
            step = order[here].above;
        }
        if shown.len() + chain.len() <= room {
            shown.extend(chain);
        }
    }
    shown
}

/// Describes the hidden runs: `and 12 more (3 queued, 9 done)`.
fn hidden_summary(states: impl Iterator<Item = DisplayState>) -> String {
    let states: Vec<DisplayState> = states.collect();
    format!(
        "and {} more ({})",
        states.len(),
        Counts::of(states.into_iter()).summary()
    )
}

/// Returns the symbol of a state and its color.
const fn mark(state: DisplayState, unicode: bool) -> (TextStyle, &'static str) {
    match (state, unicode) {
        (DisplayState::Queued, true) => (TextStyle::Dim, "○"),
        (DisplayState::Queued, false) => (TextStyle::Dim, "."),
        (DisplayState::Active, true) => (TextStyle::Blue, "●"),
        (DisplayState::Active, false) => (TextStyle::Blue, "*"),
        (DisplayState::Waiting, true) => (TextStyle::Yellow, "◌"),
        (DisplayState::Waiting, false) => (TextStyle::Yellow, "?"),
        (DisplayState::Done, true) => (TextStyle::Green, "✓"),
        (DisplayState::Done, false) => (TextStyle::Green, "+"),
        (DisplayState::Failed, true) => (TextStyle::Red, "✗"),
        (DisplayState::Failed, false) => (TextStyle::Red, "x"),
        (DisplayState::Cancelled, true) => (TextStyle::Yellow, "⊘"),
        (DisplayState::Cancelled, false) => (TextStyle::Yellow, "-"),
    }
}

/// Returns the number of columns that a row has for its text after branch and symbol. `None` if
/// there is no room for text.
fn text_columns(row: &TreeRow<'_>, frame: &PictureFormat) -> Option<usize> {
    let branch = row.depth * BRANCH_COLUMNS;
    frame.width.checked_sub(branch + 2).filter(|room| *room > 0)
}

fn draw(
    row: &TreeRow<'_>,
    after: &[&TreeRow<'_>],
    layouts: &[FigureLayout],
    frame: &PictureFormat,
) -> StyledLine {
    let entry = row.entry;
    let branch = branch(row, after, frame.unicode);
    let (style, mark) = mark(entry.state, frame.unicode);
    let Some(room) = text_columns(row, frame) else {
        return StyledLine::of(TextStyle::Dim, text::cut(&branch, frame.width, ""));
    };
    let line = StyledLine::of(TextStyle::Dim, branch)
        .and(style, mark)
        .and(TextStyle::Plain, " ");
    let head = text::cut(&agent_label(entry), room, frame.ellipsis());
    let room = room - text::width(&head);
    let line = line.and(TextStyle::Bold, head);
    let figures = figures(entry, layouts, frame, room);
    let for_task = room - text::width(&figures);
    // The only goal of a sub-agent is its task.
    let task = if row.above.is_none() {
        focused_task(entry)
    } else {
        &entry.task
    };
    let task = text::cut(task, for_task, frame.ellipsis());
    let task = if figures.is_empty() {
        task
    } else {
        text::pad(&task, for_task)
    };
    line.and(TextStyle::Plain, task)
        .and(TextStyle::Dim, figures)
}

/// Returns the text after the agent name of a top-level run: its focused goal, or its task if it
/// has no other goal.
fn focused_task(entry: &RunRow) -> &str {
    let (_, goal) = entry.goal.split_once(' ').unwrap_or_default();
    let is_task = match goal.strip_suffix('…') {
        Some(start) => entry.task.starts_with(start),
        None => goal.is_empty() || entry.task == goal,
    };
    if is_task || entry.state.has_ended() {
        &entry.task
    } else {
        &entry.goal
    }
}

/// Returns the agent name that precedes the task.
fn agent_label(entry: &RunRow) -> String {
    format!("{} ", entry.agent_type)
}

/// Figures that follow a task, and their widths.
#[derive(Debug, Clone, Copy)]
struct FigureLayout {
    /// Width of the activity in columns; 0 if it is not shown.
    activity: usize,
    has_turn: bool,
    has_tokens: bool,
    has_cost: bool,
}

impl FigureLayout {
    const fn new(activity: usize, has_turn: bool, has_tokens: bool, has_cost: bool) -> Self {
        Self {
            activity,
            has_turn,
            has_tokens,
            has_cost,
        }
    }

    /// Layouts of a picture without costs, from the widest to the narrowest.
    const WITHOUT_COST: [Self; 5] = [
        Self::new(27, true, true, false),
        Self::new(16, true, true, false),
        Self::new(16, true, false, false),
        Self::new(12, false, false, false),
        Self::new(0, false, false, false),
    ];
    /// Layouts of a picture with costs, from the widest to the narrowest.
    const WITH_COST: [Self; 6] = [
        Self::new(27, true, true, true),
        Self::new(16, true, true, true),
        Self::new(16, false, true, true),
        Self::new(16, true, false, false),
        Self::new(12, false, false, false),
        Self::new(0, false, false, false),
    ];

    /// Returns the widths of the figures, from left to right: activity, time, turn, tokens, cost. A
    /// width of 0 hides the figure.
    fn columns(self) -> [usize; 5] {
        let shown = |is_shown: bool, columns| if is_shown { columns } else { 0 };
        let Self {
            activity,
            has_turn,
            has_tokens,
            has_cost,
        } = self;
        [
            activity,
            10,
            shown(has_turn, 8),
            shown(has_tokens, 10),
            shown(has_cost, 8),
        ]
    }

    /// Returns the total width, including the space before each figure.
    fn width(self) -> usize {
        self.columns()
            .iter()
            .filter(|columns| **columns > 0)
            .map(|columns| columns + 2)
            .sum()
    }
}

/// Chooses the layouts of a picture: the widest one that leaves room for the task of the row with
/// the most room, and all narrower ones.
fn layouts(room: usize, has_costs: bool) -> &'static [FigureLayout] {
    let all: &[FigureLayout] = if has_costs {
        &FigureLayout::WITH_COST
    } else {
        &FigureLayout::WITHOUT_COST
    };
    let fits = |layout: &FigureLayout| layout.width() + TASK_COLUMNS <= room;
    &all[all.iter().position(fits).unwrap_or(all.len() - 1)..]
}

/// Formats the activity and usage of a run in the layout of the picture, so that rows are aligned.
/// Uses a narrower layout, or returns an empty string, if the task would have no room.
fn figures(entry: &RunRow, layouts: &[FigureLayout], frame: &PictureFormat, room: usize) -> String {
    let fits = |layout: &&FigureLayout| layout.width() + SHORT_TASK_COLUMNS <= room;
    let Some(layout) = layouts.iter().find(fits) else {
        return String::new();
    };
    let activity = match entry.state {
        DisplayState::Queued if entry.activity.is_empty() => "queued",
        DisplayState::Waiting if entry.activity.is_empty() => "waiting",
        DisplayState::Cancelled => "cancelled",
        DisplayState::Failed => "failed",
        _ => entry.activity.as_str(),
    };
    let time = match (entry.started_at, entry.ended_at) {
        (Some(started), ended) => {
            format::duration(ended.unwrap_or(frame.now).millis_since(started))
        }
        (None, _) => String::new(),
    };
    let turn = if entry.turn > 0 {
        format!("turn {:<3}", entry.turn)
    } else {
        String::new()
    };
    let (tokens, cost) = match entry.spent.tokens {
        0 => Default::default(),
        _ => (
            format!("{} tok", entry.spent.tokens()),
            entry.spent.usd_or(""),
        ),
    };
    let mut figures = String::new();
    for (at, (text, columns)) in [activity, &time, &turn, &tokens, &cost]
        .into_iter()
        .zip(layout.columns())
        .enumerate()
    {
        if columns > 0 {
            let text = text::cut(text, columns, frame.ellipsis());
            let spare = " ".repeat(columns - text::width(&text));
            let (before, after) = if at == 0 {
                ("", spare.as_str())
            } else {
                (spare.as_str(), "")
            };
            figures.push_str(&format!("  {before}{text}{after}"));
        }
    }
    figures
}

/// Draws the tree branch of a row, which depends on the rows after it.
fn branch(row: &TreeRow<'_>, after: &[&TreeRow<'_>], unicode: bool) -> String {
    let (last, more, down) = if unicode {
        ("└─ ", "├─ ", "│  ")
    } else {
        ("`- ", "|- ", "|  ")
    };
    let mut drawn = String::new();
    for level in 1..=row.depth {
        // Whether a later row continues the branch of this level.
        let resumes = after
            .iter()
            .take_while(|next| next.depth >= level)
            .any(|next| next.depth == level);
        drawn.push_str(match (level == row.depth, resumes) {
            (true, true) => more,
            (true, false) => last,
            (false, true) => down,
            (false, false) => "   ",
        });
    }
    drawn
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{screen::run_table::RunUsage, spent::Spent, terminal::Paint};

    fn entry(id: &str, parent: Option<&str>, state: DisplayState) -> RunRow {
        RunRow {
            run_id: RunId::new(id),
            parent: parent.map(RunId::new),
            agent_type: "explore".into(),
            task: format!("look at {id} 好好"),
            state,
            awaits_input: false,
            activity: if state == DisplayState::Active {
                "model call".into()
            } else {
                String::new()
            },
            goal: String::new(),
            turn: 2,
            spent: Spent {
                tokens: 5_123,
                cost: None,
                estimated: false,
            },
            started_at: (state != DisplayState::Queued).then(|| Timestamp::from_millis(1_000)),
            ended_at: state.has_ended().then(|| Timestamp::from_millis(1_450)),
            event_usage: RunUsage {
                turn: 0,
                spent: Spent::NOTHING,
            },
        }
    }

    fn frame(width: usize, height: usize) -> PictureFormat {
        PictureFormat {
            width,
            height,
            unicode: true,
            now: Timestamp::from_millis(4_000),
        }
    }

    fn plain(board: &RunTable, frame: &PictureFormat) -> Vec<String> {
        lines(board, frame)
            .iter()
            .map(|line| line.to_ansi(Paint { on: false }).trim_end().to_owned())
            .collect()
    }

    fn family() -> RunTable {
        RunTable::of(vec![
            entry("root", None, DisplayState::Active),
            entry("a", Some("root"), DisplayState::Done),
            entry("b", Some("root"), DisplayState::Active),
            entry("b1", Some("b"), DisplayState::Failed),
            entry("c", Some("root"), DisplayState::Queued),
        ])
    }

    #[test]
    fn top_level_run_shows_its_goal_unless_that_is_its_task() {
        let run = entry("root", None, DisplayState::Active);
        for (goal, shown) in [
            ("", "look at root"),
            ("1 look at root 好好", "look at root"),
            ("1 look at…", "look at root"),
            ("1.1 look at", "1.1 look at"),
            ("1.2 count the roots", "1.2 count the roots"),
        ] {
            let table = RunTable::of(vec![RunRow {
                goal: goal.to_owned(),
                ..run.clone()
            }]);
            let drawn = plain(&table, &frame(80, 10));
            assert!(
                drawn[0].starts_with(&format!("● explore {shown}")),
                "{goal}: {drawn:#?}"
            );
        }
    }

    #[test]
    fn children_are_drawn_below_their_parent() {
        let drawn = plain(&family(), &frame(80, 10));
        let heads: Vec<&str> = drawn
            .iter()
            .map(|line| line.split(" 好好").next().unwrap())
            .collect();
        assert_eq!(
            heads,
            [
                "● explore look at root",
                "├─ ✓ explore look at a",
                "├─ ● explore look at b",
                "│  └─ ✗ explore look at b1",
                "└─ ○ explore look at c",
            ]
        );
        assert!(
            drawn[1].contains(" 0.4 s ")
                && drawn[2].contains("model call")
                && drawn[2].contains(" 3.0 s "),
            "{drawn:#?}"
        );
    }

    #[test]
    fn numbers_are_aligned_and_cost_is_shown_if_width_allows() {
        let mut board = family();
        board.entries[0].agent_type = "orchestrator".into();
        board.entries[3].started_at = Some(Timestamp::from_millis(-90_000));
        for (entry, nanos) in
            board
                .entries
                .iter_mut()
                .zip([None, Some(12_300_000), Some(1_500_000_000)])
        {
            entry.spent.cost = nanos.map(Usd::from_nanos);
        }
        let ends = |width: usize, columns: usize| -> Vec<String> {
            let end = |line: &StyledLine| {
                let plain = line.to_ansi(Paint { on: false });
                plain
                    .chars()
                    .rev()
                    .take(columns)
                    .collect::<Vec<_>>()
                    .into_iter()
                    .rev()
                    .collect()
            };
            lines(&board, &frame(width, 9)).iter().map(end).collect()
        };
        assert_eq!(
            ends(107, 42),
            [
                "     3.0 s  turn 2      5.1k tok          ",
                "     0.4 s  turn 2      5.1k tok   $0.0123",
                "     3.0 s  turn 2      5.1k tok     $1.50",
                "1 min 31 s  turn 2      5.1k tok          ",
                "            turn 2      5.1k tok          ",
            ]
        );
        assert_eq!(
            ends(100, 32)[1..3],
            [
                "     0.4 s    5.1k tok   $0.0123",
                "     3.0 s    5.1k tok     $1.50"
            ]
        );
        assert_eq!(
            ends(90, 20)[3..],
            ["1 min 31 s  turn 2  ", "            turn 2  "]
        );
        board
            .entries
            .iter_mut()
            .for_each(|entry| entry.spent.cost = None);
        assert!(
            lines(&board, &frame(100, 9))
                .iter()
                .all(|line| line.to_ansi(Paint { on: false }).ends_with("5.1k tok"))
        );
    }

    #[test]
    fn narrow_screen_keeps_time_and_truncates_task() {
        let mut board = family();
        board.entries.truncate(1);
        board.entries[0].task = "a task that is too long for it".into();
        assert_eq!(
            plain(&board, &frame(40, 5)),
            ["● explore a task that is to…       3.0 s"]
        );
        assert_eq!(plain(&board, &frame(20, 5)), ["● explore a task th…"]);
    }

    #[test]
    fn hidden_runs_are_counted_and_active_runs_stay_visible() {
        let mut board = RunTable::of(vec![entry("root", None, DisplayState::Active)]);
        for n in 0..20 {
            let state = if n == 17 {
                DisplayState::Active
            } else if n < 9 {
                DisplayState::Done
            } else {
                DisplayState::Queued
            };
            board
                .entries
                .push(entry(&format!("c{n}"), Some("root"), state));
        }
        let drawn = plain(&board, &frame(100, 4));
        assert_eq!(drawn.len(), 4);
        assert!(
            drawn[0].contains("root") && drawn.iter().any(|line| line.contains("c17")),
            "{drawn:#?}"
        );
        assert_eq!(drawn[3], "… and 18 more (10 queued, 8 done)");
    }

    #[test]
    fn only_ascii_is_drawn_without_utf8() {
        let mut board = family();
        for entry in &mut board.entries {
            entry.task =
                "a very long task that has to be cut because it does not fit here at all".into();
        }
        let narrow = PictureFormat {
            unicode: false,
            ..frame(50, 3)
        };
        assert!(
            plain(&board, &narrow).concat().is_ascii(),
            "{:#?}",
            plain(&board, &narrow)
        );
    }

    fn states() -> impl Strategy<Value = DisplayState> {
        prop::sample::select(vec![
            DisplayState::Queued,
            DisplayState::Active,
            DisplayState::Waiting,
            DisplayState::Done,
            DisplayState::Failed,
            DisplayState::Cancelled,
        ])
    }

    proptest! {
        #[test]
        fn any_run_table_fits_any_screen(
            runs in prop::collection::vec(
                (states(), any::<prop::sample::Index>(), any::<String>(), prop::option::of(0u64..9_000_000_000)), 1..40,
            ),
            width in 0usize..150,
            height in 0usize..50,
            unicode: bool,
        ) {
            let mut board = RunTable::default();
            for (n, (state, parent, task, cost)) in runs.iter().enumerate() {
                let parent = (n > 0).then(|| parent.index(n).to_string());
                let mut entry = entry(&n.to_string(), parent.as_deref(), *state);
                entry.task = text::safe_line(task);
                entry.spent.cost = cost.map(Usd::from_nanos);
                board.entries.push(entry);
            }
            let frame = PictureFormat { unicode, ..frame(width, height) };
            let drawn = lines(&board, &frame);
            prop_assert!(drawn.len() <= height);
            for line in &drawn {
                prop_assert!(line.width() <= width, "{line:?}");
            }
            if height >= runs.len() {
                prop_assert_eq!(drawn.len(), runs.len());
            }
        }
    }
}
