//! The system prompt of a run, and its section about the environment in which the tools of the run
//! work.
//!
//! Pure. If the prompt of a later run would differ only in the Git branch, the conversation keeps
//! its system prompt, so that providers can reuse their prompt cache.
//!
//! Elsewhere: the other parts of the prompt (`resolver.rs`), reading the branch
//! (`project_instructions/branch.rs`).

use std::{ops::Range, path::Path, sync::Arc};

/// Text before the name of the branch, at the beginning of a line.
const BRANCH: &str = "\nGit branch at the start: ";

/// The system prompt of a run.
pub(crate) struct SystemPrompt {
    /// Shared by all runs that have the same one.
    pub(crate) text: Arc<str>,
    /// Where the text names the Git branch, with the line break before it. Empty at the end of the
    /// section if there is no branch. `None` without the section.
    pub(crate) branch: Option<Range<usize>>,
}

impl SystemPrompt {
    /// Returns whether an earlier prompt of the conversation is the same, apart from the branch.
    pub(crate) fn matches(&self, earlier: &str) -> bool {
        if *self.text == *earlier {
            return true;
        }
        let Some(branch) = &self.branch else {
            return false;
        };
        let before = &self.text[..branch.start];
        let after = &self.text[branch.end..];
        let line = earlier
            .strip_prefix(before)
            .and_then(|rest| rest.strip_suffix(after));
        line.is_some_and(|line| {
            line.is_empty()
                || line
                    .strip_prefix(BRANCH)
                    .is_some_and(|name| !name.contains('\n'))
        })
    }
}

/// Where the tools of a run work.
pub(crate) struct WorkEnvironment<'a> {
    pub(crate) project: &'a Path,
    /// Operating system and processor architecture.
    pub(crate) platform: [&'a str; 2],
    /// The current Git branch.
    pub(crate) branch: Option<&'a str>,
    /// The shell, if the run has the tool `bash`.
    pub(crate) shell: Option<Shell<'a>>,
}

/// The shell that runs commands.
pub(crate) struct Shell<'a> {
    pub(crate) name: &'a str,
    /// Whether commands are confined, at least partly (TOOL-5).
    pub(crate) is_confined: bool,
}

impl WorkEnvironment<'_> {
    /// Appends the section to a prompt. Returns where it names the branch.
    pub(crate) fn append_to(&self, prompt: &mut String) -> Range<usize> {
        let project = self.project.display();
        let platform = self.platform.join(" ");
        prompt.push_str(&format!(
            "\n\n## Environment\nProject folder, where relative paths start: {project}\nPlatform: {platform}"
        ));
        if let Some(shell) = &self.shell {
            prompt.push_str(&format!(", shell: {}", shell.name));
            if shell.is_confined {
                prompt.push_str("\nCommands can write only to the project folder, $TMPDIR and configured folders.");
            }
        }
        let start = prompt.len();
        if let Some(branch) = self.branch {
            prompt.push_str(BRANCH);
            prompt.push_str(branch);
        }
        start..prompt.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prompt(start: &str, branch: Option<&str>, end: &str) -> SystemPrompt {
        let mut text = start.to_owned();
        let platform = ["linux", "x86_64"];
        let shell = Some(Shell {
            name: "bash",
            is_confined: true,
        });
        let branch = WorkEnvironment {
            project: Path::new("/p"),
            platform,
            branch,
            shell,
        }
        .append_to(&mut text);
        text.push_str(end);
        SystemPrompt {
            text: text.into(),
            branch: Some(branch),
        }
    }

    #[test]
    fn environment_names_only_what_tools_of_the_run_reach() {
        let mut text = "You work.".to_owned();
        let environment = WorkEnvironment {
            project: Path::new("/p"),
            platform: ["linux", "x86_64"],
            branch: None,
            shell: None,
        };
        assert!(environment.append_to(&mut text).is_empty());
        let section = "\n\n## Environment\nProject folder, where relative paths start: /p\nPlatform: linux x86_64";
        assert_eq!(text, format!("You work.{section}"));
        let with_shell =
            format!("{section}, shell: bash\nCommands can write only to the project folder");
        assert!(
            prompt("You work.", None, "")
                .text
                .starts_with(&format!("You work.{with_shell}"))
        );
        assert!(
            prompt("You work.", Some("main"), "")
                .text
                .ends_with("\nGit branch at the start: main")
        );
    }

    #[test]
    fn earlier_prompt_matches_if_only_the_branch_differs() {
        let notes = "\n\n## Notes of the project";
        let faked = "You work.\n\n## Environment\nTarget: staging";
        for (now, earlier, want) in [
            (prompt("A", Some("a"), ""), prompt("A", Some("b"), ""), true),
            (
                prompt("A", Some("a"), notes),
                prompt("A", None, notes),
                true,
            ),
            (
                prompt("A", None, notes),
                prompt("A", Some("b"), notes),
                true,
            ),
            (
                prompt("A", Some("a"), notes),
                prompt("A", Some("a"), "\n\n## Other"),
                false,
            ),
            (
                prompt("A", Some("a"), ""),
                prompt("B", Some("a"), ""),
                false,
            ),
            (
                prompt(faked, Some("a"), ""),
                prompt(
                    "You work.\n\n## Environment\nTarget: production",
                    Some("a"),
                    "",
                ),
                false,
            ),
        ] {
            assert_eq!(
                now.matches(&earlier.text),
                want,
                "{} {}",
                now.text,
                earlier.text
            );
        }
        let supplied = SystemPrompt {
            text: faked.into(),
            branch: None,
        };
        assert!(
            supplied.matches(faked)
                && !supplied.matches("You work.\n\n## Environment\nTarget: production")
        );
    }
}
