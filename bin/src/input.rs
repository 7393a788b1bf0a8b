//! What a person says in a conversation: lines with editing and history on a terminal, plain ones
//! from a pipe.

use std::io::{BufRead, IsTerminal, stdin, stdout};

use rustyline::{Config, DefaultEditor, error::ReadlineError};

use crate::{
    exit::{Exit, Failure},
    keyboard::Hush,
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
            Self::Pipe => blocking(read_line).await,
            Self::Terminal { editor: slot, .. } => {
                let Some(mut editor) = slot.take() else { return Ok(Said::End) };
                let prompt = prompt.to_owned();
                let (editor, said) = blocking(move || {
                    let said = editor.readline(&prompt);
                    (editor, said)
                })
                .await;
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
async fn blocking<T: Send + 'static>(wait: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(wait).await {
        Ok(done) => done,
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}

fn unreadable(error: &dyn std::fmt::Display) -> Failure {
    Failure::new(
        Exit::Usage,
        format!("standard input cannot be read: {error}"),
        "Type or pipe in UTF-8 text, a line each.",
    )
}
