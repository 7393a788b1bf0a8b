//! The line editor of a terminal: keys and completion.
//!
//! Elsewhere: reading lines (`input.rs`), the commands of the chat (`command/chat/chat_input.rs`).

use std::{
    io::Write,
    path::{Path, PathBuf},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use ignore::WalkBuilder;
use rustyline::{
    Behavior, Cmd, CompletionType, ConditionalEventHandler, Config, Context, Editor, Event,
    EventContext, EventHandler, Helper, KeyCode, KeyEvent, Modifiers, RepeatCount,
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
/// Maximum time until an editor reads keys.
const START_TIMEOUT: Duration = Duration::from_millis(500);
/// Maximum number of files that are offered.
const MAX_OFFERED_FILES: usize = 30;

/// Names that Tab completes in a chat.
#[derive(Debug, Clone)]
pub(crate) struct Completions {
    /// Commands, which are completed at the beginning of a line.
    pub(crate) commands: Vec<Completion>,
    /// Folder whose files are completed after `@`.
    pub(crate) project: Option<PathBuf>,
}

/// A text that completes what was typed, and the line that describes it.
#[derive(Debug, Clone)]
pub(crate) struct Completion {
    pub(crate) text: String,
    pub(crate) description: String,
}

/// Ends the reading of a line whose prompt is gone: the next key ends it, and is kept for the
/// prompt that has replaced it. The text that was typed before is discarded, because it was meant
/// for the other prompt.
#[derive(Debug, Clone, Default)]
pub(super) struct Replacement(Arc<Mutex<ReplacementState>>);

#[derive(Debug, Clone, Copy, Default)]
enum ReplacementState {
    #[default]
    Idle,
    Requested,
    /// Ended by this key; `None` if the key is not a character.
    Ended(Option<char>),
}

impl Replacement {
    fn state(&self) -> MutexGuard<'_, ReplacementState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the next key end the line.
    pub(super) fn request(&self) {
        *self.state() = ReplacementState::Requested;
    }

    /// Returns the text of the key that has ended the line. `None` if the line ended otherwise.
    pub(super) fn take_key(&self) -> Option<String> {
        match std::mem::take(&mut *self.state()) {
            ReplacementState::Ended(key) => Some(key.map(String::from).unwrap_or_default()),
            ReplacementState::Idle | ReplacementState::Requested => None,
        }
    }
}

impl ConditionalEventHandler for Replacement {
    fn handle(&self, event: &Event, _: RepeatCount, _: bool, _: &EventContext<'_>) -> Option<Cmd> {
        let mut state = self.state();
        if !matches!(*state, ReplacementState::Requested) {
            return None;
        }
        let key = event.get(0).copied();
        // These keys mean the same at each prompt.
        let ending = [
            (KeyEvent::ctrl('C'), Cmd::Interrupt),
            (KeyEvent::ctrl('D'), Cmd::EndOfFile),
        ];
        if let Some((_, command)) = ending.into_iter().find(|(ending, _)| Some(*ending) == key) {
            *state = ReplacementState::Idle;
            return Some(command);
        }
        *state = ReplacementState::Ended(match key {
            Some(KeyEvent(KeyCode::Char(key), Modifiers::NONE)) => Some(key),
            _ => None,
        });
        // Not an error, after which the editor would lose the keys that it has received already.
        Some(Cmd::AcceptLine)
    }
}

/// Editor with history, and with completion in a chat.
pub(crate) struct LineEditor {
    editor: Editor<LineHelper, DefaultHistory>,
    /// The key that ended the last line, other than Enter.
    end_key: Arc<Mutex<Option<ChatKey>>>,
    replacement: Replacement,
    start: ReadStart,
}

/// A line that was read.
#[derive(Debug)]
pub(super) enum ReadLine {
    Line(String),
    /// A key of the chat was pressed after this text.
    Key(ChatKey, String),
}

/// A key that a chat handles itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChatKey {
    /// Shift-Tab: the next permission mode.
    NextPermissionMode,
    /// Ctrl-G: edit the text in an editor.
    OpenEditor,
    /// Esc Esc: go back to a message.
    GoBack,
    /// Ctrl-O: show the last output completely.
    Unfold,
}

impl LineEditor {
    /// Opens the terminal. `completions`: present in a chat, whose lines may also have several
    /// lines.
    pub(super) fn open(
        behavior: Behavior,
        completions: Option<Completions>,
    ) -> Result<Self, ReadlineError> {
        let config = Config::builder()
            .behavior(behavior)
            .completion_type(CompletionType::List)
            .build();
        let mut editor = Editor::with_config(config)?;
        let end_key = Arc::new(Mutex::new(None));
        if completions.is_some() {
            for key in [
                KeyEvent(KeyCode::Enter, Modifiers::ALT),
                KeyEvent::ctrl('J'),
            ] {
                editor.bind_sequence(key, EventHandler::Simple(Cmd::Newline));
            }
            for (key, meaning) in [
                (
                    KeyEvent(KeyCode::BackTab, Modifiers::NONE),
                    ChatKey::NextPermissionMode,
                ),
                (KeyEvent::ctrl('G'), ChatKey::OpenEditor),
                (KeyEvent::ctrl('O'), ChatKey::Unfold),
                // The editor reads Esc Esc as this key, and a single Esc as the start of another
                // one.
                (KeyEvent(KeyCode::Esc, Modifiers::NONE), ChatKey::GoBack),
            ] {
                let handler = Box::new(EndLine {
                    key: meaning,
                    pressed: Arc::clone(&end_key),
                });
                editor.bind_sequence(key, EventHandler::Conditional(handler));
            }
        }
        let replacement = Replacement::default();
        editor.bind_sequence(
            Event::Any,
            EventHandler::Conditional(Box::new(replacement.clone())),
        );
        let start = ReadStart::default();
        editor.set_helper(Some(LineHelper {
            completions,
            start: start.clone(),
        }));
        Ok(Self {
            editor,
            end_key,
            replacement,
            start,
        })
    }

    /// Sets the folder whose files are completed.
    pub(super) fn set_project(&mut self, project: &Path) {
        if let Some(completions) = self
            .editor
            .helper_mut()
            .and_then(|helper| helper.completions.as_mut())
        {
            completions.project = Some(project.to_owned());
        }
    }

    pub(super) fn replacement(&self) -> &Replacement {
        &self.replacement
    }

    pub(super) fn start(&self) -> &ReadStart {
        &self.start
    }

    /// Reads a line, beginning with this text.
    pub(super) fn read(&mut self, prompt: &str, text: &str) -> Result<ReadLine, ReadlineError> {
        let line = self.editor.readline_with_initial(prompt, (text, ""))?;
        if let Some(key) = self
            .end_key
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
        {
            erase(prompt, &line);
            return Ok(ReadLine::Key(key, line));
        }
        if !matches!(*self.replacement.state(), ReplacementState::Ended(_)) {
            self.editor.add_history_entry(&line)?;
        }
        Ok(ReadLine::Line(line))
    }
}

/// Erases a line that was ended, so that it can be edited further.
pub(super) fn erase(prompt: &str, line: &str) {
    let columns =
        crossterm::terminal::size().map_or(80, |(columns, _)| usize::from(columns).max(1));
    let rows: usize = format!("{prompt}{line}")
        .split('\n')
        .map(|row| 1 + text::width(row) / columns)
        .sum();
    let mut terminal = super::terminal();
    // An error means that the terminal is gone.
    let _ = write!(terminal, "\u{1b}[{rows}A\r\u{1b}[J").and_then(|()| terminal.flush());
}

/// Ends the line, and records that this key did.
struct EndLine {
    key: ChatKey,
    pressed: Arc<Mutex<Option<ChatKey>>>,
}

impl ConditionalEventHandler for EndLine {
    fn handle(&self, _: &Event, _: RepeatCount, _: bool, _: &EventContext<'_>) -> Option<Cmd> {
        *self.pressed.lock().unwrap_or_else(PoisonError::into_inner) = Some(self.key);
        Some(Cmd::AcceptLine)
    }
}

struct LineHelper {
    completions: Option<Completions>,
    start: ReadStart,
}

/// Whether an editor has set its terminal modes and reads keys.
#[derive(Debug, Clone, Default)]
pub(super) struct ReadStart(Arc<(Mutex<bool>, Condvar)>);

impl ReadStart {
    fn state(&self) -> MutexGuard<'_, bool> {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn set(&self, has_started: bool) {
        *self.state() = has_started;
        self.0.1.notify_all();
    }

    /// Waits until the editor reads keys, at most for a moment.
    pub(super) fn wait(&self) {
        // An error means that a thread has panicked.
        let _ = self
            .0
            .1
            .wait_timeout_while(self.state(), START_TIMEOUT, |has_started| !*has_started);
    }
}

impl Completer for LineHelper {
    type Candidate = Pair;

    fn complete(
        &self,
        line: &str,
        at: usize,
        _: &Context<'_>,
    ) -> Result<(usize, Vec<Pair>), ReadlineError> {
        let Some(completions) = &self.completions else {
            return Ok((at, Vec::new()));
        };
        let typed = &line[..at];
        let space = typed.char_indices().rfind(|(_, c)| c.is_whitespace());
        let start = space.map_or(0, |(at, c)| at + c.len_utf8());
        let word = &typed[start..];
        let pairs = match (word.strip_prefix('@'), &completions.project) {
            _ if start == 0 && word.starts_with('/') => commands(&completions.commands, word),
            (Some(name), Some(project)) => files(project, name),
            _ => Vec::new(),
        };
        Ok((start, pairs))
    }
}

/// Returns the commands that begin with a word, each with its description.
fn commands(known: &[Completion], word: &str) -> Vec<Pair> {
    let found = known.iter().filter(|known| known.text.starts_with(word));
    found
        .map(|known| Pair {
            display: known.description.clone(),
            replacement: known.text.clone(),
        })
        .collect()
}

/// Returns the files of a project whose path begins with a text, without ignored and hidden ones.
/// If there are none, returns the first file whose name begins with it, or else whose path contains
/// it. Names with spaces are not offered.
fn files(project: &Path, part: &str) -> Vec<Pair> {
    let walk = WalkBuilder::new(project)
        .require_git(false)
        .sort_by_file_path(Ord::cmp)
        .build();
    let files = walk
        .filter_map(Result::ok)
        .filter(|entry| entry.file_type().is_some_and(|kind| kind.is_file()));
    let paths = files.take(MAX_SEARCHED_FILES).filter_map(|entry| {
        let path = entry
            .path()
            .strip_prefix(project)
            .ok()?
            .to_str()?
            .to_owned();
        // The editor writes a name as it is, so one that affects the terminal is not offered.
        let is_offered = !path.contains(char::is_whitespace) && text::safe_line(&path) == path;
        (is_offered && path.contains(part)).then_some(path)
    });
    let (mut found, others): (Vec<String>, Vec<String>) =
        paths.partition(|path| path.starts_with(part));
    if found.is_empty() {
        // Only one: the common beginning of several would replace what was typed.
        let is_named = |path: &&String| {
            path.rsplit('/')
                .next()
                .is_some_and(|name| name.starts_with(part))
        };
        found.extend(others.iter().find(is_named).or(others.first()).cloned());
    }
    found.truncate(MAX_OFFERED_FILES);
    found
        .into_iter()
        .map(|path| Pair {
            display: path.clone(),
            replacement: format!("@{path} "),
        })
        .collect()
}

impl Hinter for LineHelper {
    type Hint = String;

    fn hint(&self, _: &str, _: usize, _: &Context<'_>) -> Option<String> {
        // The editor asks for a hint whenever it draws the line, for the first time after it has
        // set its terminal modes.
        self.start.set(true);
        None
    }
}

impl Highlighter for LineHelper {}

impl Validator for LineHelper {}

impl Helper for LineHelper {}

#[cfg(test)]
mod tests {
    use super::*;

    fn completed(helper: &LineHelper, line: &str) -> (usize, Vec<String>) {
        let history = DefaultHistory::new();
        let (start, pairs) = helper
            .complete(line, line.len(), &Context::new(&history))
            .unwrap();
        (
            start,
            pairs.into_iter().map(|pair| pair.replacement).collect(),
        )
    }

    #[test]
    fn commands_and_files_are_completed() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("src")).unwrap();
        for name in [
            "src/app.py",
            "src/map.py",
            "app.log",
            "a b.txt",
            "esc\u{1b}[2J.txt",
            ".gitignore",
        ] {
            std::fs::write(
                dir.path().join(name),
                if name == ".gitignore" { "*.log\n" } else { "" },
            )
            .unwrap();
        }
        let command = |text: &str| Completion {
            text: text.to_owned(),
            description: "about".to_owned(),
        };
        let commands = ["/mode ", "/model ", "/quit"].map(command).to_vec();
        let helper = LineHelper {
            completions: Some(Completions {
                commands,
                project: Some(dir.path().to_owned()),
            }),
            start: ReadStart::default(),
        };
        for (line, start, expected) in [
            ("/mo", 0, vec!["/mode ", "/model "]),
            ("/q", 0, vec!["/quit"]),
            ("say /q", 4, vec![]),
            ("look at @ap", 8, vec!["@src/app.py "]),
            ("look\u{3000}@src/", 7, vec!["@src/app.py ", "@src/map.py "]),
            ("@p.py", 0, vec!["@src/app.py "]),
            ("@esc", 0, vec![]),
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
        assert_eq!(
            completed(
                &LineHelper {
                    completions: None,
                    start: ReadStart::default()
                },
                "/mo"
            ),
            (3, vec![])
        );
    }
}
