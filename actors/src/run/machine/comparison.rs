//! Compares the live state of a run with the state that is rebuilt from its stored rows (ACT-3).
//! For tests.
//!
//! Every field of the state is named here, so that the compiler reports a new one. Each is
//! compared, except
//! - clocks, which measure the time of this process;
//! - work in flight (requested tasks, tickets of waiting callers, the plan of a summary), which the
//!   next incarnation requests again;
//! - what only a rebuild reads (answers, decisions and outcomes that are in rows of their own),
//!   which it handles as inputs when it resumes;
//! - what others record on the trace before the run is notified: the status of its open children,
//!   and the sub-agents of other runs of the trace.
//!
//! A check before the end of a run (hooks, callbacks, stored documents) may be made again, so a
//! passed check may be missing in the rebuilt state, but not the other way round.

use std::{
    collections::{BTreeMap, HashSet},
    fmt::Debug,
};

use soong_protocol::TraceId;

use crate::run::machine::{
    RunState,
    answer::AnswerState,
    reflection::ReflectionState,
    state::{
        calls::{CallState, OpenCall, OpenCalls},
        children::{Child, GoalChildren, SubAgents},
        conversation::Conversation,
        phase::{EndState, Phase, StartState},
        usage::Usage,
    },
    turn::TurnState,
    waiting::Waiting,
};

/// A value of each compared field, by name.
type Values = BTreeMap<&'static str, String>;

/// The parts of a state that are compared.
#[derive(Default)]
struct Recorded {
    /// Fields that are equal in both states.
    values: Values,
    /// Checks that have passed.
    passed: Vec<&'static str>,
}

impl Recorded {
    fn add(&mut self, name: &'static str, value: &dyn Debug) {
        self.values.insert(name, format!("{value:?}"));
    }

    fn add_passed(&mut self, name: &'static str, has_passed: bool) {
        if has_passed {
            self.passed.push(name);
        }
    }
}

/// Sub-traces that the live run knows.
struct KnownTraces<'a> {
    /// Those of its children, if no child is open on them. Other sub-agents record their status
    /// themselves.
    ended: HashSet<&'a TraceId>,
    /// Those with a name among the collaborators, and those of its children.
    named: HashSet<&'a TraceId>,
    /// Those of earlier runs of the trace.
    earlier: HashSet<&'a TraceId>,
}

impl<'a> KnownTraces<'a> {
    fn of(state: &'a RunState) -> Self {
        let of_collaborators = state.sub_agents.names.keys();
        let of_children = state
            .sub_agents
            .children
            .iter()
            .map(|child| &child.trace_id);
        let open: HashSet<&TraceId> = state
            .unfinished_children()
            .map(|child| &child.trace_id)
            .collect();
        Self {
            ended: of_children
                .clone()
                .filter(|trace| !open.contains(trace))
                .collect(),
            named: of_collaborators.chain(of_children).collect(),
            earlier: state.sub_agents.earlier.iter().collect(),
        }
    }
}

/// Returns the fields in which a rebuilt state differs from the live one, a line each.
pub(crate) fn differences(live: &RunState, rebuilt: &RunState) -> Vec<String> {
    let known = KnownTraces::of(live);
    let rebuilt = recorded(rebuilt, &known);
    let live = recorded(live, &known);
    let mut lines = Vec::new();
    for (name, value) in &live.values {
        let other = rebuilt.values.get(name);
        if other != Some(value) {
            lines.push(format!(
                "{name}: live {value}, rebuilt {}",
                other.map_or("nothing", String::as_str)
            ));
        }
    }
    for name in rebuilt
        .values
        .keys()
        .filter(|name| !live.values.contains_key(*name))
    {
        lines.push(format!(
            "{name}: live nothing, rebuilt {}",
            rebuilt.values[name]
        ));
    }
    for name in rebuilt
        .passed
        .iter()
        .filter(|name| !live.passed.contains(name))
    {
        lines.push(format!("{name}: passed only in the rebuilt state"));
    }
    lines
}

fn recorded(state: &RunState, known: &KnownTraces<'_>) -> Recorded {
    let RunState {
        spec: _,
        phase,
        start,
        end,
        conversation,
        jobs,
        turn,
        goals,
        sub_agents,
        usage,
        open_model_calls,
        clock: _,
        waiting,
        answer,
        artifacts,
        recorded_outcomes: _,
        reflection,
        repetition,
    } = state;
    let mut recorded = Recorded::default();
    add_phase(phase, end.ending.is_some(), &mut recorded);
    add_start(start, &mut recorded);
    add_end(end, &mut recorded);
    add_conversation(conversation, &mut recorded);
    add_turn(turn, &mut recorded);
    for (name, comparison) in jobs.comparisons() {
        recorded.add(name, &comparison.state);
        recorded.add_passed(name, comparison.has_ended);
    }
    recorded.add("goals", goals);
    add_sub_agents(sub_agents, known, &mut recorded);
    add_usage(usage, &mut recorded);
    // The recorded calls are what was last written; they follow the others at the end of each step.
    recorded.add("open_model_calls", &open_model_calls.calls);
    add_waiting(waiting, &mut recorded);
    add_answer(answer, &mut recorded);
    recorded.add("artifacts", artifacts);
    recorded.add("repetition", repetition);
    if let Some(reflection) = reflection {
        add_reflection(reflection, &mut recorded);
    }
    recorded
}

/// A run that is ending makes no further call, so phases without work in flight are the same.
fn add_phase(phase: &Phase, is_ending: bool, recorded: &mut Recorded) {
    let name = match phase {
        // The callbacks before the run, and the search for experiences, are requested again.
        Phase::New | Phase::Preparing | Phase::Recalling => "new",
        Phase::Driven => "driven",
        Phase::CallingModel => "calling model",
        Phase::Reflecting => "reflecting",
        Phase::Compacting => "compacting",
        Phase::RunningTools { .. } => "running tools",
        Phase::Answered => "answered",
        Phase::Halted => "halted",
        Phase::Ended(_) => "ended",
    };
    let has_work = match phase {
        Phase::CallingModel | Phase::Reflecting | Phase::Compacting | Phase::Ended(_) => true,
        Phase::RunningTools { calls } => !calls.all_done(),
        Phase::New
        | Phase::Driven
        | Phase::Preparing
        | Phase::Recalling
        | Phase::Answered
        | Phase::Halted => false,
    };
    if is_ending && !has_work {
        recorded.add("phase", &"halted");
        return;
    }
    recorded.add("phase", &name);
    match phase {
        Phase::Ended(status) => recorded.add("phase.status", status),
        Phase::RunningTools { calls } => add_calls(calls, recorded),
        _ => {}
    }
}

fn add_calls(calls: &OpenCalls, recorded: &mut Recorded) {
    let OpenCalls {
        calls,
        // Derived from `calls`, except which of them were started in this incarnation.
        index: _,
        open_count,
        next_waiting: _,
        in_flight: _,
        barrier_in_flight: _,
        message_sequence,
        failed_write,
    } = calls;
    recorded.add("calls.message_sequence", message_sequence);
    recorded.add("calls.open_count", open_count);
    recorded.add("calls.failed_write", failed_write);
    let calls: Vec<String> = calls.iter().map(call_text).collect();
    recorded.add("calls", &calls);
}

fn call_text(open: &OpenCall) -> String {
    let OpenCall {
        call,
        state,
        barrier,
        children,
        open_children,
        question,
        approval,
        is_storing_results: _,
        claimed_children: _,
        is_changed_by_callback,
        asked_questions: _,
    } = open;
    let is_done = *state == CallState::Done;
    // The question and the approval of a call with an outcome are not read any more.
    let question = question.as_ref().filter(|_| !is_done);
    let approval = approval.as_ref().filter(|_| !is_done);
    format!(
        "{call:?} {is_done} {barrier} {children:?} {open_children} {question:?} {approval:?} {is_changed_by_callback}"
    )
}

fn add_start(start: &StartState, recorded: &mut Recorded) {
    let StartState {
        was_queued,
        loop_started,
        has_spoken,
        rewind: _,
    } = start;
    recorded.add("start.was_queued", was_queued);
    recorded.add("start.loop_started", loop_started);
    recorded.add("start.has_spoken", has_spoken);
}

fn add_end(end: &EndState, recorded: &mut Recorded) {
    let EndState {
        ending,
        is_cancel_requested,
    } = end;
    recorded.add("end.ending", ending);
    recorded.add("end.is_cancel_requested", is_cancel_requested);
}

fn add_conversation(conversation: &Conversation, recorded: &mut Recorded) {
    let Conversation {
        last_sequence,
        head,
        transcript,
        files_omitted_to,
        system,
        system_sequence,
        prompt_tokens,
        window,
        rebuilt,
        rejected_files,
        are_changes_recorded,
    } = conversation;
    recorded.add("conversation.last_sequence", last_sequence);
    recorded.add("conversation.head", head);
    recorded.add("conversation.transcript", transcript);
    recorded.add("conversation.files_omitted_to", files_omitted_to);
    recorded.add("conversation.system", system);
    recorded.add("conversation.system_sequence", system_sequence);
    recorded.add("conversation.prompt_tokens", prompt_tokens);
    recorded.add("conversation.window", window);
    recorded.add("conversation.rebuilt", rebuilt);
    recorded.add("conversation.rejected_files", rejected_files);
    recorded.add("conversation.are_changes_recorded", are_changes_recorded);
}

fn add_turn(turn: &TurnState, recorded: &mut Recorded) {
    let TurnState {
        number,
        is_open,
        attempt,
        kept_partial,
        fallback,
        has_called_tools,
        are_calls_from_text,
        answers_too_large,
        cut_calls,
    } = turn;
    recorded.add("turn.number", number);
    recorded.add("turn.is_open", is_open);
    recorded.add("turn.attempt", attempt);
    recorded.add("turn.kept_partial", kept_partial);
    recorded.add("turn.fallback", fallback);
    recorded.add("turn.has_called_tools", has_called_tools);
    recorded.add("turn.are_calls_from_text", are_calls_from_text);
    recorded.add("turn.answers_too_large", answers_too_large);
    recorded.add("turn.cut_calls", cut_calls);
}

fn add_sub_agents(sub_agents: &SubAgents, known: &KnownTraces<'_>, recorded: &mut Recorded) {
    let SubAgents {
        children,
        index,
        open,
        branches,
        earlier,
        collaborators,
        collaborator_index: _,
        names,
        // It only makes the search for a free name shorter.
        name_counts: _,
        deliveries,
        missing_results: _,
    } = sub_agents;
    let children: Vec<String> = children.iter().map(child_text).collect();
    let index: BTreeMap<_, _> = index.iter().collect();
    let branches: BTreeMap<_, _> = branches
        .iter()
        .map(|(goal, branches)| (goal, branches_text(branches)))
        .collect();
    let names: BTreeMap<_, _> = names
        .iter()
        .filter(|(trace, _)| known.named.contains(trace))
        .collect();
    let earlier: Vec<_> = earlier
        .iter()
        .filter(|trace| known.earlier.contains(trace))
        .collect();
    let is_settled = |trace: &TraceId| known.ended.contains(trace);
    let collaborators = collaborators
        .iter()
        .filter(|entry| entry.trace_id.as_ref().is_none_or(is_settled));
    let collaborators: Vec<_> = collaborators.collect();
    recorded.add("sub_agents.children", &children);
    recorded.add("sub_agents.index", &index);
    recorded.add("sub_agents.open", open);
    recorded.add("sub_agents.branches", &branches);
    recorded.add("sub_agents.earlier", &earlier);
    recorded.add("sub_agents.collaborators", &collaborators);
    recorded.add("sub_agents.names", &names);
    recorded.add("sub_agents.deliveries", deliveries);
}

fn child_text(child: &Child) -> String {
    let Child {
        run_id,
        trace_id,
        task_hash,
        goal_id,
        tool_call_id,
        deliver,
        result,
    } = child;
    format!("{run_id} {trace_id} {task_hash} {goal_id:?} {tool_call_id:?} {deliver} {result:?}")
}

fn branches_text(branches: &GoalChildren) -> String {
    let GoalChildren {
        indexes,
        open,
        summary_due,
    } = branches;
    format!("{indexes:?} {open} {summary_due}")
}

fn add_usage(usage: &Usage, recorded: &mut Recorded) {
    let Usage {
        own,
        below,
        warned,
        excused,
        lost_process,
        lost_calls,
    } = usage;
    recorded.add("usage.own", own);
    recorded.add("usage.below", below);
    recorded.add("usage.warned", warned);
    recorded.add("usage.excused", excused);
    recorded.add("usage.lost_process", lost_process);
    recorded.add("usage.lost_calls", lost_calls);
}

fn add_waiting(waiting: &Waiting, recorded: &mut Recorded) {
    let Waiting {
        since,
        reason,
        answered: _,
        permission_mode,
        decided: _,
        tool_questions: _,
        tool_answers: _,
    } = waiting;
    recorded.add("waiting.is_waiting", &since.is_some());
    recorded.add("waiting.reason", reason);
    recorded.add("waiting.permission_mode", permission_mode);
}

fn add_answer(answer: &AnswerState, recorded: &mut Recorded) {
    let AnswerState {
        text,
        check,
        unexecuted_calls,
        unfit,
        unfit_answers,
    } = answer;
    recorded.add("answer.text", text);
    recorded.add("answer.check", check);
    recorded.add("answer.unexecuted_calls", unexecuted_calls);
    recorded.add("answer.unfit", unfit);
    recorded.add("answer.unfit_answers", unfit_answers);
}

fn add_reflection(reflection: &ReflectionState, recorded: &mut Recorded) {
    let ReflectionState { conversation } = reflection;
    recorded.add("reflection.conversation", conversation);
}
