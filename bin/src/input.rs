//! What a person says in a conversation: lines with editing and history on a terminal, plain ones
//! from a pipe.

use std::{
    io::{BufRead, IsTerminal, Read as _, Write, stderr, stdin, stdout},
    sync::{Mutex, PoisonError},
};

use rustix::termios::Termios;
use rustyline::{Behavior, Config, DefaultEditor, error::ReadlineError};
use tokio::task::JoinHandle;

use crate::{
    exit::{Exit, Failure},
    keyboard::{self, Hush},
};

/// What was said.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Said {
    /// A line; several where they were pasted together.
    Line(String),
    /// The line was given up (Ctrl-C).
    Nothing,
    /// There is nobody there any more (Ctrl-D, the end of the pipe).
    End,
}

/// Where lines come from.
pub(crate) enum Input {
    /// A terminal; its editor is away while a line is being read. What is typed before it is asked for
    /// waits as it was typed.
    Terminal { editor: Option<Editor>, _hush: Option<Hush> },
    /// A pipe or a file.
    Pipe,
}

/// What reads a line on a terminal.
pub(crate) enum Editor {
    /// With editing and history.
    Rich(Box<DefaultEditor>),
    /// By the terminal itself: it cannot move its cursor (`TERM=dumb`).
    Plain,
}

impl Editor {
    fn read(&mut self, prompt: &str) -> Result<String, ReadlineError> {
        if let Self::Rich(editor) = self {
            return editor.readline(prompt);
        }
        let mut terminal = terminal();
        write!(terminal, "{prompt}").and_then(|()| terminal.flush())?;
        match read_line() {
            Ok(Said::Line(line)) => Ok(line),
            Ok(Said::Nothing | Said::End) => Err(ReadlineError::Eof),
            Err(failure) => Err(std::io::Error::other(failure.what).into()),
        }
    }
}

/// Returns whether the terminal is one that cannot move its cursor.
fn is_dumb() -> bool {
    std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb")
}

impl Input {
    /// Takes standard input.
    pub(crate) fn open() -> Result<Self, Failure> {
        if stdin().is_terminal() && stdout().is_terminal() { Self::of_person() } else { Ok(Self::Pipe) }
    }

    /// Takes the terminal, wherever standard output goes.
    pub(crate) fn of_person() -> Result<Self, Failure> {
        if is_dumb() {
            return Ok(Self::Terminal { editor: Some(Editor::Plain), _hush: None });
        }
        let behavior = if stdout().is_terminal() { Behavior::Stdio } else { Behavior::PreferTerm };
        let config = Config::builder().auto_add_history(true).behavior(behavior).build();
        let editor = DefaultEditor::with_config(config).map_err(|error| unreadable(&error))?;
        Ok(Self::Terminal { editor: Some(Editor::Rich(Box::new(editor))), _hush: Some(Hush::begin()) })
    }

    /// Returns whether a person types.
    pub(crate) fn is_terminal(&self) -> bool {
        matches!(self, Self::Terminal { .. })
    }

    /// Waits for the next line. Who gives the wait up leaves a line that is begun to whoever asks next.
    pub(crate) async fn next(&mut self, prompt: &str) -> Result<Said, Failure> {
        match self {
            Self::Pipe => blocking(read_line).await?,
            Self::Terminal { editor: slot, .. } => {
                let mut reading = match Reading::go_on(prompt) {
                    Some(reading) => reading,
                    None => {
                        let Some(editor) = slot.take() else { return Ok(Said::End) };
                        Reading::begin(editor, prompt)
                    }
                };
                let (editor, said) = reading.line().await?;
                slot.get_or_insert(editor);
                match said {
                    Ok(line) => Ok(Said::Line(line)),
                    Err(ReadlineError::Interrupted) => Ok(Said::Nothing),
                    Err(ReadlineError::Eof) => Ok(Said::End),
                    Err(error) => Err(unreadable(&error)),
                }
            }
        }
    }
}

type Read = (Editor, Result<String, ReadlineError>);

/// A line that is being read on a terminal, by a thread that cannot be called back.
struct Reading(Option<JoinHandle<Read>>);

/// The line that nobody waits for any more, and how the terminal was for it. A terminal has one reader.
static LEFT: Mutex<Option<(JoinHandle<Read>, Option<Termios>)>> = Mutex::new(None);

impl Reading {
    fn begin(mut editor: Editor, prompt: &str) -> Self {
        let prompt = prompt.to_owned();
        Self(Some(tokio::task::spawn_blocking(move || {
            keyboard::prompts(true);
            let said = editor.read(&prompt);
            keyboard::prompts(false);
            (editor, said)
        })))
    }

    /// Waits on for a line that was left. One that is complete was meant for who has left.
    fn go_on(prompt: &str) -> Option<Self> {
        let (read, mode) = LEFT.lock().unwrap_or_else(PoisonError::into_inner).take()?;
        if read.is_finished() {
            return None;
        }
        if let Some(mode) = mode {
            keyboard::prompt_again(&mode);
        }
        keyboard::prompts(true);
        let _ = write!(terminal(), "{prompt}").and_then(|()| terminal().flush());
        Some(Self(Some(read)))
    }

    async fn line(&mut self) -> Result<Read, Failure> {
        match &mut self.0 {
            Some(read) => {
                let read = read.await.map_err(broken);
                self.0 = None;
                read
            }
            None => std::future::pending().await,
        }
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        if let Some(read) = self.0.take() {
            let mode = keyboard::leave_prompt();
            // No more marks around what is pasted, and a line of one's own.
            let marks = if is_dumb() { "" } else { "\u{1b}[?2004l" };
            let _ = writeln!(terminal(), "{marks}");
            *LEFT.lock().unwrap_or_else(PoisonError::into_inner) = Some((read, mode));
        }
    }
}

/// Returns the stream on which a person sees what is written.
fn terminal() -> Box<dyn Write> {
    if stdout().is_terminal() { Box::new(stdout()) } else { Box::new(stderr()) }
}

fn read_line() -> Result<Said, Failure> {
    let mut line = Vec::new();
    match stdin().lock().read_until(b'\n', &mut line) {
        Ok(0) => Ok(Said::End),
        Ok(_) => Ok(Said::Line(decoded(line)?.trim_end_matches(['\n', '\r']).to_owned())),
        Err(error) => Err(unreadable(&error)),
    }
}

/// Reads standard input to its end.
pub(crate) fn read_all() -> Result<String, Failure> {
    let mut bytes = Vec::new();
    stdin().lock().read_to_end(&mut bytes).map_err(|error| unreadable(&error))?;
    decoded(bytes)
}

/// Decodes UTF-8 text, without the byte order mark that some programs write before it.
fn decoded(bytes: Vec<u8>) -> Result<String, Failure> {
    if bytes.starts_with(&[0xff, 0xfe]) || bytes.starts_with(&[0xfe, 0xff]) {
        return Err(unreadable(&"it is UTF-16 text"));
    }
    let mut text = String::from_utf8(bytes).map_err(|_| unreadable(&"it is not UTF-8 text"))?;
    if text.starts_with('\u{feff}') {
        text.drain(..'\u{feff}'.len_utf8());
    }
    Ok(text)
}

/// Waits on a thread of its own; one that nobody waits for any more does not hold up the end.
async fn blocking<T: Send + 'static>(wait: impl FnOnce() -> T + Send + 'static) -> Result<T, Failure> {
    tokio::task::spawn_blocking(wait).await.map_err(broken)
}

fn broken(error: tokio::task::JoinError) -> Failure {
    let what = format!("the line could not be read: {error}");
    Failure::new(Exit::Failed, what, "This is a defect of soong: please report it, with what the logs in the home say.")
}

fn unreadable(error: &dyn std::fmt::Display) -> Failure {
    Failure::new(
        Exit::Usage,
        format!("standard input cannot be read: {error}"),
        "Type or pipe in UTF-8 text; `iconv -t UTF-8` converts other text.",
    )
}
