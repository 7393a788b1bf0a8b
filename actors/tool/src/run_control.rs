//! The run that a tool or a callback works for: its children, its collaborators, and questions to
//! users.
//!
//! Elsewhere (in `soong`): the implementation, and the limits, budgets and events of children.

use futures::future::BoxFuture;
use soong_protocol::{ChildResult, Collaborator, ErrorInfo, RunId, TraceId};

use crate::ChildSpec;

/// Controls the run that a tool or a callback works for. The runtime implements it.
///
/// A tool call that is repeated after a crash gets the children and the answers that its
/// interrupted attempt requested, in the same order. So a tool must request them in the same order
/// each time. A repeated callback starts new children.
pub trait RunControl: Send + Sync + 'static {
    /// Starts children of the run, all or none, in one commit. They have the limits, budgets,
    /// permissions and events of children that a model starts. Their results are not added to the
    /// conversation. The run does not end before them.
    ///
    /// # Errors
    /// `child_limit_exceeded`, `budget_exceeded` or `validation_error` as for the tool `agent`;
    /// `nothing_running` if the run is ending; `validation_error` if the interrupted attempt
    /// started a child with another task here.
    fn spawn(
        &self,
        children: Vec<ChildSpec>,
    ) -> BoxFuture<'static, Result<Vec<SpawnedChild>, ErrorInfo>>;

    /// Adds or replaces a collaborator of the run: a person or another system that it works with.
    /// The model sees it with the sub-agents. It is recorded before the outcome of the call. It is
    /// ignored if its name belongs to a sub-agent.
    fn set_collaborator(&self, collaborator: Collaborator);

    /// Reads the collaborators of the run's trace, sub-agents included, as they are stored.
    fn collaborators(&self) -> BoxFuture<'static, Result<Vec<Collaborator>, ErrorInfo>>;

    /// Asks a person, and waits for the answer. `to`: the name of the person; `None` asks the user
    /// of the run. The run is shown as waiting. The time limit of the tool also applies to this
    /// wait.
    ///
    /// # Errors
    /// `validation_error` if the question is empty, or if a callback asks; `nothing_running` if the
    /// run is ending.
    fn ask(
        &self,
        question: String,
        to: Option<String>,
    ) -> BoxFuture<'static, Result<String, ErrorInfo>>;
}

/// A child that a tool or a callback has started.
pub struct SpawnedChild {
    run_id: RunId,
    trace_id: TraceId,
    result: BoxFuture<'static, Result<ChildResult, ErrorInfo>>,
}

impl SpawnedChild {
    /// Creates the handle of a child. `result` waits for its end.
    pub fn new(
        run_id: RunId,
        trace_id: TraceId,
        result: BoxFuture<'static, Result<ChildResult, ErrorInfo>>,
    ) -> Self {
        Self {
            run_id,
            trace_id,
            result,
        }
    }

    /// Returns the id of the child's run.
    pub fn run_id(&self) -> &RunId {
        &self.run_id
    }

    /// Returns the child's trace, which [`ChildSpec::continue_from`](fn@ChildSpec::continue_from)
    /// continues.
    pub fn trace_id(&self) -> &TraceId {
        &self.trace_id
    }

    /// Waits for the end of the child. A child that failed has a result with an error.
    ///
    /// # Errors
    /// `closing` if the runtime closes first.
    pub async fn result(self) -> Result<ChildResult, ErrorInfo> {
        self.result.await
    }
}

impl std::fmt::Debug for SpawnedChild {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SpawnedChild")
            .field("run_id", &self.run_id)
            .finish_non_exhaustive()
    }
}
