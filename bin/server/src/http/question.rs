//! Routes of questions to users, and their answers (SUB-9).

use soong::{
    ErrorCode, ErrorInfo, QuestionFilter,
    protocol::{
        Question, QuestionStatus,
        api::{
            AnswerBody, QuestionQuery, Questions,
            operation::{AnswerQuestion, ListQuestions},
        },
    },
};

use super::{caller::Access, error::ApiError};

pub(super) async fn list(access: &Access, request: ListQuestions) -> Result<Questions, ApiError> {
    let ListQuestions { query } = request;
    let QuestionQuery { status, session_id } = query;
    let is_parked = match &session_id {
        Some(id) => access
            .session(id)
            .await
            .is_ok()
            .then(|| access.runtime().sessions().awaits_input(id)),
        None => None,
    };
    let filter = QuestionFilter {
        uid: access.caller.visible_uid(),
        status,
        session_id,
        run_id: None,
    };
    Ok(Questions {
        questions: access.runtime().questions().list(filter).await?,
        is_parked,
    })
}

pub(super) async fn answer(access: &Access, request: AnswerQuestion) -> Result<Question, ApiError> {
    let AnswerQuestion {
        question_id: id,
        body: AnswerBody { answer },
    } = request;
    let passing = access.begin_change()?;
    access.question(&id).await?;
    let runtime = access.runtime().clone();
    // Runs in a separate task: otherwise a client that disconnects could leave an answered run
    // waiting.
    let answering = tokio::spawn(async move {
        let answered = runtime.questions().answer(&id, answer).await;
        if answered
            .as_ref()
            .is_err_and(|error| error.code != ErrorCode::AlreadyDecided)
        {
            return answered;
        }
        // An earlier answer may have been interrupted before it resumed the run.
        let question = runtime.questions().get(&id).await?;
        if question.status == QuestionStatus::Answered
            && runtime.traces().handle(&question.run_id).is_err()
        {
            runtime.sessions().resume(&question.session_id).await?;
        }
        drop(passing);
        answered
    });
    let lost = |error| {
        ErrorInfo::new(
            ErrorCode::InternalError,
            format!("the answer did not finish: {error}"),
        )
    };
    Ok(answering.await.map_err(lost)??)
}
