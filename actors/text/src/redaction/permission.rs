//! Redacts permission requests.
//!
//! A request is redacted before anything is cut from it. Otherwise, a preview that ends in the
//! middle of a secret would show its first part, which could no longer be found.

use soong_protocol::{Permission, Scope};

use super::Redactor;

impl Redactor {
    /// Removes the secrets from a permission request. Its fingerprint was computed from the
    /// original text.
    pub fn redact_permission(&self, permission: &mut Permission) {
        self.redact(&mut permission.arguments);
        self.redact(&mut permission.demand.target);
        self.redact_optional(&mut permission.demand.note);
        self.redact_optional(&mut permission.diff);
        match &mut permission.demand.scope {
            Scope::Directory { path } => self.redact(path),
            Scope::Host { host } => self.redact(host),
            Scope::Command {
                executable,
                directory,
            } => {
                self.redact(executable);
                self.redact(directory);
            }
            Scope::CommandLine { command, directory } => {
                self.redact(command);
                self.redact(directory);
            }
            Scope::Tool | Scope::Call | Scope::Unconfined => {}
        }
        permission
            .chain
            .iter_mut()
            .for_each(|link| self.redact(&mut link.task));
    }
}
