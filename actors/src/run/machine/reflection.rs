//! Reflection: a run that reflects on its trace, on a side branch. The conversation, its head, its
//! goals and its plan do not change (MEM-4).
//!
//! Pure; part of the run state machine. The model gets the conversation as text within one message,
//! so it can reflect on a conversation in any state.
//!
//! Elsewhere: writing what was learned (`machine/jobs/learn.rs`), the request and the parsing of
//! the answer (`memory/reflect.rs`).

use std::sync::Arc;

use soong_protocol::{ExperienceId, MemoryEvent, Message, Role};

use crate::{
    context::{SizedMessage, conversation_text},
    memory::Changes,
    run::machine::{RunState, Transition},
};

/// Additional state of a reflecting run.
#[derive(Debug)]
pub(crate) struct ReflectionState {
    /// The conversation that the run reflects on.
    pub(in crate::run::machine) conversation: Vec<SizedMessage>,
}

impl RunState {
    /// Leaves the conversation for a side branch, before its first message is added.
    pub(crate) fn begin_side_branch(&mut self) {
        if self.reflection.is_none() {
            let past = std::mem::take(&mut self.conversation.transcript);
            self.reflection = Some(ReflectionState { conversation: past });
            // The reflecting model has a system prompt of its own.
            self.conversation.system = None;
            self.conversation.system_sequence = None;
        }
    }

    /// Builds the messages of a reflecting run for the model; `None` if the run does not reflect.
    pub(crate) fn reflection_messages(&self) -> Option<Vec<Arc<Message>>> {
        let past = &self.reflection.as_ref()?.conversation;
        let room = self.prompt_room() / 10 * 8;
        let mut messages: Vec<Arc<Message>> = self
            .conversation
            .transcript
            .iter()
            .map(|entry| Arc::clone(&entry.message))
            .collect();
        if let Some(first) = messages.first_mut() {
            let text = conversation_text(past, &self.goals, room);
            Arc::make_mut(first).content.prepend(&text);
        }
        Some(messages)
    }
}

impl Transition<'_, '_> {
    /// Adds the question of a reflecting run, and opens its turn.
    pub(in crate::run) fn start_reflection(&mut self) {
        let question = self.state.spec.task.clone();
        self.add_message(Role::User, question, |_| {});
        self.open_turn();
    }

    /// Records experiences that were written: `added` has the id of each; `false`: the file had it
    /// already. Returns a summary.
    pub(in crate::run::machine) fn record_experiences(
        &mut self,
        changes: Changes,
        added: Vec<(ExperienceId, bool)>,
    ) -> String {
        let mut helpful = Vec::new();
        let mut harmful = Vec::new();
        let mut new = Vec::new();
        for (learned, (id, is_new)) in changes.new.into_iter().zip(added) {
            if is_new {
                new.push(id.to_string());
                self.emit(MemoryEvent::Added {
                    id,
                    category: learned.category,
                });
            } else if !helpful.contains(&id) {
                helpful.push(id);
            }
        }
        for (id, helped) in changes.rated {
            // An experience that was learned again counts as helpful, whatever its rating.
            if !helpful.contains(&id) && !harmful.contains(&id) {
                if helped {
                    helpful.push(id)
                } else {
                    harmful.push(id)
                }
            }
        }
        let listed = |ids: &[ExperienceId]| {
            ids.iter()
                .map(|id| id.as_str())
                .collect::<Vec<_>>()
                .join(", ")
        };
        let parts = [
            ("learned", new.join(", ")),
            ("helpful", listed(&helpful)),
            ("harmful", listed(&harmful)),
        ];
        let lines: Vec<String> = parts
            .iter()
            .filter(|(_, ids)| !ids.is_empty())
            .map(|(what, ids)| format!("{what}: {ids}"))
            .collect();
        if !helpful.is_empty() || !harmful.is_empty() {
            self.emit(MemoryEvent::Rated { helpful, harmful });
        }
        if lines.is_empty() {
            "no experiences learned or rated".to_owned()
        } else {
            lines.join("; ")
        }
    }
}
