//! What is durable in Soong: the store, its writer thread, and artifact bytes.
//!
//! Architecture invariant: only this crate names `rusqlite`; what leaves it speaks the words of
//! `soong_protocol`. Nothing here knows an actor.

pub mod blob;
pub mod contract;
pub mod fault;
pub mod sqlite;
pub mod store;
pub mod writer;
