//! The home on disk, while no process owns it: operations that read, answered from its store.
//!
//! It answers the same requests as an owner process does, so that a command does not know which of
//! them it asks. Elsewhere: the store, and which records it marks as interrupted
//! (`offline_store.rs`).

use std::sync::Arc;

use futures::{
    FutureExt,
    future::{self, BoxFuture},
};
use soong::{
    Environment, ErrorCode, ErrorInfo, MessagePath, PermissionFilter, QuestionFilter,
    SessionFilter, UsageFilter,
    artifact::{ArtifactOwner, ArtifactReader},
    protocol::{
        ArtifactsConfig, SessionId, UsageReport,
        api::{
            Accepted, Artifacts, EventPage, Messages, PathName, Permissions, Questions,
            SessionPage, SessionView, Stored, TracePage, TraceView, Versions,
            operation::{
                AnyRequest, AnyResponse, CleanUpArtifacts, ListSessions, ListTraces, ListVersions,
                PutArtifact, ReadArtifact, ReadEvents, ReadMessages, ReadTrace, StartRun,
            },
        },
    },
};
use soong_client::{
    ContentRequest, Download, EventStream, Home, TreeUpdates, Upload, UploadTarget,
};
use soong_server::http::{DOCX, LOCAL, artifact_cleanup, artifact_view, docx, trace_filter};
use soong_storage::store::{Reader, format_store_id};

use crate::offline_store::{OfflineStore, PAGE, read_error};

/// A home that is read from disk.
pub(crate) struct DiskHome {
    store: Arc<OfflineStore>,
    /// Reader of the content of artifacts; `None` if the command has not read the configuration,
    /// which says where content is stored.
    artifacts: Option<ArtifactReader>,
}

/// Returns the error of an operation that needs a process that owns the home.
fn needs_owner() -> ErrorInfo {
    ErrorInfo::retryable(ErrorCode::Closing, "no process owns the home")
}

impl DiskHome {
    /// Creates a home whose content is not read.
    pub(crate) fn new(store: Arc<OfflineStore>) -> Self {
        Self {
            store,
            artifacts: None,
        }
    }

    /// Creates a home with the content of its artifacts.
    ///
    /// # Errors
    /// `config_error` or `storage_error` if the place where content is stored cannot be opened.
    pub(crate) fn with_artifacts(
        store: Arc<OfflineStore>,
        config: &ArtifactsConfig,
        environment: &Environment,
    ) -> Result<Self, ErrorInfo> {
        let artifacts = ArtifactReader::open(store.home(), &config.store, environment)?;
        Ok(Self {
            store,
            artifacts: Some(artifacts),
        })
    }

    async fn answer(&self, request: AnyRequest) -> Result<AnyResponse, ErrorInfo> {
        let reader = &self.store.reader;
        Ok(match request {
            AnyRequest::ListSessions(request) => AnyResponse::ListSessions(self.sessions(request)?),
            AnyRequest::ReadSession(request) => AnyResponse::ReadSession(SessionView {
                session: self.store.session(&request.session_id)?,
            }),
            AnyRequest::ListTraces(request) => AnyResponse::ListTraces(self.traces(request)?),
            AnyRequest::ReadTrace(request) => AnyResponse::ReadTrace(self.trace(&request)?),
            AnyRequest::ReadMessages(request) => AnyResponse::ReadMessages(self.messages(request)?),
            AnyRequest::ReadEvents(request) => AnyResponse::ReadEvents(self.events(&request)?),
            AnyRequest::ListArtifacts(request) => {
                AnyResponse::ListArtifacts(self.artifacts(&request.session_id)?)
            }
            AnyRequest::ListPermissions(request) => {
                let filter = PermissionFilter {
                    status: request.query.status,
                    session_id: request.query.session_id,
                    ..PermissionFilter::default()
                };
                let permissions = reader.permissions(&filter).map_err(read_error)?;
                AnyResponse::ListPermissions(Permissions { permissions })
            }
            AnyRequest::ListQuestions(request) => {
                let filter = QuestionFilter {
                    status: request.query.status,
                    session_id: request.query.session_id,
                    ..QuestionFilter::default()
                };
                AnyResponse::ListQuestions(Questions {
                    questions: reader.questions(&filter).map_err(read_error)?,
                    is_parked: None,
                })
            }
            AnyRequest::ReadUsage(request) => {
                let filter = UsageFilter {
                    since: request.query.since,
                    uid: None,
                };
                let rows = reader
                    .usage(request.query.by, &filter)
                    .map_err(read_error)?;
                AnyResponse::ReadUsage(UsageReport::from_rows(rows))
            }
            AnyRequest::ReadArtifact(ReadArtifact { session_id, name }) => {
                let owner = self.artifact_owner(&session_id)?;
                let artifacts = self.artifact_reader()?;
                let loaded = artifacts.find(&owner, &name, None).await?;
                let versions = artifacts.versions_of(&owner, &name).await?;
                AnyResponse::ReadArtifact(artifact_view(loaded, versions).await?)
            }
            AnyRequest::ListVersions(ListVersions { session_id, name }) => {
                let owner = self.artifact_owner(&session_id)?;
                let versions = self.artifact_reader()?.versions_of(&owner, &name).await?;
                AnyResponse::ListVersions(Versions { versions })
            }
            AnyRequest::CleanUpArtifacts(CleanUpArtifacts { body }) if body.dry_run => {
                let cleanup = artifact_cleanup(body)?;
                let report = self.artifact_reader()?.cleanup_candidates(&cleanup).await?;
                AnyResponse::CleanUpArtifacts(report)
            }
            // Changes, and what needs a runtime.
            AnyRequest::StartRun(_)
            | AnyRequest::ResumeTrace(_)
            | AnyRequest::StopTrace(_)
            | AnyRequest::ReflectOnTrace(_)
            | AnyRequest::ReadRun(_)
            | AnyRequest::CancelRun(_)
            | AnyRequest::AddChildren(_)
            | AnyRequest::ListRunningTraces(_)
            | AnyRequest::CreateSession(_)
            | AnyRequest::DeleteSession(_)
            | AnyRequest::ForkSession(_)
            | AnyRequest::SwitchHead(_)
            | AnyRequest::SetPermissionMode(_)
            | AnyRequest::EditArtifact(_)
            | AnyRequest::DeleteArtifact(_)
            | AnyRequest::ReadVersion(_)
            | AnyRequest::CleanUpArtifacts(_)
            | AnyRequest::DecidePermission(_)
            | AnyRequest::AnswerQuestion(_)
            | AnyRequest::ListExperiences(_)
            | AnyRequest::ListSkills(_)
            | AnyRequest::ListPresets(_)
            | AnyRequest::ReadSettingsDigests(_)
            | AnyRequest::ReadTree(_)
            | AnyRequest::CrashActor(_)
            | AnyRequest::CheckLiveness(_)
            | AnyRequest::CheckReadiness(_) => return Err(needs_owner()),
        })
    }

    fn sessions(&self, request: ListSessions) -> Result<SessionPage, ErrorInfo> {
        let query = request.query;
        let filter = SessionFilter {
            uid: None,
            hides_calls: !query.all,
        };
        let limit = query.limit.unwrap_or(PAGE);
        let page = self
            .store
            .reader
            .sessions(&filter, limit, query.cursor.as_deref())
            .map_err(read_error)?;
        Ok(SessionPage {
            sessions: page.items,
            next_cursor: page.next_cursor,
        })
    }

    fn traces(&self, request: ListTraces) -> Result<TracePage, ErrorInfo> {
        let query = request.query;
        let limit = query.limit.unwrap_or(PAGE);
        let page = self
            .store
            .reader
            .traces(&trace_filter(&query), limit, query.cursor.as_deref())
            .map_err(read_error)?;
        let traces = page.items.into_iter();
        Ok(TracePage {
            traces: traces.map(|trace| self.store.mark_trace(trace)).collect(),
            next_cursor: page.next_cursor,
        })
    }

    fn trace(&self, request: &ReadTrace) -> Result<TraceView, ErrorInfo> {
        let trace = self.store.trace(&request.trace_id)?;
        let reader = &self.store.reader;
        let goal_tree = reader.goal_tree(&trace.trace_id).map_err(read_error)?;
        let mut sub_traces = reader.linked_traces(&trace.trace_id).map_err(read_error)?;
        sub_traces.extend(reader.sub_traces(&trace.trace_id).map_err(read_error)?);
        let sub_traces = sub_traces.into_iter();
        Ok(TraceView {
            trace,
            goal_tree: goal_tree.unwrap_or_default(),
            sub_traces: sub_traces
                .map(|trace| self.store.mark_trace(trace))
                .collect(),
        })
    }

    fn messages(&self, request: ReadMessages) -> Result<Messages, ErrorInfo> {
        let trace = self.store.trace(&request.trace_id)?;
        let path = match request.query.mode {
            PathName::MainPath => MessagePath::Main,
            PathName::All => MessagePath::All,
        };
        let mut messages = self
            .store
            .reader
            .messages(&trace.trace_id, path)
            .map_err(read_error)?;
        if let Some(goal_id) = request.query.goal_id {
            messages.retain(|message| message.goal_id.as_ref() == Some(&goal_id));
        }
        Ok(Messages { messages })
    }

    fn events(&self, request: &ReadEvents) -> Result<EventPage, ErrorInfo> {
        let query = &request.query;
        let reader = &self.store.reader;
        let limit = query.limit.unwrap_or(PAGE);
        let trace = self.store.trace(&request.trace_id)?;
        let events = if query.tree {
            let lsn = reader
                .session_lsn(&trace.session_id, query.cursor())
                .map_err(read_error)?;
            reader.session_events(&trace.session_id, lsn, limit)
        } else {
            reader.events(&trace.trace_id, query.cursor(), limit)
        };
        Ok(EventPage {
            events: events.map_err(read_error)?,
            store_id: format_store_id(reader.store_id().map_err(read_error)?),
        })
    }

    fn artifacts(&self, session_id: &SessionId) -> Result<Artifacts, ErrorInfo> {
        let owner = self.artifact_owner(session_id)?;
        let mut artifacts = Vec::new();
        for scope in owner.scopes() {
            artifacts.extend(self.store.reader.artifacts(&scope).map_err(read_error)?);
        }
        Ok(Artifacts { artifacts })
    }

    /// Returns the owner of the artifacts of a session, or of its user if the session is
    /// [`ArtifactOwner::NO_SESSION`].
    fn artifact_owner(&self, session_id: &SessionId) -> Result<ArtifactOwner, ErrorInfo> {
        if session_id.as_str() == ArtifactOwner::NO_SESSION {
            return Ok(ArtifactOwner::of_user(LOCAL));
        }
        let session = self.store.session(session_id)?;
        Ok(ArtifactOwner {
            session_id: session.session_id,
            uid: session.uid,
        })
    }

    fn artifact_reader(&self) -> Result<&ArtifactReader, ErrorInfo> {
        self.artifacts.as_ref().ok_or_else(needs_owner)
    }

    async fn open(&self, request: ContentRequest) -> Result<Download, ErrorInfo> {
        let artifacts = self.artifact_reader()?;
        match request {
            ContentRequest::Read(request) => {
                let owner = self.artifact_owner(&request.session_id)?;
                let version = request.query.version;
                let loaded = artifacts.find(&owner, &request.name, version).await?;
                Ok(Download {
                    content_type: loaded.content_type,
                    body: loaded.body,
                })
            }
            ContentRequest::Export(request) => {
                let owner = self.artifact_owner(&request.session_id)?;
                let loaded = artifacts.last_version(&owner, &request.name).await?;
                Ok(Download::of_bytes(DOCX, docx(loaded).await?))
            }
        }
    }
}

fn refuse<T: Send + 'static>() -> BoxFuture<'static, Result<T, ErrorInfo>> {
    future::ready(Err(needs_owner())).boxed()
}

impl Home for DiskHome {
    fn call(
        &self,
        request: AnyRequest,
        _: &'static str,
    ) -> BoxFuture<'_, Result<AnyResponse, ErrorInfo>> {
        self.answer(request).boxed()
    }

    fn events(&self, _: ReadEvents) -> BoxFuture<'_, Result<EventStream, ErrorInfo>> {
        refuse()
    }

    fn start_with_events(
        &self,
        _: StartRun,
    ) -> BoxFuture<'_, Result<(Accepted, EventStream), ErrorInfo>> {
        refuse()
    }

    fn open_content(&self, request: ContentRequest) -> BoxFuture<'_, Result<Download, ErrorInfo>> {
        self.open(request).boxed()
    }

    fn put_artifact(&self, _: PutArtifact, _: Upload) -> BoxFuture<'_, Result<Stored, ErrorInfo>> {
        refuse()
    }

    fn upload_file(&self, _: UploadTarget, _: Upload) -> BoxFuture<'_, Result<Stored, ErrorInfo>> {
        refuse()
    }

    fn watch_tree(&self) -> BoxFuture<'_, Result<Box<dyn TreeUpdates>, ErrorInfo>> {
        refuse()
    }
}

#[cfg(test)]
mod tests {
    use futures::{StreamExt, TryStreamExt, stream};
    use serde_json::{Value, json};
    use soong::{
        Runtime,
        protocol::{
            TraceId, UsageBy,
            api::{
                EventQuery, MessageQuery, PermissionQuery, QuestionQuery, SessionQuery, StartBody,
                TraceQuery, UsageQuery, VersionQuery,
                operation::{
                    ListArtifacts, ListPermissions, ListQuestions, Operation, ReadContent,
                    ReadSession, ReadUsage,
                },
            },
        },
        testing::{script, text},
    };
    use soong_client::Client;
    use soong_server::http::{Api, LocalHome, ShutdownGate};

    use super::*;

    async fn answer<O: Operation>(home: &Client, operation: O) -> Value {
        let name = O::NAME;
        let response = home.call(operation).await;
        json!({ name: response.map_err(|error| error.code).unwrap_or_else(|code| panic!("{name}: {code}")) })
    }

    async fn content(home: &Client, session_id: &SessionId, version: Option<u64>) -> Value {
        let request = ReadContent {
            session_id: session_id.clone(),
            name: "plan.md".to_owned(),
            query: VersionQuery { version },
        };
        match home.open_content(request).await {
            Ok(download) => {
                let pieces: Vec<_> = download.body.try_collect().await.unwrap();
                json!([
                    download.content_type,
                    String::from_utf8(pieces.concat()).unwrap()
                ])
            }
            Err(error) => json!(error.code),
        }
    }

    /// Returns the answers to each reading operation about the session `s`.
    async fn answers(home: &Client) -> Vec<Value> {
        let session_id = SessionId::new("s");
        let trace_id = TraceId::root(&session_id);
        let read_events = |query| ReadEvents {
            trace_id: trace_id.clone(),
            query,
        };
        let since_in_session = EventQuery {
            tree: true,
            since_session_seq: Some(3),
            ..EventQuery::default()
        };
        let since_in_trace = EventQuery {
            since_event_id: Some(2),
            limit: Some(2),
            ..EventQuery::default()
        };
        vec![
            answer(
                home,
                ListSessions {
                    query: SessionQuery::default(),
                },
            )
            .await,
            answer(
                home,
                ReadSession {
                    session_id: session_id.clone(),
                },
            )
            .await,
            answer(
                home,
                ListTraces {
                    query: TraceQuery::default(),
                },
            )
            .await,
            answer(
                home,
                ReadTrace {
                    trace_id: trace_id.clone(),
                },
            )
            .await,
            answer(
                home,
                ReadMessages {
                    trace_id: trace_id.clone(),
                    query: MessageQuery::default(),
                },
            )
            .await,
            answer(home, read_events(since_in_session)).await,
            answer(home, read_events(since_in_trace)).await,
            answer(
                home,
                ListArtifacts {
                    session_id: session_id.clone(),
                },
            )
            .await,
            answer(
                home,
                ReadArtifact {
                    session_id: session_id.clone(),
                    name: "plan.md".to_owned(),
                },
            )
            .await,
            answer(
                home,
                ListVersions {
                    session_id: session_id.clone(),
                    name: "plan.md".to_owned(),
                },
            )
            .await,
            content(home, &session_id, None).await,
            content(home, &session_id, Some(1)).await,
            content(home, &session_id, Some(9)).await,
            answer(
                home,
                ListPermissions {
                    query: PermissionQuery::default(),
                },
            )
            .await,
            answer(
                home,
                ListQuestions {
                    query: QuestionQuery::default(),
                },
            )
            .await,
            answer(
                home,
                ReadUsage {
                    query: UsageQuery {
                        by: UsageBy::Model,
                        since: None,
                    },
                },
            )
            .await,
        ]
    }

    #[tokio::test]
    async fn store_answers_as_its_owner_did() {
        let dir = tempfile::tempdir().unwrap();
        let runtime = Runtime::builder()
            .home(dir.path())
            .model("default", script([text("Done."), text("Done.")]))
            .build()
            .await
            .unwrap();
        let api = Api::new(runtime.clone(), ShutdownGate::open());
        let owner = Client::new(Arc::new(LocalHome::new(api)));
        let request = |session_id: &str| StartBody {
            prompt: Some("Work.".to_owned()),
            session_id: Some(session_id.to_owned()),
            ..StartBody::default()
        };
        for session_id in ["other", "s"] {
            let accepted = owner.start(&request(session_id)).await.unwrap();
            runtime.wait(&accepted.run_id).await.unwrap();
        }
        for text in ["# Plan\n", "# Second plan\n"] {
            let request = PutArtifact {
                session_id: SessionId::new("s"),
                name: "plan.md".to_owned(),
            };
            let upload = Upload {
                content_type: "text/markdown".to_owned(),
                bytes: stream::iter([Ok(text.into())]).boxed(),
            };
            owner.put_artifact(request, upload).await.unwrap();
        }
        let expected = answers(&owner).await;
        runtime.close().await;

        let store = Arc::new(OfflineStore::open(dir.path()).unwrap_or_else(|_| panic!("no store")));
        let config = ArtifactsConfig::default();
        let environment = Environment::default();
        let home = DiskHome::with_artifacts(store, &config, &environment).unwrap();
        let disk = Client::new(Arc::new(home));
        for (from_disk, expected) in answers(&disk).await.into_iter().zip(expected) {
            assert_eq!(from_disk, expected);
        }
        let error = disk.start(&request("s")).await.unwrap_err();
        assert_eq!(error.code, ErrorCode::Closing, "a store starts no run");
    }
}
