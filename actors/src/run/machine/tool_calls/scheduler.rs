//! Schedules the tool calls of a turn, and records their outcomes.
//!
//! Pure; part of the run state machine. Read-only calls and children run in parallel. A writing
//! call is a barrier: it runs alone, and if it fails, the later calls of the turn are skipped
//! (TOOL-3). `goal`, `agent`, `evaluate` and `ask_human` are executed by the state machine, because
//! they change the run itself. The run's tasks execute every other tool.

use std::sync::Arc;

use soong_protocol::{
    ChildResult, EndReason, ErrorCode, ErrorInfo, MessageContent, PermissionId, Role, RunId,
    RunSettings, RunStatus, ToolCall, ToolEvent, ToolSpec,
};
use soong_tool::{ToolOutput, ToolResult, redacted, with_note};

use crate::{
    callback::Reports,
    hook::HookPoint,
    run::machine::{
        Transition,
        effect::{ChildEffect, Effect, OversizedResults, ToolCallEffect, ToolCallRequest},
        errors::{repeated_calls, repeated_texts},
        inline::preview,
        outcome,
        state::{
            calls::{CallState, OpenCall},
            phase::Phase,
            repetition::{self, RepeatedCall},
        },
        tools::{changes_only_artifacts, is_internal_tool, is_spawning_tool},
    },
};

impl Transition<'_, '_> {
    /// Records `tool_started` for every call of an answer, and starts every call that may start
    /// now.
    pub(crate) fn start_calls(&mut self) {
        let Some(calls) = self.state.calls_mut() else {
            return;
        };
        let started: Vec<ToolEvent> = calls
            .iter()
            .map(|open| ToolEvent::Started {
                tool_call_id: open.call.id.clone(),
                name: open.call.name.clone(),
                arguments_preview: preview(&open.call.arguments),
            })
            .collect();
        for event in started {
            self.emit(event);
        }
        self.schedule();
    }

    /// Starts every call that may start now. Opens the next turn when all calls have an outcome.
    pub(crate) fn schedule(&mut self) {
        loop {
            let ending = self.state.end.ending.is_some();
            let Some(calls) = self.state.calls_mut() else {
                return;
            };
            if calls.all_done() {
                return self.open_turn();
            }
            if ending {
                return; // R6; `skip_waiting_calls` closes the waiting calls
            }
            let Some(call) = calls.next_startable() else {
                return;
            };
            self.start_call(&call);
        }
    }

    fn start_call(&mut self, call: &ToolCall) {
        let at = self.context.now;
        let Some(calls) = self.state.calls_mut() else {
            return;
        };
        // A call that was interrupted and may run again does not request permission again.
        let granted = calls.get(&call.id).and_then(OpenCall::granted_permission);
        calls.start(&call.id, at);
        if let Some(name) = &calls.failed_write {
            let error = ErrorInfo::new(
                ErrorCode::Skipped,
                format!("not run: an earlier `{name}` of this turn failed"),
            );
            return self.close_call(call, Err(error));
        }
        if let Err(error) = self.consume_tool_call() {
            return self.close_call(call, Err(error));
        }
        // Hooks and callbacks run outside the state machine, also for calls that are executed here.
        let spec = &self.state.spec;
        let has_hooks = spec.hooks.has_hooks(HookPoint::PreToolUse)
            || spec.has_callback(|functions| functions.before_tool.as_ref());
        let is_internal = is_internal_tool(&call.name) && !has_hooks;
        let started = if is_internal {
            self.execute_internal(call, None)
        } else {
            self.request_tool(call, granted)
        };
        if let Err(error) = started {
            self.close_call(call, Err(error));
        }
    }

    /// Returns a started call whose checks have ended. If the run is ending, the call is closed
    /// instead: no task runs it.
    pub(crate) fn call_to_execute(&mut self, id: &str) -> Option<ToolCall> {
        let call = self.state.calls_mut()?.started(id)?.call.clone();
        if self.state.end.ending.is_none() {
            return Some(call);
        }
        self.close_call(
            &call,
            Err(ErrorInfo::new(
                ErrorCode::Skipped,
                "not run: the run is ending",
            )),
        );
        self.schedule();
        None
    }

    /// Executes a call after its hooks have passed.
    pub(crate) fn hooks_allowed(&mut self, id: &str) {
        let Some(call) = self.call_to_execute(id) else {
            return;
        };
        if let Err(error) = self.execute_internal(&call, None) {
            self.close_call(&call, Err(error));
        }
        self.schedule();
    }

    /// Starts the child of a call after the settings of its sub-trace have been read.
    pub(crate) fn settings_read(&mut self, id: &str, before: Result<Box<RunSettings>, ErrorInfo>) {
        let Some(call) = self.call_to_execute(id) else {
            return;
        };
        if let Err(error) = before
            .and_then(|previous_settings| self.execute_internal(&call, Some(previous_settings)))
        {
            self.close_call(&call, Err(error));
        }
        self.schedule();
    }

    /// Returns the tool of a call. Fails if it is not offered, or if the call was cut off.
    fn offered_tool(&self, call: &ToolCall) -> Result<Arc<ToolSpec>, ErrorInfo> {
        let spec = &self.state.spec;
        let tool = spec.tool(&call.name).ok_or_else(|| {
            let offered: Vec<&str> = spec
                .tools
                .specs
                .iter()
                .map(|tool| tool.name.as_str())
                .collect();
            let message = format!(
                "there is no tool {:?} here; there is: {}",
                call.name,
                offered.join(", ")
            );
            ErrorInfo::new(ErrorCode::ToolNotAvailable, message)
        })?;
        if self.state.turn.cut_calls.is_truncated(&call.id) {
            let message = format!(
                "the call was not run: its arguments were cut at the token limit of an answer, after {} bytes. Call again \
                 with less: split the work, or write a long text in several parts",
                call.arguments.len()
            );
            return Err(ErrorInfo::new(ErrorCode::ValidationError, message));
        }
        Ok(Arc::clone(tool))
    }

    fn execute_internal(
        &mut self,
        call: &ToolCall,
        previous_settings: Option<Box<RunSettings>>,
    ) -> Result<(), ErrorInfo> {
        self.offered_tool(call)?;
        let arguments = self
            .state
            .spec
            .catalog
            .registry
            .check_arguments(&call.name, &call.arguments)?
            .value;
        match call.name.as_str() {
            "agent" => self.run_agent(call, arguments, previous_settings),
            "evaluate" => self.run_evaluate(call, arguments, previous_settings),
            "ask_human" => self.ask_human(call, arguments),
            _ => {
                let result = self.run_goal(arguments);
                self.close_call(call, result);
                Ok(())
            }
        }
    }

    /// Requests the execution of a call, with the permission that was granted for it.
    pub(crate) fn request_tool(
        &mut self,
        call: &ToolCall,
        granted_by: Option<PermissionId>,
    ) -> Result<(), ErrorInfo> {
        let spec = self.offered_tool(call)?;
        let goal_id = self.state.goals.current_id.clone();
        let turn = self.state.turn.number;
        let output_limits = self.state.output_limits();
        let Some(calls) = self.state.calls_mut() else {
            return Ok(());
        };
        let asked_in = calls.message_sequence;
        let index = calls.index_of(&call.id);
        let is_changed = calls
            .get(&call.id)
            .is_some_and(|open| open.is_changed_by_callback);
        let id = call.id.clone();
        let raw = call.arguments.clone();
        let request = ToolCallRequest {
            id,
            turn,
            message_sequence: asked_in,
            spec,
            raw_arguments: raw,
            index,
            output_limits,
            has_passed_callbacks: granted_by.is_some() || is_changed,
            permission_id: granted_by,
            goal_id,
        };
        self.step
            .effects
            .push(Effect::Tool(ToolCallEffect::Run(request)));
        Ok(())
    }

    /// Records the outcome of a call: its event and its tool message (R4).
    pub(crate) fn close_call(&mut self, call: &ToolCall, result: ToolResult) {
        let duration_ms = self.call_duration(&call.id);
        self.close_call_after(call, result, duration_ms, self.built_in_note(call));
    }

    /// Returns the note about the shape of the arguments, for a call whose outcome comes from no
    /// task: that of a built-in tool, whose schema is checked fast. Other calls that no task ends
    /// have failed, and get no note.
    fn built_in_note(&self, call: &ToolCall) -> Option<String> {
        if !is_internal_tool(&call.name) && !changes_only_artifacts(&call.name) {
            return None;
        }
        self.state
            .spec
            .catalog
            .registry
            .check_arguments(&call.name, &call.arguments)
            .ok()?
            .coercion_note
    }

    /// Records the outcome of a call. `note`: note for the model about the shape of the arguments.
    fn close_call_after(
        &mut self,
        call: &ToolCall,
        result: ToolResult,
        duration_ms: u64,
        note: Option<String>,
    ) {
        self.withdraw_tool_question(&call.id);
        let tool_call_id = call.id.clone();
        let name = call.name.clone();
        let result = redacted(result, &self.state.spec.redactor);
        let mut memory = (None, false);
        let mut files = Vec::new();
        let text = match result {
            Ok(output) => {
                files = output.files;
                let once = output.include_output_only_once;
                let title = (once && !output.title.is_empty()).then(|| output.title.clone());
                memory = (output.long_term_memory.or(title), once);
                let shown = if output.title.is_empty() {
                    &output.output
                } else {
                    &output.title
                };
                self.emit(ToolEvent::Completed {
                    tool_call_id,
                    name,
                    duration_ms,
                    preview: preview(shown),
                    artifact_ref: output.artifact_ref,
                    artifact_snapshot: output.artifact_snapshot,
                    artifact_delta: output.artifact_delta,
                    file_change: output.file_change,
                });
                output.output
            }
            Err(error) => {
                let text = outcome::error_text(&error);
                self.emit(match error.code {
                    ErrorCode::PermissionDenied => {
                        let detail =
                            |name: &str| error.details.get(name).cloned().unwrap_or_default();
                        let by = serde_json::from_value(detail("by")).unwrap_or_default();
                        let target = serde_json::from_value(detail("target")).unwrap_or_default();
                        let allow = serde_json::from_value(detail("allow")).unwrap_or_default();
                        ToolEvent::Denied {
                            tool_call_id,
                            name,
                            duration_ms,
                            reason: error.message,
                            by,
                            target,
                            allow,
                        }
                    }
                    _ => ToolEvent::Failed {
                        tool_call_id,
                        name,
                        duration_ms,
                        error,
                    },
                });
                text
            }
        };
        let text = match note {
            Some(note) => with_note(text, &note),
            None => text,
        };
        let repeated = RepeatedCall::new(&call.name, &call.arguments, &text);
        let repetitions = self
            .state
            .repetition
            .calls_with(&repeated, self.state.turn.number);
        let note_after = self.state.spec.limits.repeated_calls_note;
        let texts = self.state.repetition.texts;
        let mut text = text;
        if note_after > 0 && files.is_empty() {
            if repetitions >= note_after {
                text.push_str(&repetition::note(repetitions));
            } else if texts >= note_after {
                text.push_str(&repetition::text_note(texts));
            }
        }
        let mut content = MessageContent::from(text);
        files.into_iter().for_each(|file| content.push(file));
        self.add_message(Role::Tool, content, |message| {
            message.tool_call_id = Some(call.id.clone());
            message.duration_ms = Some(duration_ms);
            (message.long_term_memory, message.include_output_only_once) = memory;
        });
        let limit = self.state.spec.limits.repeated_calls;
        if limit > 0 && self.state.repetition.fast_calls >= limit {
            self.set_failure(EndReason::Failed, repeated_calls(&call.name, limit));
        } else if limit > 0 && self.state.repetition.fast_texts >= limit {
            self.set_failure(EndReason::Failed, repeated_texts(limit));
        }
    }

    fn call_duration(&mut self, id: &str) -> u64 {
        let at = self.context.now;
        match self
            .state
            .calls_mut()
            .and_then(|calls| calls.get(id))
            .map(|open| open.state)
        {
            Some(CallState::Started { at: start }) => at.millis_since(start),
            _ => 0,
        }
    }

    pub(crate) fn tool_ended(
        &mut self,
        id: &str,
        result: ToolResult,
        reports: Reports,
        duration_ms: u64,
        coercion_note: Option<String>,
    ) {
        let started = self
            .state
            .calls_mut()
            .and_then(|calls| calls.started(id))
            .map(|open| open.call.clone());
        if let Some(call) = started {
            self.record_reports(reports);
            if result.is_err() {
                self.cancel_children_of(id);
            }
            let is_internal = is_internal_tool(&call.name);
            let note = if is_internal {
                self.built_in_note(&call)
            } else {
                coercion_note
            };
            self.close_call_after(&call, result, duration_ms, note);
            self.schedule();
        }
    }

    /// Cancels the running children of a tool that failed: their results are not read.
    fn cancel_children_of(&mut self, id: &str) {
        let Some(open) = self.state.calls_mut().and_then(|calls| calls.get(id)) else {
            return;
        };
        let indexes = open.children.clone();
        let children = indexes
            .iter()
            .map(|index| &self.state.sub_agents.children[*index]);
        let open: Vec<RunId> = children
            .filter(|child| child.result.is_none())
            .map(|child| child.run_id.clone())
            .collect();
        if !open.is_empty() {
            self.step
                .effects
                .push(Effect::Child(ChildEffect::Cancel(open)));
        }
    }

    /// Closes a call of `agent` or `evaluate` if all its children have ended. Results are in task
    /// order.
    pub(crate) fn close_if_children_ended(&mut self, id: &str) {
        let started = self.state.calls_mut().and_then(|calls| calls.started(id));
        let is_complete =
            |open: &&OpenCall| open.open_children == 0 && is_spawning_tool(&open.call.name);
        let Some(open) = started.filter(is_complete).cloned() else {
            return;
        };
        if open.is_storing_results {
            return;
        }
        let Some(output) = self.child_results_output(&open.call) else {
            return;
        };
        let limits = self.state.output_limits();
        // A single result is within the limits already, unless the context window is small.
        let may_be_long = open.children.len() > 1 || limits != self.state.spec.limits.inline;
        let is_long = may_be_long && limits.are_exceeded_by(&output.output);
        if self.state.end.ending.is_some() || !is_long {
            self.close_call(&open.call, Ok(output));
            return self.schedule();
        }
        // The full results are stored as an artifact. The model reads shorter summaries.
        let Some(short) = self
            .child_results(id)
            .map(|results| outcome::results_text(&results, Some(limits.bytes)))
        else {
            return;
        };
        let id = id.to_owned();
        let asked_in = self.state.calls_mut().and_then(|calls| {
            calls.get_mut(&id)?.is_storing_results = true;
            calls.message_sequence
        });
        let ToolOutput {
            title,
            output: whole,
            ..
        } = output;
        self.step
            .effects
            .push(Effect::Tool(ToolCallEffect::StoreResults(
                OversizedResults {
                    id,
                    message_sequence: asked_in,
                    title,
                    full_text: whole,
                    shortened_text: short,
                },
            )));
    }

    /// Combines the results of a call's children, in task order; `None` if the call has none, or is
    /// that of another tool.
    pub(crate) fn child_results_output(&self, call: &ToolCall) -> Option<ToolOutput> {
        let results = self
            .child_results(&call.id)
            .filter(|_| is_spawning_tool(&call.name))?;
        let mode = results.first()?.mode;
        let done = results
            .iter()
            .filter(|result| result.status == RunStatus::Completed)
            .count();
        let title = format!("{}: {done} of {} completed", mode.as_str(), results.len());
        Some(ToolOutput::text(
            title,
            outcome::results_text(&results, None),
        ))
    }

    fn child_results(&self, id: &str) -> Option<Vec<&ChildResult>> {
        let Phase::RunningTools { calls } = &self.state.phase else {
            return None;
        };
        Some(self.results(&calls.get(id)?.children))
    }

    fn results(&self, indexes: &[usize]) -> Vec<&ChildResult> {
        indexes
            .iter()
            .filter_map(|index| self.state.sub_agents.children[*index].result.as_deref())
            .collect()
    }

    /// Closes every call that has not started, because the run is ending.
    pub(crate) fn skip_waiting_calls(&mut self) {
        let Some(calls) = self.state.calls_mut() else {
            return;
        };
        let waiting = calls.iter().filter(|open| open.state == CallState::Waiting);
        let waiting: Vec<ToolCall> = waiting.map(|open| open.call.clone()).collect();
        for call in waiting {
            self.close_call(
                &call,
                Err(ErrorInfo::new(
                    ErrorCode::Skipped,
                    "not run: the run is ending",
                )),
            );
        }
        self.withdraw_pending_calls();
        self.schedule();
    }
}
