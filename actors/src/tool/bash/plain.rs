//! Which commands are one plain call of a program, so that leave can be remembered for that program (PERM-1).
//!
//! Pure. Leave "for `git` in this directory" must not reach further than people think. So the command has to be made
//! of words that the shell passes on as they are, and the program must not be one that is told by its arguments what
//! else to run: an interpreter, a wrapper, a program that reaches other machines (hosts are asked for one by one).
//! Build tools do run what the project says; that is what leave for them is for, and the fence holds them too.
//! A program given by its path may lie in the project, and be another one by the next call: it does not count.
//! Not here: what a command may read and write (`reach`).

/// Interpreters and shells, and editors that run commands: any argument may be a program. A version behind the name
/// does not matter.
const INTERPRETERS: &[&str] = &[
    "ash",
    "awk",
    "bash",
    "bpython",
    "bun",
    "busybox",
    "csh",
    "dash",
    "deno",
    "ed",
    "elixir",
    "emacs",
    "erl",
    "ex",
    "expect",
    "fish",
    "gawk",
    "ghci",
    "groovy",
    "guile",
    "ipython",
    "irb",
    "java",
    "jshell",
    "julia",
    "ksh",
    "lua",
    "mawk",
    "mksh",
    "nawk",
    "node",
    "nodejs",
    "nvim",
    "ocaml",
    "osascript",
    "perl",
    "php",
    "psql",
    "pwsh",
    "pypy",
    "python",
    "r",
    "rscript",
    "ruby",
    "sed",
    "sh",
    "sqlite",
    "swift",
    "tclsh",
    "vi",
    "vim",
    "wish",
    "zsh",
];
/// Programs that run what their arguments name, and builtins of the shell that do.
const WRAPPERS: &[&str] = &[
    ".",
    "alias",
    "at",
    "batch",
    "bind",
    "builtin",
    "bwrap",
    "chroot",
    "chrt",
    "command",
    "compgen",
    "complete",
    "coproc",
    "corepack",
    "cpulimit",
    "crontab",
    "doas",
    "enable",
    "entr",
    "env",
    "eval",
    "exec",
    "fakeroot",
    "fc",
    "fd",
    "find",
    "firejail",
    "flock",
    "function",
    "gdb",
    "hash",
    "install",
    "ionice",
    "linux32",
    "linux64",
    "lldb",
    "ltrace",
    "mapfile",
    "nice",
    "nohup",
    "npx",
    "nsenter",
    "numactl",
    "parallel",
    "pipx",
    "pkexec",
    "pnpx",
    "prlimit",
    "proot",
    "readarray",
    "rlwrap",
    "runuser",
    "screen",
    "script",
    "setarch",
    "setpriv",
    "setsid",
    "source",
    "split",
    "start-stop-daemon",
    "stdbuf",
    "strace",
    "su",
    "sudo",
    "systemd-run",
    "tar",
    "taskset",
    "time",
    "timeout",
    "tmux",
    "trap",
    "unbuffer",
    "unshare",
    "uvx",
    "valgrind",
    "watch",
    "xargs",
    "xdg-open",
    "xvfb-run",
    "zip",
];
/// Programs that reach other machines, or hand work to a service that nothing here confines.
const REACHING: &[&str] = &[
    "aws",
    "curl",
    "docker",
    "ftp",
    "gcloud",
    "gh",
    "helm",
    "http",
    "kubectl",
    "lftp",
    "machinectl",
    "nc",
    "ncat",
    "netcat",
    "nerdctl",
    "podman",
    "rclone",
    "rsync",
    "scp",
    "sftp",
    "socat",
    "ssh",
    "systemctl",
    "telnet",
    "terraform",
    "vagrant",
    "wget",
    "xh",
];
/// Arguments with which a program runs another one after all, or another project's.
const TELLING: &[(&str, &[&str])] = &[
    ("git", &["-c", "--config-env", "--exec-path", "-x", "-O", "--open-files", "--upload-pack", "--receive-pack"]),
    ("git", &["--ext-diff", "difftool", "mergetool", "filter-branch", "foreach", "bisect", "config"]),
    ("cargo", &["--config"]),
    ("npm", &["exec", "x", "explore", "init", "create"]),
    ("go", &["run", "-exec", "-toolexec", "tool", "generate"]),
    ("make", &["-E", "-f", "--file", "--makefile", "-C", "--directory", "SHELL="]),
    ("uv", &["run", "tool"]),
    ("poetry", &["run", "shell"]),
    ("pnpm", &["exec", "dlx"]),
    ("yarn", &["exec", "dlx", "node"]),
    ("rustup", &["run"]),
];
/// Arguments with which any program is taken to run another one.
const TELLING_ANYBODY: &[&str] = &[
    "--exec",
    "-exec",
    "--command",
    "--eval",
    "--to-command",
    "--use-compress-program",
    "--compress-program",
    "--pager",
];

/// Returns the program that a command calls; `None` = it is no plain call, or one of a program that runs others.
pub(super) fn executable(command: &str) -> Option<&str> {
    if !command.chars().all(is_plain) {
        return None;
    }
    let mut words = command.split(' ').filter(|word| !word.is_empty());
    let program = words.next()?;
    // `NAME=value program` runs the second word; `=`, `%` and others begin no program's name.
    if program.contains(['/', '=', '%', ':', ',', '@']) || program.starts_with(['-', '+']) {
        return None;
    }
    let name = program.to_ascii_lowercase();
    let stem = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.' || c == '-');
    let is_one_of = |names: &[&str]| names.contains(&name.as_str()) || names.contains(&stem);
    if stem.is_empty() || [INTERPRETERS, WRAPPERS, REACHING].into_iter().any(is_one_of) {
        return None;
    }
    let arguments: Vec<&str> = words.collect();
    let is_told = |told: &[&str]| arguments.iter().any(|word| told.iter().any(|sign| is_sign(word, sign)));
    if TELLING.iter().any(|(program, told)| is_one_of(&[*program]) && is_told(told)) || is_told(TELLING_ANYBODY) {
        return None;
    }
    Some(program)
}

/// Whether an argument is the sign: an option also with its value behind it, any other word as it is.
fn is_sign(word: &str, sign: &str) -> bool {
    if sign.starts_with('-') || sign.ends_with('=') { word.starts_with(sign) } else { word == sign }
}

/// Characters that the shell passes on as they are, wherever they stand in a word; and the blank between words.
fn is_plain(c: char) -> bool {
    c.is_ascii_alphanumeric() || " _-./+:,@%=".contains(c)
}

#[cfg(test)]
#[path = "plain/tests.rs"]
mod tests;
