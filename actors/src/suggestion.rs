//! Suggests a known name for a misspelled one.

/// Maximum edit distance between a name and a suggestion, in characters.
const MAX_DISTANCE: usize = 3;
/// Maximum length of a misspelled name, in bytes. The time of a comparison grows with the product
/// of both lengths.
const MAX_NAME_BYTES: usize = 200;

/// Returns the known name that is nearest to an unknown one, or `None` if no name is near.
pub(crate) fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    if name.len() > MAX_NAME_BYTES {
        return None;
    }
    let nearest = known
        .into_iter()
        .map(|known| (strsim::levenshtein(name, known), known))
        .min()?;
    // A name that shares no character is not a misspelling.
    (nearest.0 <= MAX_DISTANCE && nearest.0 < name.chars().count()).then_some(nearest.1)
}
