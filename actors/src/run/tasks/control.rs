//! The run that a tool or a callback works for: implements [`RunControl`].

use std::sync::Arc;

use futures::{FutureExt, future::BoxFuture};
use soong_protocol::{Collaborator, ErrorCode, ErrorInfo};
use soong_tool::{ChildSpec, RunControl, SpawnedChild};
use tokio::sync::oneshot;

use crate::run::{
    machine::{
        errors::run_has_ended,
        input::{ChildInput, QuestionRequest, RunInput},
    },
    message::RunMsg,
    registry::entry::RunEntry,
    tasks::child_starter::{AcceptedChild, ChildStarter},
};

/// Access of a tool call or a callback to its run.
pub(crate) struct RunAccess {
    pub(crate) starter: Arc<ChildStarter>,
    pub(crate) entry: Arc<RunEntry>,
    /// The tool call; `None` for callbacks.
    pub(crate) call: Option<String>,
}

impl RunControl for RunAccess {
    fn spawn(
        &self,
        children: Vec<ChildSpec>,
    ) -> BoxFuture<'static, Result<Vec<SpawnedChild>, ErrorInfo>> {
        let starter = Arc::clone(&self.starter);
        let entry = Arc::clone(&self.entry);
        let call = self.call.clone();
        async move {
            let accepted = starter.spawn(&entry, children, call).await?;
            let handle = |child: AcceptedChild| {
                let (run_id, trace_id) = match &child {
                    AcceptedChild::New(entry) => (
                        entry.identity.run_id.clone(),
                        entry.identity.trace_id.clone(),
                    ),
                    AcceptedChild::Earlier { run_id, trace_id } => {
                        (run_id.clone(), trace_id.clone())
                    }
                };
                let starter = Arc::clone(&starter);
                let parent = Arc::clone(&entry);
                let result = async move { starter.result(&parent, child).await };
                SpawnedChild::new(run_id, trace_id, result.boxed())
            };
            Ok(accepted.into_iter().map(handle).collect())
        }
        .boxed()
    }

    fn set_collaborator(&self, collaborator: Collaborator) {
        self.starter.core.runs.notify(
            &self.entry,
            RunInput::Child(ChildInput::Named(Box::new(collaborator))),
        );
    }

    fn collaborators(&self) -> BoxFuture<'static, Result<Vec<Collaborator>, ErrorInfo>> {
        let reader = self.starter.core.reader.clone();
        let trace = self.entry.identity.trace_id.clone();
        async move {
            let trace = reader.read(move |reader| reader.trace(&trace)).await?;
            Ok(trace
                .map(|trace| trace.context.collaborators)
                .unwrap_or_default())
        }
        .boxed()
    }

    fn ask(
        &self,
        question: String,
        to: Option<String>,
    ) -> BoxFuture<'static, Result<String, ErrorInfo>> {
        let starter = Arc::clone(&self.starter);
        let entry = Arc::clone(&self.entry);
        let call = self.call.clone();
        async move {
            let Some(call) = call else {
                let message = "a callback cannot ask a person: its time is limited; let a tool ask";
                return Err(ErrorInfo::new(ErrorCode::ValidationError, message));
            };
            let (reply, answer) = oneshot::channel();
            starter.core.runs.send(
                &entry,
                RunMsg::Ask {
                    request: QuestionRequest { call, question, to },
                    reply,
                },
            );
            answer.await.map_err(|_| run_has_ended())?
        }
        .boxed()
    }
}
