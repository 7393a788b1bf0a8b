//! Panic reports: a report file in the home, and a message of two lines for the user.
//!
//! A panic on the main thread ends the process: the terminal is restored and the message is
//! printed. A panic on another thread is handled by a supervisor or a caller: it is logged and
//! written to a report, but not printed, because that would damage a full-screen display.
//!
//! Invariants:
//! - A process writes at most [`MAX_REPORTS`] reports.
//! - A report contains no prompt and nothing that looks like a secret.
//!
//! Not in this module: recovery from the panic, which is part of the library.

use std::{
    backtrace::Backtrace,
    ffi::OsString,
    fs::File,
    io::{self, Write},
    panic::PanicHookInfo,
    path::{Path, PathBuf},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
    thread::{self, ThreadId},
};

use clap::CommandFactory;
use soong::protocol::Timestamp;
use soong_tui::{screen, text};

use crate::{cli::Cli, print, secret};

/// Maximum number of reports per process. Further panics rarely add information.
const MAX_REPORTS: u32 = 10;

/// Home that reports are written to. `None` until the home is known.
static HOME: Mutex<Option<PathBuf>> = Mutex::new(None);

/// Returns the log folder of a home.
pub(crate) fn log_folder(home: &Path) -> PathBuf {
    home.join("logs")
}

/// Sets the home that reports are written to.
pub(crate) fn set_home(home: &Path) {
    *HOME.lock().unwrap_or_else(PoisonError::into_inner) = Some(home.to_owned());
}

/// Installs the panic hook. The caller must be the main thread.
pub(crate) fn report() {
    let reporter = Reporter::new(thread::current().id());
    std::panic::set_hook(Box::new(move |info| {
        // The panicking thread may hold the lock, so waiting for it could deadlock. If it is held,
        // no report is written.
        let home = HOME.try_lock().ok().and_then(|home| home.clone());
        reporter.tell(info, home.as_deref());
    }));
}

/// Facts about a panic.
struct PanicReport {
    at: Timestamp,
    thread: String,
    message: String,
    location: String,
    backtrace: Backtrace,
}

/// Removes the part of a message from its first to its last backtick. The message of a slice error
/// quotes the sliced text there, which may be a prompt.
fn without_quotes(message: &str) -> String {
    match (message.find('`'), message.rfind('`')) {
        (Some(begin), Some(end)) if begin < end => {
            format!("{}[omitted]{}", &message[..begin], &message[end + 1..])
        }
        _ => message.to_owned(),
    }
}

impl PanicReport {
    fn of(info: &PanicHookInfo<'_>) -> Self {
        let payload = info.payload();
        let message = payload
            .downcast_ref::<&str>()
            .map(|text| (*text).to_owned());
        let message = message.or_else(|| payload.downcast_ref::<String>().cloned());
        Self {
            at: screen::now(),
            thread: thread::current().name().unwrap_or("unnamed").to_owned(),
            message: secret::hide_likely_secrets(&without_quotes(
                &message.unwrap_or_else(|| "no message".to_owned()),
            )),
            location: info
                .location()
                .map_or_else(|| "unknown location".to_owned(), ToString::to_string),
            backtrace: Backtrace::force_capture(),
        }
    }

    fn report(&self, arguments: impl IntoIterator<Item = OsString>) -> String {
        let Self {
            at,
            thread,
            message,
            location: index,
            backtrace,
        } = self;
        format!(
            "soong {} crashed\n\n\
             time     {at}\n\
             system   {} {}\n\
             command  {}\n\
             thread   {thread}\n\
             message  {message}\n\
             at       {index}\n\n\
             {backtrace}\n",
            env!("CARGO_PKG_VERSION"),
            std::env::consts::OS,
            std::env::consts::ARCH,
            command_line(arguments),
        )
    }
}

/// Reports panics.
struct Reporter {
    main: ThreadId,
    report_count: AtomicU32,
}

impl Reporter {
    fn new(main: ThreadId) -> Self {
        Self {
            main,
            report_count: AtomicU32::new(0),
        }
    }

    fn tell(&self, info: &PanicHookInfo<'_>, home: Option<&Path>) {
        let is_main = thread::current().id() == self.main;
        if is_main {
            screen::restore_terminal();
            let _ = crossterm::terminal::disable_raw_mode();
        }
        let crash = PanicReport::of(info);
        let file = home.and_then(|home| self.write(&crash, home));
        if is_main {
            for line in user_message(&crash, file.as_deref()) {
                print::error_line(&line);
            }
            return;
        }
        let file = file.map_or_else(|| "none".to_owned(), |file| file.display().to_string());
        tracing::error!(
            thread = crash.thread,
            message = crash.message,
            at = crash.location,
            report = file,
            "a thread panicked"
        );
    }

    /// Writes a report. Returns `None` if there is no home yet, if the report cannot be written, or
    /// if the limit is reached.
    fn write(&self, crash: &PanicReport, home: &Path) -> Option<PathBuf> {
        if !home.is_dir() || self.report_count.fetch_add(1, Ordering::Relaxed) >= MAX_REPORTS {
            return None;
        }
        let report = crash.report(std::env::args_os());
        write_new(&log_folder(home), crash.at, &report).ok()
    }
}

/// Writes a text to a new file whose name contains the time and the process id, and a number if the
/// name is taken.
fn write_new(folder: &Path, at: Timestamp, text: &str) -> io::Result<PathBuf> {
    std::fs::create_dir_all(folder)?;
    let time = at.to_string().replace(['-', ':'], "");
    let stem = format!("panic-{time}-{}", std::process::id());
    let mut names = [format!("{stem}.txt")]
        .into_iter()
        .chain((2..=MAX_REPORTS).map(|n| format!("{stem}-{n}.txt")));
    loop {
        let path = folder.join(names.next().ok_or(io::ErrorKind::AlreadyExists)?);
        match File::create_new(&path) {
            Ok(mut file) => return file.write_all(text.as_bytes()).map(|()| path),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
}

/// Returns the two lines of the message for the user: what happened, and what to do.
fn user_message(crash: &PanicReport, file: Option<&Path>) -> [String; 2] {
    let what = format!(
        "error: soong crashed: {} (at {})",
        text::safe_line(&crash.message),
        text::safe_line(&crash.location)
    );
    match file {
        Some(file) => [
            format!(
                "{what}; report: {}",
                text::safe_line_keep_spaces(&file.display().to_string())
            ),
            "  This is a bug in soong: please report it with that file. Recorded data is safe."
                .to_owned(),
        ],
        None => [
            what,
            "  This is a bug in soong: please report it with this line. Recorded data is safe."
                .to_owned(),
        ],
    }
}

/// Formats the names of the commands and options of a command line. `…` replaces values and all
/// other arguments.
fn command_line(arguments: impl IntoIterator<Item = OsString>) -> String {
    let mut whole = Cli::command();
    whole.build(); // adds the global options to every subcommand
    let mut command = &whole;
    let mut words = vec!["soong".to_owned()];
    for argument in arguments.into_iter().skip(1) {
        let argument = argument.to_string_lossy();
        let name = argument.split('=').next().unwrap_or_default();
        let is_long = |long: &str| name.strip_prefix("--") == Some(long);
        let is_short = |short: char| {
            name.strip_prefix('-')
                .is_some_and(|rest| !rest.is_empty() && rest.chars().all(|c| c == short))
        };
        let is_option = command.get_arguments().any(|option| {
            option.get_long().is_some_and(is_long) || option.get_short().is_some_and(is_short)
        });
        if let Some(next) = command.find_subcommand(&*argument) {
            command = next;
            words.push(next.get_name().to_owned());
        } else if is_option {
            words.push(name.to_owned());
        } else if words.last().is_none_or(|last| last != "…") {
            words.push("…".to_owned());
        }
    }
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use std::{panic, sync::Arc};

    use super::*;

    #[test]
    fn quoted_text_is_removed_from_messages() {
        for (message, want) in [
            (
                "byte index 5 is out of bounds of `the prompt`",
                "byte index 5 is out of bounds of [omitted]",
            ),
            ("`a` and `b` differ", "[omitted] differ"),
            ("a lone ` stays", "a lone ` stays"),
            ("plain", "plain"),
        ] {
            assert_eq!(without_quotes(message), want);
        }
    }

    #[test]
    fn command_line_is_reported_without_values() {
        for (line, want) in [
            ("soong", "soong"),
            ("/usr/bin/soong run secret-prompt", "soong run …"),
            (
                "soong --home /secret run --model secret --timeout=9 -",
                "soong --home … run --model … --timeout …",
            ),
            (
                "soong -vv traces events secret --since 3 --follow",
                "soong -vv traces events … --since … --follow",
            ),
            ("soong run -- --home list", "soong run … --home …"),
            ("soong run --secret=x -x", "soong run …"),
        ] {
            assert_eq!(
                command_line(line.split(' ').map(OsString::from)),
                want,
                "{line}"
            );
        }
    }

    /// Panics `times` times on a separate thread while a reporter is installed, and returns the
    /// texts of the reports.
    fn reports(home: &Path, times: u32, is_main: bool) -> Vec<String> {
        let home_of_hook = home.to_owned();
        let before: Arc<dyn Fn(&PanicHookInfo<'_>) + Send + Sync> = Arc::from(panic::take_hook());
        let of_others = Arc::clone(&before);
        let thread = thread::Builder::new().name("panics".to_owned());
        let panics = thread.spawn(move || {
            let main = if is_main {
                thread::current().id()
            } else {
                thread::spawn(|| {}).thread().id()
            };
            let reporter = Reporter::new(main);
            panic::set_hook(Box::new(move |info| {
                // Other tests may panic at the same time.
                let is_ours = thread::current().name() == Some("panics");
                if is_ours {
                    reporter.tell(info, Some(&home_of_hook))
                } else {
                    of_others(info)
                }
            }));
            for n in 0..times {
                assert!(
                    panic::catch_unwind(|| panic!("number {n} with sk-0123456789abcdef")).is_err()
                );
            }
        });
        let ended = panics.unwrap().join();
        panic::set_hook(Box::new(move |info| before(info)));
        ended.unwrap();
        let Ok(folder) = std::fs::read_dir(log_folder(home)) else {
            return Vec::new();
        };
        let mut paths: Vec<PathBuf> = folder.map(|entry| entry.unwrap().path()).collect();
        paths.sort();
        for path in &paths {
            let name = path.file_name().unwrap().to_str().unwrap();
            assert!(
                name.starts_with("panic-2") && name.contains(&format!("-{}", std::process::id())),
                "{name}"
            );
        }
        paths
            .iter()
            .map(|path| std::fs::read_to_string(path).unwrap())
            .collect()
    }

    #[test]
    fn panic_reports_are_complete_redacted_and_limited_in_number() {
        let home = tempfile::tempdir().unwrap();
        let found = reports(home.path(), MAX_REPORTS + 5, false);
        assert_eq!(found.len(), MAX_REPORTS as usize);
        for part in [
            concat!("soong ", env!("CARGO_PKG_VERSION"), " crashed"),
            "time     2",
            std::env::consts::OS,
            "command  soong",
            "thread   panics",
            " with [hidden]\n",
            "panic.rs:",
        ] {
            assert!(
                found.iter().all(|report| report.contains(part)),
                "{part:?} is missing in {}",
                found[0]
            );
        }
        assert!(
            found
                .iter()
                .any(|report| report.contains("message  number 0 "))
        );
        assert!(!found.concat().contains("sk-0"), "no secret");

        let nowhere = home.path().join("nowhere");
        assert!(
            reports(&nowhere, 1, true).is_empty(),
            "a home is not made for a report"
        );
        assert!(!nowhere.exists());
    }

    #[test]
    fn crash_message_has_two_lines_and_names_the_report() {
        let crash = PanicReport {
            at: Timestamp::from_millis(0),
            thread: "main".to_owned(),
            message: "it\nbroke \u{1b}[31m".to_owned(),
            location: "a.rs:1:2".to_owned(),
            backtrace: Backtrace::disabled(),
        };
        let [what, advice] = user_message(&crash, Some(Path::new("/h/logs/panic.txt")));
        assert_eq!(
            what,
            "error: soong crashed: it broke \u{fffd}[31m (at a.rs:1:2); report: /h/logs/panic.txt"
        );
        assert!(
            advice.contains("report it with that file") && advice.contains("is safe"),
            "{advice}"
        );
        assert!(!user_message(&crash, None).concat().contains("that file"));
    }
}
