//! Progress as plain lines, one per notable event, for pipes and logs.
//!
//! Elsewhere: what a call did (`soong_tui::transcript`), the sentences (`event_sentences.rs`),
//! where the lines are printed.

use soong::protocol::{EventRecord, RunId, Timestamp};
use soong_tui::transcript::{Step, Transcript};

use crate::event_sentences::{EventSentences, short};

/// Formats events as progress lines.
#[derive(Debug)]
pub(crate) struct LineProgress {
    /// Steps of the run, without those of its children.
    transcript: Transcript,
    started_at: Option<Timestamp>,
    sentences: EventSentences,
}

impl LineProgress {
    /// Creates the lines of a run.
    pub(crate) fn of(run: RunId) -> Self {
        Self {
            transcript: Transcript::new(run),
            started_at: None,
            sentences: EventSentences::default(),
        }
    }

    /// Returns the lines for an event: none if it is not notable.
    pub(crate) fn lines(&mut self, record: &EventRecord) -> Vec<String> {
        let begun = *self.started_at.get_or_insert(record.ts);
        let seconds = record.ts.millis_since(begun) / 100;
        let child = record.run_id.as_ref().and_then(|id| self.child(id));
        let name = child.unwrap_or("run").to_owned();
        // Calls without a result have an event of their own.
        let steps = self
            .transcript
            .apply(record)
            .into_iter()
            .filter(Step::has_result);
        let sentences = steps
            .map(|step| short(&step.summary()))
            .chain(self.sentences.notable(record));
        sentences
            .map(|sentences| {
                format!(
                    "{:>5}.{} s  {name}: {sentences}",
                    seconds / 10,
                    seconds % 10
                )
            })
            .collect()
    }

    /// Returns the name of a child run.
    pub(crate) fn child(&self, run: &RunId) -> Option<&str> {
        self.sentences.child(run)
    }
}

#[cfg(test)]
mod tests {
    use soong::protocol::{
        ChildMode, ErrorCode, ErrorInfo, RunEvent, StatsPair, SubAgentEvent, ToolEvent, TraceId,
    };
    use soong_tui::sample::record;

    use super::*;

    #[test]
    fn notable_events_are_printed_as_one_sanitized_line() {
        let mut plain = LineProgress::of(RunId::new("r"));
        let started = |agent: &str| RunEvent::LoopStarted {
            mode: Default::default(),
            agent_type: agent.into(),
            model: "m".into(),
        };
        let child = SubAgentEvent::Started {
            sub_trace_id: TraceId::new("t@explore-002-20260101000000-007"),
            run_id: RunId::new("c"),
            mode: ChildMode::Explore,
            agent_type: "explore".into(),
            task: "look\n\u{1b}[31mthere".into(),
            parent_goal_id: None,
            tool_call_id: None,
            deliver: false,
        };
        let refused = ToolEvent::Failed {
            tool_call_id: "1".into(),
            name: "read".into(),
            duration_ms: 1,
            error: ErrorInfo::new(ErrorCode::FileNotFound, "no a.txt"),
        };
        let done = || RunEvent::Completed {
            summary: String::new(),
            stats: StatsPair::zero(),
        };
        for (event, want) in [
            (
                record("r", 0, started("default")),
                Some("    0.0 s  run: started as default in mode normal with model m"),
            ),
            (
                record("r", 120, child),
                Some("    0.1 s  run: started explore-007: look \u{fffd}[31mthere"),
            ),
            (record("c", 130, started("explore")), None),
            (
                record("c", 1_500, refused),
                Some("    1.5 s  explore-007: tool read failed: file_not_found: no a.txt"),
            ),
            (record("c", 1_600, done()), None),
            (
                record("r", 12_345, done()),
                Some("   12.3 s  run: completed after 0.0 s"),
            ),
        ] {
            assert_eq!(plain.lines(&event), Vec::from_iter(want), "{event:?}");
        }
    }
}
