//! Tables of harmless and destructive commands, and of programs that run other programs.

use std::{
    collections::{HashMap, HashSet},
    sync::LazyLock,
};

use super::line::{CommandLine, Invocation, SimpleCommand};

const HARMLESS: &str = include_str!("harmless.txt");
const DESTRUCTIVE: &str = include_str!("destructive.txt");

/// Programs that run the program named in their arguments.
const WRAPPERS: [&str; 31] = [
    "builtin",
    "bwrap",
    "chroot",
    "chrt",
    "command",
    "doas",
    "env",
    "exec",
    "fakechroot",
    "fakeroot",
    "ionice",
    "nice",
    "nohup",
    "nsenter",
    "numactl",
    "pkexec",
    "prlimit",
    "runuser",
    "setarch",
    "setpriv",
    "setsid",
    "stdbuf",
    "su",
    "sudo",
    "systemd-run",
    "taskset",
    "time",
    "timeout",
    "unbuffer",
    "unshare",
    "xvfb-run",
];
/// Shell commands that no grant covers, because the line does not show what they run.
const NEVER_COVERED: [&str; 3] = [".", "eval", "source"];
/// Programs that execute the text they read.
const SHELLS: [&str; 21] = [
    "ash", "bash", "bun", "busybox", "csh", "dash", "deno", "fish", "ksh", "lua", "node", "nodejs",
    "perl", "php", "python", "python3", "rbash", "ruby", "sh", "tcsh", "zsh",
];
/// Programs and shell commands that execute text or a list from their arguments in some form, or
/// that change the meaning of later words.
const TEXT_EXECUTORS: [&str; 44] = [
    ".",
    "[",
    "alias",
    "at",
    "awk",
    "batch",
    "bind",
    "compgen",
    "complete",
    "declare",
    "enable",
    "entr",
    "eval",
    "expect",
    "export",
    "fc",
    "fd",
    "find",
    "flock",
    "gawk",
    "gdb",
    "hash",
    "jobs",
    "let",
    "mapfile",
    "mawk",
    "nawk",
    "parallel",
    "printf",
    "read",
    "readarray",
    "screen",
    "script",
    "sed",
    "set",
    "shopt",
    "source",
    "ssh",
    "strace",
    "test",
    "tmux",
    "trap",
    "watch",
    "xargs",
];

/// Number of words that may follow and are not options.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operands {
    Any,
    One,
    None,
}

/// Row of the table of harmless commands.
struct HarmlessCommand {
    operands: Operands,
    options: HashSet<&'static str>,
}

static HARMLESS_COMMANDS: LazyLock<HashMap<(&str, &str), HarmlessCommand>> =
    LazyLock::new(|| rows(HARMLESS).filter_map(parse_row).collect());
static DESTRUCTIVE_ROWS: LazyLock<Vec<Vec<Vec<&str>>>> = LazyLock::new(|| {
    let alternatives = |row: &'static str| {
        row.split(' ')
            .map(|word| word.split('|').collect())
            .collect()
    };
    rows(DESTRUCTIVE).map(alternatives).collect()
});

fn rows(table: &'static str) -> impl Iterator<Item = &'static str> {
    table
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
}

fn parse_row(row: &'static str) -> Option<((&'static str, &'static str), HarmlessCommand)> {
    let mut words = row.split(' ');
    let program = words.next()?;
    let subcommand = words.next()?;
    let operands = words.next()?;
    let operands = match operands {
        "any" => Operands::Any,
        "one" => Operands::One,
        _ => Operands::None,
    };
    Some((
        (program, subcommand),
        HarmlessCommand {
            operands,
            options: words.collect(),
        },
    ))
}

/// Returns the name under which a harmless command is granted, such as `git status`; `None` if the
/// table does not list the command or one of its options.
pub(super) fn harmless(part: &SimpleCommand) -> Option<String> {
    if part.has_redirection || part.has_assignment {
        return None;
    }
    let (program, mut rest) = part.words.split_first()?;
    if let Some(global) = HARMLESS_COMMANDS.get(&(program.as_str(), "*")) {
        let leading = rest.iter().take_while(|word| word.starts_with('-')).count();
        if leading > 0 && leading < rest.len() {
            let (options, others) = rest.split_at(leading);
            if !global.covers(options) {
                return None;
            }
            rest = others;
        }
    }
    let first = rest.first().map(String::as_str);
    let second = rest.get(1).map(String::as_str);
    let pair = first
        .zip(second)
        .map(|(first, second)| format!("{first}.{second}"));
    let candidates = [(pair.as_deref(), 2), (first, 1), (Some("-"), 0)];
    for (subcommand, word_count) in candidates {
        let Some(entry) = subcommand
            .and_then(|subcommand| HARMLESS_COMMANDS.get(&(program.as_str(), subcommand)))
        else {
            continue;
        };
        let name = [std::slice::from_ref(program), &rest[..word_count]]
            .concat()
            .join(" ");
        return entry.covers(&rest[word_count..]).then_some(name);
    }
    None
}

impl HarmlessCommand {
    fn covers(&self, words: &[String]) -> bool {
        let mut operands = 0;
        let mut takes_number = false;
        let mut after_double_dash = false;
        for word in words {
            let is_number = !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit());
            if std::mem::take(&mut takes_number) && is_number {
                continue;
            }
            // Whether `--` ends the options depends on the words before it, so a word after it is
            // checked as operand and as option.
            if !word.starts_with('-') || word == "-" || after_double_dash {
                operands += 1;
            }
            if word == "--" {
                after_double_dash = true;
            } else if word.starts_with('-') && word != "-" {
                match self.option(word) {
                    Some(takes_value) => takes_number = takes_value,
                    None => return false,
                }
            }
        }
        match self.operands {
            Operands::Any => true,
            Operands::One => operands <= 1,
            Operands::None => operands == 0,
        }
    }

    /// Returns whether a number may follow an option as a separate word; `None` if the option is
    /// not listed.
    fn option(&self, word: &str) -> Option<bool> {
        let has = |option: &str| self.options.contains(option);
        if has(word) || has(&format!("{word}=")) {
            return Some(false);
        }
        if has(&format!("{word}#")) {
            return Some(true);
        }
        if let Some((name, _)) = word.split_once('=') {
            return has(&format!("{name}=")).then_some(false);
        }
        let flags = word
            .strip_prefix('-')
            .filter(|flags| !flags.starts_with('-'))?;
        let mut rest = flags.chars();
        while let Some(letter) = rest.next() {
            if has(&format!("-{letter}")) {
                continue;
            }
            // Only a number may follow, and it ends the cluster.
            let number = rest.as_str();
            let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
            return (has(&format!("-{letter}#")) && is_number).then_some(false);
        }
        Some(false)
    }
}

impl CommandLine {
    /// Whether a part of the line deletes data, publishes, gains privileges, or runs something that
    /// the line does not show.
    pub(super) fn is_destructive(&self) -> bool {
        self.parts.iter().any(|part| {
            let readings = part.invocations();
            readings.iter().any(is_destructive)
                || (part.reads_pipe && readings.iter().any(|reading| is_shell(&reading.program)))
        })
    }
}

impl SimpleCommand {
    /// Returns the commands that it may run: the command as written, and the rest after wrappers
    /// (`sudo`, `env`) and after options that precede a subcommand.
    pub(super) fn invocations(&self) -> Vec<Invocation<'_>> {
        let mut readings = Vec::new();
        let mut is_start = vec![false; self.words.len()];
        is_start[0] = true;
        for start in 0..self.words.len() {
            if !is_start[start] {
                continue;
            }
            let name = base_name(&self.words[start]);
            let arguments = &self.words[start + 1..];
            if is_wrapper(name) {
                // Which of its arguments is the program depends on its options, so each argument
                // counts.
                is_start[start + 1..].fill(true);
            }
            let mut add = |program: &str, arguments| {
                readings.push(Invocation {
                    program: program.to_owned(),
                    arguments,
                });
            };
            add(name, arguments);
            if let Some(command) = name
                .strip_prefix("git-")
                .filter(|command| !command.is_empty())
            {
                // Separate programs of git, such as git-push: the program name contains the
                // subcommand.
                add(command, arguments);
            }
            // Options before a subcommand may have values, so each later word may be the
            // subcommand.
            if arguments
                .first()
                .is_some_and(|word| word.starts_with(['-', '+']))
            {
                (1..arguments.len()).for_each(|skipped| add(name, &arguments[skipped..]));
            }
        }
        readings
    }
}

fn base_name(program: &str) -> &str {
    program.rsplit('/').next().unwrap_or(program)
}

/// Whether a command is in the table of destructive commands, or sets the configuration of git for
/// one call.
pub(super) fn is_destructive(reading: &Invocation<'_>) -> bool {
    let Invocation { program, arguments } = reading;
    let listed = DESTRUCTIVE_ROWS.iter().any(|row| {
        let (programs, needed) = row
            .split_first()
            .map_or((&[][..], &[][..]), |(first, rest)| (&first[..], rest));
        programs.iter().any(|name| is_program(program, name))
            && needed.iter().all(|any| {
                arguments
                    .iter()
                    .any(|word| any.iter().any(|sign| matches_argument(word, sign)))
            })
    });
    listed || sets_git_configuration(reading)
}

/// Whether options before the git subcommand change which programs git runs.
fn sets_git_configuration(reading: &Invocation<'_>) -> bool {
    let signs = ["-c", "--config-env", "--exec-path"];
    let leading = reading
        .arguments
        .iter()
        .take_while(|word| word.starts_with('-'));
    reading.program == "git"
        && leading
            .into_iter()
            .any(|word| signs.iter().any(|sign| word.starts_with(sign)))
}

/// Whether a program is the named one, with or without a version number: `python3.11` matches
/// `python3`.
fn is_program(program: &str, name: &str) -> bool {
    let stem = program.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    program == name || (!stem.is_empty() && stem == name)
}

/// Whether an argument matches a listed word. A long option also matches abbreviated or with a
/// value, a short one also inside a cluster.
fn matches_argument(word: &str, sign: &str) -> bool {
    let (name, _) = word.split_once('=').unwrap_or((word, ""));
    if let Some(long) = sign.strip_prefix("--") {
        return name
            .strip_prefix("--")
            .is_some_and(|given| !given.is_empty() && long.starts_with(given));
    }
    if let Some(letter) = sign.strip_prefix('-').filter(|flags| flags.len() == 1) {
        return word.starts_with('-') && !word.starts_with("--") && word.contains(letter);
    }
    name == sign
}

pub(super) fn is_wrapper(program: &str) -> bool {
    WRAPPERS.contains(&program)
}

pub(super) fn is_shell(program: &str) -> bool {
    SHELLS.iter().any(|shell| is_program(program, shell))
}

pub(super) fn is_never_covered(program: &str) -> bool {
    NEVER_COVERED.contains(&program)
}

/// Whether a command executes text that its words do not show: code in an argument, or in its
/// input.
pub(super) fn executes_text(reading: &Invocation<'_>) -> bool {
    let program = reading.program.as_str();
    let splits = program == "env"
        && reading
            .arguments
            .iter()
            .any(|word| matches_argument(word, "-S") || matches_argument(word, "--split-string"));
    let has = |sign: &str| {
        reading
            .arguments
            .iter()
            .any(|word| matches_argument(word, sign))
    };
    let takes_command = match program {
        "git" => {
            has("foreach")
                || (has("rebase") && (has("-x") || has("--exec")))
                || (has("bisect") && has("run"))
        }
        // These options take a whole command line as one word.
        "su" | "runuser" => has("-c") || has("--command") || has("--session-command"),
        _ => false,
    };
    TEXT_EXECUTORS.contains(&program)
        || is_shell(program)
        || splits
        || takes_command
        || sets_git_configuration(reading)
}
