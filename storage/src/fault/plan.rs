//! Fault plans: faults of numbered commits, as tests set them, and rules for points, as a text
//! describes them.
//!
//! One plan is shared by all code that reaches points, and can be changed while it is in use.

use std::{
    collections::BTreeMap,
    fmt,
    str::FromStr,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use super::{
    FaultComponent, FaultPoint,
    rule::{FaultRuleError, Outcome, Rules},
};
use crate::store::{BlobError, StoreError};

/// Fault of one commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// The commit fails; nothing is written.
    FailBeforeWrite(StoreError),
    /// The commit is written and reported as failed, so the caller cannot know its outcome.
    FailAfterWrite(StoreError),
    /// The commit is written after this delay.
    Delay(Duration),
}

#[derive(Debug, Default)]
struct Plan {
    commits: u64,
    at: BTreeMap<u64, Fault>,
    always: Option<Fault>,
    holds_commits: bool,
    rules: Rules,
}

/// Failure of a point, injected by a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("injected failure at {0}")]
pub struct InjectedFault(pub FaultPoint);

impl From<InjectedFault> for StoreError {
    fn from(injected: InjectedFault) -> Self {
        match injected.0.place() {
            FaultComponent::Blob => BlobError::Io(injected.to_string()).into(),
            FaultComponent::Writer | FaultComponent::Run | FaultComponent::Journal => {
                Self::Io(injected.to_string())
            }
        }
    }
}

/// Shared handle of a fault plan, which also changes it; cloneable.
///
/// As text, a plan is a comma-separated list of `POINT[@N|@N..|%P][=ACTION]`. `POINT` is the name
/// of a [`FaultPoint`]. `@3` selects the third time that the point is reached, counted over all
/// threads and actors; `@3..` the third and every later time; `%1` one time in 100, chosen by a
/// random generator with the seed `seed=NUMBER`. Without any of them, every time is selected.
/// `ACTION` is one of
///
/// - `kill` (default): the process ends immediately, like with `kill -9`;
/// - `fail`: the failure that [`FaultComponent`] describes;
/// - `delay:MS`: the thread that reaches the point waits this many milliseconds.
///
/// ```
/// # use soong_storage::fault::{FaultPlan, FaultPoint};
/// let plan: FaultPlan = "before_commit@2=fail, call_model=delay:50".parse()?;
/// assert!(plan.hit(FaultPoint::BeforeCommit).is_ok());
/// assert!(plan.hit(FaultPoint::BeforeCommit).is_err());
/// # Ok::<(), soong_storage::fault::FaultRuleError>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct FaultPlan(Arc<(Mutex<Plan>, Condvar)>);

impl FaultPlan {
    /// Creates a plan without faults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Injects a fault into the `nth` commit, counted from 1 over the store's life.
    pub fn inject_at(&self, nth: u64, fault: Fault) {
        self.plan().at.insert(nth, fault);
    }

    /// Injects a fault into the next commit.
    pub fn inject_next(&self, fault: Fault) {
        let mut plan = self.plan();
        let nth = plan.commits + 1;
        plan.at.insert(nth, fault);
    }

    /// Injects a fault into every commit without its own fault, until [`FaultPlan::clear`].
    pub fn inject_always(&self, fault: Fault) {
        self.plan().always = Some(fault);
    }

    /// Removes all faults that have not happened yet.
    pub fn clear(&self) {
        let mut plan = self.plan();
        plan.at.clear();
        plan.always = None;
        plan.rules.clear();
    }

    /// Blocks commits before they write, until [`FaultPlan::unblock_commits`].
    pub fn block_commits(&self) {
        self.plan().holds_commits = true;
    }

    /// Releases blocked commits.
    pub fn unblock_commits(&self) {
        self.plan().holds_commits = false;
        self.0.1.notify_all();
    }

    /// Returns the number of requested commits, including failed and blocked ones.
    pub fn commits(&self) -> u64 {
        self.plan().commits
    }

    /// Waits until `count` commits have been requested.
    pub fn wait_for_commits(&self, count: u64) {
        let waiting = self
            .0
            .1
            .wait_while(self.plan(), |plan| plan.commits < count);
        drop(waiting.unwrap_or_else(PoisonError::into_inner));
    }

    /// Adds the rules of a text.
    ///
    /// # Errors
    /// If a part of the text is invalid, the error names it and says what to write; then nothing is
    /// added.
    pub fn add(&self, text: &str) -> Result<(), FaultRuleError> {
        self.plan().rules.add(text)
    }

    /// Applies the rules for reaching `point` now: first all delays, then the first of the other
    /// rules.
    ///
    /// Blocks the thread. On a worker of a multi-threaded tokio runtime, other tasks continue
    /// meanwhile.
    ///
    /// # Errors
    /// [`InjectedFault`] if the point must fail.
    pub fn hit(&self, point: FaultPoint) -> Result<(), InjectedFault> {
        let (delay, outcome) = self.plan().rules.hit(point);
        if !delay.is_zero() {
            tracing::debug!(%point, ?delay, "injecting a delay");
            sleep_blocking(delay);
        }
        match outcome {
            None => Ok(()),
            Some(Outcome::Fail) => {
                tracing::warn!(%point, "injecting a failure");
                Err(InjectedFault(point))
            }
            Some(Outcome::Kill) => kill_process(),
        }
    }

    /// Returns how often a point was reached.
    pub fn hit_count(&self, point: FaultPoint) -> u64 {
        self.plan().rules.hit_count(point)
    }

    /// Counts a commit, waits while commits are held, and returns the fault of this one.
    pub(super) fn next_commit(&self) -> Option<Fault> {
        let mut plan = self.plan();
        plan.commits += 1;
        let nth = plan.commits;
        self.0.1.notify_all();
        let mut plan = self
            .0
            .1
            .wait_while(plan, |plan| plan.holds_commits)
            .unwrap_or_else(PoisonError::into_inner);
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

/// Formats the rules as text; empty if there are none.
impl fmt::Display for FaultPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.plan().rules.fmt(f)
    }
}

/// Sleeps. On a worker of a multi-threaded tokio runtime its other tasks are moved to another
/// worker.
fn sleep_blocking(time: Duration) {
    use tokio::runtime::{Handle, RuntimeFlavor};
    match Handle::try_current().map(|handle| handle.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(|| std::thread::sleep(time)),
        _ => std::thread::sleep(time),
    }
}

/// Ends the process like `kill -9`: nothing is flushed, nothing is dropped.
fn kill_process() -> ! {
    // Nothing is logged, because buffered output must be lost.
    #[cfg(unix)]
    let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
    std::process::abort()
}
