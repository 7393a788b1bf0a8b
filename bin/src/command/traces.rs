//! `soong traces`: what each agent was asked, said and did.

use std::time::Duration;

use serde_json::json;
use soong::{
    MessagePath, TraceFilter,
    protocol::{EventRecord, Message, Trace},
};
use soong_storage::store::Reader;

use super::Context;
use crate::{
    cli,
    exit::{Exit, Failure},
    figure, print,
    records::Records,
    terminal::Hue,
    text,
};

/// How many events are read at once.
const PAGE: usize = 500;
/// How often the store is asked for more.
const POLL: Duration = Duration::from_millis(200);

pub(super) fn traces(context: &Context<'_>, options: &cli::Traces) -> Result<Exit, Failure> {
    let records = context.records()?;
    match options {
        cli::Traces::List => list(context, &records)?,
        cli::Traces::Show { id } => show(context, &records, &records.trace(id)?)?,
        cli::Traces::Messages { id, all } => messages(context, &records, &records.trace(id)?, *all)?,
        cli::Traces::Events { id, since, follow } => events(context, &records, &records.trace(id)?, *since, *follow)?,
    }
    Ok(Exit::Done)
}

fn list(context: &Context<'_>, records: &Records) -> Result<(), Failure> {
    let traces = records.traces(&TraceFilter::default())?;
    if context.global.json {
        return print::json(&traces);
    }
    if traces.is_empty() {
        return print::line("no traces");
    }
    table(&traces, context)
}

/// Prints traces, a line each.
pub(super) fn table(traces: &[Trace], context: &Context<'_>) -> Result<(), Failure> {
    let rows: Vec<Vec<String>> = traces
        .iter()
        .map(|trace| {
            vec![
                trace.trace_id.to_string(),
                trace.status.as_str().to_owned(),
                trace.agent_type.clone(),
                figure::time(trace.created_at),
                trace.total_messages.to_string(),
                figure::count(trace.total_tokens),
                text::cut(&text::line(&trace.task), 60, context.terminal.ellipsis()),
            ]
        })
        .collect();
    print::table(&["TRACE", "STATUS", "AGENT", "CREATED (UTC)", "MESSAGES", "TOKENS", "TASK"], &rows)
}

fn show(context: &Context<'_>, records: &Records, trace: &Trace) -> Result<(), Failure> {
    let goal_tree = records.reader.goal_tree(&trace.trace_id)?.unwrap_or_default();
    let sub_traces = records.reader.sub_traces(&trace.trace_id)?;
    if context.global.json {
        return print::json(&json!({ "trace": trace, "goal_tree": goal_tree, "sub_traces": sub_traces }));
    }
    let status = match trace.end_reason.and_then(|reason| serde_json::to_value(reason).ok()) {
        Some(reason) => format!("{} ({})", trace.status.as_str(), reason.as_str().unwrap_or_default()),
        None => trace.status.as_str().to_owned(),
    };
    let mut facts = vec![
        ("trace", trace.trace_id.to_string()),
        ("session", trace.session_id.to_string()),
        ("status", status),
        ("agent", format!("{} in mode {}, model {}", trace.agent_type, trace.run_mode.as_str(), trace.model)),
        ("task", trace.task.clone()),
        ("created", format!("{} UTC", figure::time(trace.created_at))),
        ("messages", trace.total_messages.to_string()),
        (
            "used",
            format!(
                "{} tokens, {}, {}",
                figure::count(trace.total_tokens),
                figure::cost(trace.total_cost),
                figure::span(trace.total_duration_ms)
            ),
        ),
    ];
    facts.extend(trace.error_message.iter().map(|error| ("error", error.clone())));
    facts.extend(trace.result_summary.iter().map(|result| ("result", result.clone())));
    for (name, fact) in facts {
        print::line(&format!("{name:<9} {}", text::line(&fact)))?;
    }
    if !goal_tree.goals.is_empty() {
        print::line("")?;
        print::line(&context.terminal.stdout.paint(Hue::Bold, "Goals"))?;
        for goal in &goal_tree.goals {
            let depth = goal.number.matches('.').count();
            let status = serde_json::to_value(goal.status).ok();
            let status = status.as_ref().and_then(|status| status.as_str()).unwrap_or_default();
            let line = format!("{} {} [{status}]", goal.number, text::line(&goal.description));
            print::line(&format!("  {}{line}", "  ".repeat(depth)))?;
        }
    }
    if !sub_traces.is_empty() {
        print::line("")?;
        table(&sub_traces, context)?;
    }
    Ok(())
}

fn messages(context: &Context<'_>, records: &Records, trace: &Trace, all: bool) -> Result<(), Failure> {
    let path = if all { MessagePath::All } else { MessagePath::Main };
    let messages = records.reader.messages(&trace.trace_id, path)?;
    if context.global.json {
        return print::json(&messages);
    }
    for message in &messages {
        print_message(context, message)?;
    }
    Ok(())
}

fn print_message(context: &Context<'_>, message: &Message) -> Result<(), Failure> {
    let answers = message.tool_call_id.as_ref().map_or_else(String::new, |id| format!(" answers {id}"));
    let partial = if message.partial { " (cut off)" } else { "" };
    let head = format!("#{} {}{answers}{partial}", message.sequence, message.role.as_str());
    print::line(&context.terminal.stdout.paint(Hue::Bold, &text::line(&head)))?;
    if !message.content.is_empty() {
        print::line(&text::block(message.content.trim_end()))?;
    }
    for call in &message.tool_calls {
        let line = format!("-> {} {} [{}]", call.name, call.arguments, call.id);
        print::line(&text::line(&line))?;
    }
    print::line("")
}

fn events(context: &Context<'_>, records: &Records, trace: &Trace, since: u64, follow: bool) -> Result<(), Failure> {
    let mut cursor = since;
    loop {
        // Asked before the events are read: what an ended run recorded is all there then.
        let has_ended = records.reader.last_run(&trace.trace_id)?.is_none_or(|run| run.status.is_terminal());
        loop {
            let page = records.reader.events(&trace.trace_id, cursor, PAGE)?;
            for record in &page {
                print_event(context, record)?;
                cursor = record.event_id;
            }
            if page.len() < PAGE {
                break;
            }
        }
        if has_ended || !follow {
            return Ok(());
        }
        std::thread::sleep(POLL);
    }
}

fn print_event(context: &Context<'_>, record: &EventRecord) -> Result<(), Failure> {
    if context.global.json {
        return print::json_line(record);
    }
    let ts = record.ts.to_string();
    let time = ts.split_once('T').map_or(ts.as_str(), |(_, time)| time);
    let data = text::cut(&text::line(record.event.data_json().as_str()), 160, context.terminal.ellipsis());
    print::line(&format!("{:>5}  {time}  {:<22}  {data}", record.event_id, text::line(record.event.kind())))
}
