//! Requests to a home of another process: their transport, and the streams of its responses.

pub(crate) mod content;
pub(crate) mod events;
pub(crate) mod frames;
pub(crate) mod transport;
pub(crate) mod tree;
