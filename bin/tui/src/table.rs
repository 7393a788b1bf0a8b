//! Tables that fit the width of the terminal: columns are shortened, and dropped if that is not
//! enough.
//!
//! Pure. Elsewhere: printing (the binary).

use crate::text;

/// Space between two columns.
const GAP: usize = 2;

/// A column of a table.
#[derive(Debug, Clone, Copy)]
pub struct Column {
    name: &'static str,
    /// Minimum width if the column can be shortened, in terminal columns.
    min: Option<usize>,
    /// The column with the greatest number is dropped first. 0: never.
    drop_order: u8,
}

impl Column {
    /// Makes a column whose cells are not shortened, such as names and numbers.
    pub const fn whole(name: &'static str) -> Self {
        Self {
            name,
            min: None,
            drop_order: 0,
        }
    }

    /// Makes a column whose cells can be shortened to `min` terminal columns.
    pub const fn text(name: &'static str, min: usize) -> Self {
        Self {
            name,
            min: Some(min),
            drop_order: 0,
        }
    }

    /// Returns the name by which users select the column: in lower case, with `-` for spaces,
    /// without a unit in parentheses.
    pub fn key(&self) -> String {
        let name = self.name.split(" (").next().unwrap_or_default();
        name.to_lowercase().replace(' ', "-")
    }

    /// Lets the column be dropped. Columns with a greater `order` are dropped first.
    pub const fn drops(self, order: u8) -> Self {
        Self {
            drop_order: order,
            ..self
        }
    }
}

/// Returns the columns with these keys, in this order, and their cells. Returns the first unknown
/// key as the error.
pub fn select(
    columns: &[Column],
    rows: &[Vec<String>],
    keys: &[String],
) -> Result<(Vec<Column>, Vec<Vec<String>>), String> {
    let index_of = |key: &String| {
        columns
            .iter()
            .position(|column| column.key() == *key)
            .ok_or_else(|| key.clone())
    };
    let indexes = keys
        .iter()
        .map(index_of)
        .collect::<Result<Vec<usize>, String>>()?;
    let cells = |row: &Vec<String>| {
        indexes
            .iter()
            .map(|at| row.get(*at).cloned().unwrap_or_default())
            .collect()
    };
    Ok((
        indexes.iter().map(|at| columns[*at]).collect(),
        rows.iter().map(cells).collect(),
    ))
}

/// Returns the lines of a table, the heading first. The last column is not padded. Cells are
/// untrusted text. `width`: maximum width of a line; `None`: all columns, complete.
pub fn lines(
    columns: &[Column],
    rows: &[Vec<String>],
    width: Option<usize>,
    ellipsis: &str,
) -> Vec<String> {
    let rows: Vec<Vec<String>> = rows
        .iter()
        .map(|row| {
            row.iter()
                .map(|cell| text::safe_line_keep_spaces(cell))
                .collect()
        })
        .collect();
    let widest = |(at, column): (usize, &Column)| {
        let cells = rows
            .iter()
            .filter_map(|row| row.get(at))
            .map(|cell| text::width(cell));
        cells.chain([text::width(column.name)]).max().unwrap_or(0)
    };
    let natural: Vec<usize> = columns.iter().enumerate().map(widest).collect();
    let widths = match width {
        Some(width) => fit(columns, &natural, width),
        None => natural.iter().copied().map(Some).collect(),
    };
    let line = |cells: &mut dyn Iterator<Item = &str>| {
        let shown = cells
            .zip(&widths)
            .filter_map(|(cell, width)| Some((cell, (*width)?)));
        let shown: Vec<String> = shown
            .map(|(cell, width)| text::pad(&text::cut(cell, width, ellipsis), width))
            .collect();
        let joined = shown.join(&" ".repeat(GAP)).trim_end().to_owned();
        // A single column may be wider than the terminal.
        width.map_or(joined.clone(), |width| text::cut(&joined, width, ellipsis))
    };
    let heading = line(&mut columns.iter().map(|column| column.name));
    std::iter::once(heading)
        .chain(
            rows.iter()
                .map(|row| line(&mut row.iter().map(String::as_str))),
        )
        .collect()
}

/// Returns the width of each column, or `None` for one that is dropped.
fn fit(columns: &[Column], natural: &[usize], width: usize) -> Vec<Option<usize>> {
    let mut shown: Vec<bool> = vec![true; columns.len()];
    loop {
        let mut widths: Vec<Option<usize>> = natural
            .iter()
            .zip(&shown)
            .map(|(natural, shown)| shown.then_some(*natural))
            .collect();
        let total = |widths: &[Option<usize>]| {
            let shown = widths.iter().flatten();
            shown.clone().sum::<usize>() + shown.count().saturating_sub(1) * GAP
        };
        // Shorten the widest column that can be shortened, step by step.
        while total(&widths) > width {
            let shortenable = columns.iter().enumerate().filter_map(|(at, column)| {
                let now = widths[at]?;
                let min = column.min?;
                (now > min).then_some((now, at))
            });
            let Some((now, at)) = shortenable.max() else {
                break;
            };
            widths[at] = Some(now - 1);
        }
        let droppable = columns
            .iter()
            .enumerate()
            .filter(|(at, column)| shown[*at] && column.drop_order > 0);
        match droppable.max_by_key(|(_, column)| column.drop_order) {
            Some((at, _)) if total(&widths) > width => shown[at] = false,
            _ => return widths,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const COLUMNS: [Column; 4] = [
        Column::whole("SESSION"),
        Column::whole("RUNS").drops(1),
        Column::text("NAME", 8),
        Column::text("PROJECT", 6).drops(2),
    ];

    fn rows() -> Vec<Vec<String>> {
        vec![
            [
                "plan-a-garden-3f",
                "idle",
                "Plan a garden with a pond",
                "/home/ada/garden",
            ]
            .map(str::to_owned)
            .to_vec(),
            ["beans", "2 active", "Water", "/srv/beans"]
                .map(str::to_owned)
                .to_vec(),
        ]
    }

    #[test]
    fn columns_are_selected_by_their_keys() {
        let columns = [
            Column::whole("ID"),
            Column::whole("LAST EVENT (UTC)"),
            Column::text("NAME", 4),
        ];
        let rows = [vec!["1".to_owned(), "now".to_owned(), "garden".to_owned()]];
        let keys = |keys: &str| keys.split(',').map(str::to_owned).collect::<Vec<_>>();
        let (chosen, cells) = select(&columns, &rows, &keys("name,last-event")).unwrap();
        assert_eq!(
            lines(&chosen, &cells, None, "…"),
            ["NAME    LAST EVENT (UTC)", "garden  now"]
        );
        assert_eq!(select(&columns, &rows, &keys("id,Id")).unwrap_err(), "Id");
    }

    #[test]
    fn columns_are_shortened_and_then_dropped() {
        for (width, want) in [
            (
                None,
                [
                    "SESSION           RUNS      NAME                       PROJECT",
                    "plan-a-garden-3f  idle      Plan a garden with a pond  /home/ada/garden",
                    "beans             2 active  Water                      /srv/beans",
                ],
            ),
            (
                Some(60),
                [
                    "SESSION           RUNS      NAME             PROJECT",
                    "plan-a-garden-3f  idle      Plan a garden …  /home/ada/gard…",
                    "beans             2 active  Water            /srv/beans",
                ],
            ),
            (
                Some(40),
                [
                    "SESSION           RUNS      NAME",
                    "plan-a-garden-3f  idle      Plan a gard…",
                    "beans             2 active  Water",
                ],
            ),
            (
                Some(30),
                [
                    "SESSION           NAME",
                    "plan-a-garden-3f  Plan a gard…",
                    "beans             Water",
                ],
            ),
            (Some(12), ["SESSION    …", "plan-a-gard…", "beans      …"]),
        ] {
            assert_eq!(lines(&COLUMNS, &rows(), width, "…"), want, "{width:?}");
        }
    }

    proptest! {
        #[test]
        fn no_line_is_wider_than_the_terminal(width in 0usize..90, cells in proptest::collection::vec(".{0,40}", 4)) {
            for line in lines(&COLUMNS, &[cells], Some(width), "…") {
                prop_assert!(text::width(&line) <= width.max(1), "{line:?}");
            }
        }
    }
}
