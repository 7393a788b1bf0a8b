//! Prints the events of a trace, and follows those of an active run.

use soong::{
    ErrorCode, ErrorInfo, StreamItem,
    protocol::{
        EventRecord, TraceId, TraceStatus,
        api::operation::{ReadSession, ReadTrace},
    },
};
use soong_client::Client;
use soong_tui::text;

use crate::{
    context::Context,
    event_sentences::EventSentences,
    exit::{Exit, Failure},
    print, report,
    source::{PAGE_EVENTS, Source},
    watch::POLLING_NOTE,
};

/// Prints the events of a trace after `since`. With `follow`, also those that are recorded until
/// its last run has ended.
pub(super) async fn events(
    context: &Context<'_>,
    source: &Source,
    id: &str,
    since: u64,
    follow: bool,
) -> Result<Exit, Failure> {
    let trace = source.trace(id).await?.trace;
    if since > 0 && !(trace.first_event_id - 1..=trace.last_event_id).contains(&since) {
        let first = trace.first_event_id;
        let last = trace.last_event_id;
        let message = format!("trace {id} has no event {since}: its events are {first} to {last}");
        return Err(ErrorInfo::new(ErrorCode::CursorUnknown, message).into());
    }
    let mut printer = EventPrinter {
        context,
        sentences: EventSentences::default(),
    };
    let mut cursor = printer.print_stored(source, &trace.trace_id, since).await?;
    if !follow {
        return Ok(Exit::Success);
    }
    let Source::Owner(client, ready) = source else {
        return if trace.status.is_open() {
            Err(interrupted(context, id, cursor))
        } else {
            Ok(Exit::Success)
        };
    };
    // Check again after printing: if the run is still active now, its end will arrive on the
    // stream.
    match is_active(client, id).await? {
        Some(true) => {}
        Some(false) => {
            let cursor = printer
                .print_stored(source, &trace.trace_id, cursor)
                .await?;
            let is_open = source.trace(id).await?.trace.status.is_open();
            return if is_open {
                Err(interrupted(context, id, cursor))
            } else {
                Ok(Exit::Success)
            };
        }
        None => return printer.finish_following(id, cursor, ready.pid).await,
    }
    let mut events = match client.trace_events(&trace.trace_id, cursor).await {
        Err(error) if error.code == ErrorCode::Closing => {
            return printer.finish_following(id, cursor, ready.pid).await;
        }
        events => events?,
    };
    let mut is_polled = false;
    loop {
        let next = events.next().await;
        if events.is_polled() && !is_polled {
            is_polled = true;
            print::error_line(POLLING_NOTE);
        }
        match next {
            Some(Ok(StreamItem::Event(record))) => {
                cursor = record.event_id;
                printer.print(&record)?;
                // Another run of the trace may be queued.
                if record.event.is_terminal() && is_active(client, id).await? != Some(true) {
                    return printer.finish_following(id, cursor, ready.pid).await;
                }
            }
            Some(Ok(StreamItem::Delta(_))) => {}
            Some(Ok(StreamItem::Lost(lost))) => return Err(lost.error.clone().into()),
            Some(Err(error)) if error.code != ErrorCode::Closing => return Err(error.into()),
            Some(Err(_)) | None => return printer.finish_following(id, cursor, ready.pid).await,
        }
    }
}

/// Returns the failure for a trace with a run that has not ended and that no process executes.
fn interrupted(context: &Context<'_>, id: &str, cursor: u64) -> Failure {
    let what =
        format!("trace {id} was interrupted at event {cursor}, and no process is executing it");
    Failure::new(Exit::Failed, what, resume_advice(context, id))
}

fn resume_advice(context: &Context<'_>, id: &str) -> String {
    let soong = report::command(
        context.global.home.as_deref(),
        context.global.url.as_deref(),
    );
    format!("Resume it: {soong} run --trace {id}")
}

/// Returns whether a run of the trace is active or queued, or `None` if the owner process is gone.
async fn is_active(client: &Client, id: &str) -> Result<Option<bool>, Failure> {
    match client
        .call(ReadTrace {
            trace_id: TraceId::new(id),
        })
        .await
    {
        Err(error) if error.code == ErrorCode::Closing => Ok(None),
        found => {
            let trace = found?.trace;
            // A reflection run does not change the status of its trace, so the session's live runs
            // decide.
            let session = async || {
                client
                    .call(ReadSession {
                        session_id: trace.session_id.clone(),
                    })
                    .await
            };
            if trace.status.is_open() || trace.parent_trace_id.is_some() {
                Ok(Some(trace.status == TraceStatus::Running))
            } else {
                Ok(Some(session().await?.session.live_runs > 0))
            }
        }
    }
}

/// Prints events, each on one line: as a sentence, or as JSON.
struct EventPrinter<'a> {
    context: &'a Context<'a>,
    sentences: EventSentences,
}

impl EventPrinter<'_> {
    /// Called when the run has ended or the owner process is gone: prints the events after the
    /// cursor, and fails if the trace is still open.
    async fn finish_following(&mut self, id: &str, cursor: u64, pid: u32) -> Result<Exit, Failure> {
        let source = self.context.source().await?;
        let trace = source.trace(id).await?.trace;
        let cursor = self.print_stored(&source, &trace.trace_id, cursor).await?;
        if !trace.status.is_open() {
            return Ok(Exit::Success);
        }
        let what = format!(
            "process {pid}, which executed trace {id}, has exited; its last recorded event is {cursor}"
        );
        Err(Failure::new(
            Exit::Failed,
            what,
            resume_advice(self.context, id),
        ))
    }

    /// Prints all stored events after `since` and returns the id of the last one.
    async fn print_stored(
        &mut self,
        source: &Source,
        id: &TraceId,
        since: u64,
    ) -> Result<u64, Failure> {
        let mut cursor = since;
        loop {
            let page = source.events(id, cursor).await?;
            for record in &page {
                self.print(record)?;
                cursor = record.event_id;
            }
            if page.len() < PAGE_EVENTS {
                return Ok(cursor);
            }
        }
    }

    fn print(&mut self, record: &EventRecord) -> Result<(), Failure> {
        if self.context.global.json {
            return print::json_line(record);
        }
        let ts = record.ts.to_string();
        let time = ts.split_once('T').map_or(ts.as_str(), |(_, time)| time);
        let sentence = self.sentences.sentence(record);
        // Programs that read a pipe may look for the kind.
        let kind = if self.context.terminal.has_stdout {
            String::new()
        } else {
            format!("{:<22}  ", text::safe_line(record.event.kind()))
        };
        print::line(&format!("{:>5}  {time}  {kind}{sentence}", record.event_id))
    }
}
