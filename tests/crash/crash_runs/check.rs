//! Invariants after a job is done, however often its process was killed.
//!
//! The checks use the rows, the file of effects and the children's reports. Nothing is repaired.
//! Elsewhere: invariants of every history (`shared/invariants.rs`).

use std::collections::{BTreeMap, BTreeSet};

use soong::{
    MessagePath, TraceFilter,
    protocol::{
        ArtifactScope, ChildResult, Event, Message, RunId, RunStatus, Stats, StatsPair, ToolEvent,
        Trace,
    },
};
use soong_storage::{sqlite::SqliteReader, store::Reader};

use super::{
    Failed,
    drill_dir::DrillDir,
    effect::Effect,
    invariants::{Violation, Violations, repeated, store, timeline},
    report::{ObservedEvent, ReportLedger},
    scene::{self, ANSWER, CHILDREN, DOCUMENT},
};

/// Checks everything. Returns the violations.
pub(crate) fn all(
    stage: &DrillDir<'_>,
    ledger: &ReportLedger,
    made: &[Effect],
) -> Result<Vec<Violation>, Failed> {
    let reader = SqliteReader::open(stage.home().join("sessions.sqlite"))?;
    let mut wrong = Violations::default();
    store(&reader, &mut wrong)?;
    let traces = reader
        .traces(&TraceFilter::default(), usize::MAX / 2, None)?
        .items;
    let mut events = BTreeMap::new();
    for trace in &traces {
        let of = reader.events(&trace.trace_id, 0, usize::MAX / 2)?;
        timeline(trace, &of, &mut wrong);
        messages(&reader, trace, &mut wrong)?;
        events.insert(trace.trace_id.clone(), of);
    }
    for ((trace, event_id), seen) in &ledger.events {
        let stored = events
            .get(trace)
            .and_then(|of| of.get(*event_id as usize - 1))
            .map(ObservedEvent::of);
        match stored {
            None => wrong.add(
                "acknowledged event lost",
                format!("event {event_id} of {trace}: {seen:?}"),
            ),
            Some(stored) if stored != *seen => {
                wrong.add(
                    "acknowledged event changed",
                    format!("event {event_id} of {trace}: {seen:?}, is {stored:?}"),
                );
            }
            Some(_) => {}
        }
    }
    repeated(
        made,
        &events.into_values().flatten().collect::<Vec<_>>(),
        &mut wrong,
    );
    family(&reader, ledger, &mut wrong)?;
    document(stage, &reader, &mut wrong)?;
    Ok(wrong.0)
}

/// Checks the messages of a trace: sequences are unique, parents precede their children, and the
/// main path is complete.
fn messages(reader: &SqliteReader, trace: &Trace, wrong: &mut Violations) -> Result<(), Failed> {
    let id = &trace.trace_id;
    let all = reader.messages(id, MessagePath::All)?;
    let by_sequence: BTreeMap<u64, &Message> = all
        .iter()
        .map(|message| (message.sequence, message))
        .collect();
    wrong.check(
        by_sequence.len() == all.len(),
        "sequence used twice",
        || {
            format!(
                "{id}: {:?}",
                all.iter()
                    .map(|message| message.sequence)
                    .collect::<Vec<_>>()
            )
        },
    );
    wrong.check(
        all.len() as u64 == trace.total_messages,
        "messages miscounted",
        || {
            format!(
                "{id} records {} but has {}",
                trace.total_messages,
                all.len()
            )
        },
    );
    let mut path = Vec::new();
    let mut next = Some(trace.head_sequence).filter(|head| *head > 0);
    while let Some(sequence) = next {
        let Some(message) = by_sequence.get(&sequence) else {
            wrong.add(
                "main path broken",
                format!("{id} has no message {sequence}"),
            );
            break;
        };
        path.push(sequence);
        next = message.parent_sequence;
        if next.is_some_and(|parent| parent >= sequence) {
            wrong.add(
                "main path not acyclic",
                format!("{id}: {sequence} follows {next:?}"),
            );
            break;
        }
    }
    path.reverse();
    let main: Vec<u64> = reader
        .messages(id, MessagePath::Main)?
        .iter()
        .map(|message| message.sequence)
        .collect();
    wrong.check(main == path, "main path broken", || {
        format!("{id}: {main:?} instead of {path:?}")
    });
    Ok(())
}

/// Checks the orchestrator and its children: all exist, each child has one result, and the sums are
/// right.
fn family(
    reader: &SqliteReader,
    ledger: &ReportLedger,
    wrong: &mut Violations,
) -> Result<(), Failed> {
    let Some(root) = reader.last_run(&scene::root())? else {
        wrong.add("job not done", "there is no run");
        return Ok(());
    };
    let ended = ledger.ended.as_ref();
    let is_done =
        root.status == RunStatus::Completed && ended.is_some_and(|ended| ended.output == ANSWER);
    wrong.check(is_done, "job not done", || {
        format!(
            "{} {:?} {:?}, reported {:?}",
            root.status.as_str(),
            root.end_reason,
            root.error,
            ended
        )
    });
    let children = reader.children(&root.run_id)?;
    let results = reader.child_results(&root.run_id)?;
    let traces = reader.sub_traces(&scene::root())?;
    let tasks: BTreeSet<&str> = children.iter().map(|run| run.task.as_str()).collect();
    let wanted: Vec<String> = (1..=CHILDREN).map(scene::task).collect();
    let is_whole = children.len() as u64 == CHILDREN
        && traces.len() as u64 == CHILDREN
        && wanted.iter().all(|task| tasks.contains(task.as_str()));
    wrong.check(is_whole, "children", || {
        format!(
            "{} runs, {} traces, tasks {tasks:?}",
            children.len(),
            traces.len()
        )
    });
    let of: BTreeSet<&RunId> = results.iter().map(|result| &result.run_id).collect();
    wrong.check(
        of.len() == results.len() && of.len() as u64 == CHILDREN,
        "child results",
        || format!("{} results of {} runs", results.len(), of.len()),
    );
    for ChildResult {
        run_id,
        status,
        summary,
        error,
        ..
    } in &results
    {
        wrong.check(*status == RunStatus::Completed, "child not done", || {
            format!("{run_id}: {} {summary:?} {error:?}", status.as_str())
        });
    }
    if let Some(StatsPair { own, tree }) = ended.map(|ended| ended.stats) {
        let mut sum = own;
        results
            .iter()
            .for_each(|result| sum.add_descendant(&result.stats.tree));
        // The duration of a tree is the duration of its root.
        wrong.check(
            sum == Stats {
                duration_ms: sum.duration_ms,
                ..tree
            },
            "sums",
            || format!("{sum:?} is not {tree:?}"),
        );
        wrong.check(same(&root.usage, &own), "sums", || {
            format!("the run's row has {:?}, reported {own:?}", root.usage)
        });
    }
    Ok(())
}

/// Whether two sets of stats are equal except for the duration.
fn same(one: &Stats, other: &Stats) -> bool {
    *one == Stats {
        duration_ms: one.duration_ms,
        ..*other
    }
}

/// Checks that the document contains every edit whose call is recorded as completed, and is stored
/// as a version.
fn document(
    stage: &DrillDir<'_>,
    reader: &SqliteReader,
    wrong: &mut Violations,
) -> Result<(), Failed> {
    let scope = ArtifactScope::Session {
        session_id: scene::session(),
    };
    let Some(artifact) = reader.artifact(&scope, DOCUMENT)? else {
        // The run may have been interrupted before the creation of the document was recorded.
        return Ok(());
    };
    let path = reader.blob_path(&artifact.artifact_id, artifact.stored_version)?;
    wrong.check(
        artifact.current_version == artifact.stored_version,
        "document not flushed",
        || {
            format!(
                "edits up to {}, version {}",
                artifact.current_version, artifact.stored_version
            )
        },
    );
    let text = match path.map(|path| std::fs::read_to_string(stage.home().join(path))) {
        Some(Ok(text)) => text,
        other => {
            wrong.add("document unreadable", format!("{other:?}"));
            return Ok(());
        }
    };
    for trace in reader
        .traces(&TraceFilter::default(), usize::MAX / 2, None)?
        .items
    {
        for record in reader.events(&trace.trace_id, 0, usize::MAX / 2)? {
            let Event::Tool(ToolEvent::Completed {
                name, tool_call_id, ..
            }) = &record.event
            else {
                continue;
            };
            let part = tool_call_id.split('_').nth(1).unwrap_or_default();
            let holds = name != "update_artifact" || text.contains(&format!("part {part}: done"));
            wrong.check(holds, "edit lost", || format!("{tool_call_id}: {text}"));
        }
    }
    Ok(())
}
