//! The person at the terminal: who is asked what a run wants to know, if anybody is there (SUB-9, SUB-11).
//!
//! Not here: that a run waits for an answer, and where the answer goes (the library).

use std::{
    io::{IsTerminal, stderr, stdin},
    time::Duration,
};

use soong::{
    ErrorCode, ErrorInfo,
    protocol::{Question, QuestionStatus, SessionId},
};

use crate::{
    client::Client,
    exit::Failure,
    http::{QuestionQuery, Questions},
    input::{Input, Said},
    interrupt::Interrupt,
    print, text,
};

/// How often is looked whether somebody else has answered.
const LOOK: Duration = Duration::from_millis(500);

/// What became of a question to the person at the terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asked {
    /// It is answered; perhaps by somebody else.
    Answered,
    /// They want the run to end (Ctrl-C).
    Cancel,
    /// They left (Ctrl-D); the question stays open.
    Left,
}

/// Returns whether somebody sits there who reads and types.
pub(crate) fn is_somebody_there() -> bool {
    stdin().is_terminal() && stderr().is_terminal()
}

/// Reads what a session asks that nobody has answered.
pub(crate) async fn open_questions(client: &Client, session: &SessionId) -> Result<Questions, ErrorInfo> {
    let wish = QuestionQuery { status: Some(QuestionStatus::Pending), session_id: Some(session.clone()) };
    client.questions(&wish).await
}

/// Asks the person at the terminal, and hands the answer on; `asker` is named with the question. Ends as well when
/// somebody else decides it.
pub(crate) async fn ask(
    client: &Client,
    question: &Question,
    asker: Option<&str>,
    interrupt: &Interrupt,
) -> Result<Asked, Failure> {
    let by = asker.map(|asker| format!("{asker} asks")).unwrap_or_default();
    let whom = question.to.as_deref().map(|to| format!("for {}", text::line(to))).unwrap_or_default();
    let about = [by, whom].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(", ");
    let about = if about.is_empty() { String::new() } else { format!(" ({about})") };
    print::error_line(&format!("? {}{about}", text::block(&question.question)));
    let mut input = Input::of_person()?;
    loop {
        let said = tokio::select! {
            said = input.next("answer: ") => said?,
            decided = decided(client, question) => {
                decided?;
                print::error_line("note: it was decided elsewhere");
                return Ok(Asked::Answered);
            }
            () = interrupt.first() => return Ok(Asked::Cancel),
        };
        let answer = match said {
            Said::Line(line) if line.trim().is_empty() => continue,
            Said::Line(line) => line,
            Said::Nothing => return Ok(Asked::Cancel),
            Said::End => {
                print::error_line("note: it stays open");
                return Ok(Asked::Left);
            }
        };
        return match client.answer(&question.question_id, &answer).await {
            Ok(_) => Ok(Asked::Answered),
            Err(error) if error.code == ErrorCode::AlreadyDecided => {
                print::error_line(&format!("note: {}", text::line(&error.message)));
                Ok(Asked::Answered)
            }
            Err(error) => Err(error.into()),
        };
    }
}

/// Waits until a question is open no more.
async fn decided(client: &Client, question: &Question) -> Result<(), ErrorInfo> {
    loop {
        tokio::time::sleep(LOOK).await;
        let open = open_questions(client, &question.session_id).await?.questions;
        if open.iter().all(|other| other.question_id != question.question_id) {
            return Ok(());
        }
    }
}
