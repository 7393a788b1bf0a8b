//! Reflects on the messages that a summary is about to replace, and writes what was learned
//! (MEM-5).

use std::{pin::pin, sync::Arc, time::Duration};

use ractor::ActorRef;
use soong_protocol::{ErrorCode, ErrorInfo, ExperienceId, ModelCallKind, Role};
use soong_text::Redactor;
use tokio_util::sync::CancellationToken;

use crate::{
    clock::now,
    memory::{Changes, MemoryFile, read_reflection},
    run::{
        machine::{
            auxiliary_call::AuxiliaryAnswer,
            effect::ReflectionCall,
            input::{MemoryInput, ReflectionResult, RunInput},
            output_schema::OutputSchema,
            spec::RunSpec,
        },
        message::RunMsg,
        tasks::{
            MODEL, RunTasks,
            model_call::{CallObserver, ModelCaller},
            panicked::panic_error,
            until_cancelled,
        },
    },
};

/// Maximum time of the model call, including the time in queues: the turn waits for it.
const TIMEOUT: Duration = Duration::from_secs(60);

impl RunTasks {
    /// Reflects on messages that a summary is about to replace; reports what was learned, or the
    /// error.
    pub(crate) fn reflect(
        &self,
        myself: ActorRef<RunMsg>,
        spec: &Arc<RunSpec>,
        call: ReflectionCall,
    ) {
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
                ModelCallKind::Reflection,
                mailbox.clone(),
            );
            let memory = services.memory.of(&spec.identity.uid);
            let reflecting = reflect(
                &services.models,
                memory,
                &services.redactor,
                &spec,
                call,
                &token,
                &mut observer,
            );
            let result = reflecting.await;
            let input = RunInput::Memory(MemoryInput::Reflected(Box::new(result)));
            mailbox.send(RunMsg::ModelCallEnded {
                input: Box::new(input),
                reservation: observer.reservation,
            });
        });
    }
}

/// Outcome of writing experiences: the id of each new one, and whether it was added.
pub(super) type Written = Result<Vec<(ExperienceId, bool)>, ErrorInfo>;

/// Calls the model, and writes the experiences of its answer. Only the call is cut off when the run
/// is cancelled.
async fn reflect(
    models: &ModelCaller,
    memory: Arc<MemoryFile>,
    redactor: &Redactor,
    spec: &RunSpec,
    call: ReflectionCall,
    token: &CancellationToken,
    observer: &mut CallObserver,
) -> ReflectionResult {
    let ReflectionCall {
        covered,
        shown,
        request,
    } = call;
    let messages = vec![(Role::User, request.user)];
    let calling = models.call_auxiliary(
        spec,
        &spec.auxiliary_models.summary,
        request.system,
        messages,
        observer,
    );
    let calling = async {
        tokio::time::timeout(TIMEOUT, calling)
            .await
            .unwrap_or_else(|_| {
                let message = format!("the reflection took longer than {} s", TIMEOUT.as_secs());
                Err(ErrorInfo::new(ErrorCode::Timeout, message))
            })
    };
    let answered = until_cancelled(MODEL, token, redactor, pin!(calling))
        .await
        .flatten();
    let failed = |answer: Option<AuxiliaryAnswer>, used_by_failure, error| ReflectionResult {
        answer,
        used_by_failure,
        changes: Changes::default(),
        outcome: Err(spec.redactor.redact_error(error)),
    };
    let answer = match answered {
        Ok(answer) => answer,
        Err(error) => return failed(None, observer.meter.used_by_failure(&error), error),
    };
    let (new, rated) = match OutputSchema::reflection().check(&answer.completion.text) {
        Ok((text, _)) => read_reflection(text, &shown),
        Err(why) => {
            let message = format!("the answer does not match the format: {why}");
            return failed(
                Some(answer),
                None,
                ErrorInfo::new(ErrorCode::ProviderError, message),
            );
        }
    };
    let changes = Changes {
        reflection: format!("{}-{}", spec.identity.run_id, covered.1),
        trace_id: Some(spec.identity.trace_id.clone()),
        at: now(),
        new,
        rated,
    };
    let (outcome, changes) = write(memory, redactor, changes).await;
    ReflectionResult {
        answer: Some(answer),
        used_by_failure: None,
        changes,
        outcome,
    }
}

/// Writes experiences to the file.
pub(super) async fn write(
    memory: Arc<MemoryFile>,
    redactor: &Redactor,
    changes: Changes,
) -> (Written, Changes) {
    let result = tokio::task::spawn_blocking(move || (memory.change(&changes), changes)).await;
    result.unwrap_or_else(|failed| {
        let panic = failed
            .try_into_panic()
            .unwrap_or_else(|_| Box::new("the task was cancelled"));
        (
            Err(panic_error(redactor, "the memory", &*panic)),
            Changes::default(),
        )
    })
}
