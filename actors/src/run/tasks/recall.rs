//! Searches the experiences of earlier runs that match the task of a run.

use std::{pin::pin, sync::Arc};

use ractor::ActorRef;
use soong_protocol::{ErrorCode, ErrorInfo, ModelCallKind, Role};

use crate::{
    budget::Reservation,
    memory::{
        ExperienceText, MemoryFile, correction_request, format_experiences, matching, read_tags,
        tag_request,
    },
    run::{
        machine::{
            input::{MemoryInput, RecallResult, RunInput},
            spec::RunSpec,
        },
        message::RunMsg,
        tasks::{
            MODEL, RunTasks,
            model_call::{CallObserver, ModelCaller},
            until_cancelled,
        },
    },
};

impl RunTasks {
    /// Searches the experiences of earlier runs; reports the ones that were found.
    pub(crate) fn recall(&self, myself: ActorRef<RunMsg>, spec: &Arc<RunSpec>, task: String) {
        let services = Arc::clone(&self.services);
        let entry = Arc::clone(&self.entry);
        let token = self.token.clone();
        let spec = Arc::clone(spec);
        let mailbox = self.mailbox(myself);
        self.spawn(async move {
            let mut observer = CallObserver::new(
                &services.journal,
                &entry,
                &spec,
                ModelCallKind::Recall,
                mailbox.clone(),
            );
            let mut recalled = RecallResult::default();
            let memory = services.memory.of(&spec.identity.uid);
            let search = search(
                &services.models,
                memory,
                services.max_recalled,
                &spec,
                &task,
                &mut observer,
                &mut recalled,
            );
            let found = until_cancelled(MODEL, &token, &services.redactor, pin!(search))
                .await
                .flatten();
            if let Err(error) = found {
                recalled.used_by_failure = observer.meter.used_by_failure(&error);
                recalled.error = Some(spec.redactor.redact_error(error));
            }
            mailbox.send(RunMsg::ModelCallEnded {
                input: Box::new(RunInput::Memory(MemoryInput::Recalled(Box::new(recalled)))),
                reservation: observer.reservation,
            });
        });
    }
}

/// Searches for matching experiences. `recalled` is filled during the search, so that the usage is
/// known if the search is cut off.
async fn search(
    models: &ModelCaller,
    memory: Arc<MemoryFile>,
    top_k: usize,
    spec: &RunSpec,
    task: &str,
    observer: &mut CallObserver,
    recalled: &mut RecallResult,
) -> Result<(), ErrorInfo> {
    let read = tokio::task::spawn_blocking(move || memory.read_and_log()).await;
    let file: Arc<ExperienceText> =
        read.map_err(|error| ErrorInfo::new(ErrorCode::InternalError, error.to_string()))??;
    if file.experiences().is_empty() {
        return Ok(());
    }
    let (system, user) = tag_request(task, file.experiences());
    let mut messages = vec![(Role::User, user)];
    let mut retries = 0;
    recalled.tags = loop {
        // The usage of the first call is known, and no other call draws on this budget yet.
        observer
            .reservation
            .take()
            .into_iter()
            .for_each(Reservation::settle);
        let answer = models
            .call_auxiliary(
                spec,
                &spec.auxiliary_models.utility,
                system.clone(),
                messages.clone(),
                observer,
            )
            .await?;
        let used = answer.used();
        observer.meter.add_answered(used);
        recalled.add_call(used);
        let text = answer.completion.text;
        match read_tags(&text) {
            Ok(tags) => break tags,
            Err(why) if retries == 0 => {
                retries += 1;
                messages.push((Role::Assistant, text));
                messages.push((Role::User, correction_request(&why)));
            }
            Err(why) => {
                let message = format!(
                    "the task could not be classified: the model's answer does not match the format: {why}"
                );
                return Err(ErrorInfo::new(ErrorCode::ProviderError, message));
            }
        }
    };
    // Experiences that did more harm than good are not offered automatically.
    let mut found = matching(file.experiences(), &recalled.tags, usize::MAX);
    found.retain(|known| known.metrics.score() >= 0);
    found.truncate(top_k);
    recalled.ids = found.iter().map(|known| known.id.clone()).collect();
    recalled.prompt_text = (!found.is_empty()).then(|| format_experiences(&found));
    Ok(())
}
