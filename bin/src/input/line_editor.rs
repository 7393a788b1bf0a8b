//! The line editor of a terminal: keys and completion.
//!
//! Elsewhere: reading lines (`input.rs`), the commands of the chat (`command/chat/chat_input.rs`).

use std::{
    io::Write,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use ignore::WalkBuilder;
use rustyline::{
    Behavior, Cmd, CompletionType, ConditionalEventHandler, Config, Context, Editor, Event, EventContext, EventHandler,
    Helper, KeyCode, KeyEvent, Modifiers, RepeatCount,
    completion::{Completer, Pair},
    error::ReadlineError,
    highlight::Highlighter,
    hint::Hinter,
    history::DefaultHistory,
    validate::Validator,
};
use soong_tui::text;

/// Maximum number of files of a project that are searched for a name.
const MAX_SEARCHED_FILES: usize = 20_000;
/// Maximum number of files that are offered.
const MAX_OFFERED_FILES: usize = 30;

/// Names that Tab completes in a chat.
#[derive(Debug, Clone)]
pub(crate) struct Completions {
    /// Commands without `/`: name, arguments and description.
    pub(crate) commands: &'static [(&'static str, &'static str, &'static str)],
    /// Folder whose files are completed after `@`.
    pub(crate) project: Option<PathBuf>,
}

/// Editor with history, and with completion in a chat.
pub(crate) struct LineEditor {
    editor: Editor<LineHelper, DefaultHistory>,
    /// Whether Shift-Tab ended the last line.
    shift_tab: Arc<AtomicBool>,
}

/// A line that was read.
#[derive(Debug)]
pub(super) enum ReadLine {
    Line(String),
    /// Shift-Tab was pressed after this text.
    ShiftTab(String),
}

impl LineEditor {
    /// Opens the terminal. `completions`: present in a chat, whose lines may also have several lines.
    pub(super) fn open(behavior: Behavior, completions: Option<Completions>) -> Result<Self, ReadlineError> {
        let config = Config::builder().behavior(behavior).completion_type(CompletionType::List).build();
        let mut editor = Editor::with_config(config)?;
        let shift_tab = Arc::new(AtomicBool::new(false));
        if completions.is_some() {
            for key in [KeyEvent(KeyCode::Enter, Modifiers::ALT), KeyEvent::ctrl('J')] {
                editor.bind_sequence(key, EventHandler::Simple(Cmd::Newline));
            }
            let handler = Box::new(EndLine(Arc::clone(&shift_tab)));
            let key = KeyEvent(KeyCode::BackTab, Modifiers::NONE);
            editor.bind_sequence(key, EventHandler::Conditional(handler));
        }
        editor.set_helper(Some(LineHelper { completions }));
        Ok(Self { editor, shift_tab })
    }

    /// Reads a line, beginning with this text.
    pub(super) fn read(&mut self, prompt: &str, text: &str) -> Result<ReadLine, ReadlineError> {
        let line = self.editor.readline_with_initial(prompt, (text, ""))?;
        if self.shift_tab.swap(false, Ordering::AcqRel) {
            erase(prompt, &line);
            return Ok(ReadLine::ShiftTab(line));
        }
        self.editor.add_history_entry(&line)?;
        Ok(ReadLine::Line(line))
    }
}

/// Erases a line that was ended, so that it can be edited further.
fn erase(prompt: &str, line: &str) {
    let columns = crossterm::terminal::size().map_or(80, |(columns, _)| usize::from(columns).max(1));
    let rows: usize = format!("{prompt}{line}").split('\n').map(|row| 1 + text::width(row) / columns).sum();
    let mut terminal = super::terminal();
    // An error means that the terminal is gone.
    let _ = write!(terminal, "\u{1b}[{rows}A\r\u{1b}[J").and_then(|()| terminal.flush());
}

/// Ends the line, and records that this key did.
struct EndLine(Arc<AtomicBool>);

impl ConditionalEventHandler for EndLine {
    fn handle(&self, _: &Event, _: RepeatCount, _: bool, _: &EventContext<'_>) -> Option<Cmd> {
        self.0.store(true, Ordering::Release);
        Some(Cmd::AcceptLine)
    }
}

struct LineHelper {
    completions: Option<Completions>,
}

impl Completer for LineHelper {
    type Candidate = Pair;

    fn complete(&self, line: &str, at: usize, _: &Context<'_>) -> Result<(usize, Vec<Pair>), ReadlineError> {
        let Some(completions) = &self.completions else { return Ok((at, Vec::new())) };
        let typed = &line[..at];
        let start = typed.rfind(char::is_whitespace).map_or(0, |space| space + 1);
        let word = &typed[start..];
        let pairs = match (word.strip_prefix('/'), word.strip_prefix('@'), &completions.project) {
            (Some(name), ..) if start == 0 => commands(completions.commands, name),
            (_, Some(name), Some(project)) => files(project, name),
            _ => Vec::new(),
        };
        Ok((start, pairs))
    }
}

/// Returns the commands that begin with a name, each with its description.
fn commands(known: &[(&str, &str, &str)], name: &str) -> Vec<Pair> {
    let found = known.iter().filter(|(known, ..)| known.starts_with(name));
    let pair = |(name, arguments, about): &(&str, &str, &str)| Pair {
        display: format!("{:<18} {about}", format!("/{name} {arguments}").trim_end()),
        replacement: if arguments.is_empty() { format!("/{name}") } else { format!("/{name} ") },
    };
    found.map(pair).collect()
}

/// Returns the files of a project whose path contains a text, without ignored and hidden ones; first those whose path or
/// name begins with it.
fn files(project: &Path, part: &str) -> Vec<Pair> {
    let walk = WalkBuilder::new(project).require_git(false).sort_by_file_path(Ord::cmp).build();
    let files = walk.filter_map(Result::ok).filter(|entry| entry.file_type().is_some_and(|kind| kind.is_file()));
    let paths = files.take(MAX_SEARCHED_FILES).filter_map(|entry| {
        let path = entry.path().strip_prefix(project).ok()?.to_str()?.to_owned();
        // A name that the shell would quote cannot be typed as a word.
        (path.contains(part) && !path.contains(char::is_whitespace)).then_some(path)
    });
    let begins =
        |path: &String| path.starts_with(part) || path.rsplit('/').next().is_some_and(|name| name.starts_with(part));
    let (mut found, others): (Vec<String>, Vec<String>) = paths.partition(begins);
    found.extend(others);
    found.truncate(MAX_OFFERED_FILES);
    found.into_iter().map(|path| Pair { display: text::safe_line(&path), replacement: format!("@{path} ") }).collect()
}

impl Hinter for LineHelper {
    type Hint = String;
}

impl Highlighter for LineHelper {}

impl Validator for LineHelper {}

impl Helper for LineHelper {}

#[cfg(test)]
mod tests {
    use super::*;

    fn completed(helper: &LineHelper, line: &str) -> (usize, Vec<String>) {
        let history = DefaultHistory::new();
        let (start, pairs) = helper.complete(line, line.len(), &Context::new(&history)).unwrap();
        (start, pairs.into_iter().map(|pair| pair.replacement).collect())
    }

    #[test]
    fn commands_and_files_are_completed() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("src")).unwrap();
        for name in ["src/app.py", "src/map.py", "app.log", "a b.txt", ".gitignore"] {
            std::fs::write(dir.path().join(name), if name == ".gitignore" { "*.log\n" } else { "" }).unwrap();
        }
        let commands = &[("mode", "MODE", "about"), ("model", "NAME", "about"), ("quit", "", "about")];
        let helper = LineHelper { completions: Some(Completions { commands, project: Some(dir.path().to_owned()) }) };
        for (line, start, expected) in [
            ("/mo", 0, vec!["/mode ", "/model "]),
            ("/q", 0, vec!["/quit"]),
            ("say /q", 4, vec![]),
            ("look at @ap", 8, vec!["@src/app.py ", "@src/map.py "]),
            ("@src/m", 0, vec!["@src/map.py "]),
            ("@b.t", 0, vec![]),
            ("word", 0, vec![]),
        ] {
            assert_eq!(
                completed(&helper, line),
                (start, expected.into_iter().map(str::to_owned).collect()),
                "{line:?}"
            );
        }
        assert_eq!(completed(&LineHelper { completions: None }, "/mo"), (3, vec![]));
    }
}
