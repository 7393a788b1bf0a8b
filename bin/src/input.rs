//! What a person says in a conversation: lines with editing and history on a terminal, plain ones
//! from a pipe.

use std::io::{BufRead, IsTerminal, Write, stdin, stdout};

use rustyline::{Config, DefaultEditor, error::ReadlineError};

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
    /// A terminal; its editor is away while a thread waits for a line. What is typed before it is
    /// asked for waits as it was typed.
    Terminal { editor: Option<Box<DefaultEditor>>, _hush: Hush },
    /// A pipe or a file.
    Pipe,
}

impl Input {
    /// Takes standard input.
    pub(crate) fn open() -> Result<Self, Failure> {
        if !stdin().is_terminal() || !stdout().is_terminal() {
            return Ok(Self::Pipe);
        }
        let config = Config::builder().auto_add_history(true).build();
        let editor = DefaultEditor::with_config(config).map_err(|error| unreadable(&error))?;
        Ok(Self::Terminal { editor: Some(Box::new(editor)), _hush: Hush::begin() })
    }

    /// Returns whether a person types.
    pub(crate) fn is_terminal(&self) -> bool {
        matches!(self, Self::Terminal { .. })
    }

    /// Waits for the next line.
    pub(crate) async fn next(&mut self, prompt: &str) -> Result<Said, Failure> {
        match self {
            Self::Pipe => blocking(read_line).await?,
            Self::Terminal { editor: slot, .. } => {
                let Some(mut editor) = slot.take() else { return Ok(Said::End) };
                let prompt = prompt.to_owned();
                let (editor, said) = blocking(move || {
                    keyboard::prompts(true);
                    let said = editor.readline(&prompt);
                    keyboard::prompts(false);
                    (editor, said)
                })
                .await?;
                *slot = Some(editor);
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

fn read_line() -> Result<Said, Failure> {
    let mut line = String::new();
    match stdin().lock().read_line(&mut line) {
        Ok(0) => Ok(Said::End),
        Ok(_) => Ok(Said::Line(line.trim_end_matches(['\n', '\r']).to_owned())),
        Err(error) => Err(unreadable(&error)),
    }
}

/// Waits on a thread of its own; one that nobody waits for any more does not hold up the end.
async fn blocking<T: Send + 'static>(wait: impl FnOnce() -> T + Send + 'static) -> Result<T, Failure> {
    tokio::task::spawn_blocking(wait).await.map_err(|error| {
        let what = format!("the line could not be read: {error}");
        Failure::new(
            Exit::Failed,
            what,
            "This is a defect of soong: please report it, with what the logs in the home say.",
        )
    })
}

impl Drop for Input {
    /// Takes back what an editor has set that still waits for its line.
    fn drop(&mut self) {
        if matches!(self, Self::Terminal { editor: None, .. }) {
            // No more marks around what is pasted, and a line of one's own.
            let _ = writeln!(stdout(), "\u{1b}[?2004l");
        }
    }
}

fn unreadable(error: &dyn std::fmt::Display) -> Failure {
    Failure::new(
        Exit::Usage,
        format!("standard input cannot be read: {error}"),
        "Type or pipe in UTF-8 text, a line each.",
    )
}
