//! Questions to people, and their answers (SUB-9).

use axum::{
    Json,
    body::Bytes,
    extract::{
        Path, Query, State,
        rejection::{BytesRejection, QueryRejection},
    },
};
use serde::{Deserialize, Serialize};
use soong::{
    ErrorCode, ErrorInfo, QuestionFilter,
    protocol::{Question, QuestionId, QuestionStatus, SessionId},
};

use super::{
    Api,
    error::{ApiError, body},
};

/// Which questions; absent = any.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct QuestionQuery {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) status: Option<QuestionStatus>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) session_id: Option<SessionId>,
}

/// Questions, the oldest first.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Questions {
    pub(crate) questions: Vec<Question>,
    /// Of one session: whether it waits for people, and for nothing else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) is_parked: Option<bool>,
}

/// An answer.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AnswerBody {
    pub(crate) answer: String,
}

/// GET `/api/questions`
pub(super) async fn list(
    State(api): State<Api>,
    query: Result<Query<QuestionQuery>, QueryRejection>,
) -> Result<Json<Questions>, ApiError> {
    let Query(QuestionQuery { status, session_id }) = query?;
    let is_parked = session_id.as_ref().map(|id| api.runtime.is_parked(id));
    let questions = api.runtime.questions(QuestionFilter { status, session_id, run_id: None }).await?;
    Ok(Json(Questions { questions, is_parked }))
}

/// POST `/api/questions/{id}`: the run goes on with the answer, also one that an earlier process left behind.
pub(super) async fn answer(
    State(api): State<Api>,
    Path(id): Path<QuestionId>,
    bytes: Result<Bytes, BytesRejection>,
) -> Result<Json<Question>, ApiError> {
    let passing = api.enter()?;
    let AnswerBody { answer } = body(bytes)?;
    let runtime = api.runtime.clone();
    // In a task of its own: a client that leaves meanwhile leaves no run behind that has its answer and waits.
    let answering = tokio::spawn(async move {
        let answered = runtime.answer_question(&id, answer).await;
        if answered.as_ref().is_err_and(|error| error.code != ErrorCode::AlreadyDecided) {
            return answered;
        }
        // Who was first may have been cut off before the run went on.
        let question = runtime.question(&id).await?;
        if question.status == QuestionStatus::Answered && runtime.handle(&question.run_id).is_err() {
            runtime.resume(&question.session_id).await?;
        }
        drop(passing);
        answered
    });
    let lost = |error| ErrorInfo::new(ErrorCode::InternalError, format!("the answer did not finish: {error}"));
    Ok(Json(answering.await.map_err(lost)??))
}
