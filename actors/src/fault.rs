//! Fault injection: points of a runtime at which a hook or a plan causes a failure.
//!
//! For crash drills, and for tests of programs that embed the runtime. Without a hook and a plan, a
//! point costs one branch.
//!
//! Elsewhere: the list of points, and the syntax of plans (`soong_storage::fault`).

use std::sync::Arc;

use soong_protocol::{ErrorCode, ErrorInfo, RunId};
use soong_storage::fault::{FaultPlan, FaultPoint};
use soong_text::Environment;

/// Name of the environment variable that holds a plan.
const FAULTS_VARIABLE: &str = "SOONG_FAULTS";

/// Hook that is called at each fault point of a run with the id of the run. It may panic to crash
/// the run's actor.
#[allow(unreachable_pub, reason = "it is exported with the feature `testing`")]
pub type FaultHook = Arc<dyn Fn(&RunId, FaultPoint) + Send + Sync>;

/// Hook that is called after each comparison of a run, with its id and with the fields in which the
/// state rebuilt from the store differs from the live state, a line each.
#[cfg(any(test, feature = "testing"))]
pub type DifferenceHook = Arc<dyn Fn(&RunId, &[String]) + Send + Sync>;

/// Configured faults of a runtime, if any.
#[derive(Clone, Default)]
pub(crate) struct Faults {
    pub(crate) hook: Option<FaultHook>,
    pub(crate) plan: Option<FaultPlan>,
    /// Not a fault, but set by tests in the same way: see [`DifferenceHook`].
    #[cfg(any(test, feature = "testing"))]
    pub(crate) difference_hook: Option<DifferenceHook>,
}

/// Parses the plan in the environment, if any.
pub(crate) fn plan_from_env(environment: &Environment) -> Result<Option<FaultPlan>, ErrorInfo> {
    let plan = environment.get(FAULTS_VARIABLE).map(str::parse).transpose();
    plan.map_err(|error| {
        ErrorInfo::new(
            ErrorCode::ConfigError,
            format!("{FAULTS_VARIABLE}: {error}"),
        )
    })
}

impl Faults {
    /// Passes a fault point before a file is written. May return an error, like a failing disk.
    pub(crate) fn at_file(&self, point: FaultPoint) -> std::io::Result<()> {
        let met = self.plan.as_ref().map_or(Ok(()), |plan| plan.hit(point));
        met.map_err(|injected| std::io::Error::other(injected.to_string()))
    }

    /// Passes a fault point of a run. May panic.
    pub(crate) fn at_run_point(&self, run: &RunId, point: FaultPoint) {
        if let Some(hook) = &self.hook {
            hook(run, point);
        }
        if let Some(plan) = &self.plan
            && let Err(injected) = plan.hit(point)
        {
            // Crashes the actor like any other panic, but without calling the panic hook, since
            // this is no defect to report.
            std::panic::resume_unwind(Box::new(injected.to_string()));
        }
    }
}
