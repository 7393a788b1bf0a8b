//! `[memory]`: what runs learned, and what later ones are told of it (MEM-2 … MEM-4).

use serde::{Deserialize, Serialize};

/// What runs learned, and what later ones are told of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MemoryConfig {
    /// Whether a new conversation is told what earlier ones have learned.
    pub enabled: bool,
    /// The file; absent = `memory/experiences.md` in the home. `${SOONG_AGENT_HOME}` stands for the home.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub experiences_path: Option<String>,
    /// Most experiences that are told.
    pub top_k: usize,
}

impl Default for MemoryConfig {
    fn default() -> Self {
        Self { enabled: true, experiences_path: None, top_k: 5 }
    }
}

impl MemoryConfig {
    /// Finds the first value that cannot be, with its key and why.
    pub(super) fn check(&self) -> Result<(), (&'static str, &'static str)> {
        match self.top_k {
            0 | 101.. => Err(("memory.top_k", "must be 1 to 100")),
            _ if self.experiences_path.as_deref().is_some_and(|path| path.trim().is_empty()) => {
                Err(("memory.experiences_path", "must not be empty"))
            }
            _ => Ok(()),
        }
    }
}
