//! Models that a run does not call for a while, because they could not make one of its calls.
//!
//! Elsewhere: models that no run calls, because their service has failed (the gateway).

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use soong_protocol::FallbackReason;
use tokio::time::Instant;

/// Models that a run does not call at the moment: the index of a fallback or `None` for its own model, the end, and why.
#[derive(Default)]
pub(crate) struct CoolDowns(Mutex<Vec<(Option<usize>, Instant, FallbackReason)>>);

impl CoolDowns {
    pub(in crate::run) fn add(&self, model: Option<usize>, reason: FallbackReason, time: Duration) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|(other, until, _)| *other != model && *until > Instant::now());
        all.push((model, Instant::now() + time, reason));
    }

    pub(in crate::run) fn reason(&self, model: Option<usize>) -> Option<FallbackReason> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter().find(|(other, until, _)| *other == model && *until > Instant::now()).map(|(.., reason)| *reason)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn cool_down_ends() {
        let cooling = CoolDowns::default();
        cooling.add(None, FallbackReason::Refused, Duration::from_secs(5));
        assert_eq!((cooling.reason(None), cooling.reason(Some(0))), (Some(FallbackReason::Refused), None));
        tokio::time::advance(Duration::from_secs(5)).await;
        assert_eq!(cooling.reason(None), None);
    }
}
