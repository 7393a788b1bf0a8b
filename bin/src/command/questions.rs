//! `soong questions`: what agents ask people, and the answers.

use soong::{
    already_decided,
    protocol::{Question, QuestionStatus},
};

use super::{Context, host};
use crate::{
    client::{Client, Found},
    config,
    exit::{Exit, Failure},
    figure, print, report,
    terminal::Hue,
    text,
};

/// Longest question in a list, in columns.
const QUESTION_COLUMNS: usize = 60;

/// Lists questions.
pub(super) async fn list(context: &Context<'_>, all: bool) -> Result<Exit, Failure> {
    let status = (!all).then_some(QuestionStatus::Pending);
    let questions = context.source().await?.questions(status, None).await?;
    if context.global.json {
        print::json(&questions)?;
        return Ok(Exit::Done);
    }
    if questions.is_empty() {
        print::line(if all { "no questions" } else { "no open questions" })?;
        return Ok(Exit::Done);
    }
    let now = crate::screen::now();
    let row = |question: &Question| {
        vec![
            question.question_id.to_string(),
            question.status.as_str().to_owned(),
            figure::span(now.millis_since(question.created_at)),
            question.to.clone().unwrap_or_default(),
            text::cut(&question.question, QUESTION_COLUMNS, "..."),
        ]
    };
    let rows: Vec<Vec<String>> = questions.iter().map(row).collect();
    print::table(&["QUESTION", "STATUS", "AGE", "TO", "TEXT"], &rows)?;
    Ok(Exit::Done)
}

/// Answers a question with whoever owns the home, or with a process of its own: there its run goes on.
pub(super) async fn answer(context: &Context<'_>, id: &str, answer: &str) -> Result<Exit, Failure> {
    let home = context.home()?;
    if answer.trim().is_empty() {
        return Err(Failure::usage("the answer is empty", "Say something: soong questions answer ID TEXT"));
    }
    // Who names a question that is none begins no process, nor one whose run could not go on.
    let question = context.source().await?.question(id).await?;
    if question.status != QuestionStatus::Pending {
        return Err(already_decided(&question).into());
    }
    if matches!(Client::find(&home).await, Found::Nobody) {
        config::read(&context.global, &home)?.check_model(None, &context.environment)?;
    }
    let client = host::reach(context, &home).await?;
    let question = client.answer(id, answer).await?;
    if context.global.json {
        print::json(&question)?;
        return Ok(Exit::Done);
    }
    let soong = report::command(context.global.home.as_deref());
    print::line(&format!("answered; run {} of session {} goes on", question.run_id, question.session_id))?;
    print::aside(
        context.terminal,
        Hue::Dim,
        &format!("follow it: {soong} traces events {} --follow", question.session_id),
    )?;
    Ok(Exit::Done)
}
