//! The person at the terminal: who is asked what a run wants to know, if anybody is there (SUB-9, SUB-11).
//!
//! Not here: that a run waits for an answer, and where the answer goes (the library).

use std::io::{IsTerminal, stdin, stdout};

use soong::{
    ErrorCode, ErrorInfo,
    protocol::{Question, QuestionStatus, SessionId},
};

use crate::{
    client::Client,
    exit::Failure,
    http::{QuestionQuery, Questions},
    input::{Input, Said},
    print, text,
};

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
    stdin().is_terminal() && stdout().is_terminal()
}

/// Reads what a session asks that nobody has answered.
pub(crate) async fn open_questions(client: &Client, session: &SessionId) -> Result<Questions, ErrorInfo> {
    let wish = QuestionQuery { status: Some(QuestionStatus::Pending), session_id: Some(session.clone()) };
    client.questions(&wish).await
}

/// Asks the person at the terminal, and hands the answer on.
pub(crate) async fn ask(client: &Client, question: &Question) -> Result<Asked, Failure> {
    let whom = question.to.as_deref().map(|to| format!(" (for {})", text::line(to))).unwrap_or_default();
    print::error_line(&format!("? {}{whom}", text::line(&question.question)));
    let mut input = Input::open()?;
    loop {
        let answer = match input.next("answer: ").await? {
            Said::Line(line) if line.trim().is_empty() => continue,
            Said::Line(line) => line,
            Said::Nothing => return Ok(Asked::Cancel),
            Said::End => return Ok(Asked::Left),
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
