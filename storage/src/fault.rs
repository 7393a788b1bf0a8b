//! Faults on purpose: a store that fails, waits or stands still as a plan says (DUR-6, DUR-7).
//!
//! A product feature, not a test's toy: drills and tests of every crate wrap the real store.

use std::{
    collections::BTreeMap,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use crate::store::{Ack, Append, Store, StoreError};

/// What goes wrong with one commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// It fails; nothing is written.
    Before(StoreError),
    /// It is written, and fails all the same: the caller cannot know.
    After(StoreError),
    /// It is written after this time.
    Delay(Duration),
}

#[derive(Debug, Default)]
struct Plan {
    commits: u64,
    at: BTreeMap<u64, Fault>,
    always: Option<Fault>,
    held: bool,
}

/// The plan of a [`FaultStore`], and the handle by which it is changed; cloneable.
#[derive(Debug, Clone, Default)]
pub struct FaultPlan(Arc<(Mutex<Plan>, Condvar)>);

impl FaultPlan {
    /// Makes a plan without faults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Lets the `nth` commit fail, counted from 1 over the store's life.
    pub fn at(&self, nth: u64, fault: Fault) {
        self.plan().at.insert(nth, fault);
    }

    /// Lets the next commit fail.
    pub fn next(&self, fault: Fault) {
        let mut plan = self.plan();
        let nth = plan.commits + 1;
        plan.at.insert(nth, fault);
    }

    /// Lets every commit fail that has no fault of its own, until [`FaultPlan::clear`].
    pub fn always(&self, fault: Fault) {
        self.plan().always = Some(fault);
    }

    /// Takes back every fault that has not happened.
    pub fn clear(&self) {
        let mut plan = self.plan();
        plan.at.clear();
        plan.always = None;
    }

    /// Lets commits stand still before they write, until [`FaultPlan::release`].
    pub fn hold(&self) {
        self.plan().held = true;
    }

    /// Lets commits that stand still go on.
    pub fn release(&self) {
        self.plan().held = false;
        self.0.1.notify_all();
    }

    /// Returns how many commits have been asked for, those that failed or stand still included.
    pub fn commits(&self) -> u64 {
        self.plan().commits
    }

    /// Waits until `count` commits have been asked for.
    pub fn wait_for_commits(&self, count: u64) {
        let waiting = self.0.1.wait_while(self.plan(), |plan| plan.commits < count);
        drop(waiting.unwrap_or_else(PoisonError::into_inner));
    }

    /// Counts a commit, waits while commits are held, and returns what goes wrong with it.
    fn begin(&self) -> Option<Fault> {
        let mut plan = self.plan();
        plan.commits += 1;
        let nth = plan.commits;
        self.0.1.notify_all();
        let mut plan = self.0.1.wait_while(plan, |plan| plan.held).unwrap_or_else(PoisonError::into_inner);
        plan.at.remove(&nth).or_else(|| plan.always.clone())
    }

    fn plan(&self) -> MutexGuard<'_, Plan> {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A store that does what its plan says, and otherwise what the store within does.
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
        match self.plan.begin() {
            Some(Fault::Before(error)) => Err(error),
            Some(Fault::After(error)) => self.inner.commit(batch).and(Err(error)),
            Some(Fault::Delay(time)) => {
                std::thread::sleep(time);
                self.inner.commit(batch)
            }
            None => self.inner.commit(batch),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Counting(Arc<Mutex<u64>>);

    impl Store for Counting {
        fn commit(&mut self, batch: &[Append]) -> Result<Vec<Result<Ack, StoreError>>, StoreError> {
            *self.0.lock().unwrap() += 1;
            Ok(batch.iter().map(|_| Ok(Ack::default())).collect())
        }
    }

    #[test]
    fn commits_fail_where_the_plan_says_and_nowhere_else() {
        let (plan, written) = (FaultPlan::new(), Arc::new(Mutex::new(0)));
        let mut store = FaultStore::new(Counting(written.clone()), plan.clone());
        let full = StoreError::Io("disk full".into());
        plan.at(2, Fault::Before(full.clone()));
        plan.at(3, Fault::After(full.clone()));
        let outcomes: Vec<bool> = (0..4).map(|_| store.commit(&[Append::default()]).is_ok()).collect();
        assert_eq!(outcomes, [true, false, false, true]);
        assert_eq!(*written.lock().unwrap(), 3, "the third was written and failed");
        plan.always(Fault::Before(full));
        assert!(store.commit(&[]).is_err() && store.commit(&[]).is_err());
        plan.clear();
        assert!(store.commit(&[]).is_ok());
        assert_eq!(plan.commits(), 7);
    }

    #[test]
    fn a_held_commit_goes_on_when_it_is_released() {
        let (plan, written) = (FaultPlan::new(), Arc::new(Mutex::new(0)));
        let mut store = FaultStore::new(Counting(written.clone()), plan.clone());
        plan.hold();
        let commit = std::thread::spawn(move || store.commit(&[]).is_ok());
        plan.wait_for_commits(1);
        assert_eq!(*written.lock().unwrap(), 0);
        plan.release();
        assert!(commit.join().unwrap());
        assert_eq!(*written.lock().unwrap(), 1);
    }
}
