//! Events as text, made once for all who watch.
//!
//! A place for each of the last events, found by their number in the store: many who watch one run ask for the same
//! ones at about the same time. What is gone, or too long to be kept, is made again.

use std::sync::{Mutex, PoisonError};

use axum::extract::ws::Utf8Bytes;
use soong::protocol::EventRecord;

/// How many events are kept.
const KEPT_EVENTS: usize = 512;
/// Longest text that is kept, in bytes: all of them take 8 MiB at most.
const MAX_KEPT_BYTES: usize = 16 * 1_024;

/// The last events as text.
pub struct Encoded(Vec<Mutex<Option<(u64, Utf8Bytes)>>>);

impl Default for Encoded {
    fn default() -> Self {
        Self((0..KEPT_EVENTS).map(|_| Mutex::default()).collect())
    }
}

impl Encoded {
    /// Returns an event's envelope as JSON.
    pub(super) fn json(&self, record: &EventRecord) -> Result<Utf8Bytes, serde_json::Error> {
        let place = usize::try_from(record.lsn).unwrap_or_default() % KEPT_EVENTS;
        let mut kept = self.0[place].lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, text)) = kept.as_ref().filter(|(lsn, _)| *lsn == record.lsn) {
            return Ok(text.clone());
        }
        let text = Utf8Bytes::from(serde_json::to_string(record)?);
        if text.len() <= MAX_KEPT_BYTES {
            *kept = Some((record.lsn, text.clone()));
        }
        Ok(text)
    }
}
