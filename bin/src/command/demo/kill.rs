//! `soong demo --kill`: kills the process of a demo with SIGKILL, resumes the run here, and counts
//! what was lost or repeated.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
};

use serde_json::Value;
use soong::protocol::{
    Event, EventRecord, ModelEvent, Run, RunMode, SessionId, Setting, ToolEvent, api::StartBody,
};
use soong_storage::store::{Reader, TraceFilter};
use soong_tui::{format, terminal::TextStyle};

use super::{
    Demo, MAX_SESSIONS,
    executions::{self, ExecutionCounts, Step},
};
use crate::{
    command::{runtime_session::RuntimeSession, tree},
    context::{Context, RunDisplay},
    exit::{Exit, Failure},
    offline_store::OfflineStore,
    print, report,
};

/// Number of sub-agents, unless the user sets one.
const CHILDREN: u16 = 30;
/// Time that the offline model takes per answer, in milliseconds, unless the user sets one: long
/// enough for a kill in the middle.
const PACE_MS: u128 = 200;
/// Maximum number of events that are read at once.
const EVENTS_PAGE: usize = 10_000;

/// Kills the process of a demo and resumes its run.
pub(super) async fn kill(demo: &Demo<'_>) -> Result<Exit, Failure> {
    let heading =
        |line: &str| print::line(&demo.context.terminal.stdout.paint(TextStyle::Bold, line));
    let folder = tempfile::Builder::new()
        .prefix("soong-demo-")
        .tempdir()
        .map_err(|error| uncontrolled(&error))?;
    let log = folder.path().join("executions.jsonl");
    let demo = Demo {
        log: Some(&log),
        ..*demo
    };
    let children = demo.options.children.unwrap_or(CHILDREN);
    let mut process = start(&demo, children)?;
    print::line(&format!(
        "process {} starts {children} sub-agents",
        process.id()
    ))?;
    let session = run_until(&mut process, usize::from(children).div_ceil(3));
    // Also after an error, so that no process is left.
    process
        .kill()
        .and_then(|()| process.wait())
        .map_err(|error| uncontrolled(&error))?;
    let session = session?;
    let read_log = || executions::read(&log).map_err(|error| uncontrolled(&error));

    heading("It was killed with SIGKILL. The database contains:")?;
    let before = (Records::read(&demo, &session)?, read_log()?);
    before.0.print(demo.context)?;
    print::line("")?;
    heading("This process resumes the run:")?;
    resume(&demo, &session).await?;
    let after = (Records::read(&demo, &session)?, read_log()?);
    heading("The run has ended. The database contains:")?;
    after.0.print(demo.context)?;
    print::line("")?;
    Comparison::of(&before, &after).print()
}

fn uncontrolled(error: &std::io::Error) -> Failure {
    let what = format!("the process of the demo or its log cannot be used: {error}");
    Failure::new(
        Exit::Failed,
        what,
        "Check the folder for temporary files, and try again.",
    )
}

/// Starts the demo in a process of its own.
fn start(demo: &Demo<'_>, children: u16) -> Result<Child, Failure> {
    let program = std::env::current_exe().map_err(|error| uncontrolled(&error))?;
    let mut command = Command::new(program);
    command
        .arg("demo")
        .arg(demo.project)
        .arg("--home")
        .arg(demo.home)
        .arg("--json");
    command.args(["--children", &children.to_string()]);
    command.args([
        "--pace",
        &format!(
            "{}ms",
            demo.options.pace.map_or(PACE_MS, |pace| pace.as_millis())
        ),
    ]);
    if demo.options.here {
        command.arg("--here");
    }
    if let Some(config) = &demo.context.global.config {
        command.arg("--config").arg(config);
    }
    if let Some(log) = demo.log {
        command.arg("--log-executions").arg(log);
    }
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command.spawn().map_err(|error| uncontrolled(&error))
}

/// Reads the events of the process until this number of sub-agents has ended. Returns the session.
fn run_until(process: &mut Child, ended: usize) -> Result<SessionId, Failure> {
    let output = process.stdout.take().map(BufReader::new);
    let mut count = 0;
    for line in output.into_iter().flat_map(BufRead::lines) {
        let line = line.map_err(|error| uncontrolled(&error))?;
        let event: Value = serde_json::from_str(&line).unwrap_or_default();
        count += usize::from(event["event"] == "sub_trace_completed");
        if count == ended {
            return Ok(SessionId::new(
                event["session_id"].as_str().unwrap_or_default(),
            ));
        }
    }
    Err(ended_early(process))
}

/// Returns the failure of a process that ended by itself.
fn ended_early(process: &mut Child) -> Failure {
    let printed = process
        .stderr
        .take()
        .map(std::io::read_to_string)
        .and_then(Result::ok)
        .unwrap_or_default();
    let error = printed
        .lines()
        .rfind(|line| line.starts_with("error: "))
        .unwrap_or("error: it printed no error");
    let is_refused = process
        .wait()
        .is_ok_and(|status| status.code() == Some(Exit::Refused as i32));
    let exit = if is_refused {
        Exit::Refused
    } else {
        Exit::Failed
    };
    let what = format!(
        "the process of the demo ended too early: {}",
        error.trim_start_matches("error: ")
    );
    Failure::new(
        exit,
        what,
        "Choose another home with --home DIR, or try `soong demo`.",
    )
}

/// Resumes the run here and waits for its end.
async fn resume(demo: &Demo<'_>, session: &SessionId) -> Result<(), Failure> {
    let mut runtime_session =
        RuntimeSession::exclusive(demo.context, demo.home, || demo.builder()).await?;
    let session_id = Some(session.to_string());
    let mode = Setting::Set(RunMode::Orchestrator);
    let request = StartBody {
        session_id,
        mode,
        unattended: true,
        ..StartBody::default()
    };
    let resumed = runtime_session.follow(request, RunDisplay::Once).await;
    if demo.keeps_last_sessions {
        runtime_session.delete_old_sessions(MAX_SESSIONS).await;
    }
    runtime_session.close().await;
    report::exit(demo.context, &resumed?.0).map(drop)
}

/// Records of a session in the database.
struct Records {
    /// The last run of each trace.
    runs: Vec<Run>,
    events: Vec<EventRecord>,
}

impl Records {
    fn read(demo: &Demo<'_>, session: &SessionId) -> Result<Self, Failure> {
        let records = OfflineStore::open(demo.home)?;
        let mut runs = Vec::new();
        for trace in records.traces(&TraceFilter {
            session_id: Some(session.clone()),
            ..TraceFilter::default()
        })? {
            if let Some(last) = records.reader.last_run(&trace.trace_id)? {
                runs.push(records.run(&last.run_id)?);
            }
        }
        runs.sort_by_key(|run| run.created_at);
        let mut events: Vec<EventRecord> = Vec::new();
        loop {
            let since = events.last().map_or(0, |event| event.lsn);
            let page = records.reader.session_events(session, since, EVENTS_PAGE)?;
            if page.is_empty() {
                return Ok(Self { runs, events });
            }
            events.extend(page);
        }
    }

    /// Prints the runs as a tree. On a terminal, both trees fit on the screen together.
    fn print(&self, context: &Context<'_>) -> Result<(), Failure> {
        let (_, rows) = crossterm::terminal::size().unwrap_or_default();
        let height = if context.terminal.has_stdout && rows > 0 {
            (usize::from(rows) / 2).saturating_sub(4).max(4)
        } else {
            usize::MAX
        };
        tree::print_runs(context, self.runs.iter(), height)
    }

    /// Returns the number of stored model answers of each run, and the tool calls whose results are
    /// stored.
    fn stored(&self) -> (BTreeMap<&str, usize>, BTreeSet<(&str, &str)>) {
        let mut answers = BTreeMap::new();
        let mut results = BTreeSet::new();
        for record in &self.events {
            let Some(run) = record.run_id.as_ref().map(|run| run.as_str()) else {
                continue;
            };
            match &record.event {
                Event::Model(ModelEvent::Completed { .. }) => *answers.entry(run).or_default() += 1,
                Event::Tool(
                    ToolEvent::Completed { tool_call_id, .. }
                    | ToolEvent::Failed { tool_call_id, .. },
                ) => {
                    results.insert((run, tool_call_id.as_str()));
                }
                _ => {}
            }
        }
        (answers, results)
    }
}

/// Comparison of what both processes executed with what was stored.
#[derive(Debug, Default, PartialEq, Eq)]
struct Comparison {
    /// Different model calls that were executed.
    model_calls: usize,
    /// Different tool calls that were executed.
    effects: usize,
    /// Events that were stored before the kill and are missing or different after it.
    lost: usize,
    /// Further executions of steps that had a stored result, or that were first executed after the
    /// kill.
    repeated: usize,
    /// Further executions of steps that had no stored result when the process was killed.
    interrupted: usize,
}

impl Comparison {
    fn of(
        (before, executed_before): &(Records, ExecutionCounts),
        (after, executed): &(Records, ExecutionCounts),
    ) -> Self {
        let (answers, results) = before.stored();
        let mut found = Self::default();
        let mut calls_of_run: BTreeMap<&str, usize> = BTreeMap::new();
        for (execution, count) in executed {
            let run = execution.run_id.as_str();
            let has_result = match &execution.step {
                // The model calls of a run are in the order of their execution.
                Step::ModelCall(_) => {
                    found.model_calls += 1;
                    let number = calls_of_run.entry(run).or_default();
                    *number += 1;
                    *number <= answers.get(run).copied().unwrap_or(0)
                }
                Step::ToolCall(id) => {
                    found.effects += 1;
                    results.contains(&(run, id.as_str()))
                }
            };
            if executed_before.contains_key(execution) && !has_result {
                found.interrupted += count - 1
            } else {
                found.repeated += count - 1
            }
        }
        let stored: BTreeMap<u64, &str> = after
            .events
            .iter()
            .map(|event| (event.session_seq, event.data.as_str()))
            .collect();
        let is_kept =
            |record: &&EventRecord| stored.get(&record.session_seq) == Some(&record.data.as_str());
        found.lost = before.events.len() - before.events.iter().filter(is_kept).count();
        found
    }

    /// Prints the counts. Returns the exit code.
    fn print(&self) -> Result<Exit, Failure> {
        if self.interrupted > 0 {
            let calls = format::plural(self.interrupted, "call", "calls");
            print::line(&format!(
                "{calls} had no stored result when the process was killed, and ran again"
            ))?;
        }
        print::line(&format!(
            "{}, {}: {} lost, {} repeated",
            format::plural(self.model_calls, "model call", "model calls"),
            format::plural(self.effects, "effect", "effects"),
            self.lost,
            self.repeated
        ))?;
        Ok(if self.lost + self.repeated == 0 {
            Exit::Success
        } else {
            Exit::Failed
        })
    }
}

#[cfg(test)]
mod tests {
    use soong::protocol::{ErrorCode, ErrorInfo, Usage};
    use soong_tui::sample::record;

    use super::{executions::Execution, *};

    fn event(session_seq: u64, run: &str, event: impl Into<Event>) -> EventRecord {
        EventRecord {
            session_seq,
            ..record(run, 0, event)
        }
    }

    fn answer() -> ModelEvent {
        let finish_reason = "stop".to_owned();
        ModelEvent::Completed {
            finish_reason,
            tool_calls: 0,
            usage: Usage::default(),
            cost: None,
            duration_ms: 1,
            waited_ms: 0,
            answer_check: None,
        }
    }

    fn result(id: &str) -> ToolEvent {
        let error = ErrorInfo::new(ErrorCode::FileNotFound, "no a.txt");
        ToolEvent::Failed {
            tool_call_id: id.to_owned(),
            name: "read".to_owned(),
            duration_ms: 1,
            error,
        }
    }

    fn counts(executions: &[(&str, Step, usize)]) -> ExecutionCounts {
        let execution = |run: &str, step: &Step| Execution {
            run_id: run.to_owned(),
            step: step.clone(),
        };
        executions
            .iter()
            .map(|(run, step, count)| (execution(run, step), *count))
            .collect()
    }

    #[test]
    fn repeated_and_lost_steps_are_counted() {
        let call = |id: &str| Step::ToolCall(id.to_owned());
        let records = |events: Vec<EventRecord>| Records {
            runs: Vec::new(),
            events,
        };
        let stored = || {
            vec![
                event(1, "a", answer()),
                event(2, "a", result("1")),
                event(3, "b", answer()),
            ]
        };
        let executed = [
            ("a", Step::ModelCall(2), 1),
            ("a", call("1"), 1),
            ("a", Step::ModelCall(4), 1),
            ("b", Step::ModelCall(2), 1),
        ];
        let before = || (records(stored()), counts(&executed));
        let compare = |after: Vec<EventRecord>, more: &[(&str, Step, usize)]| {
            let mut all = counts(&executed);
            all.extend(counts(more));
            Comparison::of(&before(), &(records(after), all))
        };
        // The call with four messages had no answer, so it is made again.
        let found = compare(
            stored(),
            &[("a", Step::ModelCall(4), 2), ("a", call("2"), 1)],
        );
        let good = Comparison {
            model_calls: 3,
            effects: 2,
            interrupted: 1,
            ..Comparison::default()
        };
        assert_eq!(found, good);
        let found = compare(
            stored(),
            &[
                ("a", Step::ModelCall(2), 2),
                ("a", call("1"), 3),
                ("a", call("2"), 2),
            ],
        );
        assert_eq!((found.repeated, found.interrupted), (4, 0));
        let found = compare(
            vec![event(1, "a", answer()), event(2, "a", result("2"))],
            &[],
        );
        assert_eq!((found.lost, found.repeated), (2, 0));
    }
}
