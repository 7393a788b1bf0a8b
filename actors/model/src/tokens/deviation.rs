//! Deviation of local token counts from the counts that providers report: a running mean per model
//! (CTX-4).

use std::{collections::BTreeMap, sync::Mutex};

/// Deviation of the local token counts of one model.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct TokenDeviation {
    /// Number of requests measured.
    pub samples: u64,
    /// Mean of |counted − reported| / reported.
    pub mean: f64,
}

/// Deviations of all models, by name.
#[derive(Debug, Default)]
pub struct TokenDeviations(Mutex<BTreeMap<String, TokenDeviation>>);

impl TokenDeviations {
    /// Records one request: the local count and the reported count. A reported count of 0 means
    /// none was reported.
    pub fn record(&self, model: &str, counted: u64, reported: u64) {
        if reported == 0 {
            return;
        }
        let off = counted.abs_diff(reported) as f64 / reported as f64;
        let mut models = self
            .0
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        // An extra lookup for a new model is cheaper than allocating the name for every request.
        if !models.contains_key(model) {
            models.insert(model.to_owned(), TokenDeviation::default());
        }
        if let Some(known) = models.get_mut(model) {
            known.samples += 1;
            known.mean += (off - known.mean) / known.samples as f64;
        }
    }

    /// Returns the deviations of all models.
    pub fn all(&self) -> BTreeMap<String, TokenDeviation> {
        self.0
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .clone()
    }
}
