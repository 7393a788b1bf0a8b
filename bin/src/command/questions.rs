//! `soong questions`: lists the questions that agents ask users, and answers them.

use soong::{
    ErrorCode, RecoveryPolicy,
    protocol::{
        Question, QuestionId, QuestionStatus, SessionId,
        api::{AnswerBody, operation::AnswerQuestion},
    },
};
use soong_client::{Client, Discovery};
use soong_tui::{format, request::UserRequest, terminal::TextStyle, text};

use super::host;
use crate::{
    config,
    context::Context,
    exit::{Exit, Failure},
    offline_store::{self, OfflineStore},
    owner::Owner,
    print, prompts, report,
};

/// Lists questions.
pub(super) async fn list(context: &Context<'_>, all: bool) -> Result<Exit, Failure> {
    if context.print_if_unused(&[(); 0])? {
        return Ok(Exit::Success);
    }
    let status = (!all).then_some(QuestionStatus::Pending);
    let questions = context.source().await?.questions(status, None).await?;
    if context.global.json {
        print::json(&questions)?;
        return Ok(Exit::Success);
    }
    if questions.is_empty() {
        print::line(if all {
            "no questions"
        } else {
            "no open questions"
        })?;
        return Ok(Exit::Success);
    }
    for question in &questions {
        print(context, question)?;
    }
    Ok(Exit::Success)
}

/// Prints a question and its answer.
fn print(context: &Context<'_>, question: &Question) -> Result<(), Failure> {
    let age = format::duration(soong_tui::screen::now().millis_since(question.created_at));
    let whom = question
        .to
        .as_deref()
        .map(|to| format!(", for {}", text::safe_line(to)))
        .unwrap_or_default();
    let id = &question.question_id;
    let status = question.status.as_str();
    let session = &question.session_id;
    let head = format!(
        "{id}  {status}, asked {age} ago by trace {} of session {session}{whom}",
        question.trace_id
    );
    print::line(&context.terminal.stdout.paint(TextStyle::Bold, &head))?;
    let indented = |text: &str| {
        let text = text::safe_block(text);
        text.lines()
            .try_for_each(|line| print::line(&format!("  {line}")))
    };
    indented(&question.question)?;
    if let Some(answer) = &question.answer {
        print::line("answer:")?;
        indented(answer)?;
    }
    Ok(())
}

/// Receiver of an answer or a decision.
pub(super) enum DecisionTarget {
    /// The owner of the home, possibly a background process started for this purpose. The run
    /// resumes there.
    Owner(Client),
    /// This process, as a temporary owner: no model is available, and none is needed to record an
    /// answer.
    Temporary(Owner),
}

impl DecisionTarget {
    pub(super) fn client(&self) -> &Client {
        match self {
            Self::Owner(client) => client,
            Self::Temporary(owner) => owner.client(),
        }
    }

    /// Describes when the run resumes.
    pub(super) fn resume_description(&self) -> &'static str {
        match self {
            Self::Owner(_) => "resumes",
            Self::Temporary(_) => {
                "resumes with the next `soong run --session` or `soong serve` that has access to its model"
            }
        }
    }

    pub(super) async fn close(self) {
        if let Self::Temporary(owner) = self {
            owner.close().await;
        }
    }
}

/// Connects to the owner of the home, or starts a background process that becomes the owner and
/// resumes the run. If a model that the session needs is not available, this process becomes the
/// owner instead.
///
/// Fails with `home_locked` if the owner has no control socket.
pub(super) async fn connect(
    context: &Context<'_>,
    session: &SessionId,
) -> Result<DecisionTarget, Failure> {
    let home = context.home()?;
    if matches!(Client::find(&context.address(&home)).await, Discovery::None) {
        if let Some(pid) = offline_store::owner(&home) {
            let code = ErrorCode::HomeLocked;
            let what = format!(
                "process {pid} owns this home but has no control socket, so it cannot be reached ({code})"
            );
            return Err(Failure::new(
                Exit::of(code),
                what,
                "Answer or decide in that program.",
            ));
        }
        let settings = config::read(&context.global, &home)?;
        let models = OfflineStore::open(&home)?.unfinished_models(session)?;
        if models.iter().any(|model| {
            settings
                .check_model(Some(model), &context.environment)
                .is_err()
        }) {
            let owner = Owner::open(
                host::builder(context, &home, &settings),
                RecoveryPolicy::Nothing,
            )
            .await?;
            return Ok(DecisionTarget::Temporary(owner));
        }
    }
    host::connect_or_spawn(context, &home)
        .await
        .map(DecisionTarget::Owner)
}

/// Describes how many other requests of the session are still open.
pub(super) async fn describe_open_requests(
    client: &Client,
    session: &SessionId,
    soong: &str,
) -> Result<String, Failure> {
    let open = prompts::fetch_open_requests(client, Some(session))
        .await?
        .requests;
    let of = |is: fn(&UserRequest) -> bool, one: &str, many: &str, list: &str| match open
        .iter()
        .filter(|ask| is(ask))
        .count()
    {
        0 => String::new(),
        n => format!(
            "; {} open, see `{soong} {list} list`",
            format::plural(n, one, many)
        ),
    };
    let questions = of(
        |ask| matches!(ask, UserRequest::Question(_)),
        "more question is",
        "more questions are",
        "questions",
    );
    let permissions = of(
        |ask| matches!(ask, UserRequest::Permission(_)),
        "more permission request is",
        "more permission requests are",
        "permissions",
    );
    Ok(questions + &permissions)
}

/// Answers a question. Its run resumes at the owner of the home or in a new background process.
pub(super) async fn answer(context: &Context<'_>, id: &str, answer: &str) -> Result<Exit, Failure> {
    let answer = match answer {
        "-" => crate::input::read_all()?,
        given => given.to_owned(),
    };
    if answer.trim().is_empty() {
        return Err(Failure::usage(
            "the answer is empty",
            "Give an answer: soong questions answer ID TEXT",
        ));
    }
    // Check that the question exists and is pending before starting an owner process.
    let question = context.source_to_change().await?.question(id).await?;
    if question.status != QuestionStatus::Pending {
        return Err(question.already_decided().into());
    }
    let taker = connect(context, &question.session_id).await?;
    let soong = report::command(
        context.global.home.as_deref(),
        context.global.url.as_deref(),
    );
    let answered = async {
        let question = taker
            .client()
            .call(AnswerQuestion {
                question_id: QuestionId::new(id),
                body: AnswerBody { answer },
            })
            .await?;
        let more = describe_open_requests(taker.client(), &question.session_id, &soong).await?;
        Ok::<_, Failure>((question, more))
    };
    let answered = answered.await;
    let outlook = taker.resume_description();
    taker.close().await;
    let (question, more) = answered?;
    if context.global.json {
        print::json(&question)?;
        return Ok(Exit::Success);
    }
    let run = &question.run_id;
    let session = &question.session_id;
    print::line(&format!(
        "answered; run {run} of session {session} {outlook}{more}"
    ))?;
    print::line_or_stderr(
        context.terminal,
        TextStyle::Dim,
        &format!(
            "follow it: {soong} traces events {} --follow",
            question.session_id
        ),
    )?;
    Ok(Exit::Success)
}
