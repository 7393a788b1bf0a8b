//! Facts that a server states about a model that it runs.
//!
//! Elsewhere: asking the server (`openai/server_routes.rs`); when it is asked, and where the facts
//! are stored (`actors/src/model_facts.rs`).

use serde::{Deserialize, Serialize};
#[cfg(not(feature = "openai"))]
use soong_protocol::ModelConfig;
#[cfg(not(feature = "openai"))]
use soong_text::Environment;

/// Programs that serve models and have routes of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ServerProgram {
    /// `llama-server` of llama.cpp.
    LlamaCpp,
    /// Ollama.
    Ollama,
    /// LM Studio.
    LmStudio,
}

/// Facts that a server states about a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ServerFacts {
    /// The program, if it is recognized.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub program: Option<ServerProgram>,
    /// Context window in tokens with which the server runs the model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context_window: Option<u64>,
    /// Number of calls that the server answers at the same time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slots: Option<usize>,
    /// Whether the model's prompt template takes tools.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub takes_tools: Option<bool>,
}

impl ServerFacts {
    /// Returns how many calls are made at the same time if no number is configured: the slots of
    /// llama.cpp, and 2 for Ollama and LM Studio, which do not state a number. `None`: it is not
    /// known.
    pub fn default_concurrency(&self) -> Option<usize> {
        match (self.slots, self.program) {
            (Some(slots), _) => Some(slots.max(1)),
            (None, Some(ServerProgram::Ollama | ServerProgram::LmStudio)) => Some(2),
            (None, _) => None,
        }
    }
}

/// Returns `None`: this build includes no service.
#[cfg(not(feature = "openai"))]
pub fn server_address(_: &ModelConfig, _: &Environment, _: bool) -> Option<String> {
    None
}

/// Returns nothing: this build includes no service.
#[cfg(not(feature = "openai"))]
#[expect(
    clippy::unused_async,
    reason = "the signature is that of builds with services"
)]
pub async fn server_facts(_: &ModelConfig, _: &Environment, _: &str) -> ServerFacts {
    ServerFacts::default()
}
