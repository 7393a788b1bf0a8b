//! Runs: the agent loop (RUN-1 … RUN-5).
//!
//! One turn, from top to bottom:
//!
//! 1. An input arrives in the mailbox of the [run's actor](actor::RunActor): a [`RunMsg`] with
//!    [`RunInput`], such as the results of the last turn.
//! 2. The actor passes all waiting inputs to the state machine, one at a time ([`step::run_step`]).
//!    The machine does no I/O. It changes its [state](machine::RunState), and returns a
//!    [step](machine::Step): rows to write, and effects.
//! 3. The turn opens in [`turn`](machine::turn): the prompt is built, with the results of children
//!    that a program asked to have delivered. If the prompt is too long, a summary is requested
//!    first. The step contains `context_built`, `model_started` and the effect
//!    [`CallModel`](machine::effect::Effect::CallModel).
//! 4. The actor appends the rows to the journal. One append is in flight at a time; inputs that
//!    arrive meanwhile wait for the next step. Effects start once the append is durable
//!    ([`effects`](actor::effects), DUR-1).
//! 5. The [model call](tasks::model_call) is a task. It reserves budget, waits for its turn at the
//!    gateway, and streams deltas. Its answer comes back as an input.
//! 6. The machine records the usage and stores the answer as a message. An answer without tool
//!    calls is the result of the run. If it does not match the [output
//!    schema](machine::output_schema), as the task has checked, the model is asked once more.
//! 7. The [scheduler](machine::tool_calls::scheduler) starts the tool calls: reads in parallel,
//!    writes one at a time (TOOL-3). The run executes `goal`, `agent`, `evaluate` and `ask_human`
//!    [itself](machine::tools), after their hooks. The [children](machine::sub_agents) of `agent`
//!    and `evaluate` are runs with their own actors.
//! 8. Every other call is a [task](tasks::tool_call). It checks the arguments, runs the hooks, asks
//!    for [authorization](tasks::authorize), and runs the tool. If the call requires permission, it
//!    stays pending in the machine until there is a [decision](machine::tool_calls::approval). A
//!    large output becomes an [artifact](tasks::tool_output).
//! 9. Each outcome is stored as a message. When every call has one (R4), the next turn opens.
//! 10. The run [finishes](machine::lifecycle::finish) when it has an answer or a reason to end, and
//!     all of its children have ended (R7). Stop hooks can send a user run back to another turn.
//!     Documents become versions, and the terminal event is the last one (R5).
//!
//! Work besides turns and tool calls is a [job](machine::jobs), such as the name of the trace: one
//! file with its request, its state and its outcome. Its [task](tasks::job) owns cancellation,
//! panics, budget and time.
//!
//! After a crash, the next actor of the run [replays](machine::replay) its events into the same
//! state, and [resumes](machine::lifecycle::resume). [`supervision`] starts and restarts actors; a
//! run without an actor is ended by [`finalize`](tasks::finalize). Other modules use a run through
//! its [`RunEntry`].

mod actor;
mod approvals;
mod clock;
mod core;
mod debug_artifacts;
#[cfg(doc)]
mod internals;
mod machine;
mod message;
mod otel_spans;
mod registry;
mod resolver;
mod step;
mod supervision;
mod tasks;

pub(crate) use actor::{RunServices, passivation::watch as watch_for_idle_runs};
pub(crate) use approvals::{Approvals, PendingRow};
pub(crate) use core::Core;
pub(crate) use debug_artifacts::DebugArtifacts;
pub use machine::outcome::RunOutcome;
pub(crate) use machine::{
    ending::Ending,
    errors::run_has_ended,
    input::{EndInput, ResumeReason, RunInput},
    outcome::one_line,
    sub_agents::spawn::{check_initial_messages, check_tool_results},
};
pub(crate) use message::{RunMsg, RunStart, RunSupervisorMsg, SubAgentMsg};
pub(crate) use registry::{
    RunRegistry, RunSession, SessionLinks,
    entry::{RunEntry, RunPhase},
};
pub(crate) use resolver::{PromptCache, RunResolver};
pub(crate) use supervision::{
    run_supervisor::RunSupervisorActor, sub_agents::SubAgentSupervisorActor,
    watchdog::watch as watch_for_stuck_runs,
};
pub(crate) use tasks::{
    TaskServices,
    authorize::Authorizer,
    callbacks::CallbackCalls,
    child_starter::{AcceptedChild, ChildStarter},
    finalize::{BudgetUsage, Finalizer},
    hook_calls::HookCalls,
    load::{cannot_be_head, cannot_continue_after},
    model_call::ModelCaller,
    tool_call::ToolRunner,
};
