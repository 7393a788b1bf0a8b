//! User input in conversations: lines with editing and history on a terminal, plain lines from a
//! pipe.
//!
//! Elsewhere: keys and completion (`line_editor.rs`).

mod line_editor;

use std::{
    io::{BufRead, IsTerminal, Read as _, Write, stderr, stdin, stdout},
    path::Path,
    sync::{Mutex, PoisonError},
};

use rustix::termios::Termios;
use rustyline::{Behavior, error::ReadlineError};
use soong::protocol::PermissionMode;
use soong_tui::keyboard::{self, EchoOff};
use tokio::task::JoinHandle;

pub(crate) use self::line_editor::{ChatKey, Completion, Completions};
use self::line_editor::{LineEditor, ReadLine, ReadStart, Replacement, erase};
use crate::exit::{Exit, Failure};

/// Result of reading a line.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum InputLine {
    /// A line; several lines if they were pasted together.
    Line(String),
    /// A key of the chat was pressed after this text.
    Key(ChatKey, String),
    /// The line was discarded (Ctrl-C).
    Discarded,
    /// The input has ended (Ctrl-D, or the end of the pipe).
    Closed,
}

/// Returns the permission mode that follows when the user presses Shift-Tab, which never selects
/// `all`.
pub(crate) const fn next_permission_mode(mode: PermissionMode) -> PermissionMode {
    match mode {
        PermissionMode::Ask => PermissionMode::Edits,
        PermissionMode::Edits => PermissionMode::Plan,
        PermissionMode::Plan | PermissionMode::All => PermissionMode::Ask,
    }
}

/// Source of lines.
pub(crate) enum Input {
    /// A terminal. The editor is `None` while a line is being read. Keys typed between the prompts
    /// of a chat are kept for the next one.
    Terminal {
        editor: Option<Editor>,
        _echo_off: Option<EchoOff>,
    },
    /// A pipe or a file.
    Pipe,
}

/// Line reader of a terminal.
pub(crate) enum Editor {
    /// With editing and history.
    Rich(Box<LineEditor>),
    /// Line editing by the terminal driver, for a terminal that cannot move its cursor
    /// (`TERM=dumb`).
    Plain,
}

impl Editor {
    fn read(&mut self, prompt: &str, text: &str) -> Result<ReadLine, ReadlineError> {
        if let Self::Rich(editor) = self {
            return editor.read(prompt, text);
        }
        let mut terminal = terminal();
        write!(terminal, "{prompt}").and_then(|()| terminal.flush())?;
        match read_line() {
            Ok(InputLine::Line(line)) => Ok(ReadLine::Line(line)),
            Ok(InputLine::Key(..) | InputLine::Discarded | InputLine::Closed) => {
                Err(ReadlineError::Eof)
            }
            Err(failure) => Err(std::io::Error::other(failure.what).into()),
        }
    }
}

impl Input {
    /// Opens standard input for a chat.
    pub(crate) fn of_chat(completions: Completions) -> Result<Self, Failure> {
        if stdin().is_terminal() && stdout().is_terminal() {
            Self::of_terminal(Some(completions))
        } else {
            Ok(Self::Pipe)
        }
    }

    /// Opens the terminal for a prompt, even if standard output is redirected.
    pub(crate) fn of_person() -> Result<Self, Failure> {
        Self::of_terminal(None)
    }

    fn of_terminal(completions: Option<Completions>) -> Result<Self, Failure> {
        if keyboard::is_dumb() {
            return Ok(Self::Terminal {
                editor: Some(Editor::Plain),
                _echo_off: None,
            });
        }
        let behavior = if stdout().is_terminal() {
            Behavior::Stdio
        } else {
            Behavior::PreferTerm
        };
        let editor = LineEditor::open(behavior, completions).map_err(|error| unreadable(&error))?;
        Ok(Self::Terminal {
            editor: Some(Editor::Rich(Box::new(editor))),
            _echo_off: Some(EchoOff::begin()),
        })
    }

    /// Sets the folder whose files Tab completes.
    pub(crate) fn set_project(&mut self, project: &Path) {
        if let Self::Terminal {
            editor: Some(Editor::Rich(editor)),
            ..
        } = self
        {
            editor.set_project(project);
        }
    }

    /// Returns whether the input is a terminal.
    pub(crate) fn is_terminal(&self) -> bool {
        matches!(self, Self::Terminal { .. })
    }

    /// Waits for the next line, which begins with `text`. If the future is dropped, a partly typed
    /// line is discarded.
    pub(crate) async fn next(&mut self, prompt: &str, text: &str) -> Result<InputLine, Failure> {
        match self {
            Self::Pipe => blocking(read_line).await?,
            Self::Terminal { editor: slot, .. } => {
                let (editor, read_result) = match LineRead::resume(prompt) {
                    Some(mut abandoned) => {
                        let (editor, read_result) = abandoned.line().await?;
                        match abandoned.replacement.take_key() {
                            Some(key) => {
                                erase(prompt, "");
                                // The same editor reads on, because it may have received further
                                // keys.
                                LineRead::start(editor, prompt, &format!("{text}{key}"))
                                    .line()
                                    .await?
                            }
                            None => (editor, read_result),
                        }
                    }
                    None => {
                        let Some(editor) = slot.take() else {
                            return Ok(InputLine::Closed);
                        };
                        LineRead::start(editor, prompt, text).line().await?
                    }
                };
                slot.get_or_insert(editor);
                match read_result {
                    Ok(ReadLine::Line(line)) => Ok(InputLine::Line(line)),
                    Ok(ReadLine::Key(key, text)) => Ok(InputLine::Key(key, text)),
                    Err(ReadlineError::Interrupted) => Ok(InputLine::Discarded),
                    Err(ReadlineError::Eof) => Ok(InputLine::Closed),
                    Err(error) => Err(unreadable(&error)),
                }
            }
        }
    }
}

type ReadResult = (Editor, Result<ReadLine, ReadlineError>);

/// A line that is being read on a terminal, by a thread that cannot be cancelled.
struct LineRead {
    read: Option<JoinHandle<ReadResult>>,
    replacement: Replacement,
    start: ReadStart,
}

/// The abandoned read of a line, and the terminal mode it had. A terminal has only one reader at a
/// time.
static ABANDONED_READ: Mutex<Option<(LineRead, Option<Termios>)>> = Mutex::new(None);

impl LineRead {
    fn start(mut editor: Editor, prompt: &str, text: &str) -> Self {
        let prompt = prompt.to_owned();
        let text = text.to_owned();
        let (replacement, start) = match &editor {
            Editor::Rich(editor) => (editor.replacement().clone(), editor.start().clone()),
            Editor::Plain => (Replacement::default(), ReadStart::default()),
        };
        // The terminal driver edits a plain line, in the modes that the terminal has.
        start.set(matches!(editor, Editor::Plain));
        let started = start.clone();
        let read = Some(tokio::task::spawn_blocking(move || {
            keyboard::set_prompt_active(true);
            let read_result = editor.read(&prompt, &text);
            started.set(true);
            keyboard::set_prompt_active(false);
            keyboard::set_prompt_abandoned(false);
            (editor, read_result)
        }));
        Self {
            read,
            replacement,
            start,
        }
    }

    /// Returns an abandoned read, which the next key ends, below a new prompt. Returns `None` if
    /// there is none, or if its line is complete: that line was meant for the previous prompt.
    fn resume(prompt: &str) -> Option<Self> {
        let (abandoned, mode) = ABANDONED_READ
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()?;
        if abandoned.read.as_ref().is_none_or(JoinHandle::is_finished) {
            return None;
        }
        abandoned.replacement.request();
        if let Some(mode) = mode {
            keyboard::resume_prompt(&mode);
        }
        keyboard::set_prompt_active(true);
        let _ = write!(terminal(), "{prompt}").and_then(|()| terminal().flush());
        Some(abandoned)
    }

    async fn line(&mut self) -> Result<ReadResult, Failure> {
        match &mut self.read {
            Some(read) => {
                let line = read.await.map_err(read_failure);
                self.read = None;
                line
            }
            None => std::future::pending().await,
        }
    }
}

impl Drop for LineRead {
    fn drop(&mut self) {
        if let Some(read) = self.read.take() {
            // An editor that is still starting would change the terminal after it was restored
            // here.
            self.start.wait();
            keyboard::set_prompt_abandoned(!read.is_finished());
            let mode = keyboard::suspend_prompt();
            let _ = writeln!(terminal());
            let abandoned = Self {
                read: Some(read),
                replacement: self.replacement.clone(),
                start: self.start.clone(),
            };
            *ABANDONED_READ
                .lock()
                .unwrap_or_else(PoisonError::into_inner) = Some((abandoned, mode));
        }
    }
}

/// Returns the stream that is shown on the terminal.
fn terminal() -> Box<dyn Write> {
    if stdout().is_terminal() {
        Box::new(stdout())
    } else {
        Box::new(stderr())
    }
}

fn read_line() -> Result<InputLine, Failure> {
    let mut line = Vec::new();
    match stdin().lock().read_until(b'\n', &mut line) {
        Ok(0) => Ok(InputLine::Closed),
        Ok(_) => Ok(InputLine::Line(
            decoded(line)?.trim_end_matches(['\n', '\r']).to_owned(),
        )),
        Err(error) => Err(unreadable(&error)),
    }
}

/// Reads standard input to its end.
pub(crate) fn read_all() -> Result<String, Failure> {
    let mut bytes = Vec::new();
    stdin()
        .lock()
        .read_to_end(&mut bytes)
        .map_err(|error| unreadable(&error))?;
    decoded(bytes)
}

/// Decodes UTF-8 text and removes a leading byte order mark.
fn decoded(bytes: Vec<u8>) -> Result<String, Failure> {
    if bytes.starts_with(&[0xff, 0xfe]) || bytes.starts_with(&[0xfe, 0xff]) {
        return Err(unreadable(&"the text is UTF-16, not UTF-8"));
    }
    let mut text = String::from_utf8(bytes).map_err(|_| unreadable(&"the text is not UTF-8"))?;
    if text.starts_with('\u{feff}') {
        text.drain(..'\u{feff}'.len_utf8());
    }
    Ok(text)
}

/// Waits on a separate thread. A dropped wait does not delay the end of the process.
async fn blocking<T: Send + 'static>(
    wait: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Failure> {
    tokio::task::spawn_blocking(wait)
        .await
        .map_err(read_failure)
}

fn read_failure(error: tokio::task::JoinError) -> Failure {
    let what = format!("the line could not be read: {error}");
    Failure::new(
        Exit::Failed,
        what,
        "This is a bug in soong: please report it with the logs in the home.",
    )
}

fn unreadable(error: &dyn std::fmt::Display) -> Failure {
    Failure::new(
        Exit::Usage,
        format!("standard input cannot be read: {error}"),
        "Use UTF-8 text; `iconv -t UTF-8` converts other encodings.",
    )
}
