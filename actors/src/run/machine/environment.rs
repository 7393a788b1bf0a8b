//! The section of a system prompt that describes where the tools of a run work.
//!
//! Pure. The section stays the same for a conversation: if only it would differ in a later run, the conversation keeps
//! its system prompt, so that providers can reuse their prompt cache.
//!
//! Elsewhere: the branch (`project_instructions/branch.rs`).

use std::path::Path;

/// First line of the section.
const HEADING: &str = "\n\n## Environment\n";

/// Where the tools of a run work.
pub(crate) struct WorkEnvironment<'a> {
    pub(crate) project: &'a Path,
    /// Operating system and processor architecture.
    pub(crate) platform: [&'a str; 2],
    /// The current Git branch.
    pub(crate) branch: Option<&'a str>,
    /// Name of the shell, if the run has the tool `bash`.
    pub(crate) shell: Option<&'a str>,
    /// Whether commands are confined (TOOL-5).
    pub(crate) confines: bool,
}

impl WorkEnvironment<'_> {
    /// Formats the section. It contains no empty line.
    pub(crate) fn render(&self) -> String {
        let mut text = format!("{HEADING}Project folder, where relative paths start: {}", self.project.display());
        text.push_str(&format!("\nPlatform: {}", self.platform.join(" ")));
        if let Some(shell) = self.shell {
            text.push_str(&format!(", shell: {shell}"));
        }
        if let Some(branch) = self.branch {
            text.push_str(&format!(", Git branch: {branch}"));
        }
        if self.shell.is_some() && self.confines {
            text.push_str("\nCommands can write only to the project folder and $TMPDIR, and cannot read credentials.");
        }
        text
    }
}

/// Returns whether two system prompts are equal apart from their section.
pub(crate) fn differ_only_in_environment(one: &str, other: &str) -> bool {
    match (split(one), split(other)) {
        (Some(one), Some(other)) => one == other,
        _ => one == other,
    }
}

/// Returns the text before and after the section.
fn split(prompt: &str) -> Option<(&str, &str)> {
    let (before, rest) = prompt.split_once(HEADING)?;
    Some((before, rest.find("\n\n").map_or("", |end| &rest[end..])))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(branch: Option<&str>, shell: Option<&str>) -> String {
        let platform = ["linux", "x86_64"];
        WorkEnvironment { project: Path::new("/p"), platform, branch, shell, confines: true }.render()
    }

    #[test]
    fn environment_names_only_what_tools_of_the_run_reach() {
        let start = format!("{HEADING}Project folder, where relative paths start: /p\nPlatform: linux x86_64");
        assert_eq!(environment(None, None), start);
        assert_eq!(environment(Some("main"), None), format!("{start}, Git branch: main"));
        let with_shell = environment(None, Some("bash"));
        assert!(with_shell.starts_with(&format!("{start}, shell: bash\nCommands can write only to")), "{with_shell}");
        assert!(!with_shell[2..].contains("\n\n"), "the section ends at an empty line: {with_shell:?}");
    }

    #[test]
    fn prompts_with_another_branch_are_equal_otherwise() {
        let prompt = |branch, end| format!("You work.{}{end}", environment(Some(branch), Some("bash")));
        for (one, other, want) in [
            (prompt("a", ""), prompt("b", ""), true),
            (prompt("a", "\n\n## Notes"), prompt("b", "\n\n## Notes"), true),
            (prompt("a", "\n\n## Notes"), prompt("a", "\n\n## Other"), false),
            (prompt("a", ""), "You work.".to_owned(), false),
            ("You work.".to_owned(), "You work.".to_owned(), true),
            ("You work.".to_owned(), "You rest.".to_owned(), false),
        ] {
            assert_eq!(differ_only_in_environment(&one, &other), want, "{one:?} {other:?}");
        }
    }
}
