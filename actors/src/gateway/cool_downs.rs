//! Models that are not called for a while, because they could not make a call, and why.
//!
//! A gateway has one for its models, because a failure of the service concerns every run. A run has
//! one of its own for failures that concern only its requests.

use std::{
    collections::HashMap,
    hash::Hash,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use soong_protocol::FallbackReason;
use tokio::time::Instant;

/// The cool-downs of models, by a key `K` for each model.
pub(crate) struct CoolDowns<K>(Mutex<HashMap<K, (Instant, FallbackReason)>>);

impl<K> Default for CoolDowns<K> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Eq + Hash> CoolDowns<K> {
    /// Starts a cool-down, which replaces an earlier one of the model.
    pub(crate) fn start(&self, model: K, reason: FallbackReason, time: Duration) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.insert(model, (Instant::now() + time, reason));
    }

    /// Returns the reason of the model's cool-down, if one is active.
    pub(crate) fn reason(&self, model: &K) -> Option<FallbackReason> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.get(model)
            .filter(|(until, _)| *until > Instant::now())
            .map(|(_, reason)| *reason)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn cool_down_ends() {
        let cooling = CoolDowns::default();
        cooling.start(None, FallbackReason::Refused, Duration::from_secs(5));
        assert_eq!(
            (cooling.reason(&None), cooling.reason(&Some(0))),
            (Some(FallbackReason::Refused), None)
        );
        tokio::time::advance(Duration::from_secs(5)).await;
        assert_eq!(cooling.reason(&None), None);
    }
}
