//! Redacting what is told beside what is stored: outcomes of calls, questions for leave, artifacts, the tree.
//!
//! Outcomes and questions are redacted before anything is cut from them: a preview that ends in the middle of a secret
//! would show the first part of it, which nobody finds any more.

use soong_protocol::{Permission, Scope};

use super::Redactor;
use crate::{
    artifact::Save,
    observatory::ActorView,
    tool::{ToolOutput, ToolResult},
};

impl Redactor {
    /// Takes the secrets out of what a call ended in.
    pub(crate) fn result(&self, result: ToolResult) -> ToolResult {
        match result {
            Ok(mut output) => {
                self.output(&mut output);
                Ok(output)
            }
            Err(error) => Err(self.error(error)),
        }
    }

    /// Takes the secrets out of what a call brought.
    pub(crate) fn output(&self, output: &mut ToolOutput) {
        for text in [&mut output.title, &mut output.output] {
            self.redact(text);
            self.redact_beginnings(text);
        }
        self.redact_some(&mut output.long_term_memory);
    }

    /// Takes the secrets out of a question for leave. The fingerprint was made of what was asked for.
    pub(crate) fn permission(&self, asked: &mut Permission) {
        self.redact(&mut asked.arguments);
        self.redact(&mut asked.demand.target);
        self.redact_some(&mut asked.demand.note);
        self.redact_some(&mut asked.diff);
        match &mut asked.demand.scope {
            Scope::Directory { path } => self.redact(path),
            Scope::Host { host } => self.redact(host),
            Scope::Command { executable, directory } => {
                self.redact(executable);
                self.redact(directory);
            }
            Scope::CommandLine { command, directory } => {
                self.redact(command);
                self.redact(directory);
            }
            Scope::Tool | Scope::Call | Scope::Unconfined => {}
        }
        asked.chain.iter_mut().for_each(|link| self.redact(&mut link.task));
    }

    /// Takes the secrets out of what is said about an artifact.
    pub(crate) fn save(&self, save: &mut Save) {
        self.redact(&mut save.title);
        self.redact_some(&mut save.summary);
        save.metadata.values_mut().for_each(|value| self.value(value));
    }

    /// Takes the secrets out of the tree.
    pub(crate) fn tree(&self, view: &mut ActorView) {
        self.redact(&mut view.activity);
        self.redact_some(&mut view.last_error);
        view.children.iter_mut().for_each(|child| self.tree(child));
    }
}
