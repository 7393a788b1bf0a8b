//! Unified diff of two texts, for permission requests and tool results.

/// Maximum number of lines that differ, in both texts together. Comparing more could take minutes.
const MAX_LINES: usize = 4_000;
/// Maximum size of a diff that is stored with a permission request, in bytes.
const MAX_PREVIEW_BYTES: usize = 64 * 1024;

/// Returns the unified diff of two texts. Returns `None` if more than 4000 lines differ.
pub fn unified_diff(old: &str, new: &str) -> Option<String> {
    // Line ends are included, because `create_patch` compares them too.
    let common_prefix = lines(old)
        .zip(lines(new))
        .take_while(|(old, new)| old == new)
        .count();
    let lines_after_prefix = |text| lines(text).skip(common_prefix).count();
    let old_lines = lines_after_prefix(old);
    let new_lines = lines_after_prefix(new);
    let reversed_pairs = lines(old)
        .rev()
        .take(old_lines)
        .zip(lines(new).rev().take(new_lines));
    let common_suffix = reversed_pairs.take_while(|(old, new)| old == new).count();
    let differ = old_lines + new_lines - 2 * common_suffix;
    (differ <= MAX_LINES).then(|| diffy::create_patch(old, new).to_string())
}

fn lines(text: &str) -> std::str::SplitInclusive<'_, char> {
    text.split_inclusive('\n')
}

/// Returns the diff for a permission request; `None` if the texts are equal, or if the diff exceeds
/// [`MAX_PREVIEW_BYTES`] or [`MAX_LINES`].
pub(super) fn preview(old: &str, new: &str) -> Option<String> {
    unified_diff(old, new).filter(|diff| old != new && diff.len() <= MAX_PREVIEW_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn diff_is_shown_unless_too_long() {
        assert!(
            unified_diff("a\nb\nc\n", "a\nB\nc\n")
                .unwrap()
                .contains("@@ -1,3 +1,3 @@\n a\n-b\n+B\n c\n")
        );
        let long = "x\n".repeat(100_000);
        assert!(
            unified_diff(&long, &format!("{long}y\n{long}")).is_none(),
            "more lines are new than are compared"
        );
        assert!(
            unified_diff(&format!("{long}a\n{long}"), &format!("{long}b\n{long}")).is_some(),
            "one line differs"
        );
        assert!(
            unified_diff(&long, &long.replace('\n', "\r\n")).is_none(),
            "each line differs in its end"
        );
        assert!(preview("a\n", "a\n").is_none());
        assert!(preview("", &format!("{}\n", "x".repeat(70_000))).is_none());
        assert!(preview("", "new\n").is_some());
    }
}
