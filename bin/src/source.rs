//! Source of records: the owner of the home, or the disk if there is no owner.
//!
//! Both return the same records. Elsewhere: printing them.

use std::sync::Arc;

use soong::{
    Environment, ErrorCode, ErrorInfo, MessagePath,
    protocol::{
        ArtifactsConfig, EventRecord, Message, Permission, PermissionStatus, Question,
        QuestionStatus, Run, RunId, Session, SessionId, TraceId,
        api::{
            EventQuery, MessageQuery, PathName, PermissionQuery, QuestionQuery, Ready, TraceView,
            operation::{
                ListPermissions, ListQuestions, ReadEvents, ReadMessages, ReadRun, ReadSession,
                ReadTrace,
            },
        },
    },
};
use soong_client::Client;
use soong_storage::store::Reader;
use soong_tui::request::UserRequest;

use crate::{
    disk_home::DiskHome,
    exit::{Exit, Failure},
    offline_store::OfflineStore,
    reference::{self, Match},
};

/// Number of events per page.
pub(crate) const PAGE_EVENTS: usize = 500;

/// Number of messages read from disk at a time.
const PAGE_MESSAGES: usize = 100;

/// Source of records.
#[expect(clippy::large_enum_variant, reason = "a command has one")]
pub(crate) enum Source {
    /// The process that owns the home.
    Owner(Client, Ready),
    /// The disk, if no owner process answers.
    Disk(Arc<OfflineStore>),
}

impl Source {
    /// Returns a client of the home, wherever its operations are executed.
    pub(crate) fn client(&self) -> Client {
        match self {
            Self::Owner(client, _) => client.clone(),
            Self::Disk(records) => Client::new(Arc::new(DiskHome::new(records.clone()))),
        }
    }

    /// Like [`Source::client`], with the content of artifacts, which is stored where the configuration
    /// says.
    pub(crate) fn client_with_artifacts(
        &self,
        config: &ArtifactsConfig,
        environment: &Environment,
    ) -> Result<Client, ErrorInfo> {
        match self {
            Self::Owner(client, _) => Ok(client.clone()),
            Self::Disk(records) => {
                let home = DiskHome::with_artifacts(records.clone(), config, environment)?;
                Ok(Client::new(Arc::new(home)))
            }
        }
    }

    /// Reads the session that a reference names (`reference.rs`). Fails if there is none.
    pub(crate) async fn session(&self, reference: &str) -> Result<Session, Failure> {
        self.find_session(reference)
            .await
            .map(|(session, _)| session)
    }

    /// Like [`Source::session`], and tells how the reference matched.
    pub(crate) async fn find_session(&self, reference: &str) -> Result<(Session, Match), Failure> {
        if reference::recent_position(reference).is_none() {
            let request = ReadSession {
                session_id: SessionId::new(reference),
            };
            let exact = self.client().call(request).await;
            match exact {
                Err(error) if error.code == ErrorCode::SessionNotFound => {}
                found => return Ok((found?.session, Match::Exact)),
            }
        }
        // Single calls have no slug, and are not among the recent sessions.
        reference::find(self.client().sessions(false).await?, reference)
    }

    /// Like [`Source::session`], for a command that changes something: a part of the name is not
    /// enough.
    pub(crate) async fn exact_session(&self, reference: &str) -> Result<Session, Failure> {
        match self.find_session(reference).await? {
            (session, Match::Exact) => Ok(session),
            (session, Match::Partial) => Err(reference::too_short(reference, &session)),
        }
    }

    /// Returns the id of the trace that a reference names: its id, a session for its main trace, or
    /// `SESSION#N` for the N-th of its sub-agents.
    async fn trace_id(&self, reference: &str) -> Result<TraceId, Failure> {
        if let Some((session, number)) = reference::split_sub_agent(reference) {
            let session = self.session(session).await?;
            let mut traces = self
                .client()
                .traces(Some(&session.session_id), true)
                .await?;
            traces.retain(|trace| trace.parent_trace_id.is_some());
            let count = traces.len();
            return traces
                .into_iter()
                .nth_back(number - 1)
                .map(|trace| trace.trace_id)
                .ok_or_else(|| {
                    let what = format!(
                        "there is no sub-agent {reference}: the session has {count} ({})",
                        ErrorCode::TraceNotFound
                    );
                    Failure::new(Exit::NotFound, what, "See `soong sessions show SESSION`.")
                });
        }
        self.session(reference)
            .await
            .map(|session| TraceId::root(&session.session_id))
    }

    /// Reads the trace that a reference names, with its goals and sub-traces. Fails if there is
    /// none.
    pub(crate) async fn trace(&self, reference: &str) -> Result<TraceView, Failure> {
        match self.exact_trace(reference).await {
            Err(failure) if failure.exit == Exit::NotFound => {
                match self.trace_id(reference).await {
                    Ok(id) => self.exact_trace(id.as_str()).await,
                    // Most references to traces are ids of traces, so the failure names a trace
                    // unless the reference names a session.
                    Err(other)
                        if other.exit == Exit::NotFound
                            && !reference::names_a_session(reference, &other) =>
                    {
                        Err(failure)
                    }
                    Err(other) => Err(other),
                }
            }
            found => found,
        }
    }

    /// Like [`Source::trace`], for a command that changes something: a part of the session's name
    /// is not enough.
    pub(crate) async fn trace_to_change(&self, reference: &str) -> Result<TraceView, Failure> {
        match self.exact_trace(reference).await {
            Err(failure) if failure.exit == Exit::NotFound => {
                let found = self.trace(reference).await?;
                let session =
                    reference::split_sub_agent(reference).map_or(reference, |(session, _)| session);
                self.exact_session(session).await?;
                Ok(found)
            }
            found => found,
        }
    }

    async fn exact_trace(&self, id: &str) -> Result<TraceView, Failure> {
        let request = ReadTrace {
            trace_id: TraceId::new(id),
        };
        Ok(self.client().call(request).await?)
    }

    /// Reads the messages of a trace. Fails if it does not exist.
    pub(crate) async fn messages(
        &self,
        id: &str,
        path: MessagePath,
    ) -> Result<Vec<Message>, Failure> {
        let mode = if path == MessagePath::All {
            PathName::All
        } else {
            PathName::MainPath
        };
        let request = ReadMessages {
            trace_id: TraceId::new(id),
            query: MessageQuery {
                mode,
                goal_id: None,
            },
        };
        Ok(self.client().call(request).await?.messages)
    }

    /// Calls `take` with each message of a trace up to sequence `last`, in order. From disk, only a
    /// page of messages is held in memory.
    pub(crate) async fn each_message(
        &self,
        id: &TraceId,
        last: u64,
        mut take: impl FnMut(Message) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let Self::Disk(records) = self else {
            let all = self.messages(id.as_str(), MessagePath::All).await?;
            return all
                .into_iter()
                .filter(|message| message.sequence <= last)
                .try_for_each(take);
        };
        let sequences: Vec<u64> = (1..=last).collect();
        for page in sequences.chunks(PAGE_MESSAGES) {
            records
                .reader
                .messages_at(id, page)?
                .into_iter()
                .try_for_each(&mut take)?;
            tokio::task::yield_now().await;
        }
        Ok(())
    }

    /// Calls `take` with each event of a trace up to event `last`, in order. Only a page of events
    /// is held in memory.
    pub(crate) async fn each_event(
        &self,
        id: &TraceId,
        last: u64,
        mut take: impl FnMut(EventRecord) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let mut cursor = 0;
        while cursor < last {
            let page = self.events(id, cursor).await?;
            let Some(newest) = page.last() else { break };
            cursor = newest.event_id;
            page.into_iter()
                .filter(|record| record.event_id <= last)
                .try_for_each(&mut take)?;
            tokio::task::yield_now().await;
        }
        Ok(())
    }

    /// Reads a run. Fails if it does not exist.
    pub(crate) async fn run(&self, id: &RunId) -> Result<Run, Failure> {
        match self {
            Self::Owner(client, _) => Ok(client.call(ReadRun { run_id: id.clone() }).await?.run),
            Self::Disk(records) => Ok(records.run(id)?),
        }
    }

    /// Lists permissions, oldest first.
    pub(crate) async fn permissions(
        &self,
        status: Option<PermissionStatus>,
        session_id: Option<SessionId>,
    ) -> Result<Vec<Permission>, Failure> {
        let request = ListPermissions {
            query: PermissionQuery { status, session_id },
        };
        Ok(self.client().call(request).await?.permissions)
    }

    /// Reads a permission. Fails if it does not exist.
    pub(crate) async fn permission(&self, id: &str) -> Result<Permission, Failure> {
        let all = self.permissions(None, None).await?;
        all.into_iter()
            .find(|permission| permission.permission_id.as_str() == id)
            .ok_or_else(|| {
                ErrorInfo::new(
                    ErrorCode::PermissionNotFound,
                    format!("there is no permission {id}"),
                )
                .into()
            })
    }

    /// Lists the open requests of all sessions or of one session, questions first.
    pub(crate) async fn open_requests(
        &self,
        session: Option<&SessionId>,
    ) -> Result<Vec<UserRequest>, Failure> {
        let questions = self
            .questions(Some(QuestionStatus::Pending), session.cloned())
            .await?;
        let permissions = self
            .permissions(Some(PermissionStatus::Pending), session.cloned())
            .await?;
        let permissions = permissions
            .into_iter()
            .map(|permission| UserRequest::Permission(Box::new(permission)));
        Ok(questions
            .into_iter()
            .map(UserRequest::Question)
            .chain(permissions)
            .collect())
    }

    /// Lists questions, oldest first.
    pub(crate) async fn questions(
        &self,
        status: Option<QuestionStatus>,
        session_id: Option<SessionId>,
    ) -> Result<Vec<Question>, Failure> {
        let request = ListQuestions {
            query: QuestionQuery { status, session_id },
        };
        Ok(self.client().call(request).await?.questions)
    }

    /// Reads a question. Fails if it does not exist.
    pub(crate) async fn question(&self, id: &str) -> Result<Question, Failure> {
        let all = self.questions(None, None).await?;
        all.into_iter()
            .find(|question| question.question_id.as_str() == id)
            .ok_or_else(|| {
                ErrorInfo::new(
                    ErrorCode::QuestionNotFound,
                    format!("there is no question {id}"),
                )
                .into()
            })
    }

    /// Reads up to [`PAGE_EVENTS`] events of a trace after `since`.
    pub(crate) async fn events(
        &self,
        id: &TraceId,
        since: u64,
    ) -> Result<Vec<EventRecord>, Failure> {
        let request = ReadEvents {
            trace_id: id.clone(),
            query: EventQuery {
                since_event_id: Some(since),
                limit: Some(PAGE_EVENTS),
                ..EventQuery::default()
            },
        };
        Ok(self.client().call(request).await?.events)
    }
}
