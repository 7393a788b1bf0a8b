//! `soong questions`: what agents ask people, and the answers.

use soong::{
    already_decided,
    protocol::{Question, QuestionStatus, SessionId},
};

use super::{Context, host};
use crate::{
    client::{Client, Found},
    config,
    exit::{Exit, Failure},
    figure,
    people::{self, Ask},
    print,
    records::Records,
    report,
    terminal::Hue,
    text,
};

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
    for question in &questions {
        print(context, question)?;
    }
    Ok(Exit::Done)
}

/// Prints a question as it was asked, and its answer.
fn print(context: &Context<'_>, question: &Question) -> Result<(), Failure> {
    let age = figure::span(crate::screen::now().millis_since(question.created_at));
    let whom = question.to.as_deref().map(|to| format!(", for {}", text::line(to))).unwrap_or_default();
    let (id, status, session) = (&question.question_id, question.status.as_str(), &question.session_id);
    let head = format!("{id}  {status}, asked {age} ago by trace {} of session {session}{whom}", question.trace_id);
    print::line(&context.terminal.stdout.paint(Hue::Bold, &head))?;
    let indented = |text: &str| {
        let text = text::block(text);
        text.lines().try_for_each(|line| print::line(&format!("  {line}")))
    };
    indented(&question.question)?;
    if let Some(answer) = &question.answer {
        print::line("answer:")?;
        indented(answer)?;
    }
    Ok(())
}

/// Reaches whoever owns the home, or begins a process that does: there a run of the session goes on.
pub(super) async fn reach(context: &Context<'_>, session: &SessionId) -> Result<Client, Failure> {
    let home = context.home()?;
    if matches!(Client::find(&context.address(&home)).await, Found::Nobody) {
        let settings = config::read(&context.global, &home)?;
        let models = Records::open(&home)?.models_at_work(session)?;
        models.iter().try_for_each(|model| settings.check_model(Some(model), &context.environment))?;
    }
    host::reach(context, &home).await
}

/// Says what else a session waits for that people give.
pub(super) async fn still_open(client: &Client, session: &SessionId, soong: &str) -> Result<String, Failure> {
    let open = people::open(client, Some(session)).await?.asks;
    let of = |is: fn(&Ask) -> bool, one: &str, many: &str, list: &str| match open.iter().filter(|ask| is(ask)).count() {
        0 => String::new(),
        n => format!("; {} open: `{soong} {list} list`", figure::plural(n, one, many)),
    };
    let questions = of(|ask| matches!(ask, Ask::Question(_)), "more question is", "more questions are", "questions");
    let leave =
        of(|ask| matches!(ask, Ask::Permission(_)), "more permission is", "more permissions are", "permissions");
    Ok(questions + &leave)
}

/// Answers a question with whoever owns the home, or with a process of its own: there its run goes on.
pub(super) async fn answer(context: &Context<'_>, id: &str, answer: &str) -> Result<Exit, Failure> {
    let answer = match answer {
        "-" => crate::input::read_all()?,
        given => given.to_owned(),
    };
    if answer.trim().is_empty() {
        return Err(Failure::usage("the answer is empty", "Say something: soong questions answer ID TEXT"));
    }
    // Who names a question that is none begins no process, nor one whose run could not go on.
    let question = context.source().await?.question(id).await?;
    if question.status != QuestionStatus::Pending {
        return Err(already_decided(&question).into());
    }
    let client = reach(context, &question.session_id).await?;
    let question = client.answer(id, &answer).await?;
    if context.global.json {
        print::json(&question)?;
        return Ok(Exit::Done);
    }
    let soong = report::command(context.global.home.as_deref(), context.global.url.as_deref());
    let more = still_open(&client, &question.session_id, &soong).await?;
    print::line(&format!("answered; run {} of session {} goes on{more}", question.run_id, question.session_id))?;
    print::aside(
        context.terminal,
        Hue::Dim,
        &format!("follow it: {soong} traces events {} --follow", question.session_id),
    )?;
    Ok(Exit::Done)
}
