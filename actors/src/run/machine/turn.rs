//! A turn: builds the prompt of the next model call, and compacts the conversation before the
//! prompt exceeds the context window (CTX-1…CTX-3).
//!
//! Pure; part of the run state machine.
//!
//! Elsewhere: the compaction (`turn/compaction.rs`), which messages a prompt omits (`context/`),
//! the model call.

mod compaction;
mod cut_calls;

use std::sync::Arc;

use soong_protocol::{
    ContextEvent, EndReason, ErrorCode, ErrorInfo, FallbackReason, Message, MessageOrigin,
    ModelEvent, OmittedGoal, PartFile, Role, RunMode,
};

use crate::{
    context::{SizedMessage, goals_to_omit, prune},
    run::machine::{
        RunState, Transition,
        auxiliary_call::{Used, usage_and_cost},
        effect::{Effect, ModelCall},
        permission_mode,
        state::conversation::Conversation,
        transition::to_u64,
        turn::cut_calls::TruncatedCalls,
    },
};

/// Maximum number of consecutive retries after answers that were too large.
const MAX_ANSWERS_TOO_LARGE: u32 = 2;

/// Share of the context window above which the prompt is rebuilt, at most once for each model until
/// the next summary.
const REBUILD_RATIO: f64 = 0.6;

/// The current turn: one answer of the model and its tool calls.
#[derive(Default)]
pub(crate) struct TurnState {
    /// Number of the turn, from 1; 0 before the first model call (R2).
    pub(in crate::run::machine) number: u32,
    /// Whether the model was called in this turn and has not answered.
    pub(in crate::run::machine) is_open: bool,
    /// Attempt of the last model call, from 1.
    pub(in crate::run::machine) attempt: u32,
    /// Whether partial text of the current model call was stored.
    pub(in crate::run::machine) kept_partial: bool,
    /// Index of the fallback that makes the calls; `None`: the run's own model does.
    pub(in crate::run::machine) fallback: Option<usize>,
    /// Whether the run has had calls of tools that the service has read.
    pub(in crate::run::machine) has_called_tools: bool,
    /// Whether the calls of the answer that follows were found in its text.
    pub(in crate::run::machine) are_calls_from_text: bool,
    /// Number of consecutive answers that exceeded the size limit.
    pub(in crate::run::machine) answers_too_large: u32,
    /// Tool calls whose arguments were cut at the token limit.
    pub(in crate::run::machine) cut_calls: TruncatedCalls,
}

/// The prompt of the next model call.
struct Prompt {
    messages: Vec<Arc<Message>>,
    reminder: Option<String>,
    tokens: u64,
    omitted: usize,
    /// If it is rebuilt, the goals whose messages are left out.
    newly_omitted: Option<Vec<OmittedGoal>>,
}

impl RunState {
    /// Returns the size, in tokens, of the prompt parts that do not depend on the messages: system
    /// prompt and tools.
    pub(super) fn fixed_tokens(&self) -> u64 {
        let counter = self.spec.model.counter;
        let system = self
            .conversation
            .system
            .as_deref()
            .map_or(0, |text| counter.count_text(text));
        system + counter.correct(self.spec.tools.tokens)
    }

    pub(crate) fn entry(&self, message: &Arc<Message>) -> SizedMessage {
        SizedMessage {
            tokens: self.spec.model.counter.count(message),
            message: Arc::clone(message),
        }
    }

    /// Returns whether the prompt must be rebuilt: it fills much of the window for the first time.
    /// Until then its beginning does not change, because services cache it and check it. A rebuild
    /// in the middle of a turn of the user drops reasoning that is bound to the beginning, so it
    /// waits until a summary would be due.
    fn is_rebuild_due(&self, prompt_tokens: u64) -> bool {
        let limit = if self.conversation.ends_in_bound_data() {
            self.compaction_threshold() as f64
        } else {
            self.conversation.window as f64 * REBUILD_RATIO
        };
        let is_rebuilt = self.conversation.is_rebuilt_for(&self.model().name);
        self.reflection.is_none() && !is_rebuilt && prompt_tokens as f64 > limit
    }

    /// Returns whether a fallback for prompts that are too long takes a prompt of this size.
    fn has_larger_fallback(&self, prompt_tokens: u64) -> bool {
        self.spec.fallbacks.entries.iter().any(|fallback| {
            fallback.reasons.contains(&FallbackReason::ContextTooLong)
                && fallback.model.takes_prompt(prompt_tokens)
        })
    }

    /// Renders the goals and active collaborators (SUB-8). `None` if no goal is open and there is
    /// no collaborator.
    fn reminder(&self) -> Option<String> {
        let mut text = String::new();
        if self.goals.goals.iter().any(|goal| goal.status.is_open()) {
            text.push_str(&format!("## Goals\n{}", self.goals.render(false)));
        }
        if !self.sub_agents.collaborators.is_empty() {
            let lines: Vec<String> = self
                .sub_agents
                .collaborators
                .iter()
                .map(soong_protocol::Collaborator::line)
                .collect();
            text.push_str(&format!(
                "\n## Active Collaborators\n{}\n",
                lines.join("\n")
            ));
        }
        (!text.is_empty()).then_some(text)
    }
}

impl Transition<'_, '_> {
    /// Opens the next turn, or halts the run if it is ending or a limit is reached.
    pub(crate) fn open_turn(&mut self) {
        if self.state.end.ending.is_some() {
            self.state.halt(); // R6
            return;
        }
        let limit = self.state.spec.limits.max_turns;
        if self.state.turn.number >= limit {
            self.state.halt();
            let error = ErrorInfo::new(
                ErrorCode::BudgetExceeded,
                format!(
                    "the run used all of its {limit} turns: raise max_iterations, or continue the session"
                ),
            );
            self.set_failure(EndReason::MaxTurns, error);
            return;
        }
        // The timer of the run enforces every other time budget.
        if self.state.spec.settings.options.budget.wall_time_s == Some(0) {
            self.state.halt();
            return self.end_by_time_budget(0);
        }
        self.deliver_results();
        self.call_model();
    }

    /// Calls the model. First requests a summary if the prompt is too long, or if the caller has
    /// requested one.
    pub(crate) fn call_model(&mut self) {
        self.record_budget_warnings();
        let mut prompt = self.prompt(&self.state.conversation);
        if self.state.is_rebuild_due(prompt.tokens) {
            let omitted = goals_to_omit(&self.state.goals);
            let mut candidate = self.state.conversation.clone();
            candidate.rebuild(&self.state.spec, &self.state.model().name, omitted.clone());
            // The event `context_built` changes the state.
            prompt = Prompt {
                newly_omitted: Some(omitted),
                ..self.prompt(&candidate)
            };
        }
        // After a failed summary, retry only once the prompt has grown. If the token count is
        // exact, a prompt that exceeds the window is compacted even before that.
        let has_files = prompt
            .messages
            .iter()
            .any(|message| message.content.files().next().is_some());
        let is_exact = self.state.spec.model.counter.is_exact() && !has_files;
        let retry_above_tokens = self.state.summary_attempts().retry_above_tokens();
        let above = if is_exact {
            retry_above_tokens.min(self.state.conversation.window)
        } else {
            retry_above_tokens
        };
        let limit = self.state.compaction_threshold().max(above);
        let is_due = prompt.tokens > limit || self.state.is_compaction_requested();
        if is_due && self.begin_compaction(prompt.tokens) {
            return;
        }
        if prompt.tokens > self.state.conversation.window
            && is_exact
            && !self.state.has_larger_fallback(prompt.tokens)
        {
            if self.omit_oldest(prompt.tokens, self.state.conversation.window) {
                return self.call_model();
            }
            return self.fail_prompt_too_long(prompt.tokens);
        }
        self.report_omitted_files(&prompt.messages);
        self.report_adjusted_effort();
        self.emit(ModelEvent::ContextBuilt {
            messages: to_u64(prompt.messages.len()),
            tools: to_u64(self.state.spec.tools.specs.len()),
            estimated_tokens: prompt.tokens,
            left_out: to_u64(prompt.omitted),
            rebuilt: prompt.newly_omitted,
        });
        let budget_note = self.budget_note();
        let permission_note =
            permission_mode::note(self.state.waiting.permission_mode, &prompt.messages);
        // A single call sends its messages and nothing else.
        let is_dated =
            self.state.spec.identity.mode != RunMode::Call && self.state.reflection.is_none();
        let attempt = if self.state.turn.is_open {
            self.state.turn.attempt + 1
        } else {
            1
        };
        self.emit(ModelEvent::Started {
            model: self.state.model().name.clone(),
            attempt,
        });
        let state = &self.state;
        self.step.effects.push(Effect::CallModel(ModelCall {
            turn: state.turn.number,
            system: state
                .conversation
                .system
                .clone()
                .unwrap_or_else(|| Arc::clone(&state.spec.system_prompt.text)),
            reminder: prompt.reminder,
            budget_note,
            permission_note,
            dated: is_dated.then_some(self.context.now),
            messages: prompt.messages,
            tokens: prompt.tokens,
            fallback: state.turn.fallback,
            has_called_tools: state.turn.has_called_tools,
            is_correction: state.answer.unfit_answers > 0,
        }));
    }

    /// Reports, at the first call of the run, that the model lacks the configured level of
    /// reasoning.
    fn report_adjusted_effort(&mut self) {
        let model = self.state.model();
        let changed = model
            .wanted_effort
            .zip(model.effort)
            .filter(|(wanted, used)| wanted != used);
        if let Some((wanted, used)) = changed.filter(|_| self.state.turn.number == 0) {
            let wanted = wanted.as_str().to_owned();
            let used = used.as_str().to_owned();
            self.emit(ModelEvent::EffortAdjusted {
                model: model.name.clone(),
                wanted,
                used,
            });
        }
    }

    /// Reports the files of messages that the model does not take, each once per run.
    fn report_omitted_files(&mut self, messages: &[Arc<Message>]) {
        let reported = self.state.conversation.files_omitted_to;
        let kinds = &self.state.model().input.kinds;
        let is_taken = |file: &&PartFile| file.kind().is_some_and(|kind| kinds.contains(&kind));
        let mut files = Vec::new();
        let mut sequence = 0;
        for message in messages
            .iter()
            .filter(|message| message.sequence > reported)
        {
            let omitted = message
                .content
                .files()
                .filter(|file| !is_taken(file))
                .map(PartFile::description);
            let before = files.len();
            files.extend(omitted);
            if files.len() > before {
                sequence = message.sequence;
            }
        }
        if !files.is_empty() {
            let model = self.state.model().name.clone();
            self.emit(ContextEvent::FilesOmitted {
                model,
                files,
                sequence,
                rejected: Vec::new(),
            });
        }
    }

    /// Retries without images and files after the service rejected one: without those that are new,
    /// else without all.
    ///
    /// Returns `false` for other errors, if the run is ending, and if the prompt contains no files.
    pub(crate) fn retry_without_files(&mut self, error: &ErrorInfo) -> bool {
        let is_about_file = error.details["is_about_file"] == true && !error.retryable;
        if !is_about_file || self.state.end.ending.is_some() || self.state.reflection.is_some() {
            return false;
        }
        let kinds = &self.state.model().input.kinds;
        let is_sent = |file: &&PartFile| file.kind().is_some_and(|kind| kinds.contains(&kind));
        let transcript = &self.state.conversation.transcript;
        let last_answer = transcript
            .iter()
            .rev()
            .find(|entry| entry.message.role == Role::Assistant);
        let answered_to = last_answer.map_or(0, |entry| entry.message.sequence);
        let mut dropped: Vec<&Message> = Vec::new();
        for entry in transcript.iter() {
            if entry.message.content.files().any(|file| is_sent(&file)) {
                dropped.push(&entry.message);
            }
        }
        if dropped.iter().any(|message| message.sequence > answered_to) {
            dropped.retain(|message| message.sequence > answered_to);
        }
        let Some(last) = dropped.last() else {
            return false;
        };
        let omitted = ContextEvent::FilesOmitted {
            model: self.state.model().name.clone(),
            files: dropped
                .iter()
                .flat_map(|message| message.content.files())
                .map(PartFile::description)
                .collect(),
            sequence: last.sequence,
            rejected: dropped.iter().map(|message| message.sequence).collect(),
        };
        let attempt = self.state.turn.attempt;
        self.emit(ModelEvent::Retrying {
            attempt,
            error: error.clone(),
            wait_ms: 0,
            usage: None,
            cost: None,
        });
        self.emit(omitted);
        self.call_model();
        true
    }

    /// Builds the prompt: the messages and, at intervals, the goals and collaborators. Messages of
    /// finished goals are left out up to the message at which the prompt was rebuilt. The prompt of
    /// a reflection contains only its messages.
    fn prompt(&self, conversation: &Conversation) -> Prompt {
        let state = &self.state;
        let context = &state.spec.context;
        let counter = state.spec.model.counter;
        if let Some(messages) = state.reflection_messages() {
            let message_tokens: u64 = messages.iter().map(|message| counter.count(message)).sum();
            let tokens = message_tokens + counter.count_text(&state.spec.system_prompt.text);
            return Prompt {
                messages,
                reminder: None,
                tokens,
                omitted: 0,
                newly_omitted: None,
            };
        }
        // `state.turn.number` already counts the current turn if it is open.
        let turn = if state.turn.is_open {
            state.turn.number.saturating_sub(1)
        } else {
            state.turn.number
        };
        let attempts = state.summary_attempts();
        let is_due = turn.is_multiple_of(context.inject_every_turns) || attempts.completed() > 0;
        let reminder = if is_due { state.reminder() } else { None };
        if state.conversation.prompt_tokens > state.conversation.window / 4 {
            counter.load_soon();
        }
        let (head, rest) = conversation.split_at_rebuild();
        let count = |message: &Message| counter.count(message);
        let omitted = conversation
            .rebuilt
            .as_ref()
            .map_or(&[][..], |rebuilt| &rebuilt.omitted_goals);
        let mut built = prune(head, omitted, context.keep_recent_messages, count);
        let rest = prune(rest, &[], 0, count);
        built.messages.extend(rest.messages);
        let fixed_tokens = state.fixed_tokens()
            + reminder
                .as_deref()
                .map_or(0, |text| counter.count_text(text));
        Prompt {
            messages: built.messages,
            reminder,
            tokens: built.tokens + rest.tokens + fixed_tokens,
            omitted: built.omitted + rest.omitted,
            newly_omitted: None,
        }
    }

    /// Retries after an answer that exceeded a size limit, with a message to the model that states
    /// the limit.
    ///
    /// Returns `false` for other errors, if the run is ending, and after [`MAX_ANSWERS_TOO_LARGE`]
    /// consecutive retries.
    pub(crate) fn retry_with_smaller_answer(
        &mut self,
        error: &ErrorInfo,
        used: Option<Used>,
    ) -> bool {
        if error.code != ErrorCode::ModelAnswerTooLarge
            || self.state.end.ending.is_some()
            || self.state.turn.answers_too_large >= MAX_ANSWERS_TOO_LARGE
        {
            return false;
        }
        let attempt = self.state.turn.attempt;
        let (usage, cost) = usage_and_cost(used);
        self.emit(ModelEvent::Retrying {
            attempt,
            error: error.clone(),
            wait_ms: 0,
            usage,
            cost,
        });
        let text = format!(
            "Your last answer was discarded ({}): {}. None of it was executed. Give shorter answers: write large files \
             in several steps, with a few tool calls each.",
            error.code, error.message
        );
        self.add_message(Role::User, text, |message| {
            message.origin = Some(MessageOrigin::Correction);
            message.description = "requests a smaller answer".to_owned();
        });
        self.call_model();
        true
    }

    fn fail_prompt_too_long(&mut self, tokens: u64) {
        self.state.halt();
        let window = self.state.conversation.window;
        let attempts = self.state.summary_attempts();
        let why = match attempts.consecutive_failures() {
            _ if attempts.have_stopped(tokens) => "summaries of it gain too little".to_owned(),
            0 => "nothing of it can be summarized".to_owned(),
            times => format!(
                "the last {times} summaries failed (see the trace's compaction_failed events)"
            ),
        };
        let has_history = self.state.conversation.transcript.len() > 1;
        let advice = if has_history {
            "use a model with a larger window (model.context_window), or rewind to an earlier message"
        } else {
            "use a model with a larger window (model.context_window), a shorter prompt, or fewer tools"
        };
        let message = format!(
            "the prompt has {tokens} tokens, the context window has {window}, and {why}: {advice}"
        );
        self.set_failure(
            EndReason::PromptTooLong,
            ErrorInfo::new(ErrorCode::PromptTooLong, message),
        );
    }
}
