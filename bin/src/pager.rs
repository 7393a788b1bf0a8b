//! Shows long output of a command with a pager, such as `less`.
//!
//! Output is kept as long as it fits on the screen. Then the pager is started, and gets all of it,
//! line by line.

use std::{
    io::{IsTerminal, Write, stdin, stdout},
    process::{Child, Command, Stdio},
    sync::{Mutex, MutexGuard, PoisonError, mpsc},
};

use soong::Environment;
use soong_tui::{keyboard, terminal::Terminal, text};
use tokio::signal::unix::{SignalKind, signal};

/// The pager, unless `PAGER` names another one.
const PAGER: &str = "less";
/// Options of `less` if `LESS` is not set: keep colors, and leave the output on the screen.
const LESS: &str = "FRX";

/// Where printed lines go.
enum Output {
    /// To standard output.
    Direct,
    /// Kept, as long as they fit on the screen.
    Kept {
        lines: Vec<String>,
        rows: usize,
        screen: (usize, usize),
        pager: Pager,
    },
    /// To a pager.
    Paged(Child),
}

/// A pager that can be started.
struct Pager {
    command: String,
    sets_options: bool,
}

static OUTPUT: Mutex<Output> = Mutex::new(Output::Direct);

/// Runs a command whose output is shown with a pager if it is longer than the screen. Prints
/// directly if standard input or standard output is no terminal, or if the pager is `cat` or empty.
/// Returns after the user has closed the pager.
pub(crate) fn with_pager<T>(
    terminal: &Terminal,
    environment: &Environment,
    command: impl FnOnce() -> T,
) -> T {
    let is_kept = start(terminal, environment);
    let ended = command();
    if is_kept {
        finish();
    }
    ended
}

/// Starts to keep output. Returns whether it does.
fn start(terminal: &Terminal, environment: &Environment) -> bool {
    let (columns, rows) = crossterm::terminal::size().unwrap_or_default();
    let command = environment.get("PAGER").map_or(PAGER, str::trim);
    let is_used = terminal.has_stdout
        && stdin().is_terminal()
        && !keyboard::is_dumb()
        && columns > 0
        && rows > 0;
    if !is_used || matches!(command, "" | "cat") {
        return false;
    }
    let pager = Pager {
        command: command.to_owned(),
        sets_options: environment.get("LESS").is_none(),
    };
    let screen = (usize::from(columns), usize::from(rows));
    *output() = Output::Kept {
        lines: Vec::new(),
        rows: 0,
        screen,
        pager,
    };
    true
}

fn output() -> MutexGuard<'static, Output> {
    OUTPUT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Prints a line.
///
/// # Errors
/// Standard output or the pager cannot be written; the pager has ended.
pub(crate) fn line(line: &str) -> std::io::Result<()> {
    let mut output = output();
    match &mut *output {
        Output::Direct => writeln!(stdout().lock(), "{line}"),
        Output::Paged(pager) => write_to(pager, line),
        Output::Kept {
            lines,
            rows,
            screen: (columns, height),
            pager,
        } => {
            *rows += line
                .split('\n')
                .map(|line| visible_width(line).div_ceil(*columns).max(1))
                .sum::<usize>();
            lines.push(line.to_owned());
            // The prompt of the shell needs a row too.
            if *rows < *height {
                return Ok(());
            }
            let lines = std::mem::take(lines);
            let started = pager.start();
            match started {
                Ok(mut pager) => {
                    let written = lines.iter().try_for_each(|line| write_to(&mut pager, line));
                    *output = Output::Paged(pager);
                    written
                }
                // There is no such pager.
                Err(_) => {
                    *output = Output::Direct;
                    lines
                        .iter()
                        .try_for_each(|line| writeln!(stdout().lock(), "{line}"))
                }
            }
        }
    }
}

/// Returns the width of a line without its escape codes for styles.
fn visible_width(line: &str) -> usize {
    let mut parts = line.split("\u{1b}[");
    let first = parts.next().map_or(0, text::width);
    first
        + parts
            .map(|part| {
                part.split_once('m')
                    .map_or(0, |(_, text)| text::width(text))
            })
            .sum::<usize>()
}

fn write_to(pager: &mut Child, line: &str) -> std::io::Result<()> {
    match &mut pager.stdin {
        Some(input) => writeln!(input, "{line}"),
        None => Ok(()),
    }
}

/// Prints what was kept, or waits until the user closes the pager.
fn finish() {
    match std::mem::replace(&mut *output(), Output::Direct) {
        Output::Direct => {}
        Output::Kept { lines, .. } => {
            // An error means that the terminal is gone.
            let _ = lines
                .iter()
                .try_for_each(|line| writeln!(stdout().lock(), "{line}"));
        }
        Output::Paged(mut pager) => {
            drop(pager.stdin.take());
            let _ = pager.wait();
        }
    }
}

impl Pager {
    fn start(&self) -> std::io::Result<Child> {
        let mut words = self.command.split_whitespace();
        let mut command = Command::new(words.next().unwrap_or(PAGER));
        command.args(words);
        if self.sets_options {
            command.env("LESS", LESS);
        }
        let started = command.stdin(Stdio::piped()).spawn()?;
        ignore_interrupts();
        Ok(started)
    }
}

/// Ignores Ctrl-C until the process exits, because it is meant for the pager.
fn ignore_interrupts() {
    let (installed, is_installed) = mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .build();
        let Ok(runtime) = runtime else { return };
        runtime.block_on(async {
            let _interrupts = signal(SignalKind::interrupt());
            let _ = installed.send(());
            std::future::pending::<()>().await;
        });
    });
    // Fails if the thread has ended, because there are no resources for it.
    let _ = is_installed.recv();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn styles_have_no_width() {
        for (line, width) in [
            ("", 0),
            ("abc", 3),
            ("\u{1b}[1mabc\u{1b}[0m d", 5),
            ("\u{1b}[31m好\u{1b}[0m", 2),
        ] {
            assert_eq!(visible_width(line), width, "{line:?}");
        }
    }
}
