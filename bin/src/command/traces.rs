//! `soong traces`: lists, shows, exports and stops traces, and reflects on a session.
//!
//! Elsewhere: printing events (`traces/events.rs`) and messages (`traces/messages.rs`), the order
//! of a tree (`traces/tree.rs`).

mod events;
mod messages;
mod tree;

use std::collections::HashSet;

use soong::{
    ErrorCode, StreamItem,
    protocol::{
        GoalTree, Reflection, Session, Trace,
        api::{
            StartBody, TraceView,
            operation::{ReadRun, StopTrace},
        },
    },
};
use soong_client::Client;
use soong_tui::{format, spent::Spent, table::Column, terminal::TextStyle, text};

use super::{export, host::builder, run::session_of, runtime_session::RuntimeSession};
use crate::{
    cli, config,
    context::{Context, RunDisplay},
    exit::{Exit, Failure},
    owner::HomeConnection,
    print, report,
    source::Source,
};

pub(super) async fn traces(context: &Context<'_>, options: &cli::Traces) -> Result<Exit, Failure> {
    if let cli::Traces::Stop { id } = options {
        return stop(context, id).await;
    }
    if matches!(options, cli::Traces::List { .. }) && context.print_if_unused(&[(); 0])? {
        return Ok(Exit::Success);
    }
    let source = context.source().await?;
    match options {
        cli::Traces::List { all, columns } => {
            list(context, &source, *all, &columns.columns).await?
        }
        cli::Traces::Show { id } => show(context, &source, &source.trace(id).await?).await?,
        cli::Traces::Messages { id, all, last } => {
            let id = source.trace(id).await?.trace.trace_id;
            messages::messages(context, &source, id.as_str(), *all, *last).await?;
        }
        cli::Traces::Events { id, since, follow } => {
            let id = source.trace(id).await?.trace.trace_id;
            return events::events(context, &source, id.as_str(), *since, *follow).await;
        }
        cli::Traces::Export { id, dir, html } => {
            let id = source.trace(id).await?.trace.trace_id;
            if let Some(dir) = dir {
                export::export(context, &source, id.as_str(), dir).await?;
            }
            if let Some(file) = html {
                export::export_page(context, &source, id.as_str(), file).await?;
            }
        }
        cli::Traces::Stop { .. } | cli::Traces::Reflect { .. } => {}
    }
    Ok(Exit::Success)
}

/// Starts a run that reflects on a conversation, and shows it like any other run.
pub(super) async fn reflect(
    context: &Context<'_>,
    id: &str,
    focus: Option<&str>,
) -> Result<Exit, Failure> {
    let home = context.home()?;
    let settings = config::read(&context.global, &home)?;
    let id = context
        .source_to_change()
        .await?
        .trace_to_change(id)
        .await?
        .trace
        .trace_id;
    let mut runtime_session =
        RuntimeSession::connect(context, &home, || builder(context, &home, &settings)).await?;
    let build_request = async |runtime_session: &mut RuntimeSession<'_>| {
        let (session, trace_id) = session_of(runtime_session.client(), id.as_str()).await?;
        let reflection = Reflection {
            focus: focus.map(str::to_owned),
        };
        let session_id = Some(session.session_id.to_string());
        Ok::<_, Failure>(StartBody {
            session_id,
            trace_id,
            reflects: Some(reflection),
            ..StartBody::default()
        })
    };
    let done = match build_request(&mut runtime_session).await {
        Ok(request) => runtime_session.run(request, RunDisplay::Once).await,
        Err(failure) => Err(failure),
    };
    runtime_session.close().await;
    done?.exit
}

async fn list(
    context: &Context<'_>,
    source: &Source,
    with_calls: bool,
    columns: &[String],
) -> Result<(), Failure> {
    let mut traces = source.client().traces(None, with_calls).await?;
    if context.global.json {
        return print::json(&traces);
    }
    if traces.is_empty() {
        return print::line("no traces");
    }
    if !context.terminal.has_stdout {
        return table(&traces, context, columns);
    }
    traces.reverse();
    tree_table(
        &traces,
        &source.client().sessions(with_calls).await?,
        context,
        columns,
    )
}

/// Prints traces, one per line: as trees with short names on a terminal, otherwise as a table. The
/// traces are given oldest first, and complete for each of the sessions.
pub(super) fn tree_table(
    traces: &[Trace],
    sessions: &[Session],
    context: &Context<'_>,
    columns: &[String],
) -> Result<(), Failure> {
    if !context.terminal.has_stdout {
        return table(traces, context, columns);
    }
    let names = sessions
        .iter()
        .map(|session| (session.session_id.clone(), session.short_name().to_owned()));
    let arranged = tree::arrange(traces, &names.collect(), context.terminal.unicode);
    print_rows(
        arranged.into_iter().map(|entry| (entry.name, entry.trace)),
        context,
        columns,
    )
}

/// Prints a table of traces, one per line.
fn table(traces: &[Trace], context: &Context<'_>, columns: &[String]) -> Result<(), Failure> {
    print_rows(
        traces
            .iter()
            .map(|trace| (trace.trace_id.to_string(), trace)),
        context,
        columns,
    )
}

fn print_rows<'a>(
    traces: impl Iterator<Item = (String, &'a Trace)>,
    context: &Context<'_>,
    columns: &[String],
) -> Result<(), Failure> {
    let (created, time) = print::times(context.terminal, ["CREATED", "CREATED (UTC)"]);
    let rows: Vec<Vec<String>> = traces
        .map(|(name, trace)| {
            vec![
                name,
                trace.status.as_str().to_owned(),
                trace.agent_type.clone(),
                time(trace.created_at),
                trace.total_messages.to_string(),
                Spent::from(trace).tokens(),
                text::cut(
                    &text::safe_line(&trace.task),
                    60,
                    context.terminal.ellipsis(),
                ),
            ]
        })
        .collect();
    print::selected_table(
        context.terminal,
        &[
            Column::text("TRACE", 24),
            Column::whole("STATUS"),
            Column::text("AGENT", 8).drops(2),
            Column::whole(created).drops(3),
            Column::whole("MESSAGES").drops(4),
            Column::whole("TOKENS").drops(1),
            Column::text("TASK", 20),
        ],
        &rows,
        columns,
    )
}

async fn show(context: &Context<'_>, source: &Source, view: &TraceView) -> Result<(), Failure> {
    if context.global.json {
        return print::json(view);
    }
    let TraceView {
        trace,
        goal_tree,
        sub_traces,
    } = view;
    // Traces of the session, oldest first.
    let mut traces = if sub_traces.is_empty() {
        Vec::new()
    } else {
        source
            .client()
            .traces(Some(&trace.session_id), true)
            .await?
    };
    traces.reverse();
    let status = trace.status.as_str();
    let reason = trace
        .end_reason
        .and_then(|reason| serde_json::to_value(reason).ok());
    let status = match reason
        .as_ref()
        .and_then(|reason| reason.as_str())
        .filter(|reason| *reason != status)
    {
        Some(reason) => format!("{status} ({reason})"),
        None => status.to_owned(),
    };
    let is_main = trace.trace_id.as_str() == trace.session_id.as_str();
    let session = if is_main {
        "same id (main trace)".to_owned()
    } else {
        trace.session_id.to_string()
    };
    let mut facts = vec![
        ("trace", trace.trace_id.to_string()),
        ("session", session),
        ("status", status),
        (
            "agent",
            format!(
                "{} in mode {}, model {}",
                trace.agent_type,
                trace.run_mode.as_str(),
                trace.model
            ),
        ),
        ("task", trace.task.clone()),
        ("created", format!("{} UTC", format::time(trace.created_at))),
        ("messages", trace.total_messages.to_string()),
        (
            "used",
            format!(
                "{} tokens, {}, {}",
                Spent::from(trace).tokens(),
                Spent::from(trace).cost(),
                format::duration(trace.total_duration_ms)
            ),
        ),
    ];
    facts.extend(total(trace, &traces).map(|total| ("total", total)));
    facts.extend(
        trace
            .error_message
            .iter()
            .map(|error| ("error", error.clone())),
    );
    for (name, fact) in facts {
        print::line(&format!("{name:<9} {}", text::safe_line(&fact)))?;
    }
    if let Some(result) = &trace.result_summary {
        print::line("")?;
        print::line(&context.terminal.stdout.paint(TextStyle::Bold, "Result"))?;
        report::render(result, context.terminal)
            .iter()
            .try_for_each(|line| print::line(line))?;
    }
    show_goals(context, goal_tree)?;
    if !sub_traces.is_empty() {
        print::line("")?;
        let numbers = tree::numbers(&traces);
        let name = |trace: &Trace| match numbers
            .get(&trace.trace_id)
            .filter(|_| context.terminal.has_stdout)
        {
            Some(number) => format!("#{number}"),
            None => trace.trace_id.to_string(),
        };
        print_rows(
            sub_traces.iter().map(|trace| (name(trace), trace)),
            context,
            &[],
        )?;
    }
    Ok(())
}

fn show_goals(context: &Context<'_>, tree: &GoalTree) -> Result<(), Failure> {
    if tree.goals.is_empty() {
        return Ok(());
    }
    print::line("")?;
    print::line(&context.terminal.stdout.paint(TextStyle::Bold, "Goals"))?;
    for goal in &tree.goals {
        let depth = goal.number.matches('.').count();
        let status = serde_json::to_value(goal.status).ok();
        let status = status
            .as_ref()
            .and_then(|status| status.as_str())
            .unwrap_or_default();
        let line = format!(
            "{} {} [{status}]",
            goal.number,
            text::safe_line(&goal.description)
        );
        print::line(&format!("  {}{line}", "  ".repeat(depth)))?;
    }
    Ok(())
}

/// Describes the usage of a trace with all its sub-agents. `traces`: those of its session, oldest
/// first. `None` if it has no sub-agents.
fn total(trace: &Trace, traces: &[Trace]) -> Option<String> {
    let mut below = HashSet::from([&trace.trace_id]);
    let mut spent = Spent::from(trace);
    for one in traces {
        // A sub-agent is younger than its parent.
        if one
            .parent_trace_id
            .as_ref()
            .is_some_and(|parent| below.contains(parent))
        {
            below.insert(&one.trace_id);
            spent = spent.plus(Spent::from(one));
        }
    }
    let sub_agents = below.len() - 1;
    let with = format::plural(sub_agents, "sub-agent", "sub-agents");
    (sub_agents > 0).then(|| format!("{} tokens, {}, with {with}", spent.tokens(), spent.cost()))
}

/// Stops the active run of a trace and waits until it has ended.
async fn stop(context: &Context<'_>, id: &str) -> Result<Exit, Failure> {
    let source = context.source_to_change().await?;
    let trace = source.trace_to_change(id).await?.trace;
    if let Source::Owner(client, ready) = &source {
        return stop_run(context, client, ready.pid, &trace).await;
    }
    let is_root = trace.parent_trace_id.is_none();
    // A reflection run does not change the status of its trace.
    let is_reflecting = is_root && source.session(trace.session_id.as_str()).await?.live_runs > 0;
    if !trace.status.is_open() && !is_reflecting {
        let what = format!("trace {id} has no active run (nothing_running)");
        return Err(Failure::new(
            Exit::Refused,
            what,
            "There is nothing to stop.",
        ));
    }
    // The run was interrupted with its process: an owner is needed to end it, if necessary this
    // process.
    drop(source);
    let home = context.home()?;
    let settings = config::read(&context.global, &home)?;
    let reached = HomeConnection::connect_or_own(&context.address(&home), &|| {
        builder(context, &home, &settings)
    })
    .await?;
    let ended = stop_run(context, reached.client(), std::process::id(), &trace).await;
    if let Some(owner) = reached.into_owner() {
        owner.close().await;
    }
    ended
}

/// Stops the run of a trace and waits until it has ended. `pid` is the process id of the owner.
async fn stop_run(
    context: &Context<'_>,
    client: &Client,
    pid: u32,
    trace: &Trace,
) -> Result<Exit, Failure> {
    let id = &trace.trace_id;
    let mut events = client
        .trace_events(&trace.trace_id, trace.last_event_id)
        .await?;
    let stopped = client
        .call(StopTrace {
            trace_id: id.clone(),
        })
        .await?;
    // The end may have been recorded before the event stream was opened.
    let mut has_ended = client
        .call(ReadRun {
            run_id: stopped.run_id.clone(),
        })
        .await?
        .run
        .status
        .is_terminal();
    while !has_ended {
        match events.next().await {
            Some(Ok(StreamItem::Event(record))) => {
                has_ended =
                    record.event.is_terminal() && record.run_id.as_ref() == Some(&stopped.run_id);
            }
            Some(Ok(StreamItem::Lost(lost))) if lost.run_id == stopped.run_id => {
                return Err(lost.error.clone().into());
            }
            Some(Ok(StreamItem::Delta(_) | StreamItem::Lost(_))) => {}
            Some(Err(error)) if error.code != ErrorCode::Closing => return Err(error.into()),
            Some(Err(_)) | None => {
                let what = format!("process {pid} exited before the run ended");
                return Err(Failure::new(Exit::Failed, what, "See `soong tree`."));
            }
        }
    }
    let run = client
        .call(ReadRun {
            run_id: stopped.run_id.clone(),
        })
        .await?;
    if context.global.json {
        print::json(&run)?;
    } else {
        print::line(&format!(
            "run {} of trace {id} ended: {}",
            stopped.run_id,
            run.run.status.as_str()
        ))?;
    }
    Ok(Exit::Success)
}
