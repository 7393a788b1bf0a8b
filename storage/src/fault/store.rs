//! A store with injected faults.

use super::{
    FaultPoint,
    plan::{Fault, FaultPlan},
};
use crate::store::{Ack, Append, Store, StoreError};

/// A store that applies a fault plan to each commit of an inner store.
#[derive(Debug)]
pub struct FaultStore<S> {
    inner: S,
    plan: FaultPlan,
}

impl<S: Store> FaultStore<S> {
    /// Wraps a store.
    pub fn new(inner: S, plan: FaultPlan) -> Self {
        Self { inner, plan }
    }
}

impl<S: Store> Store for FaultStore<S> {
    fn commit(&mut self, batch: &[Append]) -> Result<Vec<Result<Ack, StoreError>>, StoreError> {
        let fault = self.plan.next_commit();
        self.plan.hit(FaultPoint::BeforeCommit)?;
        let outcomes = match fault {
            Some(Fault::FailBeforeWrite(error)) => return Err(error),
            Some(Fault::FailAfterWrite(error)) => self.inner.commit(batch).and(Err(error)),
            Some(Fault::Delay(time)) => {
                std::thread::sleep(time);
                self.inner.commit(batch)
            }
            None => self.inner.commit(batch),
        }?;
        self.plan.hit(FaultPoint::AfterCommit)?;
        Ok(outcomes)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    struct Counting(Arc<Mutex<u64>>);

    impl Store for Counting {
        fn commit(&mut self, batch: &[Append]) -> Result<Vec<Result<Ack, StoreError>>, StoreError> {
            *self.0.lock().unwrap() += 1;
            Ok(batch.iter().map(|_| Ok(Ack::default())).collect())
        }
    }

    #[test]
    fn only_planned_commits_fail() {
        let plan = FaultPlan::new();
        let written = Arc::new(Mutex::new(0));
        let mut store = FaultStore::new(Counting(written.clone()), plan.clone());
        let full = StoreError::Io("disk full".into());
        plan.inject_at(2, Fault::FailBeforeWrite(full.clone()));
        plan.inject_at(3, Fault::FailAfterWrite(full.clone()));
        let outcomes: Vec<bool> = (0..4)
            .map(|_| store.commit(&[Append::default()]).is_ok())
            .collect();
        assert_eq!(outcomes, [true, false, false, true]);
        assert_eq!(
            *written.lock().unwrap(),
            3,
            "the third was written and failed"
        );
        plan.inject_always(Fault::FailBeforeWrite(full));
        assert!(store.commit(&[]).is_err() && store.commit(&[]).is_err());
        plan.clear();
        assert!(store.commit(&[]).is_ok());
        assert_eq!(plan.commits(), 7);
    }

    #[test]
    fn blocked_commit_continues_after_release() {
        let plan = FaultPlan::new();
        let written = Arc::new(Mutex::new(0));
        let mut store = FaultStore::new(Counting(written.clone()), plan.clone());
        plan.block_commits();
        let commit = std::thread::spawn(move || store.commit(&[]).is_ok());
        plan.wait_for_commits(1);
        assert_eq!(*written.lock().unwrap(), 0);
        plan.unblock_commits();
        assert!(commit.join().unwrap());
        assert_eq!(*written.lock().unwrap(), 1);
    }
}
