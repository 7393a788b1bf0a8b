//! Durable storage of Soong: the store traits, the SQLite store, its writer thread, and the bytes
//! of artifacts.
//!
//! Architecture invariant: only this crate names `rusqlite`; its public interface uses the types of
//! `soong_protocol`. Nothing in this crate depends on an actor.

pub mod blob;
#[cfg(any(test, feature = "testing"))]
pub mod contract;
pub mod disk;
pub mod fault;
pub mod sqlite;
pub mod store;
pub mod writer;
