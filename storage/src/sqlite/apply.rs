//! Writes the appends of one batch within a transaction.
//!
//! Assigns every cursor: the store's lsn, the trace's event id, and the numbers within the run and
//! the session. Rows of runs, traces and sessions are changed in memory; `Cache::save` writes them.
//!
//! Elsewhere: whether an append may be written (`admit.rs`), what an event changes
//! (`event_effects.rs`), begin and commit (`store.rs`).

use rusqlite::{CachedStatement, Connection};
use soong_protocol::{
    Artifact, ArtifactWrite, BlobWrite, ChildResult, EventDraft, Message, NewEdit, NewFork,
    NewTrace, Permission, PermissionWrite, Run, RunId, RunWrite, SessionId, SessionWrite, TraceId,
    TraceWrite, Write,
};

use super::{
    WriteError,
    admit::{Admission, admit},
    artifacts,
    cache::Cache,
    deletion, edits,
    event_effects::EventRows,
    event_rows::{self, NewRow, Reported},
    events, fork, keyed_requests, main_path, messages, permissions, prompts, questions,
    row_updates, runs, sessions, slug, task_journals,
    traces::{self, TraceRow},
};
use crate::store::{Ack, Append, DeletionStage, EventIds, StoreError};

/// A batch that is being written.
pub(super) struct Batch<'c> {
    conn: &'c Connection,
    cache: &'c mut Cache,
    add_event_row: CachedStatement<'c>,
    add_message: CachedStatement<'c>,
    /// Events of the current append that are not inserted yet.
    event_row: Option<NewRow>,
}

fn not_found(what: &str, id: impl std::fmt::Display) -> WriteError {
    StoreError::NotFound(format!("{what} {id}")).into()
}

impl<'c> Batch<'c> {
    /// Begins a batch. The caller must have begun the transaction.
    pub(super) fn new(conn: &'c Connection, cache: &'c mut Cache) -> rusqlite::Result<Self> {
        if cache.next_lsn.is_none() {
            cache.next_lsn = Some(events::next_lsn(conn)?);
        }
        let add_event_row = conn.prepare_cached(event_rows::INSERT)?;
        let add_message = conn.prepare_cached(messages::INSERT)?;
        Ok(Self {
            conn,
            cache,
            add_event_row,
            add_message,
            event_row: None,
        })
    }

    /// Writes one append. A rejected append has written nothing; after any other failure the
    /// transaction must be rolled back.
    pub(super) fn append(
        &mut self,
        append: &Append,
    ) -> Result<Result<Ack, StoreError>, WriteError> {
        match admit(self.conn, self.cache, append) {
            Ok(Admission::New) => self.write_all(append).map(Ok),
            Ok(Admission::AlreadyRecorded) => Ok(Ok(Ack::default())),
            Err(WriteError::Rejected(error)) => Ok(Err(error)),
            Err(failure) => Err(failure),
        }
    }

    fn write_all(&mut self, append: &Append) -> Result<Ack, WriteError> {
        let mut ack = Ack::default();
        let mut written = Reported::default();
        for write in &append.writes {
            match write {
                Write::Session(write) => {
                    self.insert_event_row()?; // a fork reads the events of its source
                    self.write_session(write)?;
                }
                Write::Trace(TraceWrite::Create(new)) => self.trace(new)?,
                Write::Trace(TraceWrite::FirstTask(new)) => self.first_task(new)?,
                Write::Trace(TraceWrite::Require(_)) => {}
                Write::Run(RunWrite::Create(run)) => self.run(run)?,
                Write::Run(RunWrite::NewEpoch(run_id)) => ack.epoch = Some(self.open_run(run_id)?),
                Write::Run(RunWrite::ChildResult(result)) => {
                    self.child_result(result)?;
                    written.result = Some(result);
                }
                Write::Run(RunWrite::OpenModelCalls { run_id, calls }) => {
                    let run = self
                        .cache
                        .runs
                        .get(self.conn, run_id)?
                        .ok_or_else(|| not_found("run", run_id))?;
                    runs::set_open_model_calls(self.conn, run.key, calls)?;
                }
                Write::Run(RunWrite::OfferedTools { run_id, tools }) => {
                    let run = self
                        .cache
                        .runs
                        .get(self.conn, run_id)?
                        .ok_or_else(|| not_found("run", run_id))?;
                    runs::set_offered_tools(self.conn, run, tools)?;
                }
                Write::Run(RunWrite::TaskJournalCompleted(run_id)) => {
                    task_journals::end(self.conn, run_id)?
                }
                Write::Message(message) => {
                    self.message(message)?;
                    written.message = Some(message);
                }
                Write::Event(draft) => ack.events.push(self.event(draft, &written)?),
                Write::Answer {
                    question_id,
                    answer,
                    at,
                } => questions::answer(self.conn, question_id, answer, *at)?,
                Write::Permission(PermissionWrite::Request(permission)) => {
                    self.insert_permission(permission)?
                }
                Write::Permission(PermissionWrite::Decision(decision)) => {
                    permissions::decide(self.conn, decision)?
                }
                Write::Artifact(write) => self.write_artifact(write)?,
                Write::Request(write) => keyed_requests::write(self.conn, write)?,
                Write::Blob(BlobWrite::Intent { path, at }) => {
                    artifacts::begin_intent(self.conn, path, *at)?
                }
                Write::Blob(BlobWrite::Deleted { path }) => artifacts::end_intent(self.conn, path)?,
                Write::Probe => rewrite_format_version(self.conn)?,
            }
        }
        self.insert_event_row()?;
        self.count_messages(append)?;
        if let Some(fence) = &append.fence
            && let Some(run) = self.cache.runs.get_mut(self.conn, &fence.run_id)?
            && run.position.epoch == fence.epoch
        {
            run.position.append_number = fence.number;
            if let Some(used_ms) = fence.active_ms.filter(|_| !run.status.is_terminal()) {
                run.stats.duration_ms = used_ms;
            }
        }
        Ok(ack)
    }

    fn write_session(&mut self, write: &SessionWrite) -> Result<(), WriteError> {
        match write {
            SessionWrite::Create(new) => {
                let row = sessions::insert(self.conn, new)?;
                self.cache.sessions.add(new.session_id.clone(), row);
                Ok(())
            }
            SessionWrite::Fork(new) => self.fork(new),
            SessionWrite::BeginRemoval(id) => self.begin_removal(id),
            SessionWrite::EndRemoval(id) => self.end_removal(id),
            SessionWrite::RemoveRows { session_id, limit } => {
                Ok(deletion::remove_rows(self.conn, session_id, *limit)?)
            }
            SessionWrite::Require { .. } => Ok(()),
        }
    }

    fn write_artifact(&mut self, write: &ArtifactWrite) -> Result<(), WriteError> {
        let next_lsn = self.cache.next_lsn.unwrap_or(1);
        match write {
            ArtifactWrite::Version(new) => artifacts::insert_version(self.conn, new, next_lsn)?,
            ArtifactWrite::Copy(new) => artifacts::insert_copy(self.conn, new, next_lsn)?,
            ArtifactWrite::Edit(new) => self.edit(new)?,
            ArtifactWrite::DocumentVersion(new) => artifacts::flush(self.conn, new, next_lsn)?,
            ArtifactWrite::Deleted { artifact_id, at } => {
                artifacts::remove(self.conn, artifact_id, *at)?
            }
        }
        Ok(())
    }

    fn trace(&mut self, new: &NewTrace) -> Result<(), WriteError> {
        let parent_key = match &new.parent_trace_id {
            Some(id) => Some(
                self.cache
                    .traces
                    .get(self.conn, id)?
                    .ok_or_else(|| not_found("trace", id))?
                    .key,
            ),
            None => None,
        };
        let session = self.cache.sessions.get(self.conn, &new.session_id)?;
        let session = session.ok_or_else(|| not_found("session", &new.session_id))?;
        let session_key = session.key;
        let row = traces::insert(self.conn, new, session, parent_key)?;
        self.cache.traces.add(new.trace_id.clone(), row);
        if parent_key.is_none() {
            slug::set_if_missing(self.conn, session_key, &new.session_id, &new.name)?;
        }
        Ok(())
    }

    /// Copies a trace into a new session. Without a name for the new session, the copy has the
    /// source's name.
    fn fork(&mut self, new: &NewFork) -> Result<(), WriteError> {
        let row = self
            .cache
            .traces
            .get(self.conn, &new.source_trace)?
            .ok_or_else(|| not_found("trace", &new.source_trace))?;
        let source = fork::Source {
            key: row.key,
            head: row.head_sequence,
        };
        let described = traces::trace(self.conn, &new.source_trace)?
            .ok_or_else(|| not_found("trace", &new.source_trace))?;
        let session = sessions::insert(self.conn, &new.session)?;
        let trace = NewTrace {
            trace_id: new.trace_id.clone(),
            session_id: new.session.session_id.clone(),
            run_mode: described.run_mode,
            task: described.task,
            name: new.session.name.clone().unwrap_or(described.name),
            agent_type: described.agent_type,
            parent_trace_id: None,
            parent_goal_id: None,
            uid: new.session.uid.clone(),
            model: described.model,
            created_at: new.session.created_at,
        };
        let mut row = traces::insert(self.conn, &trace, &session, None)?;
        slug::set_if_missing(self.conn, session.key, &trace.session_id, &trace.name)?;
        fork::copy(
            self.conn,
            &source,
            new.last_message,
            &mut row,
            self.cache.next_lsn.unwrap_or(1),
        )?;
        prompts::copy_to(self.conn, session.key, row.key)?;
        row.completed_at = Some(new.session.created_at);
        self.cache
            .sessions
            .add(new.session.session_id.clone(), session);
        self.cache.traces.add(trace.trace_id, row);
        Ok(())
    }

    fn first_task(&mut self, new: &NewTrace) -> Result<(), WriteError> {
        let trace = trace_mut(self.cache, self.conn, &new.trace_id)?;
        traces::set_first_task(self.conn, trace.key, new)?;
        let session = self.cache.sessions.get(self.conn, &new.session_id)?;
        let session = session.ok_or_else(|| not_found("session", &new.session_id))?;
        sessions::set_name_if_missing(self.conn, session.key, &new.name)?;
        Ok(slug::set_if_missing(
            self.conn,
            session.key,
            &new.session_id,
            &new.name,
        )?)
    }

    fn run(&mut self, run: &Run) -> Result<(), WriteError> {
        let parent_key = match &run.parent_run_id {
            Some(id) => Some(
                self.cache
                    .runs
                    .get(self.conn, id)?
                    .ok_or_else(|| not_found("run", id))?
                    .key,
            ),
            None => None,
        };
        let trace = self.cache.traces.get_mut(self.conn, &run.trace_id)?;
        let trace = trace.ok_or_else(|| not_found("trace", &run.trace_id))?;
        let session = self.cache.sessions.get(self.conn, &trace.session_id)?;
        let session_key = session
            .ok_or_else(|| not_found("session", &trace.session_id))?
            .key;
        row_updates::count_new_run(run.status, run.settings.reflects.is_some(), trace);
        let row = runs::insert(self.conn, run, trace.key, session_key, parent_key)?;
        self.cache.runs.add(run.run_id.clone(), row);
        Ok(())
    }

    fn open_run(&mut self, run_id: &RunId) -> Result<u64, WriteError> {
        let run = self
            .cache
            .runs
            .get_mut(self.conn, run_id)?
            .ok_or_else(|| not_found("run", run_id))?;
        run.position.epoch += 1;
        run.position.append_number = 0;
        Ok(run.position.epoch)
    }

    fn message(&mut self, message: &Message) -> Result<(), WriteError> {
        let lsn = self.cache.next_lsn.unwrap_or(1);
        let prompt_key = if prompts::is_shared(message) {
            Some(self.prompt_key(message)?)
        } else {
            None
        };
        let trace = trace_mut(self.cache, self.conn, &message.trace_id)?;
        messages::insert(&mut self.add_message, trace.key, message, lsn, prompt_key)?;
        trace.last_sequence = message.sequence;
        trace.stats.messages += 1;
        let head = trace.head_sequence;
        if let Some(covers) = &message.covers {
            main_path::add_boundary(self.conn, trace.key, message.sequence, covers)?;
        } else if !message.partial
            && !message.side_branch
            && message.parent_sequence.unwrap_or(0) == head
        {
            if head == 0 || message.sequence != head + 1 {
                main_path::begin_range(self.conn, trace.key, head, message.sequence)?;
            }
            trace.head_sequence = message.sequence;
        }
        Ok(())
    }

    fn prompt_key(&mut self, message: &Message) -> Result<i64, WriteError> {
        let trace = self.cache.traces.get(self.conn, &message.trace_id)?;
        let trace = trace.ok_or_else(|| not_found("trace", &message.trace_id))?;
        let session = self.cache.sessions.get(self.conn, &trace.session_id)?;
        let session_key = session
            .ok_or_else(|| not_found("session", &trace.session_id))?
            .key;
        Ok(prompts::key(self.conn, session_key, &message.content)?)
    }

    /// Adds the append's messages to the statistics of the run that writes it and of the runs that
    /// it opens.
    fn count_messages(&mut self, append: &Append) -> Result<(), WriteError> {
        let added = || {
            append.writes.iter().filter_map(|write| match write {
                Write::Message(message) => Some(&message.trace_id),
                _ => None,
            })
        };
        if added().next().is_none() {
            return Ok(());
        }
        let fenced = append.fence.iter().map(|fence| &fence.run_id);
        let opened = append.writes.iter().filter_map(|write| match write {
            Write::Run(RunWrite::NewEpoch(run_id)) => Some(run_id),
            _ => None,
        });
        for run_id in fenced.chain(opened) {
            let Some(run) = self.cache.runs.get_mut(self.conn, run_id)? else {
                continue;
            };
            for trace_id in added() {
                if self
                    .cache
                    .traces
                    .get(self.conn, trace_id)?
                    .is_some_and(|trace| trace.key == run.trace_key)
                {
                    run.stats.messages += 1;
                }
            }
        }
        Ok(())
    }

    /// Inserts the row of the events that were written last.
    fn insert_event_row(&mut self) -> rusqlite::Result<()> {
        self.event_row
            .take()
            .map_or(Ok(()), |row| row.insert(&mut self.add_event_row))
    }

    fn event(
        &mut self,
        draft: &EventDraft,
        written: &Reported<'_>,
    ) -> Result<EventIds, WriteError> {
        let Cache {
            sessions,
            traces,
            runs,
            next_lsn,
            ..
        } = &mut *self.cache;
        let trace = traces
            .get_mut(self.conn, &draft.trace_id)?
            .ok_or_else(|| not_found("trace", &draft.trace_id))?;
        let session = sessions.get_mut(self.conn, &trace.session_id)?;
        let session = session.ok_or_else(|| not_found("session", &trace.session_id))?;
        let run = match &draft.run_id {
            Some(id) => Some(
                runs.get_mut(self.conn, id)?
                    .ok_or_else(|| not_found("run", id))?,
            ),
            None => None,
        };
        let lsn = next_lsn.unwrap_or(1);
        *next_lsn = Some(lsn + 1);
        let mut rows = EventRows {
            trace,
            session,
            run,
        };
        let ids = rows.assign_ids(lsn, draft.ts);
        let owners = rows.owners();
        rows.apply(self.conn, draft, ids.event_id)?;
        let data = event_rows::stored_data(draft, written);
        if !self
            .event_row
            .as_mut()
            .is_some_and(|row| row.add(owners, &ids, draft, &data))
        {
            self.insert_event_row()?;
            self.event_row = Some(NewRow::new(owners, &ids, draft, &data));
        }
        Ok(ids)
    }

    fn insert_permission(&mut self, permission: &Permission) -> Result<(), WriteError> {
        let session = self.cache.sessions.get(self.conn, &permission.session_id)?;
        let session_key = session
            .ok_or_else(|| not_found("session", &permission.session_id))?
            .key;
        let run = self.cache.runs.get(self.conn, &permission.run_id)?;
        let run_key = run.ok_or_else(|| not_found("run", &permission.run_id))?.key;
        Ok(permissions::insert(
            self.conn,
            run_key,
            session_key,
            permission,
        )?)
    }

    /// Writes an edit. The stored version is read here, because a flush may come between two edits.
    fn edit(&mut self, new: &NewEdit) -> Result<(), WriteError> {
        let NewEdit { artifact, edit } = new;
        let stored_version = artifacts::numbers(self.conn, &edit.artifact_id)?
            .unwrap_or_default()
            .stored;
        let key = artifacts::save(
            self.conn,
            &Artifact {
                stored_version,
                ..artifact.clone()
            },
        )?;
        let trace = self.cache.traces.get(self.conn, &edit.trace_id)?;
        let trace_key = trace.ok_or_else(|| not_found("trace", &edit.trace_id))?.key;
        let run = self.cache.runs.get(self.conn, &edit.effect.run_id)?;
        let run_key = run
            .ok_or_else(|| not_found("run", &edit.effect.run_id))?
            .key;
        let lsn = self.cache.next_lsn.unwrap_or(1);
        Ok(edits::insert(
            self.conn, key, trace_key, run_key, lsn, edit,
        )?)
    }

    /// Writes and clears the cache, because the session must no longer be found or written from
    /// memory.
    fn begin_removal(&mut self, id: &SessionId) -> Result<(), WriteError> {
        if let Some(session_key) = sessions::key(self.conn, id)? {
            self.cache.save(self.conn)?;
            self.cache.usage.subtract_session(self.conn, session_key)?;
            deletion::set_stage(self.conn, id, Some(DeletionStage::Files))?;
            self.cache.forget();
        }
        Ok(())
    }

    fn end_removal(&mut self, id: &SessionId) -> Result<(), WriteError> {
        deletion::set_stage(self.conn, id, None)?;
        if let Some(session_key) = sessions::key(self.conn, id)? {
            self.cache.usage.add_session(self.conn, session_key)?;
        }
        Ok(())
    }

    fn child_result(&mut self, result: &ChildResult) -> Result<(), WriteError> {
        let run = self.cache.runs.get(self.conn, &result.run_id)?;
        let run = run.ok_or_else(|| not_found("run", &result.run_id))?;
        Ok(runs::insert_result(self.conn, run.key, result)?)
    }
}

fn trace_mut<'a>(
    cache: &'a mut Cache,
    conn: &Connection,
    id: &TraceId,
) -> Result<&'a mut TraceRow, WriteError> {
    cache
        .traces
        .get_mut(conn, id)?
        .ok_or_else(|| not_found("trace", id))
}

/// Writes the format version again, which changes the first page of the database.
fn rewrite_format_version(conn: &Connection) -> rusqlite::Result<()> {
    let format: u32 = conn.query_row("PRAGMA user_version", [], |row| row.get(0))?;
    conn.pragma_update(None, "user_version", format)
}
