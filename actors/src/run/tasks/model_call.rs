//! The model calls of a run: the request, the budget reservation, and the events and deltas
//! reported during the call.
//!
//! Resources are acquired in one order (ACT-5): the run's slot, then the budget reservation, then
//! the gateway.
//!
//! Elsewhere: when a call is made (`machine/turn.rs`), calls besides the turns (`auxiliary_call.rs`),
//! retries and provider limits (the gateway).

use std::{sync::Arc, time::Duration};

use soong_model::{
    AnswerProgress, Completion, DeltaSink, ExchangeLog, ModelRequest, tokens::TokenDeviations,
};
use soong_protocol::{
    Delta, ErrorCode, ErrorInfo, FallbackReason, ModelCallKind, ModelEvent, Provider,
};
use soong_text::StreamRedactor;
use tokio::time::{Instant, sleep};

use crate::{
    actor_base::Mailbox,
    budget::{Reservation, ReserveRequest},
    callback::Reports,
    clock::now,
    events::LiveDelta,
    gateway::{CallLimits, CallResult, CallSink, WarmUp},
    gateways::ModelGateways,
    journal::JournalHandle,
    message_files::MessageFiles,
    run::{
        clock::ClockPause,
        core::Core,
        debug_artifacts::DebugArtifacts,
        machine::{
            effect::ModelCall,
            input::{ModelInput, RunInput},
            spec::{ModelSpec, RunSpec},
        },
        message::RunMsg,
        registry::entry::RunEntry,
        tasks::{
            artifact_owner,
            call_meter::CallMeter,
            callbacks::{CallbackCalls, CallbackRun},
            context_update::{RunContext, date_note},
            elapsed_ms,
        },
    },
};

/// Interval at which the session supervisor is asked to interrupt a session.
const INTERRUPT_RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// Observes a model call: streams its deltas, and collects its reservation, partial text and
/// waiting time.
pub(crate) struct CallObserver {
    journal: JournalHandle,
    entry: Arc<RunEntry>,
    mailbox: Mailbox<RunMsg>,
    /// Counts what the call has used.
    pub(super) meter: CallMeter,
    /// Streamed text, needed if the call is cut off.
    pub(crate) partial: String,
    /// Budget reserved for the call.
    pub(crate) reservation: Option<Reservation>,
    /// Context that the request adds to the conversation.
    pub(crate) context_update: Option<String>,
    /// Index of the fallback that makes the call; `None`: the run's own model does.
    pub(super) fallback: Option<usize>,
    /// Held until the answer begins, if the run is the first to fill a cache of the service.
    pub(super) warm_up: Option<WarmUp>,
    /// Time spent waiting for limits, pauses, retries and budgets, in milliseconds.
    pub(crate) waited_ms: u64,
    /// Whether the server was still loading the model.
    has_waited_for_loading: bool,
    clock_pause: Option<ClockPause>,
    /// Redactors of the streamed text and reasoning.
    redactors: (StreamRedactor, StreamRedactor),
}

impl CallObserver {
    pub(crate) fn new(
        journal: &JournalHandle,
        entry: &Arc<RunEntry>,
        spec: &Arc<RunSpec>,
        kind: ModelCallKind,
        mailbox: Mailbox<RunMsg>,
    ) -> Self {
        Self {
            journal: journal.clone(),
            entry: Arc::clone(entry),
            mailbox,
            meter: CallMeter::new(kind, spec.model.counter),
            partial: String::new(),
            reservation: None,
            context_update: None,
            fallback: None,
            warm_up: None,
            waited_ms: 0,
            has_waited_for_loading: false,
            clock_pause: None,
            redactors: (
                StreamRedactor::new(&spec.redactor),
                StreamRedactor::new(&spec.redactor),
            ),
        }
    }

    pub(super) fn run(&self) -> &Arc<RunEntry> {
        &self.entry
    }

    /// Returns whether the call is that of a turn, whose text and events belong to the
    /// conversation.
    fn is_of_turn(&self) -> bool {
        self.meter.kind() == ModelCallKind::Turn
    }

    /// Passes the reports of callbacks to the run.
    pub(super) fn report(&self, reports: Reports) {
        for report in reports {
            let input = RunInput::Report(Box::new(report.into()));
            self.mailbox.send(RunMsg::Input(Box::new(input)));
        }
    }

    /// Reserves budget for a call. Returns the maximum number of output tokens if tokens or money
    /// are limited.
    pub(super) async fn reserve(
        &mut self,
        request: ReserveRequest,
    ) -> Result<Option<u64>, ErrorInfo> {
        self.meter.set_request(request);
        let Some(account) = self.entry.control.budget.clone() else {
            return Ok(None);
        };
        let start = Instant::now();
        let wait = |waits: bool| {
            self.set_wait_reason(
                waits.then(|| "waiting for budget reserved by other calls".to_owned()),
            )
        };
        let reservation = account.reserve(&request, wait).await?;
        self.waited_ms += elapsed_ms(start);
        self.meter.limit_output(reservation.max_output_tokens);
        let limit = reservation
            .is_limited
            .then_some(reservation.max_output_tokens);
        self.reservation = Some(reservation);
        Ok(limit)
    }
}

impl DeltaSink for CallObserver {
    fn push(&mut self, delta: Delta) {
        let at = now();
        self.entry.control.clock.progress(at);
        if let Some(warm_up) = self.warm_up.take() {
            warm_up.filled();
        }
        self.meter.add_text(delta.text());
        self.report_usage();
        if !self.is_of_turn() {
            return;
        }
        if let Delta::Text { text } = &delta {
            self.partial.push_str(text);
        }
        let shown = match delta {
            Delta::Text { text } => Delta::Text {
                text: self.redactors.0.push(&text),
            },
            Delta::Reasoning { text } => Delta::Reasoning {
                text: self.redactors.1.push(&text),
            },
            delta @ Delta::ToolProgress { .. } => delta,
        };
        self.stream(shown);
    }

    fn progress(&mut self, progress: AnswerProgress) {
        self.meter.set_progress(progress);
        self.report_usage();
    }
}

impl CallObserver {
    /// Reports what the call has used so far, if it is time.
    fn report_usage(&mut self) {
        if let Some(open_call) = self.meter.due_report() {
            self.mailbox
                .send(RunMsg::Input(Box::new(RunInput::CallProgress(open_call))));
        }
    }

    /// Streams a redacted delta.
    fn stream(&self, delta: Delta) {
        if delta.text().is_empty() {
            return;
        }
        self.journal.publish_delta(|| LiveDelta {
            trace_id: self.entry.identity.trace_id.clone(),
            session_id: self.entry.identity.session_id.clone(),
            run_id: self.entry.identity.run_id.clone(),
            ts: now(),
            delta,
        });
    }

    /// Streams the text that the redactors held back because it could have been the start of a
    /// secret.
    fn stream_rest(&mut self) {
        let text = self.redactors.0.end();
        let reasoning = self.redactors.1.end();
        if self.is_of_turn() {
            self.stream(Delta::Reasoning { text: reasoning });
            self.stream(Delta::Text { text });
        }
    }
}

impl CallSink for CallObserver {
    fn record(&mut self, mut event: ModelEvent) {
        if let ModelEvent::Retrying { error, .. } = &event {
            self.has_waited_for_loading |= error.details["is_loading"] == true;
        }
        if !self.is_of_turn() {
            if matches!(event, ModelEvent::Retrying { .. }) {
                self.meter.discard();
            }
            return;
        }
        if let ModelEvent::Retrying { usage, cost, .. } | ModelEvent::Fallback { usage, cost, .. } =
            &mut event
            && usage.is_none()
            && let Some((used, its_cost)) = self.meter.used_by_answer()
        {
            // An answer that is discarded by a retry still costs tokens.
            *usage = Some(used);
            *cost = its_cost;
        }
        // The reservation of a failed call ends when its usage is charged.
        let reservation = if matches!(event, ModelEvent::Fallback { .. }) {
            self.reservation.take()
        } else {
            None
        };
        let input = Box::new(RunInput::Model(ModelInput::Note(event)));
        self.mailbox.send(match reservation {
            Some(_) => RunMsg::ModelCallEnded { input, reservation },
            None => RunMsg::Input(input),
        });
    }

    fn set_wait_reason(&mut self, reason: Option<String>) {
        match &reason {
            Some(_) => drop(
                self.clock_pause
                    .get_or_insert_with(|| self.entry.control.clock.pause()),
            ),
            None => self.clock_pause = None,
        }
        self.entry.status.set_wait_reason(reason);
    }

    fn request_sent(&mut self) {
        self.meter.request_sent();
        self.entry.control.clock.progress(now());
    }

    fn start_over(&mut self) {
        // If the run is cancelled before the next attempt, no request is in flight.
        self.meter.reset();
        self.partial.clear();
        self.stream_rest();
    }
}

/// Makes the model calls of runs.
pub(crate) struct ModelCaller {
    pub(crate) core: Arc<Core>,
    pub(crate) models: Arc<ModelGateways>,
    pub(crate) callbacks: Arc<CallbackCalls>,
    pub(crate) token_deviations: Arc<TokenDeviations>,
    /// Whether the first of several sub-agents starts alone (`agents.warm_prefix`).
    pub(crate) warm_prefix: bool,
    /// Stores requests and answers; present if `runtime.debug_artifacts` is set.
    pub(crate) debug_artifacts: Option<Arc<DebugArtifacts>>,
}

impl ModelCaller {
    /// Returns the outcome, unless the gateway is permanently lost. In that case, this process does
    /// not continue the session, and the call does not return.
    async fn interrupt_if_gateway_lost<T>(
        &self,
        spec: &RunSpec,
        outcome: Result<T, ErrorInfo>,
    ) -> Result<T, ErrorInfo> {
        match outcome {
            Err(failure) if failure.code == ErrorCode::RuntimeFailed => {
                loop {
                    if let Some(links) = self.core.runs.links(&spec.identity.session_id) {
                        links.session.interrupt(failure.clone());
                    }
                    // The supervisor may have crashed while it handled the request.
                    sleep(INTERRUPT_RETRY_INTERVAL).await;
                }
            }
            outcome => outcome,
        }
    }

    /// Like [`Self::interrupt_if_gateway_lost`] for the run's own model. Without the gateway of a
    /// fallback, the run continues.
    async fn interrupt_if_own_gateway_lost<T>(
        &self,
        spec: &RunSpec,
        fallback: Option<usize>,
        outcome: Result<T, ErrorInfo>,
    ) -> Result<T, ErrorInfo> {
        match fallback {
            Some(_) => outcome,
            None => self.interrupt_if_gateway_lost(spec, outcome).await,
        }
    }

    /// Calls the model of the run, or a fallback if that cannot answer.
    pub(crate) async fn call_model(
        &self,
        spec: &RunSpec,
        mut call: ModelCall,
        observer: &mut CallObserver,
    ) -> Result<Completion, ErrorInfo> {
        let inventory = match spec.tool("read_artifact") {
            Some(_) => self.core.artifacts.inventory(&artifact_owner(spec)).await?,
            None => None,
        };
        let context = RunContext {
            inventory,
            reminder: call.reminder.take(),
            notes: [
                call.dated.map(date_note),
                call.permission_note.take(),
                call.budget_note.take(),
            ],
        };
        let update = context.update(&call.messages);
        let update: Option<String> =
            update.map(|text: String| spec.redactor.text(&text).into_owned());
        let update_tokens = update
            .as_deref()
            .map_or(0, |text| spec.model.counter.count_text(text));
        observer.context_update.clone_from(&update);
        let prompt = Prompt {
            tokens: call.tokens.saturating_add(update_tokens),
            context_update: update.map(Into::into),
            call,
        };
        self.call_with_fallbacks(spec, &prompt, observer).await
    }

    /// Calls the callbacks before a call. Returns the request to send, or the answer of a callback,
    /// which is streamed.
    async fn check_request(
        &self,
        run: CallbackRun<'_>,
        request: ModelRequest,
        observer: &mut CallObserver,
    ) -> Result<ModelRequest, Result<Completion, ErrorInfo>> {
        let model = request.model.clone();
        let (result, reports) = self.callbacks.before_model(run, request).await;
        observer.report(reports);
        match result {
            // The model stays: its prices and limits are known.
            Ok(changed) => Ok(ModelRequest { model, ..changed }),
            Err(answer) => {
                let text = answer
                    .as_ref()
                    .map(|answer| answer.text.clone())
                    .unwrap_or_default();
                observer.push(Delta::Text { text });
                observer.stream_rest();
                Err(answer)
            }
        }
    }

    /// Calls the callbacks after an answer. An answer that they reject is charged, and its text is
    /// not kept.
    async fn check_answer(
        &self,
        run: CallbackRun<'_>,
        completion: Completion,
        observer: &mut CallObserver,
    ) -> Result<Completion, ErrorInfo> {
        if !run
            .spec
            .has_callback(|functions| functions.after_model.as_ref())
        {
            return Ok(completion);
        }
        let (outcome, reports) = Box::pin(self.callbacks.after_model(run, completion)).await;
        observer.report(reports);
        if outcome.is_err() {
            observer.partial.clear();
        }
        outcome
    }

    /// Returns the request for a model, without the name that its service knows and without what
    /// depends on the service.
    async fn request(&self, spec: &RunSpec, model: &ModelSpec, prompt: &Prompt) -> ModelRequest {
        let files = MessageFiles {
            artifacts: &self.core.artifacts,
            owner: artifact_owner(spec),
        };
        ModelRequest {
            system: vec![Arc::clone(&prompt.call.system)],
            context_update: prompt.context_update.clone(),
            files: files.load(&prompt.call.messages, &model.input.kinds).await,
            messages: prompt.call.messages.clone(),
            tools: if offers_tools(model, &prompt.call) {
                Arc::clone(&spec.tools.specs)
            } else {
                Arc::from([])
            },
            temperature: spec.settings.temperature.or(spec.preset.temperature),
            params: model.params.clone(),
            effort: model.effort,
            reasoning_budget_tokens: model.reasoning_budget_tokens,
            output_schema: spec
                .output_schema
                .as_ref()
                .and_then(|schema| schema.for_service.clone()),
            exchanges: self.exchange_log(),
            ..ModelRequest::default()
        }
    }

    /// Returns the log of a call, if debug artifacts are stored.
    pub(super) fn exchange_log(&self) -> Option<Arc<ExchangeLog>> {
        self.debug_artifacts.as_ref().map(|_| Arc::default())
    }

    /// Calls the model of the run, or a fallback. `fallback_reasons`: the reasons for which the
    /// call has a next fallback.
    pub(super) async fn call_one(
        &self,
        spec: &RunSpec,
        prompt: &Prompt,
        fallback: Option<usize>,
        fallback_reasons: &[FallbackReason],
        observer: &mut CallObserver,
    ) -> Result<Completion, ErrorInfo> {
        let model = spec.model_or_fallback(fallback);
        let opened = self.models.open(spec.configured_name(fallback)).await;
        let (gateway, name) = self
            .interrupt_if_own_gateway_lost(spec, fallback, opened)
            .await?;
        let cache = self
            .cache_hints(spec, model, &gateway, &prompt.call, observer)
            .await;
        let mut request = ModelRequest {
            model: name.map(str::to_owned),
            cache,
            ..self.request(spec, model, prompt).await
        };
        let run = Arc::clone(observer.run());
        let run = CallbackRun {
            spec,
            entry: &run,
            token: &run.control.token,
        };
        if spec.has_callback(|functions| functions.before_model.as_ref()) {
            request = match Box::pin(self.check_request(run, request, observer)).await {
                Ok(request) => request,
                Err(answer) => return answer,
            };
        }
        let granted = observer.reserve(reserve_request(model, prompt)).await?;
        let bound = model.output_bound(prompt.tokens);
        request.max_output_tokens = [request.max_output_tokens, granted, bound]
            .into_iter()
            .flatten()
            .min();
        let limits = CallLimits {
            session: &spec.identity.session_id,
            estimated_tokens: prompt.tokens.saturating_add(
                request
                    .max_output_tokens
                    .unwrap_or(model.reserved_output_tokens),
            ),
            max_service_wait: spec.fallbacks.after,
            fallback_reasons,
        };
        let CallResult { outcome, waited_ms } = gateway.complete(limits, &request, observer).await;
        if let Some(warm_up) = observer.warm_up.take().filter(|_| outcome.is_ok()) {
            warm_up.filled();
        }
        observer.stream_rest();
        observer.waited_ms += waited_ms;
        if let Err(error) = &outcome {
            let name = spec.configured_name(fallback);
            let window = error.details["context_window"].as_u64();
            match (error.code, window) {
                (ErrorCode::PromptTooLong, Some(window)) => {
                    self.models.record_stated_window(name, window)
                }
                _ if error.details["is_unreachable"] == true => self.models.ask_server_again(name),
                _ => {}
            }
        }
        if observer.has_waited_for_loading {
            // It could not be asked then.
            self.models.ask_server_again(spec.configured_name(fallback));
        }
        let outcome = self
            .interrupt_if_own_gateway_lost(spec, fallback, outcome)
            .await;
        let outcome = match outcome {
            Ok(completion) => self.check_answer(run, completion, observer).await,
            Err(error) => Err(error),
        };
        if let Ok(completion) = &outcome
            && let Some(usage) = completion.usage.filter(|usage| !usage.estimated)
        {
            self.token_deviations
                .record(&model.name, prompt.tokens, usage.prompt_tokens);
            // The estimate of files is another one, that of a prompt includes all tools, and a
            // callback may have changed the request. Messages are counted with the counter of the
            // run's own model.
            let has_files = request
                .messages
                .iter()
                .any(|message| message.content.files().next().is_some());
            let is_as_counted = request.tools.len() == spec.tools.specs.len()
                && !spec.has_callback(|functions| functions.before_model.as_ref());
            if fallback.is_none() && !has_files && is_as_counted {
                let name = spec.configured_name(fallback);
                self.models
                    .record_prompt(name, model.counter, prompt.tokens, usage.prompt_tokens)
                    .await;
            }
        }
        if let Some(debug_artifacts) = &self.debug_artifacts {
            let purpose = format!("turn {}", prompt.call.turn);
            let storing = debug_artifacts.store_model_call(
                &spec.identity,
                &purpose,
                &model.name,
                &request,
                &outcome,
            );
            Box::pin(storing).await;
        }
        outcome
    }
}

/// Returns whether a request offers the tools of the run. A correction of an answer does not: many
/// local servers ignore the schema of an answer if there are tools. Anthropic rejects a
/// conversation with calls but without tools, also behind a gateway.
fn offers_tools(model: &ModelSpec, call: &ModelCall) -> bool {
    if !call.is_correction {
        return true;
    }
    let is_of_anthropic =
        model.provider == Provider::Anthropic.as_str() || model.name.contains("claude");
    is_of_anthropic
        && call
            .messages
            .iter()
            .any(|message| !message.tool_calls.is_empty())
}

fn reserve_request(model: &ModelSpec, prompt: &Prompt) -> ReserveRequest {
    ReserveRequest {
        prompt_tokens: prompt.tokens,
        max_output_tokens: model.reserved_output_tokens,
        prices: model.prices,
        is_long_cached: model.is_long_cached,
    }
}

/// The prompt of a call, whichever model makes it.
pub(super) struct Prompt {
    pub(super) call: ModelCall,
    /// Context that the request adds to the conversation.
    context_update: Option<Arc<str>>,
    /// Size in tokens, as counted by the runtime.
    pub(super) tokens: u64,
}
