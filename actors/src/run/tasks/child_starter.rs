//! Starts children that programs and tools request for a live run (RT-4).
//!
//! Elsewhere: which children a run accepts (`machine/sub_agents/spawn.rs`).

use std::{sync::Arc, time::Duration};

use soong_protocol::{
    ArtifactSource, ChildResult, ErrorCode, ErrorInfo, Provenance, RunId, TraceId,
};
use soong_tool::{ChildSpec, artifact::ArtifactOwner};
use tokio::sync::oneshot;

use crate::{
    actor_base::closing,
    gateways::ModelGateways,
    message_files::MessageFiles,
    run::{
        core::Core,
        machine::{
            effect::RequestedChild,
            errors::run_has_ended,
            input::{ChildRequest, SpawnRequest},
        },
        message::{RunMsg, SpawnReply},
        registry::entry::RunEntry,
        tasks::{cancelled, finalize::Finalizer, load::last_settings},
    },
};

/// Interval at which the actor of a run is looked for while it is restarted.
const RETRY_INTERVAL: Duration = Duration::from_millis(2);
/// Interval at which a child is looked for that an earlier process started and that is not restored
/// yet.
const RESTORE_INTERVAL: Duration = Duration::from_millis(20);

/// Starts children of live runs.
pub(crate) struct ChildStarter {
    pub(crate) core: Arc<Core>,
    pub(crate) models: Arc<ModelGateways>,
    pub(crate) finalizer: Arc<Finalizer>,
}

/// A child that a run has accepted.
pub(crate) enum AcceptedChild {
    New(Arc<RunEntry>),
    /// An interrupted attempt of the same tool call started it.
    Earlier {
        run_id: RunId,
        trace_id: TraceId,
    },
}

impl ChildStarter {
    /// Adds children to a run, all or none, in one commit. `call`: the tool call that requests
    /// them.
    pub(crate) async fn spawn(
        &self,
        parent: &RunEntry,
        specs: Vec<ChildSpec>,
        call: Option<String>,
    ) -> Result<Vec<AcceptedChild>, ErrorInfo> {
        let mut orders = Vec::with_capacity(specs.len());
        for (index, mut spec) in specs.into_iter().enumerate() {
            self.store_files(parent, &mut spec).await?;
            let before = match &spec.continue_from {
                Some(trace) => Some(last_settings(&self.core.reader, trace).await?),
                None => None,
            };
            orders.push(ChildRequest {
                spec,
                previous_settings: before,
                index: index + 1,
            });
        }
        for model in orders.iter().filter_map(|order| order.spec.model.as_ref()) {
            self.models.open(model).await?;
        }
        let mut request = SpawnRequest {
            orders,
            is_queued: true,
            call,
        };
        let is_open = || !parent.published().phase.is_final();
        while parent.address.is_closed() {
            if !is_open() {
                return Err(run_has_ended());
            }
            if let Some(children) = self
                .finalizer
                .add_children_of_queued(parent, &request)
                .await?
            {
                return Ok(children
                    .iter()
                    .map(|run| AcceptedChild::New(self.core.runs.register(run)))
                    .collect());
            }
            // The actor of the run is being started or restarted.
            tokio::time::sleep(RETRY_INTERVAL).await;
        }
        request.is_queued = false;
        let (sender, answer) = oneshot::channel();
        let runs = Arc::clone(&self.core.runs);
        let reply = SpawnReply::new(move |rows| {
            let accepted = |child: RequestedChild| match child {
                RequestedChild::New(run) => AcceptedChild::New(runs.register(&run)),
                RequestedChild::Earlier { run_id, trace_id } => {
                    AcceptedChild::Earlier { run_id, trace_id }
                }
            };
            let _ = sender.send(rows.map(|rows| rows.into_iter().map(accepted).collect())); // the caller may be gone
        });
        self.core
            .runs
            .send(parent, RunMsg::Spawn { request, reply });
        let crashed = || {
            let message = "the run's actor crashed before it answered: the child may have been started, see `children`";
            ErrorInfo::retryable(ErrorCode::InternalError, message)
        };
        answer.await.map_err(|_| {
            if is_open() {
                crashed()
            } else {
                run_has_ended()
            }
        })?
    }

    /// Stores the images and files of the messages of a new child.
    async fn store_files(&self, parent: &RunEntry, spec: &mut ChildSpec) -> Result<(), ErrorInfo> {
        if spec
            .options
            .messages
            .iter()
            .all(|message| message.content.parts().is_empty())
        {
            return Ok(());
        }
        let wanted = parent.identity.run_id.clone();
        let Some(run) = self
            .core
            .reader
            .read(move |reader| reader.run(&wanted))
            .await?
        else {
            let message = format!("there is no run {}", parent.identity.run_id);
            return Err(ErrorInfo::new(ErrorCode::RunNotFound, message));
        };
        let limits = self
            .models
            .input_limits_of(spec.model.as_deref().unwrap_or(&run.settings.model));
        let provenance = Provenance {
            trace_id: Some(run.trace_id),
            ..Provenance::default()
        };
        let owner = ArtifactOwner {
            session_id: run.session_id,
            uid: run.uid,
        };
        let files = MessageFiles {
            artifacts: &self.core.artifacts,
            owner,
        };
        for message in &mut spec.options.messages {
            limits.check_content(&message.content)?;
            let content = files
                .fit(std::mem::take(&mut message.content), &limits)
                .await?;
            message.content = files
                .save(content, ArtifactSource::Api, &provenance, &mut Vec::new())
                .await?;
        }
        Ok(())
    }

    /// Waits for the end of a child, and returns its result.
    pub(crate) async fn result(
        &self,
        parent: &RunEntry,
        child: AcceptedChild,
    ) -> Result<ChildResult, ErrorInfo> {
        let (mut entry, run_id) = match child {
            AcceptedChild::New(entry) => (Some(Arc::clone(&entry)), entry.identity.run_id.clone()),
            AcceptedChild::Earlier { run_id, .. } => (None, run_id),
        };
        loop {
            if let Some(running) = entry.take().or_else(|| self.core.runs.get(&run_id)) {
                running.wait_outcome().await?;
            }
            let wanted = run_id.clone();
            if let Some(result) = self
                .core
                .reader
                .read(move |reader| reader.child_result(&wanted))
                .await?
            {
                return Ok(result);
            }
            tokio::select! {
                () = parent.control.token.cancelled() => return Err(cancelled()),
                () = tokio::time::sleep(RESTORE_INTERVAL) => {}
            }
            if parent.published().phase.is_final() {
                return Err(closing());
            }
        }
    }
}
