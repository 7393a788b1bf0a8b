//! Artifact names: validation, and conversion from file names.
//!
//! Invariants:
//! - A name is a single path segment on every operating system.
//! - A name is in Unicode normalization form NFC, so that different encodings of one name are
//!   equal.
//! - A name contains no invisible characters, no characters that look like a separator, and no
//!   compatibility characters, which differ from plain letters only in appearance.
//!
//! `Report` and `report` are different names, and so are names with similar letters of different
//! scripts: folders are named by id, never by name (ART-2).
//!
//! Elsewhere: the prefix `user:`, which callers remove before parsing and which selects the scope
//! (ART-1).

#[cfg(test)]
mod tests;

use unicode_normalization::{
    UnicodeNormalization,
    char::{canonical_combining_class, is_combining_mark},
};

/// Description of valid names. Part of every error message.
const NAME_RULES: &str = "use 1 to 128 bytes of letters, digits, '_', '-', '.' and single spaces, \
                       with a letter, digit or '_' at both ends";

/// Maximum length of a file extension that survives shortening, in bytes and without its dot.
const MAX_EXTENSION_BYTES: usize = 16;

/// Maximum number of combining marks on one letter.
const MAX_MARKS: usize = 6;

/// Why a name is not valid, with a description of valid names.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{name:?} cannot name an artifact: {reason}; {NAME_RULES}")]
pub struct ArtifactNameError {
    name: String,
    reason: String,
}

/// A valid artifact name. It is safe as an identity and as a path segment.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ArtifactName(String);

impl ArtifactName {
    /// Maximum length of a name, in bytes.
    pub const MAX_BYTES: usize = 128;

    /// Parses a name that a model or a caller chose: letters and digits of any script, `_`, `-`,
    /// `.` and single inner spaces.
    ///
    /// Normalizes the name to NFC. Lookups must parse names too, so that they find it. Rejects
    /// paths, control and invisible characters, characters that look like a separator,
    /// compatibility characters such as `ﬁ`, device names, artifact ids and the prefix `user:`. So
    /// a name can neither escape its folder nor be mistaken for another name.
    pub fn parse(name: &str) -> Result<Self, ArtifactNameError> {
        let text: String = name.nfc().collect();
        match rejection_reason(&text) {
            None => Ok(Self(text)),
            Some(why) => Err(ArtifactNameError {
                name: name.chars().take(160).collect(),
                reason: why,
            }),
        }
    }

    /// Converts the file name of an upload to a valid name (ART-11). Never fails.
    ///
    /// Takes the last path segment, replaces compatibility characters by plain letters and unsafe
    /// characters by `_`, and shortens a long name before its extension. If nothing remains, the
    /// name is `upload`.
    pub fn from_filename(filename: &str) -> Self {
        let last = filename
            .split(['/', '\\'])
            .rfind(|part| !part.trim().is_empty())
            .unwrap_or("");
        if let Ok(name) = Self::parse(last) {
            return name;
        }
        let plain: String = last.chars().flat_map(to_plain_chars).nfc().collect();
        let mut safe = String::with_capacity(plain.len());
        let mut reader = NameValidator::default();
        for c in plain.chars() {
            match reader.check_next(c) {
                None => safe.push(c),
                Some(_) if c == ' ' => {}
                Some(_) => {
                    reader.reset();
                    safe.push('_');
                }
            }
        }
        let (stem, ending) = split_extension(trim_ends(&safe));
        let mut text = append_truncating(stem, ending);
        // A stem of placeholders and punctuation carries no information.
        if stem.chars().all(|c| matches!(c, '_' | '-' | '.' | ' ')) {
            text = format!("upload{ending}");
        }
        if is_device_name(&text) || is_id(&text) {
            text.insert(0, '_');
        }
        Self::parse(&text).unwrap_or_else(|_| Self("upload".to_owned()))
    }

    /// Returns the name with `_n` before its extension, for a name that is taken: `report_1.pdf`.
    pub fn numbered(&self, n: u32) -> Self {
        let (stem, ending) = split_extension(&self.0);
        Self(append_truncating(stem, &format!("_{n}{ending}")))
    }

    /// Returns the name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns a file name for downloads: the name, with the extension of the content type if it
    /// has none.
    pub fn filename(&self, content_type: &str) -> String {
        let ending = match content_type.split(';').next().unwrap_or("").trim() {
            "text/markdown" => ".md",
            "text/plain" => ".txt",
            "application/json" => ".json",
            "text/csv" => ".csv",
            "text/html" => ".html",
            _ => "",
        };
        if self.0.contains('.') {
            self.0.clone()
        } else {
            format!("{}{ending}", self.0)
        }
    }
}

impl std::fmt::Display for ArtifactName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// Returns why a text in NFC is not a valid name. `None` if it is valid.
fn rejection_reason(text: &str) -> Option<String> {
    if text.is_empty() {
        return Some("it is empty".to_owned());
    }
    if text.len() > ArtifactName::MAX_BYTES {
        return Some(format!("it has {} bytes", text.len()));
    }
    // `user:` is the only prefix with a meaning. The text after it is the name.
    if text
        .get(..5)
        .is_some_and(|head| head.eq_ignore_ascii_case("user:"))
    {
        return Some(
            "the prefix 'user:' selects the user scope, is given once, and is not part of the name"
                .to_owned(),
        );
    }
    let mut reader = NameValidator::default();
    if let Some((c, flaw)) = text.chars().find_map(|c| Some((c, reader.check_next(c)?))) {
        return Some(format!("U+{:04X} {flaw}", u32::from(c)));
    }
    if trim_ends(text) != text {
        return Some("it begins or ends with a dot, dash or space".to_owned());
    }
    if is_device_name(text) {
        return Some("it is a device name on some systems".to_owned());
    }
    is_id(text).then(|| "it looks like an artifact id".to_owned())
}

/// Character-by-character validator with the context that its checks need.
#[derive(Default)]
struct NameValidator {
    previous: Option<char>,
    /// The current letter and the number of combining marks on it.
    current_letter: Option<(char, usize)>,
    /// Whether the previous character is NIKHAHIT, or a tone mark that follows it.
    after_nikhahit: bool,
}

impl NameValidator {
    /// Returns why `c` is not allowed after the characters that were read. `None` if it is allowed.
    fn check_next(&mut self, c: char) -> Option<&'static str> {
        if let Some(flaw) = char_error(c) {
            return Some(flaw);
        }
        let mark = is_combining_mark(c);
        match self.current_letter {
            Some((letter, marks)) if mark => {
                if marks == MAX_MARKS {
                    return Some("exceeds the number of marks allowed on one letter");
                }
                // Marks of other scripts after a Latin letter look like punctuation (`userः`).
                if letter < '\u{250}' && c > '\u{36f}' {
                    return Some("is a mark of a different script than its letter");
                }
                self.current_letter = Some((letter, marks + 1));
            }
            None if mark => return Some("is a mark without a letter"),
            _ if c == ' ' && self.previous == Some(' ') => return Some("follows another space"),
            // SARA AM is typed as one letter. Its two parts look the same.
            _ if self.after_nikhahit && matches!(c, '\u{e32}' | '\u{eb2}') => {
                return Some("is one part of a split SARA AM");
            }
            _ => self.current_letter = c.is_alphabetic().then_some((c, 0)),
        }
        let tone = matches!(c, '\u{e48}'..='\u{e4b}' | '\u{ec8}'..='\u{ecb}');
        self.after_nikhahit = matches!(c, '\u{e4d}' | '\u{ecd}') || (self.after_nikhahit && tone);
        self.previous = Some(c);
        None
    }

    /// Continues as if `_` had been read.
    fn reset(&mut self) {
        *self = Self {
            previous: Some('_'),
            ..Self::default()
        };
    }
}

/// Returns why a character is not allowed at any position of a name. `None` if it is allowed.
fn char_error(c: char) -> Option<&'static str> {
    if c.is_ascii() {
        let safe = c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | ' ');
        return (!safe).then_some("is not allowed");
    }
    match c {
        // Letters and marks by category that are invisible.
        '\u{34f}'
        | '\u{115f}'
        | '\u{1160}'
        | '\u{17b4}'
        | '\u{17b5}'
        | '\u{180b}'..='\u{180f}'
        | '\u{3164}'
        | '\u{fe00}'..='\u{fe0f}'
        | '\u{ffa0}'
        | '\u{16fe4}'
        | '\u{e0100}'..='\u{e01ef}' => Some("is invisible"),
        // Letters by category that look like `:`, `.`, `/` or `\`.
        '\u{2d0}' | '\u{2cc6}' | '\u{2cc7}' | '\u{3033}'..='\u{3035}' | '\u{a4f8}'..='\u{a4fd}' => {
            Some("looks like a separator")
        }
        // Keyboards produce whole syllables and the compatibility letters that
        // `is_compatibility_form` accepts.
        '\u{1100}'..='\u{11ff}' | '\u{a960}'..='\u{a97f}' | '\u{d7b0}'..='\u{d7ff}' => {
            Some("is a part of a Hangul syllable")
        }
        // Enclosing marks, and marks for symbols.
        '\u{488}' | '\u{489}' | '\u{1abe}' | '\u{20d0}'..='\u{20ff}' | '\u{a670}'..='\u{a672}' => {
            Some("is not allowed")
        }
        _ if is_combining_mark(c) => {
            (canonical_combining_class(c) == OVERLAY_CLASS).then_some("is drawn through its letter")
        }
        _ if !c.is_alphanumeric() => Some("is not a letter or digit"),
        _ if is_compatibility_form(c) => {
            Some("is a compatibility form of plain letters or digits: use the plain characters")
        }
        _ => None,
    }
}

/// Combining class of marks that are drawn through a letter.
const OVERLAY_CLASS: u8 = 1;

/// Whether a character is another form of plain characters: `ﬁ`, `²`, `Ａ`.
fn is_compatibility_form(c: char) -> bool {
    // Letters in daily use in Thai, Lao and Korean that have such a mapping for historic reasons.
    let is_in_daily_use = matches!(
        c,
        '\u{e33}' | '\u{eb3}' | '\u{edc}' | '\u{edd}' | '\u{3131}'..='\u{318e}'
    );
    !is_in_daily_use && std::iter::once(c).nfkd().ne(std::iter::once(c).nfd())
}

/// Returns the plain letters and digits to which a compatibility character maps. Other characters
/// are returned unchanged.
fn to_plain_chars(c: char) -> impl Iterator<Item = char> {
    let plain: Vec<char> = std::iter::once(c).nfkc().collect();
    let foldable = c.is_alphanumeric()
        && is_compatibility_form(c)
        && plain.iter().all(|c| char_error(*c).is_none());
    if foldable { plain } else { vec![c] }.into_iter()
}

/// Removes characters that are not allowed at the ends of a name.
fn trim_ends(text: &str) -> &str {
    text.trim_matches(['.', '-', ' '])
}

/// Whether Windows treats a name as a device. Only the part before the first dot counts, without
/// trailing spaces.
fn is_device_name(name: &str) -> bool {
    let stem = name
        .split('.')
        .next()
        .unwrap_or(name)
        .trim_end()
        .to_ascii_lowercase();
    let numbered = stem
        .strip_prefix("com")
        .or_else(|| stem.strip_prefix("lpt"));
    matches!(stem.as_str(), "con" | "prn" | "aux" | "nul")
        || numbered.is_some_and(|rest| rest.len() == 1 && rest.bytes().all(|b| b.is_ascii_digit()))
}

/// Whether a name looks like an artifact id.
fn is_id(name: &str) -> bool {
    uuid::Uuid::try_parse(name).is_ok()
}

/// Splits a name into its stem and its extension with the dot. `.tar.gz` is one extension.
fn split_extension(name: &str) -> (&str, &str) {
    let is_ending = |ending: &str| {
        ending.len() <= MAX_EXTENSION_BYTES
            && ending.chars().all(char::is_alphanumeric)
            // A purely numeric part is not an extension, as in `v1.2`.
            && ending.chars().any(char::is_alphabetic)
    };
    let Some(dot) = name
        .rfind('.')
        .filter(|dot| *dot > 0 && is_ending(&name[dot + 1..]))
    else {
        return (name, "");
    };
    let inner = name[..dot]
        .strip_suffix(".tar")
        .filter(|stem| !stem.is_empty());
    name.split_at(inner.map_or(dot, str::len))
}

/// Appends a tail to a stem. Shortens the stem if the result would be too long.
fn append_truncating(stem: &str, tail: &str) -> String {
    let mut cut = stem
        .len()
        .min(ArtifactName::MAX_BYTES.saturating_sub(tail.len()));
    while !stem.is_char_boundary(cut) {
        cut -= 1;
    }
    let shortened = if cut < stem.len() {
        trim_ends(&stem[..cut])
    } else {
        stem
    };
    format!("{shortened}{tail}")
}
