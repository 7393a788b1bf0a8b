//! Fault points of a runtime: where a hook or a plan makes something go wrong on purpose.
//!
//! For drills and for tests of whoever embeds the runtime. Without either a point costs a branch.
//! Not here: which points there are and how a plan is written (`soong_storage::fault`).

use std::sync::Arc;

use soong_protocol::{ErrorCode, ErrorInfo, RunId};
use soong_storage::fault::{FaultPlan, FaultPoint};

use crate::environment::Environment;

/// The variable that holds a plan.
const VARIABLE: &str = "SOONG_FAULTS";

/// Called at each fault point of a run with the run it belongs to; it may panic to crash the run's actor.
pub type FaultHook = Arc<dyn Fn(&RunId, FaultPoint) + Send + Sync>;

/// What goes wrong in a runtime, if anything.
#[derive(Clone, Default)]
pub(crate) struct Faults {
    pub(crate) hook: Option<FaultHook>,
    pub(crate) plan: Option<FaultPlan>,
}

/// Reads the plan that the environment holds, if any.
pub(crate) fn plan_of(environment: &Environment) -> Result<Option<FaultPlan>, ErrorInfo> {
    let plan = environment.get(VARIABLE).map(str::parse).transpose();
    plan.map_err(|error| ErrorInfo::new(ErrorCode::ConfigError, format!("{VARIABLE}: {error}")))
}

impl Faults {
    /// Meets a point where a file is written: may be refused, as the disk would.
    pub(crate) fn at_file(&self, point: FaultPoint) -> std::io::Result<()> {
        let met = self.plan.as_ref().map_or(Ok(()), |plan| plan.meet(point));
        met.map_err(|injected| std::io::Error::other(injected.to_string()))
    }

    /// Meets a point of a run: may panic.
    pub(crate) fn hit(&self, run: &RunId, point: FaultPoint) {
        if let Some(hook) = &self.hook {
            hook(run, point);
        }
        if let Some(plan) = &self.plan
            && let Err(injected) = plan.meet(point)
        {
            // A crash like any other, but no defect that is to be reported.
            std::panic::resume_unwind(Box::new(injected.to_string()));
        }
    }
}
