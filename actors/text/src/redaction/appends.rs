//! Redacts what is about to be stored: every text of the writes of an append.
//!
//! The last step before the journal. Text that is already redacted is unchanged. The contents of
//! documents and artifacts are redacted when they are received; this module redacts only their
//! descriptions.

use std::{borrow::Cow, sync::Arc};

use soong_protocol::{
    Artifact, ArtifactWrite, Event, EventDraft, Message, MessageContent, NewSession, NewTrace,
    PermissionWrite, RequestWrite, Run, RunSettings, RunWrite, SessionWrite, TraceWrite, Write,
};

use super::Redactor;

impl Redactor {
    /// Removes the secrets from the writes of an append.
    pub fn redact_writes(&self, writes: &mut [Write]) {
        writes.iter_mut().for_each(|write| self.write(write));
    }

    fn write(&self, write: &mut Write) {
        match write {
            Write::Session(write) => self.session_write(write),
            Write::Trace(TraceWrite::Create(new) | TraceWrite::FirstTask(new)) => {
                self.new_trace(new)
            }
            Write::Trace(TraceWrite::Require(_)) => {}
            Write::Run(write) => self.run_write(write),
            Write::Message(message) => self.shared_message(message),
            Write::Event(draft) => self.redact_draft(draft),
            Write::Answer { answer, .. } => self.redact(answer),
            Write::Request(RequestWrite::Answer { answer, .. }) => self.redact(&mut answer.body),
            Write::Request(
                RequestWrite::Begin { .. }
                | RequestWrite::Claim { .. }
                | RequestWrite::Withdraw { .. },
            ) => {}
            Write::Permission(PermissionWrite::Request(permission)) => {
                self.redact_permission(permission)
            }
            Write::Permission(PermissionWrite::Decision(decision)) => {
                self.redact_optional(&mut decision.reason)
            }
            Write::Artifact(write) => self.artifact_write(write),
            Write::Blob(_) | Write::Probe => {}
        }
    }

    fn session_write(&self, write: &mut SessionWrite) {
        match write {
            SessionWrite::Create(new) => self.new_session(new),
            SessionWrite::Fork(new) => self.new_session(&mut new.session),
            SessionWrite::BeginRemoval(_)
            | SessionWrite::EndRemoval(_)
            | SessionWrite::RemoveRows { .. }
            | SessionWrite::Require { .. } => {}
        }
    }

    fn run_write(&self, write: &mut RunWrite) {
        match write {
            RunWrite::Create(run) => self.redact_run(run),
            RunWrite::ChildResult(result) => {
                self.redact(&mut result.summary);
                result
                    .findings
                    .iter_mut()
                    .for_each(|finding| self.redact(finding));
                result
                    .artifacts
                    .iter_mut()
                    .for_each(|artifact| self.redact(&mut artifact.summary));
                if let Some(error) = result.error.take() {
                    result.error = Some(self.redact_error(error));
                }
            }
            RunWrite::NewEpoch(_)
            | RunWrite::OpenModelCalls { .. }
            | RunWrite::OfferedTools { .. }
            | RunWrite::TaskJournalCompleted(_) => {}
        }
    }

    fn artifact_write(&self, write: &mut ArtifactWrite) {
        match write {
            ArtifactWrite::Version(new) => self.artifact(&mut new.artifact),
            ArtifactWrite::Copy(new) => self.artifact(&mut new.version.artifact),
            ArtifactWrite::Edit(new) => self.artifact(&mut new.artifact),
            ArtifactWrite::DocumentVersion(_) | ArtifactWrite::Deleted { .. } => {}
        }
    }

    fn new_session(&self, new: &mut NewSession) {
        self.redact_optional(&mut new.name);
    }

    fn new_trace(&self, new: &mut NewTrace) {
        self.redact(&mut new.task);
        self.redact(&mut new.name);
    }

    /// Removes the secrets from the task and the settings of a run.
    pub fn redact_run(&self, run: &mut Run) {
        self.redact(&mut run.task);
        self.settings(&mut run.settings);
    }

    fn settings(&self, settings: &mut RunSettings) {
        self.redact_optional(&mut settings.system_prompt);
        if let Some(context) = &mut settings.context {
            self.redact_json(context);
        }
        self.redact_content(&mut settings.task_content);
        settings
            .options
            .messages
            .iter_mut()
            .for_each(|message| self.redact_content(&mut message.content));
        if let Some(schema) = &mut settings.options.expected_output_schema {
            self.redact_json(schema);
        }
    }

    /// Removes the secrets from the texts and file names of a content.
    pub fn redact_content(&self, content: &mut MessageContent) {
        content.change_texts(|text| self.redact(text));
    }

    fn artifact(&self, artifact: &mut Artifact) {
        self.redact(&mut artifact.title);
        self.redact_optional(&mut artifact.summary);
        for value in artifact.metadata.values_mut() {
            self.redact_json(value);
        }
    }

    fn shared_message(&self, message: &mut Arc<Message>) {
        if self.contains_secret(message) {
            let mut clean = Message::clone(message);
            self.redact_message(&mut clean);
            *message = Arc::new(clean);
        }
    }

    fn contains_secret(&self, message: &Message) -> bool {
        let is_in = |text: &str| matches!(self.text(text), Cow::Owned(_));
        is_in(&message.content)
            || message
                .content
                .files()
                .filter_map(|file| file.filename.as_deref())
                .any(is_in)
            || is_in(&message.description)
            || message.reasoning.as_deref().is_some_and(is_in)
            || message.long_term_memory.as_deref().is_some_and(is_in)
            || message.context_update.as_deref().is_some_and(is_in)
            || message.tool_calls.iter().any(|call| is_in(&call.arguments))
    }

    /// Removes the secrets from a message.
    pub fn redact_message(&self, message: &mut Message) {
        // A service rejects data that does not belong to the text.
        if message.provider_data.is_some() && self.contains_secret(message) {
            message.provider_data = None;
        }
        self.redact_content(&mut message.content);
        self.redact(&mut message.description);
        self.redact_optional(&mut message.reasoning);
        self.redact_optional(&mut message.long_term_memory);
        self.redact_optional(&mut message.context_update);
        message
            .tool_calls
            .iter_mut()
            .for_each(|call| self.redact(&mut call.arguments));
    }

    /// Removes the secrets from an event.
    pub fn redact_draft(&self, draft: &mut EventDraft) {
        if let Cow::Owned(data) = self.text(&draft.data) {
            draft.data = if is_json(&data) {
                data
            } else {
                self.redacted_strings(&draft.data)
            };
            draft.event = Event::decode(draft.event.kind(), &draft.data);
        }
    }

    /// Removes the secrets from the strings of a JSON text. A number that equals a secret, such as
    /// a size, is kept: without it, the text would not be JSON.
    fn redacted_strings(&self, json: &str) -> String {
        let mut value: serde_json::Value = serde_json::from_str(json).unwrap_or_default();
        self.redact_json(&mut value);
        value.to_string()
    }
}

fn is_json(text: &str) -> bool {
    serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok()
}
