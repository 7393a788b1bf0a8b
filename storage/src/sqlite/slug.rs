//! Slugs: readable names of sessions, such as `plan-a-garden-3f`, made of the first words of a
//! session's name and the end of its id. A slug does not change when the session is renamed.

use rusqlite::{Connection, OptionalExtension};
use soong_protocol::SessionId;

/// Maximum number of words.
const MAX_WORDS: usize = 4;
/// Maximum length of all words, in characters.
const MAX_CHARS: usize = 28;
/// Lengths of the end of the id, in characters. A longer one is used if the slug is taken.
const SUFFIX_CHARS: [usize; 3] = [2, 4, 12];

/// Gives a slug to a session that has none. Does nothing if the name has no letters or digits, or
/// if the id was chosen by the caller: it is a readable name itself.
pub(super) fn set_if_missing(
    conn: &Connection,
    key: i64,
    id: &SessionId,
    name: &str,
) -> rusqlite::Result<()> {
    let Some(words) = words(name).filter(|_| is_generated(id)) else {
        return Ok(());
    };
    let mut is_taken = conn.prepare_cached("SELECT 1 FROM session WHERE slug = ?1")?;
    for chars in SUFFIX_CHARS {
        let slug = format!("{words}-{}", &id.as_str()[id.as_str().len() - chars..]);
        if is_taken
            .query_row([&slug], |_| Ok(()))
            .optional()?
            .is_none()
        {
            conn.prepare_cached(
                "UPDATE session SET slug = ?2 WHERE session_key = ?1 AND slug IS NULL",
            )?
            .execute((key, slug))?;
            break;
        }
    }
    Ok(())
}

/// Returns whether an id was generated: it is a UUID.
fn is_generated(id: &SessionId) -> bool {
    let is_uuid_byte = |(at, byte): (usize, u8)| match at {
        8 | 13 | 18 | 23 => byte == b'-',
        _ => byte.is_ascii_hexdigit(),
    };
    id.as_str().len() == 36 && id.as_str().bytes().enumerate().all(is_uuid_byte)
}

/// Returns the first words of a name in lower case, joined by `-`.
fn words(name: &str) -> Option<String> {
    let mut joined = String::new();
    let lower = name.to_lowercase();
    for word in lower
        .split(|c: char| !c.is_alphanumeric())
        .filter(|word| !word.is_empty())
        .take(MAX_WORDS)
    {
        let left = MAX_CHARS.saturating_sub(joined.chars().count());
        if joined.is_empty() {
            joined.extend(word.chars().take(MAX_CHARS));
        } else if word.chars().count() < left {
            joined.push('-');
            joined.push_str(word);
        } else {
            break;
        }
    }
    Some(joined).filter(|joined| !joined.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_short_and_readable() {
        for (name, want) in [
            ("Plan a garden", Some("plan-a-garden")),
            (
                "  What does this project do, exactly?",
                Some("what-does-this-project"),
            ),
            ("Réparer l'été", Some("réparer-l-été")),
            ("庭を計画する", Some("庭を計画する")),
            (
                "internationalization everywhere please",
                Some("internationalization"),
            ),
            (&"x".repeat(99), Some("xxxxxxxxxxxxxxxxxxxxxxxxxxxx")),
            ("!?", None),
            ("", None),
        ] {
            assert_eq!(words(name).as_deref(), want, "{name:?}");
        }
    }

    #[test]
    fn only_uuids_are_generated_ids() {
        assert!(is_generated(&SessionId::new(
            "01a21dab-283e-7009-a50d-13ac16f50aab"
        )));
        for id in [
            "garden",
            "01a21dab-283e-7009-a50d-13ac16f50aabx",
            "01a21dab283e-7009-a50d-13ac16f50aab-",
            "é",
        ] {
            assert!(!is_generated(&SessionId::new(id)), "{id}");
        }
    }
}
