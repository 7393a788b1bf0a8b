//! The home on disk, while no process owns it: operations that read, answered from its store.
//!
//! It answers the same requests as an owner process does, so that a command does not know which of
//! them it asks. Elsewhere: the store, and which records it marks as interrupted
//! (`offline_store.rs`); content of artifacts (`artifact_source.rs`).

use std::sync::Arc;

use axum::http::{Request, Response, StatusCode};
use futures::{
    FutureExt,
    future::{self, BoxFuture},
};
use soong::{
    ErrorCode, ErrorInfo, MessagePath, PermissionFilter, QuestionFilter, SessionFilter, TreeEvent,
    UsageFilter,
    artifact::ArtifactOwner,
    protocol::{
        SessionId, UsageReport,
        api::{
            Accepted, Artifacts, ErrorBody, EventPage, Messages, PathName, Permissions, Questions,
            SessionPage, SessionView, TracePage, TraceView,
            operation::{
                AnyRequest, AnyResponse, ListSessions, ListTraces, ReadEvents, ReadMessages,
                ReadTrace, StartRun,
            },
        },
    },
};
use soong_client::{Body, Items, LocalOwner, Routes, TreeUpdates};
use soong_server::http::trace_filter;
use soong_storage::store::{Reader, format_store_id};

use crate::offline_store::{OfflineStore, PAGE, read_error};

/// A home that is read from disk.
pub(crate) struct DiskHome(pub(crate) Arc<OfflineStore>);

/// Returns the error of an operation that needs a process that owns the home.
fn needs_owner() -> ErrorInfo {
    ErrorInfo::retryable(ErrorCode::Closing, "no process owns the home")
}

impl DiskHome {
    fn answer(&self, request: AnyRequest) -> Result<AnyResponse, ErrorInfo> {
        let reader = &self.0.reader;
        Ok(match request {
            AnyRequest::ListSessions(request) => AnyResponse::ListSessions(self.sessions(request)?),
            AnyRequest::ReadSession(request) => AnyResponse::ReadSession(SessionView {
                session: self.0.session(&request.session_id)?,
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
            // Changes, and what only a runtime knows.
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
            | AnyRequest::ReadArtifact(_)
            | AnyRequest::EditArtifact(_)
            | AnyRequest::DeleteArtifact(_)
            | AnyRequest::ListVersions(_)
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
            .0
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
            .0
            .reader
            .traces(&trace_filter(&query), limit, query.cursor.as_deref())
            .map_err(read_error)?;
        let traces = page.items.into_iter();
        Ok(TracePage {
            traces: traces.map(|trace| self.0.mark_trace(trace)).collect(),
            next_cursor: page.next_cursor,
        })
    }

    fn trace(&self, request: &ReadTrace) -> Result<TraceView, ErrorInfo> {
        let trace = self.0.trace(&request.trace_id)?;
        let reader = &self.0.reader;
        let goal_tree = reader.goal_tree(&trace.trace_id).map_err(read_error)?;
        let mut sub_traces = reader.linked_traces(&trace.trace_id).map_err(read_error)?;
        sub_traces.extend(reader.sub_traces(&trace.trace_id).map_err(read_error)?);
        let sub_traces = sub_traces.into_iter();
        Ok(TraceView {
            trace,
            goal_tree: goal_tree.unwrap_or_default(),
            sub_traces: sub_traces.map(|trace| self.0.mark_trace(trace)).collect(),
        })
    }

    fn messages(&self, request: ReadMessages) -> Result<Messages, ErrorInfo> {
        let trace = self.0.trace(&request.trace_id)?;
        let path = match request.query.mode {
            PathName::MainPath => MessagePath::Main,
            PathName::All => MessagePath::All,
        };
        let mut messages = self
            .0
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
        let reader = &self.0.reader;
        let limit = query.limit.unwrap_or(PAGE);
        let trace = self.0.trace(&request.trace_id)?;
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
        let session = self.0.session(session_id)?;
        let owner = ArtifactOwner {
            session_id: session.session_id,
            uid: session.uid,
        };
        let mut artifacts = Vec::new();
        for scope in owner.scopes() {
            artifacts.extend(self.0.reader.artifacts(&scope).map_err(read_error)?);
        }
        Ok(Artifacts { artifacts })
    }
}

impl Routes for DiskHome {
    fn send(&self, _: Request<Body>) -> BoxFuture<'static, Response<Body>> {
        let body = serde_json::to_vec(&ErrorBody::from(needs_owner())).unwrap_or_default();
        let mut response = Response::new(Body::from(body));
        *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
        future::ready(response).boxed()
    }
}

impl LocalOwner for DiskHome {
    fn call(
        &self,
        request: AnyRequest,
        _: &'static str,
    ) -> BoxFuture<'static, Result<AnyResponse, ErrorInfo>> {
        future::ready(self.answer(request)).boxed()
    }

    fn events(&self, _: ReadEvents) -> BoxFuture<'static, Result<Items, ErrorInfo>> {
        future::ready(Err(needs_owner())).boxed()
    }

    fn start_and_watch(
        &self,
        _: StartRun,
    ) -> BoxFuture<'static, Result<(Accepted, Items), ErrorInfo>> {
        future::ready(Err(needs_owner())).boxed()
    }

    fn watch_tree(&self) -> Box<dyn TreeUpdates> {
        Box::new(NoTree)
    }
}

/// The supervision tree of a home that no process owns: it has no actor.
struct NoTree;

impl TreeUpdates for NoTree {
    fn next(&mut self) -> BoxFuture<'_, Option<TreeEvent>> {
        future::ready(None).boxed()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use soong::{
        Runtime,
        protocol::{
            TraceId, UsageBy,
            api::{
                EventQuery, MessageQuery, PermissionQuery, QuestionQuery, SessionQuery, StartBody,
                TraceQuery, UsageQuery,
                operation::{
                    ListArtifacts, ListPermissions, ListQuestions, Operation, ReadSession,
                    ReadUsage,
                },
            },
        },
        testing::{script, text},
    };
    use soong_client::Client;
    use soong_server::http::{self, Api, LocalHome, ShutdownGate};

    use super::*;

    async fn answer<O: Operation>(home: &Client, operation: O) -> Value {
        let name = O::NAME;
        let response = home.call(operation).await;
        json!({ name: response.map_err(|error| error.code).unwrap_or_else(|code| panic!("{name}: {code}")) })
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
        let router = http::router(api.clone());
        let owner = Client::in_process(Arc::new(LocalHome::new(api, router)));
        let request = |session_id: &str| StartBody {
            prompt: Some("Work.".to_owned()),
            session_id: Some(session_id.to_owned()),
            ..StartBody::default()
        };
        for session_id in ["other", "s"] {
            let accepted = owner.start(&request(session_id)).await.unwrap();
            runtime.wait(&accepted.run_id).await.unwrap();
        }
        let expected = answers(&owner).await;
        runtime.close().await;

        let store = Arc::new(OfflineStore::open(dir.path()).unwrap_or_else(|_| panic!("no store")));
        let disk = Client::in_process(Arc::new(DiskHome(store)));
        for (from_disk, expected) in answers(&disk).await.into_iter().zip(expected) {
            assert_eq!(from_disk, expected);
        }
        let error = disk.start(&request("s")).await.unwrap_err();
        assert_eq!(error.code, ErrorCode::Closing, "a store starts no run");
    }
}
