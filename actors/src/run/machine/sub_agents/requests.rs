//! Children and collaborators that the program requests: with a handle, in a tool, or in a callback
//! (RT-4).
//!
//! Pure; part of the run state machine.
//!
//! Invariant: a tool call that is repeated after a crash gets the children of its interrupted
//! attempt, in order.

use soong_protocol::{Collaborator, ErrorCode, ErrorInfo, Run, SubAgentEvent};

use crate::run::machine::{
    Transition,
    effect::{ChildEffect, Effect, RequestedChild},
    errors::run_has_ended,
    input::{ChildRequest, SpawnRequest},
    outcome::one_line,
    state::{children::task_hash, phase::Phase},
    sub_agents::spawn::{Requester, validation_error},
};

impl Transition<'_, '_> {
    /// Starts the requested children, or rejects the request.
    pub(crate) fn spawn_for_program(&mut self, request: SpawnRequest, ticket: u64) {
        let answer = self.accept_children(request);
        // Before the children start: the caller must hold their handles before they can end.
        let start = self
            .step
            .effects
            .iter()
            .rposition(|effect| matches!(effect, Effect::Child(ChildEffect::Start(_))));
        let index = start
            .filter(|_| answer.is_ok())
            .unwrap_or(self.step.effects.len());
        self.step.effects.insert(
            index,
            Effect::Child(ChildEffect::AnswerSpawn { ticket, answer }),
        );
    }

    fn accept_children(
        &mut self,
        SpawnRequest {
            mut orders,
            is_queued,
            call,
        }: SpawnRequest,
    ) -> Result<Vec<RequestedChild>, ErrorInfo> {
        if self.state.end.ending.is_some() || (self.state.phase == Phase::New && !is_queued) {
            return Err(ErrorInfo::new(
                ErrorCode::NothingRunning,
                "the run is not active: it accepts no children",
            ));
        }
        let delivers = orders.iter().any(|order| order.spec.deliver);
        if delivers && self.state.spec.settings.driven {
            let message = "deliver: a run driven by a program has no conversation; wait for the child instead";
            return Err(validation_error(message));
        }
        if delivers && (self.state.has_begun_to_flush() || self.state.has_begun_to_store_answer()) {
            let message = "deliver: the run is ending and makes no further model calls";
            return Err(ErrorInfo::new(ErrorCode::NothingRunning, message));
        }
        let new = |runs: Vec<Run>| {
            runs.into_iter()
                .map(|run| RequestedChild::New(Box::new(run)))
        };
        let goal_id = self.state.goals.current_id.clone();
        let Some(call) = call else {
            return Ok(new(self.spawn(orders, goal_id, Requester::Program)?).collect());
        };
        let mut children = self.children_of_earlier_attempt(&call, &orders)?;
        orders.drain(..children.len());
        if !orders.is_empty() {
            children.extend(new(self.spawn(
                orders,
                goal_id,
                Requester::Tool { call: &call },
            )?));
        }
        if let Some(open) = self
            .state
            .calls_mut()
            .and_then(|calls| calls.get_mut(&call))
        {
            open.claimed_children += children.len();
        }
        Ok(children)
    }

    /// Returns the children that an interrupted attempt of the call started for the first of these
    /// requests.
    fn children_of_earlier_attempt(
        &mut self,
        call: &str,
        orders: &[ChildRequest],
    ) -> Result<Vec<RequestedChild>, ErrorInfo> {
        let open = self
            .state
            .calls_mut()
            .and_then(|calls| calls.started(call))
            .ok_or_else(run_has_ended)?;
        let unclaimed = open
            .children
            .get(open.claimed_children..)
            .unwrap_or_default()
            .to_vec();
        let children = &self.state.sub_agents.children;
        unclaimed
            .iter()
            .zip(orders)
            .map(|(index, order)| {
                let child = &children[*index];
                let task = self.state.spec.redactor.text(&order.spec.task); // as it is recorded
                if child.task_hash != task_hash(&task) {
                    return Err(validation_error(format!(
                        "the interrupted attempt of this call started {} with another task: a tool must request its \
                         children in the same order each time",
                        child.trace_id
                    )));
                }
                Ok(RequestedChild::Earlier { run_id: child.run_id.clone(), trace_id: child.trace_id.clone() })
            })
            .collect()
    }

    /// Adds or replaces a collaborator that is no sub-agent.
    pub(crate) fn set_named_collaborator(&mut self, mut collaborator: Collaborator) {
        collaborator.name = one_line(&collaborator.name);
        collaborator.summary = one_line(&collaborator.summary);
        let known = self
            .state
            .sub_agents
            .collaborator_index
            .get(&collaborator.name);
        let is_sub_agent = known.is_some_and(|index| {
            self.state.sub_agents.collaborators[*index]
                .trace_id
                .is_some()
        });
        if self.state.end.ending.is_none() && !is_sub_agent && !collaborator.name.is_empty() {
            collaborator.trace_id = None;
            self.emit(SubAgentEvent::CollaboratorUpdated { collaborator });
        }
    }
}
