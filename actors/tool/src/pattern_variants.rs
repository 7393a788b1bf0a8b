//! Variants of a pattern for names of real files that contain characters of patterns, such as
//! `app/[id]/page.tsx` and `{{name}}/setup.py`.

/// Returns a pattern, and what it is with its brackets, its braces, or both taken literally.
pub(super) fn literal_variants(pattern: &str) -> Vec<String> {
    let mut variants = vec![pattern.to_owned()];
    for literal in ["[]", "{}", "[]{}"] {
        let variant = escape(pattern, literal);
        if !variants.contains(&variant) {
            variants.push(variant);
        }
    }
    variants
}

/// Makes the given characters literal.
fn escape(pattern: &str, literal: &str) -> String {
    let mut escaped = String::new();
    for c in pattern.chars() {
        if literal.contains(c) {
            escaped.extend(['[', c, ']']);
        } else {
            escaped.push(c);
        }
    }
    escaped
}
