//! Cache of encoded events, so that each event is encoded once for all watchers.
//!
//! The cache has a fixed number of slots, indexed by the event's number in the store: watchers of
//! the same run request the same events at about the same time. An event that was replaced, or that
//! is too long, is encoded again.

use std::sync::{Mutex, PoisonError};

use axum::extract::ws::Utf8Bytes;
use soong::protocol::EventRecord;

/// Number of slots.
const KEPT_EVENTS: usize = 512;
/// Maximum length of a stored text, in bytes: all slots together use at most 8 MiB.
const MAX_KEPT_BYTES: usize = 16 * 1_024;

/// The most recent events as text.
pub struct EventCache(Vec<Mutex<Option<(u64, Utf8Bytes)>>>);

impl Default for EventCache {
    fn default() -> Self {
        Self((0..KEPT_EVENTS).map(|_| Mutex::default()).collect())
    }
}

impl EventCache {
    /// Returns an event record as JSON.
    pub(super) fn json(&self, record: &EventRecord) -> Result<Utf8Bytes, serde_json::Error> {
        let slot = usize::try_from(record.lsn).unwrap_or_default() % KEPT_EVENTS;
        let mut cached = self.0[slot].lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, text)) = cached.as_ref().filter(|(lsn, _)| *lsn == record.lsn) {
            return Ok(text.clone());
        }
        let text = Utf8Bytes::from(serde_json::to_string(record)?);
        if text.len() <= MAX_KEPT_BYTES {
            *cached = Some((record.lsn, text.clone()));
        }
        Ok(text)
    }
}
