//! `[memory]`: experiences of earlier runs, and their use in later ones (MEM-2 … MEM-4).

use serde::{Deserialize, Serialize};

/// Settings of experiences.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MemoryConfig {
    /// Whether runs use and record experiences. Default: true.
    pub enabled: bool,
    /// Whether a model reflects on older messages before a summary replaces them. Default: true.
    pub reflect_before_summary: bool,
    /// File of the experiences. `${SOONG_AGENT_HOME}` is replaced by the home. Default:
    /// `memory/experiences.md` in the home.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub experiences_path: Option<String>,
    /// Maximum number of experiences in a new conversation, 1 to 100. Default: 5.
    pub top_k: usize,
}

impl Default for MemoryConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            reflect_before_summary: true,
            experiences_path: None,
            top_k: 5,
        }
    }
}

impl MemoryConfig {
    /// Returns the first invalid key and the reason.
    pub(super) fn check(&self) -> Result<(), (&'static str, &'static str)> {
        match self.top_k {
            0 | 101.. => Err(("memory.top_k", "must be 1 to 100")),
            _ if self
                .experiences_path
                .as_deref()
                .is_some_and(|path| path.trim().is_empty()) =>
            {
                Err(("memory.experiences_path", "must not be empty"))
            }
            _ => Ok(()),
        }
    }
}
