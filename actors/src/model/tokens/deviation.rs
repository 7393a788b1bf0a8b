//! How far our counts are from what providers report: a running mean for each model (CTX-4).

use std::{collections::BTreeMap, sync::Mutex};

/// How far counts were off.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct TokenDeviation {
    /// How many requests it was taken from.
    pub samples: u64,
    /// Mean of |counted − reported| / reported.
    pub mean: f64,
}

/// The deviations of all models, by name.
#[derive(Debug, Default)]
pub(crate) struct TokenDeviations(Mutex<BTreeMap<String, TokenDeviation>>);

impl TokenDeviations {
    /// Takes in one request: what we counted, and what the provider reported; 0 is no report.
    pub(crate) fn record(&self, model: &str, counted: u64, reported: u64) {
        if reported == 0 {
            return;
        }
        let off = counted.abs_diff(reported) as f64 / reported as f64;
        let mut models = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        // Models are few: one look-up more for a new one costs less than a new name for each request.
        if !models.contains_key(model) {
            models.insert(model.to_owned(), TokenDeviation::default());
        }
        if let Some(known) = models.get_mut(model) {
            known.samples += 1;
            known.mean += (off - known.mean) / known.samples as f64;
        }
    }

    /// Returns what is known of each model.
    pub(crate) fn all(&self) -> BTreeMap<String, TokenDeviation> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
    }
}
