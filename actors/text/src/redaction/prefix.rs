//! Minimum length of the first part of a secret that is redacted.
//!
//! Services shorten the keys that they repeat, and outputs are cut off. Eight bytes identify a key
//! and make the rest easier to guess. The public prefix that all keys of a service share is not
//! secret. Pure.

/// Public prefixes of the keys and tokens of well-known services. The longest match counts.
const PUBLIC_PREFIXES: [&str; 44] = [
    "AIza",
    "AKIA",
    "ASIA",
    "SG.",
    "dckr_pat_",
    "dop_v1_",
    "gho_",
    "ghp_",
    "ghr_",
    "ghs_",
    "ghu_",
    "github_pat_",
    "glpat-",
    "gsk_",
    "hf_",
    "hvs.",
    "key-",
    "lin_api_",
    "npm_",
    "nvapi-",
    "pk-",
    "pk_live_",
    "pk_test_",
    "pplx-",
    "pypi-",
    "r8_",
    "rk_live_",
    "shpat_",
    "sk-",
    "sk-admin-",
    "sk-ant-",
    "sk-ant-admin01-",
    "sk-ant-api03-",
    "sk-or-v1-",
    "sk-proj-",
    "sk-svcacct-",
    "sk_live_",
    "sk_test_",
    "tskey-",
    "tvly-",
    "xai-",
    "xapp-",
    "xoxb-",
    "xoxp-",
];
/// Schemes that precede the secret in the value of a header.
const SCHEMES: [&str; 2] = ["basic ", "bearer "];
/// Minimum number of bytes after the public prefix.
const MIN_PREFIX_BYTES: usize = 8;
/// The same minimum for text that looks like an ordinary word or number, which must stay readable
/// in outputs.
const MIN_WORDLIKE_PREFIX_BYTES: usize = 16;

/// Maximum length of a word that is redacted because of its prefix, in bytes.
const MAX_WORD_BYTES: usize = 1_024;

/// Returns the length of the shortest first part of a secret that is redacted, in bytes; `None` if
/// only the whole secret is.
///
/// Only the whole secret is redacted for sentences, URLs, paths, JSON and certificates: their first
/// bytes are the same whatever they contain.
pub(super) fn min_prefix_length(secret: &str) -> Option<usize> {
    let lower = secret.to_ascii_lowercase();
    let scheme = SCHEMES
        .into_iter()
        .find(|scheme| lower.starts_with(scheme))
        .map_or(0, str::len);
    let token = &secret[scheme..];
    let is_path = ["/", "~", "./", "../"]
        .iter()
        .any(|start| token.starts_with(start));
    if is_path || token.contains("://") || !token.bytes().all(is_token_byte) {
        return None;
    }
    let public = public_prefix_length(token);
    let secret_part = &token.as_bytes()[public..];
    let first = &secret_part[..secret_part.len().min(MIN_PREFIX_BYTES)];
    let min_bytes = if scheme + public == 0 && reads_like_a_word(first) {
        MIN_WORDLIKE_PREFIX_BYTES
    } else {
        MIN_PREFIX_BYTES
    };
    (secret_part.len() > min_bytes).then_some(scheme + public + min_bytes)
}

/// Returns how many bytes after a matched prefix are redacted with it: the rest of the word.
///
/// Redacting only the matching bytes would show a model how much of a guess is right, so that it
/// could find the rest byte by byte.
pub(super) fn word_length(text: &str) -> usize {
    text.bytes()
        .take(MAX_WORD_BYTES)
        .take_while(|byte| is_token_byte(*byte) || *byte == b'\\')
        .count()
}

fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~+/=!#$%&*@^|:".contains(&byte)
}

/// Returns whether these bytes are digits without letters, or words (`word`, `Word` or `WORD`)
/// without digits.
fn reads_like_a_word(bytes: &[u8]) -> bool {
    let has_digit = bytes.iter().any(u8::is_ascii_digit);
    let has_letter = bytes.iter().any(u8::is_ascii_alphabetic);
    let is_word = |word: &[u8]| {
        word.iter().skip(1).all(u8::is_ascii_lowercase) || word.iter().all(u8::is_ascii_uppercase)
    };
    !has_letter || !has_digit && bytes.split(|byte| !byte.is_ascii_alphabetic()).all(is_word)
}

/// Returns the length of the public prefix of a token, in bytes.
fn public_prefix_length(token: &str) -> usize {
    // The header of a JSON Web Token only states how the token is signed.
    let header = token
        .split_once('.')
        .filter(|(header, rest)| header.starts_with("eyJ") && rest.contains('.'));
    if let Some((header, _)) = header {
        return header.len() + 1;
    }
    PUBLIC_PREFIXES
        .iter()
        .filter(|beginning| token.starts_with(**beginning))
        .map(|beginning| beginning.len())
        .max()
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefix_counts_from_eight_bytes_after_public_part() {
        for (secret, want) in [
            ("sk-proj-abcdefghijklmnop", Some("sk-proj-abcdefgh")),
            ("sk-abcdefghijklmnop", Some("sk-abcdefgh")),
            (
                "sk-ant-api03-abcdefghijklmnop",
                Some("sk-ant-api03-abcdefgh"),
            ),
            ("ghp_abcdefghijklmnop", Some("ghp_abcdefgh")),
            ("a1b2c3d4e5f6", Some("a1b2c3d4")),
            ("Tr0ub4dor&3", Some("Tr0ub4do")),
            ("kQxVbNmtZrWpYcDf", Some("kQxVbNmt")),
            ("PassWord-of-Bob", Some("PassWord")),
            ("production-database-2026", Some("production-datab")),
            ("PRODUCTION-DATABASE-2026", Some("PRODUCTION-DATAB")),
            ("My-House-Is-Yellow", Some("My-House-Is-Yell")),
            ("1234567890123456789", Some("1234567890123456")),
            ("Basic dXNlcjpwYXNzd29yZA==", Some("Basic dXNlcjpw")),
            (
                "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln",
                Some("eyJhbGciOiJIUzI1NiJ9.eyJzdWIi"),
            ),
            ("sk-proj-abcdefgh", None),
            ("sk-proj-abc", None),
            ("ordinary-word", None),
            ("Password123!", None),
            ("/home/bob/projects/app/sa.json", None),
            ("https://user:pass@host/path", None),
            (r#"{"type":"service_account"}"#, None),
            ("-----BEGIN KEY-----\nMIIE", None),
            ("correct horse battery staple", None),
            ("pässwörd0123456789", None),
        ] {
            assert_eq!(
                min_prefix_length(secret).map(|length| &secret[..length]),
                want,
                "{secret}"
            );
        }
    }
}
