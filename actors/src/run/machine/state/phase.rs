//! The phase of a run, its start and its end.

use soong_protocol::{ErrorInfo, RunStatus};

use crate::run::machine::{RunState, ending::Ending, rewind::RewindPlan, state::calls::OpenCalls};

/// The phase of the agent loop.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Phase {
    /// No model call is recorded. The loop may have started.
    New,
    /// The program drives: there is no model; children come and go.
    Driven,
    /// The callbacks before the run are being called.
    Preparing,
    /// Searching for experiences of earlier runs. The loop starts after that.
    Recalling,
    /// Waiting for the model.
    CallingModel,
    /// Waiting for a reflection. A summary follows.
    Reflecting,
    /// Waiting for a summary. A model call follows.
    Compacting,
    /// Tool outcomes are pending.
    RunningTools { calls: Box<OpenCalls> },
    /// The run has its answer. Children, and the jobs at its end, may be active.
    Answered,
    /// The run only has to end. The jobs at its end may be active.
    Halted,
    /// The run has ended (R1).
    Ended(RunStatus),
}

impl RunState {
    /// Sets the phase while a job precedes the conversation. No event records the phase.
    pub(in crate::run::machine) fn await_before_start(&mut self, phase: Phase) {
        self.phase = phase;
    }

    /// Ends the loop: the run only has to end.
    pub(in crate::run::machine) fn halt(&mut self) {
        self.phase = Phase::Halted;
    }

    /// Sets the answer of a run that a program drives.
    pub(in crate::run::machine) fn finish_driven(&mut self, answer: String) {
        self.set_answer_text(answer);
        self.phase = Phase::Answered;
    }

    /// Returns the rewind that precedes the run. It is made once.
    pub(in crate::run::machine) fn take_rewind(
        &mut self,
    ) -> Option<Result<Box<RewindPlan>, ErrorInfo>> {
        self.start.rewind.take()
    }

    /// Sets how the run ends, whatever ending was requested before.
    pub(in crate::run::machine) fn replace_ending(&mut self, ending: Ending) {
        self.end.ending = Some(ending);
    }
}

/// Events before the first turn.
#[derive(Default)]
pub(in crate::run::machine) struct StartState {
    /// Whether the run waited for another run of its session.
    pub(in crate::run::machine) was_queued: bool,
    /// Whether the start of the loop is recorded.
    pub(in crate::run::machine) loop_started: bool,
    /// Whether the run has added a message.
    pub(in crate::run::machine) has_spoken: bool,
    /// The rewind that precedes the run; `Err`: it is impossible.
    pub(in crate::run::machine) rewind: Option<Result<Box<RewindPlan>, ErrorInfo>>,
}

/// The requested end of a run.
#[derive(Default)]
pub(in crate::run::machine) struct EndState {
    /// How the run will end.
    pub(in crate::run::machine) ending: Option<Ending>,
    /// Whether a cancellation is recorded.
    pub(in crate::run::machine) is_cancel_requested: bool,
}
