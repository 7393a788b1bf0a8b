//! Checks after each append that the state rebuilt from the store equals the live state (ACT-3).
//! For tests.
//!
//! The actor waits for the read, so that nothing changes the live state meanwhile. Results of
//! children that it has not received yet are left out of the rebuilt state.

use std::{collections::HashSet, sync::Arc};

use soong_protocol::RunId;
use soong_storage::store::{Reader, StoreError};

use super::{RunActor, RunActorState};
use crate::{
    fault::Faults,
    run::{
        machine::{RunState, comparison::differences, replay::StoredRun},
        tasks::load::read_stored,
    },
};

impl RunActor {
    /// Reads the rows from which the state would be rebuilt. `None` if the program has no hook for
    /// differences, or if the session is being deleted.
    pub(super) async fn rows_to_compare(&self) -> Option<Result<StoredRun, StoreError>> {
        self.services.faults.difference_hook.as_ref()?;
        let run_id = self.entry.identity.run_id.clone();
        let trace_id = self.entry.identity.trace_id.clone();
        let session_id = self.entry.identity.session_id.clone();
        let read = move |reader: &dyn Reader| {
            let stored = read_stored(reader, &run_id, &trace_id);
            Ok((stored, reader.session(&session_id)?))
        };
        let (stored, session) = self.services.tasks.core.reader.read(read).await.ok()?;
        // A session that is being deleted loses its rows step by step.
        session.map(|_| stored.map(|(_, stored)| stored))
    }

    /// Reports the fields in which the state rebuilt from these rows differs from the live state.
    pub(super) fn compare_rebuilt_state(
        &self,
        stored: Result<StoredRun, StoreError>,
        state: &RunActorState,
    ) {
        let Faults {
            difference_hook: Some(report),
            ..
        } = &self.services.faults
        else {
            return;
        };
        // After the end of a run, others may change its trace.
        let Some(live) = state.run.as_ref().filter(|live| !live.is_ended()) else {
            return;
        };
        let run_id = &self.entry.identity.run_id;
        match stored {
            Ok(mut stored) => {
                let known_results: HashSet<RunId> = live
                    .child_results()
                    .map(|result| result.run_id.clone())
                    .collect();
                stored
                    .results
                    .retain(|result| known_results.contains(&result.run_id));
                let rebuilt = RunState::rebuild(Arc::clone(&self.spec), stored);
                report(run_id, &differences(live, &rebuilt));
            }
            Err(error) => report(run_id, &[format!("the state cannot be read: {error}")]),
        }
    }
}
