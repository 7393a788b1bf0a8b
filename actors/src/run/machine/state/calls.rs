//! The tool calls of one turn, and the state of each call.
//!
//! Pure. The cost per call is constant, so that a turn with 10 000 calls is cheap. This module
//! implements the barrier rule (TOOL-3), but not the calls themselves.

use std::collections::HashMap;

use soong_protocol::{PermissionId, QuestionId, Timestamp, ToolCall};

use crate::run::machine::tools::is_internal_tool;

/// State of a tool call.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum CallState {
    /// Not started in this incarnation.
    Waiting,
    /// Running in this incarnation.
    Started { at: Timestamp },
    /// The outcome is recorded.
    Done,
}

/// A tool call with its state.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct OpenCall {
    pub(in crate::run::machine) call: ToolCall,
    pub(in crate::run::machine) state: CallState,
    /// Whether the call runs alone, and its failure causes the later calls of the turn to be
    /// skipped.
    pub(in crate::run::machine) barrier: bool,
    /// Indexes of the children of the call.
    pub(in crate::run::machine) children: Vec<usize>,
    /// Number of children that have not ended.
    pub(in crate::run::machine) open_children: usize,
    /// The question that the call waits for, and the user who is asked; `None` as the user if no
    /// one is named.
    pub(in crate::run::machine) question: Option<(QuestionId, Option<String>)>,
    /// Approval state, if the call requires approval.
    pub(in crate::run::machine) approval: Option<Approval>,
    /// Whether the results of its children are being stored.
    pub(in crate::run::machine) is_storing_results: bool,
    /// Number of children that a tool has requested in this incarnation.
    pub(in crate::run::machine) claimed_children: usize,
    /// Whether `call` has the arguments of a callback.
    pub(in crate::run::machine) is_changed_by_callback: bool,
    /// Number of questions that a tool has asked in this incarnation.
    pub(in crate::run::machine) asked_questions: usize,
}

impl OpenCall {
    /// Returns whether the call waits for an answer or an approval.
    pub(crate) fn waits_for_user(&self) -> bool {
        self.question.is_some() || matches!(self.approval, Some(Approval::Pending(_)))
    }

    /// Returns whether the call waits for an answer or an approval, and no task runs it meanwhile.
    pub(crate) fn waits_without_running(&self) -> bool {
        self.waits_for_user() && !self.is_asked_by_tool()
    }

    /// Returns whether a tool of the program asks the question that the call waits for.
    pub(crate) fn is_asked_by_tool(&self) -> bool {
        self.question.is_some() && !is_internal_tool(&self.call.name)
    }
}

/// Approval state of a tool call.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Approval {
    /// No decision is known to the run.
    Pending(PermissionId),
    /// The call was allowed.
    Granted(PermissionId),
    /// The call was denied.
    Denied,
}

impl OpenCall {
    /// Returns the id of the granted permission.
    pub(crate) fn granted_permission(&self) -> Option<PermissionId> {
        match &self.approval {
            Some(Approval::Granted(id)) => Some(id.clone()),
            _ => None,
        }
    }
}

/// All calls of a turn, in order.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct OpenCalls {
    pub(in crate::run::machine) calls: Vec<OpenCall>,
    pub(in crate::run::machine) index: HashMap<String, usize>,
    /// Sequence of the message that contains the calls.
    pub(in crate::run::machine) message_sequence: Option<u64>,
    /// Number of calls that are not done.
    pub(in crate::run::machine) open_count: usize,
    /// No call before this index waits.
    pub(in crate::run::machine) next_waiting: usize,
    pub(in crate::run::machine) in_flight: usize,
    pub(in crate::run::machine) barrier_in_flight: bool,
    /// Name of the tool of the first writing call that failed.
    pub(in crate::run::machine) failed_write: Option<String>,
}

impl OpenCalls {
    /// Creates the state of the calls of an answer. `is_barrier` returns whether a tool runs alone.
    pub(crate) fn new(calls: &[ToolCall], is_barrier: impl Fn(&str) -> bool) -> Self {
        let list: Vec<OpenCall> = calls
            .iter()
            .map(|call| OpenCall {
                barrier: is_barrier(&call.name),
                call: call.clone(),
                state: CallState::Waiting,
                children: Vec::new(),
                open_children: 0,
                question: None,
                approval: None,
                is_storing_results: false,
                claimed_children: 0,
                is_changed_by_callback: false,
                asked_questions: 0,
            })
            .collect();
        let index = list
            .iter()
            .enumerate()
            .map(|(index, open)| (open.call.id.clone(), index))
            .collect();
        Self {
            open_count: list.len(),
            calls: list,
            index,
            ..Self::default()
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &OpenCall> {
        self.calls.iter()
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut OpenCall> {
        self.calls.iter_mut()
    }

    /// Returns the calls without an outcome that an earlier incarnation may have started. A barrier
    /// starts only after all calls before it are done, and no call after it starts before the
    /// barrier is done.
    pub(crate) fn may_have_started(&self) -> impl Iterator<Item = &OpenCall> {
        let mut is_first = true;
        let mut is_closed = false;
        self.calls
            .iter()
            .filter(|open| open.state != CallState::Done)
            .filter(move |open| {
                is_closed |= open.barrier && !is_first;
                let may = !is_closed && !matches!(open.approval, Some(Approval::Pending(_)));
                is_closed |= open.barrier;
                is_first = false;
                may
            })
    }

    pub(crate) fn get(&self, id: &str) -> Option<&OpenCall> {
        self.index.get(id).map(|index| &self.calls[*index])
    }

    /// Returns the position of the call in the turn, from 0.
    pub(crate) fn index_of(&self, id: &str) -> usize {
        self.index.get(id).copied().unwrap_or_default()
    }

    pub(crate) fn get_mut(&mut self, id: &str) -> Option<&mut OpenCall> {
        self.index.get(id).map(|index| &mut self.calls[*index])
    }

    /// Returns a call if it is running in this incarnation.
    pub(crate) fn started(&self, id: &str) -> Option<&OpenCall> {
        self.get(id)
            .filter(|open| matches!(open.state, CallState::Started { .. }))
    }

    /// Returns the number of calls that are running in this incarnation.
    pub(crate) fn running_count(&self) -> usize {
        self.in_flight
    }

    pub(crate) fn all_done(&self) -> bool {
        self.open_count == 0
    }

    /// Returns the first call that may start in parallel with the running calls.
    pub(crate) fn next_startable(&mut self) -> Option<ToolCall> {
        while self
            .calls
            .get(self.next_waiting)
            .is_some_and(|open| open.state != CallState::Waiting)
        {
            self.next_waiting += 1;
        }
        let open = self.calls.get(self.next_waiting)?;
        let blocked = self.barrier_in_flight || (open.barrier && self.in_flight > 0);
        (!blocked).then(|| open.call.clone())
    }

    pub(crate) fn start(&mut self, id: &str, at: Timestamp) {
        if let Some(open) = self.get_mut(id)
            && open.state == CallState::Waiting
        {
            open.state = CallState::Started { at };
            let barrier = open.barrier;
            self.in_flight += 1;
            self.barrier_in_flight |= barrier;
        }
    }

    pub(crate) fn close(&mut self, id: &str, failed: bool) {
        let Some(open) = self.get_mut(id) else { return };
        let was = std::mem::replace(&mut open.state, CallState::Done);
        let barrier = open.barrier;
        let name = open.call.name.clone();
        if was != CallState::Done {
            self.open_count -= 1;
        }
        if matches!(was, CallState::Started { .. }) {
            self.in_flight -= 1;
            self.barrier_in_flight &= !barrier;
        }
        if failed && barrier {
            self.failed_write.get_or_insert(name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn calls(names: &[&str]) -> OpenCalls {
        let call = |(n, name): (usize, &&str)| ToolCall {
            id: n.to_string(),
            name: (*name).into(),
            arguments: "{}".into(),
        };
        let list: Vec<ToolCall> = names.iter().enumerate().map(call).collect();
        OpenCalls::new(&list, |name| name.starts_with('w'))
    }

    /// Starts all calls that may start; returns the ids of the running calls.
    fn run(calls: &mut OpenCalls) -> Vec<String> {
        while let Some(call) = calls.next_startable() {
            calls.start(&call.id, Timestamp::default());
        }
        calls
            .iter()
            .filter(|open| matches!(open.state, CallState::Started { .. }))
            .map(|open| open.call.id.clone())
            .collect()
    }

    #[test]
    fn reads_run_in_parallel_and_writes_run_alone() {
        let mut calls = calls(&["r", "r", "w", "r", "w"]);
        assert_eq!(run(&mut calls), ["0", "1"]);
        calls.close("1", false);
        assert_eq!(run(&mut calls), ["0"]);
        calls.close("0", true);
        assert_eq!(run(&mut calls), ["2"]);
        calls.close("2", false);
        assert_eq!(run(&mut calls), ["3"]);
        assert_eq!(calls.failed_write, None);
        calls.close("3", false);
        calls.start("4", Timestamp::default());
        calls.close("4", true);
        assert_eq!(calls.failed_write.as_deref(), Some("w"));
        assert!(calls.all_done());
    }

    #[test]
    fn queued_call_cannot_have_started() {
        let may_have_begun = |names: &[&str], done: &[&str], pending: &[&str]| {
            let mut calls = calls(names);
            done.iter().for_each(|id| calls.close(id, false));
            for id in pending {
                calls.get_mut(id).unwrap().approval =
                    Some(Approval::Pending(soong_protocol::PermissionId::new("p")));
            }
            calls
                .may_have_started()
                .map(|open| open.call.id.clone())
                .collect::<Vec<_>>()
        };
        let none: [&str; 0] = [];
        assert_eq!(may_have_begun(&["r", "r", "w", "r"], &[], &[]), ["0", "1"]);
        assert_eq!(may_have_begun(&["r", "r", "w", "r"], &["0"], &[]), ["1"]);
        assert_eq!(
            may_have_begun(&["r", "r", "w", "r"], &["0", "1"], &[]),
            ["2"]
        );
        assert_eq!(may_have_begun(&["w", "w"], &[], &[]), ["0"]);
        assert_eq!(may_have_begun(&["w", "w"], &[], &["0"]), none);
        assert_eq!(may_have_begun(&["r", "r", "w"], &[], &["0"]), ["1"]);
        assert_eq!(may_have_begun(&["r", "w"], &["0", "1"], &[]), none);
    }

    #[test]
    fn closing_call_twice_counts_once() {
        let mut calls = calls(&["r", "r"]);
        run(&mut calls);
        calls.close("0", false);
        calls.close("0", false);
        calls.close("unknown", false);
        assert!(!calls.all_done());
    }
}
