//! HTTP services of models, whatever their API.

pub(crate) mod events;
pub(crate) mod failure;
pub(crate) mod headers;
pub(crate) mod http;
pub(crate) mod names;
