//! Sessions: create, read, resume, delete (RT-5, SES-4).
//!
//! Elsewhere: copies (`fork.rs`), moving the head of a conversation (`conversation.rs`), the order
//! of the deletion steps (`session/deletion.rs`), and which sessions are old
//! (`session/cleanup.rs`).

use std::path::PathBuf;

use soong_protocol::{
    ErrorCode, ErrorInfo, EventRecord, NewSession, NewTrace, RequestKey, RequestSubject, Run,
    RunMode, Session, SessionId, SessionWrite, TraceId, TraceWrite, Write,
};
use soong_storage::store::{Append, Page, Reader, SessionFilter};
use tokio::sync::oneshot;

use super::{Runtime, cancel, not_found, project};
use crate::{
    actor_base::closing,
    clock::now,
    events::{EventStream, Scope},
    session::{SessionCleanup, SessionCleanupFailure, SessionCleanupReport, SessionSupervisorMsg},
};

/// Number of sessions read at a time.
const PAGE: usize = 100;

/// Session to create. [`Sessions::create`] creates it without a run, for example to upload files
/// first. A [`RunRequest`](crate::RunRequest) creates it together with its first run, or continues
/// it if it exists.
#[derive(Debug, Clone, Default)]
pub struct SessionSpec {
    /// Session id. Default: generated.
    pub session_id: Option<String>,
    /// Display name. Default: derived from the first task.
    pub name: Option<String>,
    /// User that owns the session. Default: `local`.
    pub uid: Option<String>,
    /// Project directory of its runs. Default: that of the runtime.
    pub project_dir: Option<PathBuf>,
    /// Allows the user's home folder or one of its parents as the project, if the runtime rejects
    /// that by default.
    pub allow_home_project: bool,
}

/// Sessions of a home: see [`Runtime::sessions`].
#[derive(Debug, Clone, Copy)]
pub struct Sessions<'a> {
    pub(super) runtime: &'a Runtime,
    /// The keyed request that creates a session.
    pub(super) request_key: Option<&'a RequestKey>,
}

impl<'a> Sessions<'a> {
    /// Records the session that is created next together with a keyed request; see
    /// [`Runtime::keyed_request`].
    #[must_use]
    pub fn for_request(self, request_key: Option<&'a RequestKey>) -> Self {
        Self {
            request_key,
            ..self
        }
    }

    /// Returns the write that records the keyed request of a session.
    pub(super) fn claim(self, session_id: &SessionId) -> Option<Write> {
        let request_key = self.request_key?.clone();
        Some(request_key.claim(RequestSubject::Session(session_id.clone()), now()))
    }
}

impl Sessions<'_> {
    /// Creates a session without a run. Fails with `validation_error` if a session with that id
    /// exists.
    pub async fn create(self, new_session: SessionSpec) -> Result<Session, ErrorInfo> {
        let services = &self.runtime.inner.services;
        if services.core.lifetime.is_closing() {
            return Err(closing());
        }
        let session_id = match &new_session.session_id {
            None => SessionId::generate(),
            Some(text) => SessionId::parse(text)
                .map_err(|error| ErrorInfo::new(ErrorCode::ValidationError, error.to_string()))?,
        };
        if self.get(&session_id).await.is_ok() {
            return Err(session_exists(&session_id));
        }
        let project_dir = match &new_session.project_dir {
            Some(dir) => project::resolve_project(dir)?,
            None => self.runtime.inner.project_dir.to_path_buf(),
        };
        self.runtime.check_project(
            &project_dir,
            new_session.project_dir.is_some(),
            new_session.allow_home_project,
        )?;
        let at = now();
        let uid = new_session.uid.unwrap_or_else(|| "local".to_owned());
        let session = NewSession {
            session_id: session_id.clone(),
            name: new_session.name.clone(),
            uid: uid.clone(),
            project_dir: project_dir.display().to_string(),
            created_at: at,
        };
        let trace = NewTrace {
            trace_id: TraceId::root(&session_id),
            session_id: session_id.clone(),
            run_mode: RunMode::default(),
            task: String::new(),
            name: new_session.name.unwrap_or_default(),
            agent_type: "default".to_owned(),
            parent_trace_id: None,
            parent_goal_id: None,
            uid,
            model: String::new(),
            created_at: at,
        };
        let mut writes = vec![
            Write::Session(SessionWrite::Create(session)),
            Write::Trace(TraceWrite::Create(trace)),
        ];
        writes.extend(self.claim(&session_id));
        let appended = services
            .core
            .journal
            .append_and_wait(Append {
                fence: None,
                writes,
            })
            .await;
        appended.map_err(|error| ErrorInfo::from(&error))?;
        self.get(&session_id).await
    }

    /// Cancels every run that a user started, including queued runs, and waits for their ends as
    /// [`RunHandle::cancel`](super::RunHandle::cancel) does. Returns the first error.
    pub async fn cancel_all(self) -> Result<(), ErrorInfo> {
        let services = &self.runtime.inner.services;
        let own = services
            .core
            .runs
            .select(|run| run.identity.parent.is_none());
        futures::future::join_all(own.iter().map(|run| cancel::cancel(services, run)))
            .await
            .into_iter()
            .collect()
    }

    /// Returns whether a session only waits for user input: nothing in it runs until a question or
    /// a permission request is answered.
    pub fn awaits_input(self, id: &SessionId) -> bool {
        self.runtime
            .inner
            .services
            .core
            .runs
            .sessions_awaiting_input()
            .contains(id)
    }

    /// Reads a session.
    pub async fn get(self, id: &SessionId) -> Result<Session, ErrorInfo> {
        let wanted = id.clone();
        let session = self
            .runtime
            .inner
            .services
            .core
            .reader
            .read(move |reader| reader.session(&wanted))
            .await?;
        session.ok_or_else(|| not_found(ErrorCode::SessionNotFound, "session", id.as_str()))
    }

    /// Lists sessions, newest first. `limit` is at most 100.
    pub async fn list(
        self,
        filter: SessionFilter,
        limit: usize,
        cursor: Option<String>,
    ) -> Result<Page<Session>, ErrorInfo> {
        self.runtime
            .inner
            .services
            .core
            .reader
            .read(move |reader| reader.sessions(&filter, limit.min(100), cursor.as_deref()))
            .await
    }

    /// Reads up to `limit` stored events of a session after `since` (a `session_seq`), in order.
    pub async fn replay(
        self,
        id: &SessionId,
        since: u64,
        limit: usize,
    ) -> Result<Vec<EventRecord>, ErrorInfo> {
        let wanted = id.clone();
        let read = move |reader: &dyn Reader| {
            reader.session_events(&wanted, reader.session_lsn(&wanted, since)?, limit)
        };
        self.runtime.inner.services.core.reader.read(read).await
    }

    /// Streams the events of all traces of a session after `since` (a `session_seq`), merged into
    /// one stream (EVT-4).
    pub fn events(self, id: &SessionId, since: u64) -> EventStream {
        self.runtime.stream(Scope::Session(id.clone()), since)
    }

    /// Streams the events of all traces of a session from the first event of a run on; from now on,
    /// if the run has none yet.
    ///
    /// # Errors
    /// `storage_error`.
    pub async fn events_from_run(self, run: &Run) -> Result<EventStream, ErrorInfo> {
        let run_id = run.run_id.clone();
        let session_id = run.session_id.clone();
        let read = move |reader: &dyn Reader| {
            let events = reader.run_events(&run_id)?;
            match events.first() {
                Some(first) => Ok(first.session_seq.saturating_sub(1)),
                None => Ok(reader
                    .session(&session_id)?
                    .map_or(0, |session| session.last_session_seq)),
            }
        };
        let before = self.runtime.inner.services.core.reader.read(read).await?;
        Ok(self.events(&run.session_id, before))
    }

    /// Reads the users that own the given sessions, in one query. Unknown sessions are omitted.
    ///
    /// # Errors
    /// `storage_error`.
    pub async fn owners(self, ids: Vec<SessionId>) -> Result<Vec<(SessionId, String)>, ErrorInfo> {
        self.runtime
            .inner
            .services
            .core
            .reader
            .read(move |reader| reader.session_owners(&ids))
            .await
    }

    /// Deletes a session: its traces and those of its sub-agents, runs, messages, events, goals and
    /// artifacts, both rows and files. Its streams end. User-level artifacts and files in projects
    /// are kept, including those that its runs created.
    ///
    /// Returns when the session is deleted; then its id is free. While the deletion runs, the
    /// session is not found, and a start with its id is rejected with `session_active` (retryable).
    /// Once started, the deletion completes even if the caller is dropped. If the process ends, the
    /// next owner of the home completes it.
    ///
    /// # Errors
    /// `session_active` if a run is queued or running, `session_not_found`: nothing has changed.
    /// `storage_error` with `details.files` if files cannot be removed: the session still exists
    /// and can be deleted again. No local file is removed then, unless the disk failed during the
    /// removal. In a bucket, where removal cannot be undone, all files except the listed ones are
    /// removed.
    pub async fn delete(self, id: &SessionId) -> Result<(), ErrorInfo> {
        let services = &self.runtime.inner.services;
        if services.core.lifetime.is_closing() {
            return Err(closing());
        }
        let (reply, gone) = oneshot::channel();
        if !services
            .sessions
            .send_to_supervisor(SessionSupervisorMsg::Delete {
                session: id.clone(),
                reply,
            })
        {
            return Err(closing());
        }
        gone.await.unwrap_or_else(|_| {
            let message = format!(
                "the deletion of session {id} crashed, and its outcome is unknown: delete it again"
            );
            Err(ErrorInfo::retryable(ErrorCode::InternalError, message))
        })
    }

    /// Lists the sessions that have been inactive for long, and deletes them one by one, as
    /// [`Sessions::delete`] does, unless it is a dry run. Sessions with active runs and sessions
    /// that became active meanwhile are skipped. If one cannot be deleted, the cleanup continues
    /// with the others.
    ///
    /// # Errors
    /// Fails if the sessions cannot be listed. The outcome for each session is in the report.
    pub async fn clean_up(
        self,
        request: SessionCleanup,
    ) -> Result<SessionCleanupReport, ErrorInfo> {
        let mut all = Vec::new();
        let mut cursor = None;
        loop {
            let page = self.list(SessionFilter::default(), PAGE, cursor).await?;
            all.extend(page.items);
            cursor = page.next_cursor;
            if cursor.is_none() {
                break;
            }
        }
        let mut report = request.choose(all, now());
        if request.dry_run {
            return Ok(report);
        }
        for candidate in &report.candidates {
            let id = &candidate.session_id;
            match self.delete_unchanged(candidate).await {
                Ok(true) => report.deleted.push(id.clone()),
                Ok(false) => {}
                Err(error) if error.code == ErrorCode::SessionActive => {
                    report.busy.push(id.clone())
                }
                Err(error) => report.failed.push(SessionCleanupFailure {
                    session_id: id.clone(),
                    error,
                }),
            }
        }
        Ok(report)
    }

    /// Deletes a session if it exists and has had no events since it was listed. Returns whether it
    /// was deleted.
    async fn delete_unchanged(self, session: &Session) -> Result<bool, ErrorInfo> {
        match self.get(&session.session_id).await {
            Ok(now) if now.last_session_seq == session.last_session_seq => {}
            Ok(_) => return Ok(false),
            Err(error) if error.code == ErrorCode::SessionNotFound => return Ok(false),
            Err(error) => return Err(error),
        }
        self.delete(&session.session_id).await.map(|()| true)
    }
}

/// Returns the error for a new session whose id is taken.
pub(super) fn session_exists(id: &SessionId) -> ErrorInfo {
    let message = format!("session {id} already exists: use it, or choose another id");
    ErrorInfo::new(ErrorCode::ValidationError, message)
}
