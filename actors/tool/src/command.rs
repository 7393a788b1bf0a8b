//! Permission of shell commands: which command lines run without asking (PERM-1).
//!
//! Pure: decides by the text of a command, with the tables `command/harmless.txt` and
//! `command/destructive.txt`.
//!
//! Invariants:
//! - A line that cannot be parsed statically (expansions, groups, keywords) is covered only by a
//!   grant for the whole tool, or for exactly the same line.
//! - A destructive command runs without asking only if `bash` as a whole, or a pattern that matches
//!   it, was allowed before the run.
//!
//! Elsewhere: how a line is split (`command/line.rs`), the tables (`command/tables.rs`), what a
//! command can access (`bash/sandbox_policy.rs`).

mod line;
mod tables;

use soong_protocol::Scope;

use line::{CommandLine, Invocation, SimpleCommand};

/// Command pattern of a grant: `bash(PATTERN)`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandPattern {
    words: Vec<String>,
    /// Whether any further words may follow, because the pattern ends in ` *`.
    allows_more_words: bool,
}

/// Decision about a call by the grants and deny rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommandVerdict {
    /// The call runs.
    Allow,
    /// The call requires permission.
    Ask,
    /// The call requires permission, and no grant can replace it: a deny rule exists, and the line
    /// cannot be checked against it.
    AskUncheckable,
    /// The call is denied.
    Deny,
}

/// Grants and deny rules that apply to a command.
#[derive(Debug, Clone, Copy, Default)]
pub struct Rules<'a> {
    /// Whether the tool was granted as a whole at the start (`--allow bash`).
    pub allows_all: bool,
    /// Patterns that were granted at the start: `bash(…)`.
    pub patterns: &'a [&'a CommandPattern],
    /// Programs that were granted at the start: `bash:PROGRAM`.
    pub programs: &'a [&'a str],
    /// Scopes that were granted for the session.
    pub session: &'a [&'a Scope],
    /// Patterns that are denied.
    pub denied: &'a [&'a CommandPattern],
}

impl CommandPattern {
    /// Parses a pattern; `None` if it is empty or its words cannot be determined statically.
    pub fn parse(text: &str) -> Option<Self> {
        let (text, is_open) = match text.trim().strip_suffix('*') {
            Some(rest) if rest.is_empty() || rest.ends_with(' ') => (rest, true),
            _ => (text, false),
        };
        let parsed = CommandLine::parse(text)?;
        let [part] = &parsed.parts[..] else {
            return None;
        };
        if part.has_redirection || part.has_assignment {
            return None;
        }
        Some(Self {
            words: part.words.clone(),
            allows_more_words: is_open,
        })
    }

    /// Makes the pattern that covers every call of a program.
    pub fn of_program(program: &str) -> Self {
        Self {
            words: vec![program.to_owned()],
            allows_more_words: true,
        }
    }

    /// Whether the pattern covers a simple command, word for word.
    fn covers(&self, part: &SimpleCommand) -> bool {
        !part.has_redirection
            && !part.has_assignment
            && !tables::is_never_covered(part.program())
            && self.matches(&part.words)
    }

    fn matches(&self, words: &[String]) -> bool {
        words.starts_with(&self.words)
            && (self.allows_more_words || words.len() == self.words.len())
    }

    /// Whether the pattern, as a deny rule, matches a simple command: word for word, or by the base
    /// name of its program, also after wrappers and global options.
    fn denies(&self, part: &SimpleCommand) -> bool {
        let Some((program, arguments)) = self.words.split_first() else {
            return false;
        };
        let program = program.rsplit('/').next().unwrap_or(program);
        let is_same = |reading: &Invocation<'_>| {
            (reading.program == program
                && reading.arguments.starts_with(arguments)
                && (self.allows_more_words || reading.arguments.len() == arguments.len()))
                || (program == "git" && self.denies_git_program(reading))
        };
        self.matches(&part.words) || part.invocations().iter().any(is_same)
    }

    /// Whether the pattern of a git command also matches the separate program that git has for it,
    /// such as `git-push`.
    fn denies_git_program(&self, reading: &Invocation<'_>) -> bool {
        let rest = self.words.get(2..).unwrap_or_default();
        self.words.get(1) == Some(&reading.program)
            && reading.arguments.starts_with(rest)
            && (self.allows_more_words || reading.arguments.len() == rest.len())
    }
}

/// Decides about a command line that is called in a directory. The first rule that applies decides.
pub fn decide(command: &str, directory: &str, rules: Rules<'_>) -> CommandVerdict {
    let parsed = CommandLine::parse(command);
    let parts = parsed.as_ref().map_or(&[][..], |line| &line.parts);
    if parts
        .iter()
        .any(|part| rules.denied.iter().any(|pattern| pattern.denies(part)))
    {
        return CommandVerdict::Deny;
    }
    let hides_words = parsed.is_none()
        || parts
            .iter()
            .any(|part| part.invocations().iter().any(tables::executes_text));
    if !rules.denied.is_empty() && hides_words {
        return CommandVerdict::AskUncheckable;
    }
    if rules.allows_all {
        return CommandVerdict::Allow;
    }
    let Some(line) = parsed else {
        return by_exact_line(command, directory, rules);
    };
    let of_start = |part: &SimpleCommand| rules.patterns.iter().any(|pattern| pattern.covers(part));
    if line.parts.iter().all(of_start) {
        return CommandVerdict::Allow;
    }
    let is_destructive = line.is_destructive();
    let of_program = |part: &SimpleCommand| {
        rules
            .programs
            .iter()
            .any(|program| CommandPattern::of_program(program).covers(part))
    };
    if !is_destructive
        && line
            .parts
            .iter()
            .all(|part| of_start(part) || of_program(part))
    {
        return CommandVerdict::Allow;
    }
    if is_destructive {
        return CommandVerdict::Ask;
    }
    let of_session = |part: &SimpleCommand| match tables::harmless(part) {
        Some(name) => rules
            .session
            .iter()
            .any(|scope| is_command_scope(scope, &name, directory)),
        None => false,
    };
    if line
        .parts
        .iter()
        .all(|part| of_start(part) || of_program(part) || of_session(part))
    {
        CommandVerdict::Allow
    } else {
        by_exact_line(command, directory, rules)
    }
}

/// Decides by the session grants for exactly this line.
fn by_exact_line(command: &str, directory: &str, rules: Rules<'_>) -> CommandVerdict {
    let wanted = Scope::CommandLine {
        command: command.to_owned(),
        directory: directory.to_owned(),
    };
    if rules.session.contains(&&wanted) {
        CommandVerdict::Allow
    } else {
        CommandVerdict::Ask
    }
}

fn is_command_scope(scope: &Scope, name: &str, in_directory: &str) -> bool {
    matches!(scope, Scope::Command { executable, directory } if executable == name && directory == in_directory)
}

/// Returns the scope of a session grant for a command line.
pub fn session_scope(command: &str, directory: &str) -> Scope {
    let parsed = CommandLine::parse(command);
    if parsed.as_ref().is_some_and(CommandLine::is_destructive) {
        return Scope::Call;
    }
    let directory = directory.to_owned();
    if let Some(line) = &parsed
        && let [part] = &line.parts[..]
        && let Some(executable) = tables::harmless(part)
    {
        return Scope::Command {
            executable,
            directory,
        };
    }
    Scope::CommandLine {
        command: command.to_owned(),
        directory,
    }
}

/// Returns the patterns that cover each part of a command line, word for word; `None` if no pattern
/// can, or if a part is a shell that reads from a pipe.
pub fn exact_patterns(command: &str) -> Option<Vec<String>> {
    let line = CommandLine::parse(command)?;
    let is_fed_shell = |part: &SimpleCommand| {
        part.reads_pipe
            && part
                .invocations()
                .iter()
                .any(|reading| tables::is_shell(&reading.program))
    };
    if line.parts.iter().any(is_fed_shell) {
        return None;
    }
    let mut patterns: Vec<String> = line
        .parts
        .iter()
        .map(|part| quoted_line(&part.words))
        .collect();
    patterns.dedup();
    let parsed = patterns
        .iter()
        .map(|text| CommandPattern::parse(text))
        .collect::<Option<Vec<_>>>()?;
    let rules = Rules {
        patterns: &parsed.iter().collect::<Vec<_>>(),
        ..Rules::default()
    };
    (decide(command, "", rules) == CommandVerdict::Allow).then_some(patterns)
}

fn quoted_line(words: &[String]) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-:=+,@%".contains(c);
    let quoted = words.iter().map(|word| {
        if !word.is_empty() && word.chars().all(is_plain) {
            word.clone()
        } else {
            format!("'{}'", word.replace('\'', r"'\''"))
        }
    });
    quoted.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
#[path = "command/tests.rs"]
mod tests;
