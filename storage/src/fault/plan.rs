//! What goes wrong: commits by their number, as tests say it, and points by rules, as a text says it.
//!
//! One plan for all that meets points: it is shared, and may change while it is at work.

use std::{
    collections::BTreeMap,
    fmt,
    str::FromStr,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use super::{
    FaultPlace, FaultPoint,
    rule::{FaultRuleError, Outcome, Rules},
};
use crate::store::StoreError;

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
    rules: Rules,
}

/// A point failed because a plan says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("failed on purpose at {0}")]
pub struct Injected(pub FaultPoint);

impl From<Injected> for StoreError {
    fn from(injected: Injected) -> Self {
        match injected.0.place() {
            FaultPlace::Blob => Self::Blob(injected.to_string()),
            FaultPlace::Writer | FaultPlace::Run | FaultPlace::Journal => Self::Io(injected.to_string()),
        }
    }
}

/// What goes wrong where, and the handle by which that is changed; cloneable.
///
/// As text it is a list of `POINT[@N|@N..|%P][=ACTION]`, separated by commas. `POINT` is the name of a
/// [`FaultPoint`]. With `@3` it is the third time that the point is met, counted over all who meet it;
/// with `@3..` the third and each one after; with `%1` one time in 100, chosen by a generator that
/// `seed=NUMBER` starts; without any of them each time. `ACTION` is one of
///
/// - `kill`: the process is gone at once, as by `kill -9`; this is what happens where none is given;
/// - `fail`: what [`FaultPlace`] says;
/// - `delay:MS`: whoever meets the point waits so many milliseconds.
///
/// ```
/// # use soong_storage::fault::{FaultPlan, FaultPoint};
/// let plan: FaultPlan = "before_commit@2=fail, call_model=delay:50".parse()?;
/// assert!(plan.meet(FaultPoint::BeforeCommit).is_ok());
/// assert!(plan.meet(FaultPoint::BeforeCommit).is_err());
/// # Ok::<(), soong_storage::fault::FaultRuleError>(())
/// ```
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
        plan.rules.clear();
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

    /// Adds the rules of a text.
    ///
    /// # Errors
    /// Says which part of the text cannot be understood, and what to write; nothing is added then.
    pub fn add(&self, text: &str) -> Result<(), FaultRuleError> {
        self.plan().rules.add(text)
    }

    /// Does what the rules say for meeting `point` now. Rules that delay come first; of the others, the first.
    ///
    /// Waits on the thread. On a worker of tokio others go on meanwhile, unless it is the only one.
    ///
    /// # Errors
    /// [`Injected`] where the point is to fail.
    pub fn meet(&self, point: FaultPoint) -> Result<(), Injected> {
        let (delay, outcome) = self.plan().rules.meet(point);
        if !delay.is_zero() {
            tracing::debug!(%point, ?delay, "a delay on purpose");
            pause(delay);
        }
        match outcome {
            None => Ok(()),
            Some(Outcome::Fail) => {
                tracing::warn!(%point, "a failure on purpose");
                Err(Injected(point))
            }
            Some(Outcome::Kill) => die(),
        }
    }

    /// Returns how often a point was met.
    pub fn met(&self, point: FaultPoint) -> u64 {
        self.plan().rules.met(point)
    }

    /// Counts a commit, waits while commits are held, and returns what goes wrong with it.
    pub(super) fn begin(&self) -> Option<Fault> {
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

impl FromStr for FaultPlan {
    type Err = FaultRuleError;

    fn from_str(text: &str) -> Result<Self, FaultRuleError> {
        let plan = Self::new();
        plan.add(text)?;
        Ok(plan)
    }
}

/// Shows the rules as their text; empty where there is none.
impl fmt::Display for FaultPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.plan().rules.fmt(f)
    }
}

/// Waits on the thread, letting the tasks of a worker of tokio move to another one.
fn pause(time: Duration) {
    use tokio::runtime::{Handle, RuntimeFlavor};
    match Handle::try_current().map(|handle| handle.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(|| std::thread::sleep(time)),
        _ => std::thread::sleep(time),
    }
}

/// Ends the process as by `kill -9`: nothing is flushed, nothing is dropped.
fn die() -> ! {
    // No line of log: what is buffered is to be lost.
    #[cfg(unix)]
    let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
    std::process::abort()
}
