//! The known name that somebody who misspelled it meant.

/// Most characters that differ between a name and one that is suggested for it.
const MAX_DISTANCE: usize = 3;

/// Returns the known name that is nearest to an unknown one; `None` = none is near.
pub(crate) fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let nearest = known.into_iter().map(|known| (strsim::levenshtein(name, known), known)).min()?;
    // A name that shares no character is no misspelling.
    (nearest.0 <= MAX_DISTANCE && nearest.0 < name.chars().count()).then_some(nearest.1)
}
