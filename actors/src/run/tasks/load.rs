//! Reads the stored rows from which the state of a run is rebuilt.
//!
//! Elsewhere: rebuilding the state (`machine/replay.rs`).

use std::collections::{HashMap, HashSet};

use soong_protocol::{
    ChildResult, DocumentEdit, ErrorCode, ErrorInfo, Event, GoalTree, Message, PermissionDecision,
    QuestionId, Role, Run, RunId, RunSettings, RunStatus, Stats, StatsPair, SubAgentEvent,
    Timestamp, TraceId,
};
use soong_storage::store::{MessagePath, PermissionFilter, QuestionFilter, Reader, StoreError};
use soong_tool::{ToolOutput, artifact::Edited};

use crate::{
    run::machine::{
        replay::{StoredRun, added_sequences},
        rewind::RewindPlan,
        tools::is_spawning_tool,
    },
    store_reader::StoreReader,
};

/// Reads the settings of the last run of a sub-trace.
pub(crate) async fn last_settings(
    reader: &StoreReader,
    trace: &TraceId,
) -> Result<Box<RunSettings>, ErrorInfo> {
    let trace_id = trace.clone();
    // Not those of a run that was cancelled in the queue, unless there is no other.
    let read = move |reader: &dyn Reader| match reader.last_started_run(&trace_id)? {
        Some(run) => Ok(Some(run)),
        None => reader.last_run(&trace_id),
    };
    let last = reader.read(read).await?;
    last.map(|run| Box::new(run.settings)).ok_or_else(|| {
        ErrorInfo::new(
            ErrorCode::TraceNotFound,
            format!("continue_from: there is no trace {trace}"),
        )
    })
}

/// Returns the error for a message after which a run cannot continue.
pub(crate) fn cannot_continue_after(trace: &TraceId, sequence: u64) -> ErrorInfo {
    let message = format!(
        "cannot continue after message {sequence} of {trace}: choose a message of the main path that is neither cut \
         off nor a summary (to use a message off the main path, switch the session's head to it)"
    );
    ErrorInfo::new(ErrorCode::ValidationError, message)
}

/// Returns the error for a message that cannot be the head of a conversation.
pub(crate) fn cannot_be_head(trace: &TraceId, sequence: u64) -> ErrorInfo {
    let message = format!(
        "cannot continue after message {sequence} of {trace}: choose a message that is neither cut off nor a summary"
    );
    ErrorInfo::new(ErrorCode::ValidationError, message)
}

/// Reads all rows from which the state of a run is rebuilt, in order to resume or end it.
pub(crate) fn read_stored(
    reader: &dyn Reader,
    run_id: &RunId,
    trace_id: &TraceId,
) -> Result<(Run, StoredRun), StoreError> {
    let run = reader
        .run(run_id)?
        .ok_or_else(|| StoreError::NotFound(format!("run {run_id}")))?;
    let trace = reader
        .trace(trace_id)?
        .ok_or_else(|| StoreError::NotFound(format!("trace {trace_id}")))?;
    let events = run_events(reader, run_id)?;
    // A run that was rejected, and crashed before it ended, has started but has no messages.
    let has_not_started = added_sequences(&events).next().is_none();
    let way_back = match run.settings.after_sequence.filter(|_| has_not_started) {
        Some(sequence) => plan_rewind(reader, trace_id, sequence)?,
        None => None,
    };
    let path = match &way_back {
        Some(Ok(way_back)) => MessagePath::To(way_back.head_sequence),
        _ => MessagePath::Main,
    };
    let mut messages: Vec<Message> = reader.messages(trace_id, path)?;
    let missing_child_results = if has_not_started {
        missing_child_results(reader, trace_id, &messages)?
    } else {
        HashMap::new()
    };
    // The main path contains neither partial messages nor messages that a summary replaced. The
    // run's own ones are read by sequence.
    let on_path: HashSet<u64> = messages.iter().map(|message| message.sequence).collect();
    let off_path: Vec<u64> = added_sequences(&events)
        .filter(|sequence| !on_path.contains(sequence))
        .collect();
    messages.extend(reader.messages_at(trace_id, &off_path)?);
    let stored = StoredRun {
        messages,
        last_sequence: trace.last_sequence,
        goals: reader
            .goal_tree(trace_id)?
            .map(GoalTree::without_computed_fields),
        collaborators: trace.context.collaborators,
        events,
        open_model_calls: reader.open_model_calls(run_id)?,
        results: reader.child_results(run_id)?,
        sub_traces: reader
            .sub_traces(trace_id)?
            .into_iter()
            .map(|trace| trace.trace_id)
            .collect(),
        started_at: run.started_at,
        used_ms: run.usage.duration_ms,
        recorded_outcomes: recorded_outcomes(reader, &run.run_id, run.turn)?,
        rewind: way_back,
        has_unflushed_documents: !reader.unflushed_documents(run_id)?.is_empty(),
        missing_child_results,
        answers: answers(reader, run_id)?,
        decisions: decisions(reader, run_id)?,
    };
    Ok((run, stored))
}

fn answers(reader: &dyn Reader, run_id: &RunId) -> Result<Vec<(QuestionId, String)>, StoreError> {
    let filter = QuestionFilter {
        run_id: Some(run_id.clone()),
        ..QuestionFilter::default()
    };
    let mut questions = reader.questions(&filter)?;
    questions.sort_by_key(|question| question.decided_at);
    Ok(questions
        .into_iter()
        .filter_map(|question| Some((question.question_id, question.answer?)))
        .collect())
}

fn decisions(reader: &dyn Reader, run_id: &RunId) -> Result<Vec<PermissionDecision>, StoreError> {
    let filter = PermissionFilter {
        run_id: Some(run_id.clone()),
        ..PermissionFilter::default()
    };
    let mut decided = reader.permissions(&filter)?;
    decided.sort_by_key(|permission| permission.decided_at);
    Ok(decided
        .into_iter()
        .filter_map(PermissionDecision::from_request)
        .collect())
}

/// Reads the events of a run in order, with their timestamps.
pub(crate) fn run_events(
    reader: &dyn Reader,
    run: &RunId,
) -> Result<Vec<(Timestamp, Event)>, StoreError> {
    Ok(reader
        .run_events(run)?
        .into_iter()
        .map(|record| (record.ts, record.event))
        .collect())
}

/// Reads the rows that determine the outcome of an ended run: only its own, without other runs of
/// its trace.
pub(crate) fn read_ended(reader: &dyn Reader, run: &Run) -> Result<StoredRun, StoreError> {
    let events = run_events(reader, &run.run_id)?;
    let sequences: Vec<u64> = added_sequences(&events).collect();
    Ok(StoredRun {
        messages: reader.messages_at(&run.trace_id, &sequences)?,
        results: reader.child_results(&run.run_id)?,
        events,
        started_at: run.started_at,
        ..StoredRun::default()
    })
}

/// Reads the outcomes of a turn's calls that were recorded with their effects: edits of documents
/// (ART-5).
pub(crate) fn recorded_outcomes(
    reader: &dyn Reader,
    run: &RunId,
    turn: u32,
) -> Result<HashMap<String, ToolOutput>, StoreError> {
    let edits = reader.turn_edits(run, turn)?;
    let outcome = |edit: DocumentEdit| {
        let edited: Edited = serde_json::from_str(&edit.outcome).ok()?;
        Some((
            edit.effect.tool_call_id,
            crate::builtin_tools::artifact::edit_output(&edited),
        ))
    };
    Ok(edits.into_iter().filter_map(outcome).collect())
}

/// Prepares a rewind to a message. `None` if the message is the current head.
fn plan_rewind(
    reader: &dyn Reader,
    trace: &TraceId,
    after_sequence: u64,
) -> Result<Option<Result<Box<RewindPlan>, ErrorInfo>>, StoreError> {
    let Some(resume_point) = reader
        .resume_point(trace, after_sequence)?
        .filter(|position| position.is_on_path)
    else {
        return Ok(Some(Err(cannot_continue_after(trace, after_sequence))));
    };
    if resume_point.sequence == resume_point.head {
        return Ok(None);
    }
    let mut goals = reader
        .goal_tree_at(trace, resume_point.until_lsn)?
        .unwrap_or_default();
    goals.rewind(resume_point.sequence);
    Ok(Some(Ok(Box::new(RewindPlan {
        goals,
        collaborators: reader.collaborators_at(trace, resume_point.until_lsn)?,
        after_sequence,
        head_sequence: resume_point.sequence,
        lsn: resume_point.lsn,
        from_sequence: resume_point.head,
        document_writes: Vec::new(),
        restored: Vec::new(),
        unchanged: Vec::new(),
    }))))
}

/// Returns the results of the sub-agents of open calls at the end of a conversation, by tool call
/// id. A sub-agent without a result is reported as interrupted.
fn missing_child_results(
    reader: &dyn Reader,
    trace: &TraceId,
    messages: &[Message],
) -> Result<HashMap<String, Vec<ChildResult>>, StoreError> {
    let Some(last) = messages
        .iter()
        .rposition(|message| message.role == Role::Assistant)
    else {
        return Ok(HashMap::new());
    };
    let is_open = |id: &str| {
        !messages[last..]
            .iter()
            .any(|message| message.tool_call_id.as_deref() == Some(id))
    };
    let calls = messages[last]
        .tool_calls
        .iter()
        .filter(|call| is_spawning_tool(&call.name) && is_open(&call.id));
    let open: HashSet<&str> = calls.map(|call| call.id.as_str()).collect();
    let mut found: HashMap<String, Vec<ChildResult>> = HashMap::new();
    if open.is_empty() {
        return Ok(found);
    }
    // The run that made the calls need not be the last one.
    let author = reader
        .resume_point(trace, messages[last].sequence)?
        .and_then(|point| point.run_id);
    let run = match author {
        Some(id) => reader.run(&id)?,
        None => reader.last_started_run(trace)?,
    };
    let Some(run) = run else { return Ok(found) };
    let mut results: HashMap<RunId, ChildResult> = reader
        .child_results(&run.run_id)?
        .into_iter()
        .map(|result| (result.run_id.clone(), result))
        .collect();
    for (_, event) in run_events(reader, &run.run_id)? {
        if let Event::SubAgent(SubAgentEvent::Started {
            sub_trace_id,
            run_id,
            mode,
            tool_call_id: Some(call),
            ..
        }) = event
            && open.contains(call.as_str())
        {
            let cut_off = || -> Result<ChildResult, StoreError> {
                let own = reader
                    .run(&run_id)?
                    .map_or_else(Stats::zero, |run| run.usage);
                Ok(ChildResult {
                    mode,
                    sub_trace_id: sub_trace_id.clone(),
                    run_id: run_id.clone(),
                    status: RunStatus::Failed,
                    summary: String::new(),
                    findings: Vec::new(),
                    passed: None,
                    artifacts: Vec::new(),
                    stats: StatsPair { own, tree: own },
                    error: Some(ErrorInfo::new(
                        ErrorCode::Interrupted,
                        "the sub-agent was interrupted before it had a result",
                    )),
                })
            };
            let result = results.remove(&run_id).map_or_else(cut_off, Ok)?;
            found.entry(call).or_default().push(result);
        }
    }
    Ok(found)
}
