//! Models: the trait that providers implement, with its request, result and error types (MOD-1).
//!
//! A provider receives a request, streams deltas, and returns one completion. It makes one attempt
//! and is cancelled by dropping its future. The runtime retries, applies limits and cancels.

pub use crate::model_facts::known_server_facts;
pub use soong_model::{
    Completion, DeltaSink, Exchange, ExchangeLog, Failure, Model, ModelCatalog, ModelError,
    ModelRequest, ReasoningSupport, ServerFacts, ServerProgram, TokenDeviation, catalog,
    create_model, retry, selection, server_address, server_facts,
};
#[cfg(feature = "openai")]
pub use soong_model::{ServedModel, served_models};
