//! The conversation of a run.

use std::sync::Arc;

use soong_protocol::{Covers, ErrorInfo, Message, OmittedGoal, PromptChanges, PromptRebuild, Role};

use crate::{
    context::{SizedMessage, is_summary},
    run::machine::spec::RunSpec,
};

/// The messages that the model is sent, and how large they are.
#[derive(Default, Clone)]
pub(in crate::run::machine) struct Conversation {
    /// Largest sequence number of a message of the trace (R3).
    pub(in crate::run::machine) last_sequence: u64,
    /// Sequence number of the last message of the main path.
    pub(in crate::run::machine) head: Option<u64>,
    /// The main path without the system message.
    pub(in crate::run::machine) transcript: Vec<SizedMessage>,
    /// Last message whose omitted files were reported.
    pub(in crate::run::machine) files_omitted_to: u64,
    /// Text of the system message.
    pub(in crate::run::machine) system: Option<Arc<str>>,
    pub(in crate::run::machine) system_sequence: Option<u64>,
    /// Size of the last prompt in tokens, by our own count.
    pub(in crate::run::machine) prompt_tokens: u64,
    /// Context window in tokens: as configured, or smaller after the model has refused a prompt
    /// that should have fitted.
    pub(in crate::run::machine) window: u64,
    /// How the prompt was rebuilt, if it was.
    pub(in crate::run::machine) rebuilt: Option<PromptRebuild>,
    /// Messages whose images and files are left out, because the service has rejected them.
    pub(in crate::run::machine) rejected_files: Vec<u64>,
    /// Whether an answer records the changes of the prompt, so that later runs make them too.
    pub(in crate::run::machine) are_changes_recorded: bool,
}

impl Conversation {
    /// Returns the context window after a service has rejected the last prompt: the window is
    /// smaller than assumed, as the error may state, or the service counts more tokens.
    pub(in crate::run::machine) fn reduced_window(&self, error: &ErrorInfo) -> u64 {
        let stated_window = error.details["context_window"].as_u64().unwrap_or(u64::MAX);
        self.window
            .min(self.prompt_tokens / 10 * 9)
            .min(stated_window)
    }

    /// Splits the transcript into the part that was changed when the prompt was rebuilt, and the
    /// rest.
    pub(in crate::run::machine) fn split_at_rebuild(&self) -> (&[SizedMessage], &[SizedMessage]) {
        let through = self.rebuilt.as_ref().map_or(0, |rebuilt| rebuilt.through);
        let is_after = |entry: &SizedMessage| {
            entry.message.covers.is_none() && entry.message.sequence > through
        };
        let end = self
            .transcript
            .iter()
            .position(is_after)
            .unwrap_or(self.transcript.len());
        self.transcript.split_at(end)
    }

    /// Changes the prompt up to the last message: leaves out the messages of finished goals,
    /// shortens tool outputs that the model has read and that are shown only once (ART-9), and
    /// drops the data that is bound to the old beginning.
    pub(in crate::run::machine) fn rebuild(
        &mut self,
        spec: &RunSpec,
        model: &str,
        omitted_goals: Vec<OmittedGoal>,
    ) {
        let through = self.head.unwrap_or_default();
        self.apply_rebuild(
            spec,
            PromptRebuild {
                model: model.to_owned(),
                through,
                omitted_goals,
            },
        );
        self.are_changes_recorded = false;
    }

    /// Returns the changes of the prompt that the next answer must record; `None` if an earlier one
    /// has.
    pub(in crate::run::machine) fn unrecorded_changes(&self) -> Option<Box<PromptChanges>> {
        if self.are_changes_recorded {
            return None;
        }
        let changes = PromptChanges {
            rebuild: self.rebuilt.clone(),
            rejected_files: self.rejected_files.clone(),
        };
        (changes != PromptChanges::default()).then(|| Box::new(changes))
    }

    /// Makes the changes that an answer records, unless they were made already. A rebuild ends with
    /// a summary.
    pub(in crate::run::machine) fn apply_recorded_changes(
        &mut self,
        spec: &RunSpec,
        answer: &Message,
    ) {
        let Some(changes) = &answer.prompt_changes else {
            return;
        };
        self.reject_files(spec, &changes.rejected_files);
        let is_summary = |entry: &SizedMessage| entry.message.covers.is_some();
        let is_before_summary = self
            .transcript
            .iter()
            .any(|entry| is_summary(entry) && entry.message.sequence > answer.sequence);
        if is_before_summary {
            return;
        }
        if let Some(rebuild) = &changes.rebuild
            && self.rebuilt.as_ref() != Some(rebuild)
        {
            self.apply_rebuild(spec, rebuild.clone());
        }
        self.are_changes_recorded = true;
    }

    /// Replaces the images and files of messages by their descriptions.
    pub(in crate::run::machine) fn reject_files(&mut self, spec: &RunSpec, messages: &[u64]) {
        let is_new =
            |sequence: &u64| messages.contains(sequence) && !self.rejected_files.contains(sequence);
        let new: Vec<u64> = self
            .transcript
            .iter()
            .map(|entry| entry.message.sequence)
            .filter(is_new)
            .collect();
        self.change(
            spec,
            |message| new.contains(&message.sequence),
            |message| message.content = std::mem::take(&mut message.content).without_files(),
        );
        self.rejected_files.extend(new);
    }

    /// Leaves the last message, because another one takes its place. Returns its sequence number.
    pub(in crate::run::machine) fn step_back(&mut self) -> Option<u64> {
        let last = self.transcript.last();
        let parent = last.and_then(|entry| entry.message.parent_sequence);
        std::mem::replace(&mut self.head, parent)
    }

    /// Replaces the messages that a summary covers.
    pub(in crate::run::machine) fn replace_with_summary(
        &mut self,
        spec: &RunSpec,
        summary: SizedMessage,
        covers: &Covers,
    ) {
        let is_after_cut = |entry: &SizedMessage| {
            !is_summary(&entry.message) && entry.message.sequence >= covers.next
        };
        // Keep the last covered request of the caller, unless a later one remains after the
        // summary.
        let has_later_request = self
            .transcript
            .iter()
            .any(|entry| is_after_cut(entry) && entry.message.is_request());
        let request = covers.request.filter(|_| !has_later_request);
        let is_kept =
            |entry: &SizedMessage| is_after_cut(entry) || Some(entry.message.sequence) == request;
        self.transcript.retain(is_kept);
        self.transcript.insert(0, summary);
        self.forget_summarized_changes();
        self.drop_bound_data(spec);
    }

    /// Forgets the changes of the messages that a summary has replaced. The next answer records the
    /// others again.
    fn forget_summarized_changes(&mut self) {
        self.rebuilt = None;
        let transcript = &self.transcript;
        self.rejected_files.retain(|sequence| {
            transcript
                .iter()
                .any(|entry| entry.message.sequence == *sequence)
        });
        self.are_changes_recorded = false;
    }

    /// Returns whether the prompt was rebuilt for this model. Another model has nothing of it in
    /// its cache, so it may be rebuilt again.
    pub(in crate::run::machine) fn is_rebuilt_for(&self, model: &str) -> bool {
        self.rebuilt
            .as_ref()
            .is_some_and(|rebuild| rebuild.model == model)
    }

    fn apply_rebuild(&mut self, spec: &RunSpec, rebuild: PromptRebuild) {
        self.rebuilt = Some(rebuild);
        let last_answer = self
            .transcript
            .iter()
            .rposition(|entry| entry.message.role == Role::Assistant);
        for entry in self.transcript.iter_mut().take(last_answer.unwrap_or(0)) {
            if entry.message.include_output_only_once {
                let mut short = Message::clone(&entry.message);
                short.content = short
                    .long_term_memory
                    .clone()
                    .unwrap_or_else(|| short.description.clone())
                    .into();
                *entry = SizedMessage {
                    tokens: spec.model.counter.count(&short),
                    message: Arc::new(short),
                };
            }
        }
        self.drop_bound_data(spec);
    }

    /// Drops the data of earlier answers that services accept only after the same messages as
    /// before, and the context that was sent with them, which the next request sends again.
    pub(in crate::run::machine) fn drop_bound_data(&mut self, spec: &RunSpec) {
        self.change(spec, has_bound_data, |message| message.provider_data = None);
        self.change(
            spec,
            |message| message.context_update.is_some(),
            |message| message.context_update = None,
        );
    }

    /// Returns whether the answers since the last message of the user have data that is bound to
    /// the messages before.
    pub(in crate::run::machine) fn ends_in_bound_data(&self) -> bool {
        let since_user = self
            .transcript
            .iter()
            .rev()
            .take_while(|entry| entry.message.role != Role::User);
        since_user
            .into_iter()
            .any(|entry| has_bound_data(&entry.message))
    }

    /// Drops the data of earlier answers for their service.
    pub(in crate::run::machine) fn drop_provider_data(&mut self, spec: &RunSpec) {
        self.change(
            spec,
            |message| message.provider_data.is_some(),
            |message| message.provider_data = None,
        );
    }

    /// Changes the messages that `is_changed` selects.
    fn change(
        &mut self,
        spec: &RunSpec,
        is_changed: impl Fn(&Message) -> bool,
        change: impl Fn(&mut Message),
    ) {
        for entry in self
            .transcript
            .iter_mut()
            .filter(|entry| is_changed(&entry.message))
        {
            let mut message = Message::clone(&entry.message);
            change(&mut message);
            *entry = SizedMessage {
                tokens: spec.model.counter.count(&message),
                message: Arc::new(message),
            };
        }
    }
}

/// Returns whether a message has data that its service accepts only after the same messages as
/// before: the signed reasoning of Anthropic's models.
fn has_bound_data(message: &Message) -> bool {
    message
        .provider_data
        .as_ref()
        .is_some_and(|data| data.is_bound_to_beginning())
}
