//! Reflection on the messages that a summary is about to replace: what was learned is kept before
//! the details are gone (MEM-5).
//!
//! The model call is no part of the conversation. Its start is recorded first, so that each message is reflected on at most once, also across crashes. A failure never
//! stops the turn: the summary follows in any case.

use std::{collections::HashSet, time::Duration};

use futures::future::BoxFuture;
use soong_protocol::{ErrorCode, ErrorInfo, Event, MemoryEvent, ModelCallKind, Role, Usage};

#[cfg(any(test, feature = "testing"))]
use crate::run::machine::jobs::Comparison;
use crate::{
    context::{SizedMessage, conversation_text, count_estimate, is_summary},
    memory::{Changes, experiences_in, read_reflection, reflection_prompt, reflection_question},
    run::machine::{
        RunState, Transition,
        auxiliary_call::{AuxiliaryCall, AuxiliaryRole, Used, usage_and_cost},
        jobs::{Job, JobEnd, JobPolicy, JobTools, LearnedChanges, OnCancel, summarize::Summarize},
        output_schema::OutputSchema,
        state::phase::Phase,
    },
};

/// Asks a model what was learned, and stores it.
#[derive(Debug)]
pub(crate) struct Reflect {
    /// First and last message.
    covered: (u64, u64),
    /// Ids of the experiences that the messages show.
    shown_ids: HashSet<String>,
    call: AuxiliaryCall,
    /// The changes of the experiences file, without what is learned.
    changes: Changes,
}

/// The reflections on messages that summaries replace.
#[derive(Debug, Default)]
pub(crate) struct Reflections {
    /// Last message that was reflected on.
    reflected_to: u64,
    /// The reflection that has not ended.
    open: Option<OpenReflection>,
    /// The summary that follows it; only the incarnation that requested it knows.
    next_summary: Option<Summarize>,
}

/// A reflection that has not ended.
#[derive(Debug, Clone, Copy)]
struct OpenReflection {
    /// First and last message.
    covered: (u64, u64),
    /// Size of its request.
    prompt_tokens: u64,
}

impl Job for Reflect {
    type State = Reflections;
    type Output = LearnedChanges;

    const POLICY: JobPolicy = JobPolicy {
        model_call: Some(ModelCallKind::Reflection),
        // The turn waits for the reflection.
        max_call_time: Some(Duration::from_secs(60)),
        // Experiences that the model has stated are stored even then.
        on_cancel: OnCancel::CutOffCalls,
        ..JobPolicy::new("the model provider")
    };

    fn run(self, tools: &mut dyn JobTools) -> BoxFuture<'_, Result<LearnedChanges, ErrorInfo>> {
        Box::pin(async move {
            let AuxiliaryCall { system, user } = self.call;
            let messages = vec![(Role::User, user)];
            let answer = tools
                .ask_model(AuxiliaryRole::Summary, system, messages)
                .await?;
            let checked = OutputSchema::reflection().check(&answer.completion.text);
            let (text, _) = checked.map_err(|why| {
                let message = format!("the answer does not match the format: {why}");
                ErrorInfo::new(ErrorCode::ProviderError, message)
            })?;
            let (new, rated) = read_reflection(text, &self.shown_ids);
            let changes = Changes {
                new,
                rated,
                ..self.changes
            };
            tools.change_experiences(changes).await
        })
    }

    fn apply(run: &mut RunState, event: &Event) {
        let reflections = &mut run.jobs.reflect;
        match event {
            Event::Memory(MemoryEvent::ReflectionStarted {
                covered,
                estimated_tokens,
            }) => {
                reflections.reflected_to = reflections.reflected_to.max(covered.1);
                reflections.open = Some(OpenReflection {
                    covered: *covered,
                    prompt_tokens: *estimated_tokens,
                });
                run.phase = Phase::Reflecting;
            }
            Event::Memory(MemoryEvent::ReflectionEnded { .. }) => {
                reflections.open = None;
                run.halt_if_ending();
            }
            _ => {}
        }
    }

    fn is_calling(run: &RunState) -> bool {
        run.phase == Phase::Reflecting
    }

    /// Records the outcome, and requests the summary.
    fn ended(transition: &mut Transition<'_, '_>, end: JobEnd<LearnedChanges>) {
        let Some(open) = transition.state.jobs.reflect.open else {
            return;
        };
        let error = match end.result {
            Ok(learned) => {
                transition.record_experiences(learned.changes, learned.added);
                None
            }
            Err(error) => Some(error),
        };
        transition.close_reflection(open, end.model_calls.used, error);
        match transition.state.jobs.reflect.next_summary.take() {
            _ if transition.state.end.ending.is_some() => {} // R6
            Some(summary) => transition.request_summary(summary),
            None => transition.call_model(),
        }
    }

    /// Records the reflection as failed; it is not repeated. Its usage is estimated (BUD-1a).
    fn lost(transition: &mut Transition<'_, '_>, _: bool) {
        let Some(open) = transition.state.jobs.reflect.open else {
            return;
        };
        let model = &transition.state.spec.auxiliary_models.summary;
        let prompt = model.priced(Usage::estimate(open.prompt_tokens, 0));
        let used = transition.used_by_lost_call(ModelCallKind::Reflection, prompt);
        let error = ErrorInfo::new(ErrorCode::Interrupted, "the reflection was interrupted");
        transition.close_reflection(open, Some(used), Some(error));
    }

    #[cfg(any(test, feature = "testing"))]
    fn comparison(state: &Reflections) -> Comparison {
        let Reflections {
            reflected_to,
            open,
            next_summary: _,
        } = state;
        Comparison {
            state: format!("{reflected_to} {open:?}"),
            ..Comparison::default()
        }
    }
}

impl Transition<'_, '_> {
    /// Prepares to reflect on the messages of `covered` that were not reflected on before. `None` if
    /// the run does not reflect before summaries, or there is no answer of the model among them. `max_tokens`: maximum size of
    /// the request.
    pub(in crate::run::machine) fn plan_reflection(
        &self,
        covered: &[SizedMessage],
        max_tokens: u64,
    ) -> Option<Reflect> {
        let state = &self.state;
        if !state.spec.auxiliary_models.reflects_before_summary {
            return None;
        }
        let reflected_to = state.jobs.reflect.reflected_to;
        let is_new = |entry: &&SizedMessage| {
            entry.message.sequence > reflected_to && !is_summary(&entry.message)
        };
        let new: Vec<SizedMessage> = covered.iter().filter(is_new).cloned().collect();
        if !new
            .iter()
            .any(|entry| entry.message.role == Role::Assistant)
        {
            return None;
        }
        let sequences = || new.iter().map(|entry| entry.message.sequence);
        let first = sequences().min()?;
        let last = sequences().max()?;
        let system = reflection_prompt();
        let question = reflection_question(None);
        let rest = max_tokens.saturating_sub(count_estimate(&system) + count_estimate(&question));
        let identity = &state.spec.identity;
        Some(Reflect {
            covered: (first, last),
            shown_ids: experiences_in(new.iter().map(|entry| &*entry.message)),
            call: AuxiliaryCall {
                system,
                user: conversation_text(&new, &state.goals, rest) + &question,
            },
            changes: Changes {
                reflection: format!("{}-{last}", identity.run_id),
                trace_id: Some(identity.trace_id.clone()),
                at: self.context.now,
                new: Vec::new(),
                rated: Vec::new(),
            },
        })
    }

    /// Requests a reflection, and keeps the summary that follows it.
    pub(in crate::run::machine) fn request_reflection(
        &mut self,
        request: Reflect,
        summary: Summarize,
    ) {
        let estimated_tokens =
            count_estimate(&request.call.system) + count_estimate(&request.call.user);
        self.emit(MemoryEvent::ReflectionStarted {
            covered: request.covered,
            estimated_tokens,
        });
        self.state.jobs.reflect.next_summary = Some(summary);
        self.start_job(request);
    }

    fn close_reflection(
        &mut self,
        open: OpenReflection,
        used: Option<Used>,
        error: Option<ErrorInfo>,
    ) {
        let (usage, cost) = usage_and_cost(used);
        self.emit(MemoryEvent::ReflectionEnded {
            covered: open.covered,
            usage,
            cost,
            error: error.map(Box::new),
        });
    }
}
