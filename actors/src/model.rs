//! Models: the trait that providers implement, with its request, result and error types (MOD-1).
//!
//! A provider receives a request, streams deltas, and returns one completion. It makes one attempt and is cancelled by
//! dropping its future. The runtime retries, applies limits and cancels.

pub use soong_model::{
    Completion, DeltaSink, Exchange, ExchangeLog, Failure, Model, ModelCatalog, ModelError, ModelRequest,
    ReasoningSupport, TokenDeviation, catalog, create_model, retry, selection,
};
#[cfg(feature = "openai")]
pub use soong_model::{ServedModel, served_models};
