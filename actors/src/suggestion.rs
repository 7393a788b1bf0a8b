//! The known name that somebody who misspelled it meant.

/// Most characters that differ between a name and one that is suggested for it.
const MAX_DISTANCE: usize = 3;

/// Returns the known name that is nearest to an unknown one; `None` = none is near.
pub(crate) fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let nearest = known.into_iter().map(|known| (distance(name, known), known)).min()?;
    // A name that shares no character is no misspelling.
    (nearest.0 <= MAX_DISTANCE && nearest.0 < name.chars().count()).then_some(nearest.1)
}

/// Returns how many characters differ: the Levenshtein distance.
fn distance(one: &str, other: &str) -> usize {
    let mut row: Vec<usize> = (0..=other.chars().count()).collect();
    for (at, left) in one.chars().enumerate() {
        let mut above_left = std::mem::replace(&mut row[0], at + 1);
        for (column, right) in other.chars().enumerate() {
            let replaced = above_left + usize::from(left != right);
            above_left = row[column + 1];
            row[column + 1] = replaced.min(row[column] + 1).min(above_left + 1);
        }
    }
    row.last().copied().unwrap_or_default()
}
