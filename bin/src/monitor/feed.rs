//! Sends input to the monitor and executes its requests, in tasks that run concurrently with the
//! screen and end with it.
//!
//! Elsewhere: the reaction to input (`soong_tui::monitor`).

use std::{path::Path, time::Duration};

use soong::{
    ErrorCode, ErrorInfo, MessagePath,
    protocol::{
        Decision, RunId,
        api::{
            AnswerBody, DecisionBody, Ready,
            operation::{
                AnswerQuestion, CancelRun, CheckReadiness, CrashActor, DecidePermission,
                ListArtifacts, ReadArtifact, ReadRun, ReadSession, ReadTrace,
            },
        },
    },
};
use soong_client::{Address, Client, Discovery, unresponsive};
use soong_tui::{
    format,
    monitor::{
        Command, Connection, MonitorInput, MonitorRequest, Preview, ReadContent, ReadRequest,
        RecordKind, RunFacts,
    },
};
use tokio::{
    sync::{mpsc, watch},
    task::JoinSet,
};

use crate::{
    export, message_marks, prompts,
    source::{PAGE_EVENTS, Source},
};

/// Capacity of the input queue. If it is full, the tree watch loses changes and receives a new
/// snapshot.
const INPUT_QUEUE: usize = 64;
/// Delay before reconnecting to the owner: initial and maximum.
const RECONNECT_DELAY: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(5));
/// Maximum time to wait for actions in progress when the screen is closed.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(3);
/// Maximum number of lines shown of an artifact.
const PREVIEW_LINES: usize = 2_000;
const PREVIEW_BYTES: usize = 256 * 1_024;
/// Number of newest events that are read first.
const NEWEST_EVENTS: u64 = 1_000;

/// Owner whose tree is watched.
#[derive(Debug, Clone)]
pub(crate) enum TreeSource {
    /// The owner is this process, or a connection to it already exists.
    Connected(Client),
    /// The owner is looked for at this address.
    Address(Address),
}

/// Sends input and executes requests; ends when dropped.
pub(crate) struct Feed {
    input_sender: mpsc::Sender<MonitorInput>,
    client: watch::Receiver<Option<(Client, Ready)>>,
    /// Reads in progress; aborted with the screen.
    reads: JoinSet<()>,
    /// Actions in progress; awaited at the end.
    commands: JoinSet<()>,
}

impl Feed {
    pub(crate) fn start(whom: TreeSource) -> (Self, mpsc::Receiver<MonitorInput>) {
        let (tell, input) = mpsc::channel(INPUT_QUEUE);
        let (reached, client) = watch::channel(None);
        let mut work = JoinSet::new();
        work.spawn(follow(whom, tell.clone(), reached));
        (
            Self {
                input_sender: tell,
                client,
                reads: work,
                commands: JoinSet::new(),
            },
            input,
        )
    }

    /// Waits for the actions in progress, for at most [`SHUTDOWN_TIMEOUT`].
    pub(crate) async fn finish(mut self) {
        let done = async { while self.commands.join_next().await.is_some() {} };
        let _ = tokio::time::timeout(SHUTDOWN_TIMEOUT, done).await;
    }

    /// Executes a request; ignores requests that concern only the screen.
    pub(crate) fn execute(&mut self, request: MonitorRequest) {
        // Removes finished tasks.
        while self.reads.try_join_next().is_some() {}
        while self.commands.try_join_next().is_some() {}
        let work = if let MonitorRequest::Execute(_) = request {
            &mut self.commands
        } else {
            &mut self.reads
        };
        let client = self.client.borrow().clone();
        let tell = self.input_sender.clone();
        work.spawn(async move {
            let input = match client {
                Some((client, ready)) => {
                    execute_request(&Source::Owner(client.clone(), ready), &client, request).await
                }
                None => not_connected(request),
            };
            if let Some(input) = input {
                let _ = tell.send(input).await; // fails if the screen is closed
            }
        });
    }
}

/// Returns the input that reports that the home has no owner.
fn not_connected(request: MonitorRequest) -> Option<MonitorInput> {
    let error = || {
        ErrorInfo::retryable(
            ErrorCode::Closing,
            "not connected to the owner process of the home",
        )
    };
    Some(match request {
        MonitorRequest::Read(want) => MonitorInput::Read(want, Box::new(Err(error()))),
        MonitorRequest::ReadRun(run) => MonitorInput::Record(run, Box::new(Err(error()))),
        MonitorRequest::ReadSession(id) => MonitorInput::Session(id, Box::new(Err(error()))),
        MonitorRequest::ReadAsks => MonitorInput::PendingRequests(Err(error())),
        MonitorRequest::Execute(_) => MonitorInput::CommandDone(Err(error().message)),
        MonitorRequest::Exit | MonitorRequest::Suspend | MonitorRequest::Redraw => return None,
    })
}

async fn execute_request(
    source: &Source,
    client: &Client,
    request: MonitorRequest,
) -> Option<MonitorInput> {
    Some(match request {
        MonitorRequest::Read(want) => {
            let content = read(source, client, &want).await;
            MonitorInput::Read(want, Box::new(content))
        }
        MonitorRequest::ReadRun(run) => {
            let read = client
                .call(ReadRun {
                    run_id: run.clone(),
                })
                .await
                .map(|view| view.run);
            MonitorInput::Record(run, Box::new(read))
        }
        MonitorRequest::ReadSession(id) => {
            let read = client
                .call(ReadSession {
                    session_id: id.clone(),
                })
                .await
                .map(|view| view.session);
            MonitorInput::Session(id, Box::new(read))
        }
        MonitorRequest::ReadAsks => MonitorInput::PendingRequests(
            prompts::fetch_open_requests(client, None)
                .await
                .map(|open| open.requests),
        ),
        MonitorRequest::Execute(command) => {
            MonitorInput::CommandDone(execute_command(source, client, command).await)
        }
        MonitorRequest::Exit | MonitorRequest::Suspend | MonitorRequest::Redraw => return None,
    })
}

/// Watches the tree until the screen is closed, and reconnects when the owner is lost.
async fn follow(
    whom: TreeSource,
    tell: mpsc::Sender<MonitorInput>,
    reached: watch::Sender<Option<(Client, Ready)>>,
) {
    let mut wait = RECONNECT_DELAY.0;
    loop {
        let why = match reach(&whom).await {
            Ok((client, ready)) => {
                match forward_tree(client, ready, &tell, &reached, &mut wait).await {
                    Some(error) => error.message,
                    None => return,
                }
            }
            Err(why) => why,
        };
        reached.send_replace(None);
        if tell
            .send(MonitorInput::Link(Connection::Lost(why)))
            .await
            .is_err()
        {
            return;
        }
        tokio::time::sleep(wait).await;
        wait = match &whom {
            // Looking for the owner of a local home is cheap, so the delay does not grow.
            TreeSource::Address(Address::Home(_)) => RECONNECT_DELAY.0,
            _ => (wait * 2).min(RECONNECT_DELAY.1),
        };
    }
}

async fn reach(whom: &TreeSource) -> Result<(Client, Ready), String> {
    match whom {
        TreeSource::Connected(client) => match client.call(CheckReadiness {}).await {
            Ok(ready) => Ok((client.clone(), ready)),
            Err(error) => match Ready::of_failure(&error) {
                Some(ready) => Ok((client.clone(), ready)),
                None => Err(error.message),
            },
        },
        TreeSource::Address(address) => match Client::find(address).await {
            Discovery::Owner(client, ready) => Ok((client, ready)),
            Discovery::Unresponsive => Err(unresponsive().message),
            Discovery::Unreachable(error) => Err(error.message),
            Discovery::None => {
                Err("no process owns this home: waiting for `soong run`, `soong serve` or another command".to_owned())
            }
        },
    }
}

/// Forwards tree events to the screen until the connection ends. Returns the reason, or `None` if
/// the screen was closed.
///
/// An owner counts as connected only after its first tree event.
async fn forward_tree(
    client: Client,
    ready: Ready,
    tell: &mpsc::Sender<MonitorInput>,
    reached: &watch::Sender<Option<(Client, Ready)>>,
    wait: &mut Duration,
) -> Option<ErrorInfo> {
    let mut line = match client.watch_tree().await {
        Ok(line) => line,
        Err(error) => return Some(error),
    };
    let mut connection = Some(Connection::Connected {
        pid: ready.pid,
        version: ready.version.clone(),
    });
    loop {
        let event = match line.next().await {
            Ok(event) => event,
            Err(error) => return Some(error),
        };
        if let Some(connection) = connection.take() {
            *wait = RECONNECT_DELAY.0;
            reached.send_replace(Some((client.clone(), ready.clone())));
            tell.send(MonitorInput::Link(connection)).await.ok()?;
        }
        tell.send(MonitorInput::Tree(event)).await.ok()?;
    }
}

async fn read(
    source: &Source,
    client: &Client,
    want: &ReadRequest,
) -> Result<ReadContent, ErrorInfo> {
    Ok(match want.need {
        RecordKind::Facts => {
            let (run, trace) = tokio::try_join!(
                client.call(ReadRun {
                    run_id: want.run.clone()
                }),
                client.call(ReadTrace {
                    trace_id: want.trace.clone()
                })
            )?;
            ReadContent::Facts(Box::new(RunFacts { run, trace }))
        }
        RecordKind::Events => events(source, client, want).await?,
        RecordKind::Messages => {
            let read = async |path| {
                source
                    .messages(want.trace.as_str(), path)
                    .await
                    .map_err(|failure| read_error(&failure.what))
            };
            let all = read(MessagePath::All).await?;
            let path = read(MessagePath::Main).await?;
            let marks = message_marks::marks(&all, &path);
            ReadContent::Messages(all.into_iter().zip(marks).collect())
        }
        RecordKind::Artifacts => {
            let request = ListArtifacts {
                session_id: want.session.clone(),
            };
            ReadContent::Artifacts(client.call(request).await?.artifacts)
        }
        RecordKind::Preview => {
            let name = want.artifact.clone().unwrap_or_default();
            let request = ReadArtifact {
                session_id: want.session.clone(),
                name: name.clone(),
            };
            let view = client.call(request).await?;
            let lines = match view.content {
                Some(text) => preview_lines(&text),
                None => vec![format!(
                    "not a text artifact: write it to a file with `soong artifacts get {name} --session {} -o FILE`",
                    want.session
                )],
            };
            ReadContent::Preview(Preview { name, lines })
        }
    })
}

/// Reads the newest events of a trace, or the events after `want.since` if they are not too many.
async fn events(
    source: &Source,
    client: &Client,
    want: &ReadRequest,
) -> Result<ReadContent, ErrorInfo> {
    let newest = async || {
        let trace = client
            .call(ReadTrace {
                trace_id: want.trace.clone(),
            })
            .await?
            .trace;
        let newest = trace.last_event_id.saturating_sub(NEWEST_EVENTS);
        // The events of a session whose id was used before do not begin with 1.
        Ok::<u64, ErrorInfo>(if newest < trace.first_event_id {
            0
        } else {
            newest
        })
    };
    let mut since = match want.since {
        Some(since) => since,
        None => newest().await?,
    };
    let mut follow = want.since.is_some();
    let mut records = Vec::new();
    loop {
        let page = source
            .events(&want.trace, since)
            .await
            .map_err(|failure| read_error(&failure.what))?;
        let is_last = page.len() < PAGE_EVENTS;
        since = page.last().map_or(since, |last| last.event_id);
        records.extend(page);
        if is_last {
            return Ok(ReadContent::Events { records, follow });
        }
        // The pane was not updated for a long time. Older events are skipped, since they would not
        // be kept.
        let newest = newest().await?;
        if newest > since {
            since = newest;
            follow = false;
            records.clear();
        }
    }
}

/// Returns the part of a text that is shown.
fn preview_lines(text: &str) -> Vec<String> {
    let mut room = PREVIEW_BYTES;
    let lines = text.lines().take(PREVIEW_LINES).map_while(|line| {
        let end = (0..=line.len().min(room))
            .rev()
            .find(|at| line.is_char_boundary(*at))?;
        let is_over = room == 0;
        room -= end;
        (!is_over).then(|| line[..end].to_owned())
    });
    lines.collect()
}

fn read_error(what: &str) -> ErrorInfo {
    ErrorInfo::retryable(ErrorCode::Closing, what)
}

/// Executes an action; returns the message to show.
async fn execute_command(
    source: &Source,
    client: &Client,
    command: Command,
) -> Result<String, String> {
    let error_message = |error: ErrorInfo| error.message;
    match command {
        Command::Cancel(runs) => cancel(client, runs).await,
        Command::Kill(actor) => {
            client
                .call(CrashActor {
                    actor_id: actor.clone(),
                })
                .await
                .map_err(error_message)?;
            Ok(format!("crashed {actor}; its supervisor restarts it"))
        }
        Command::Decide {
            id,
            decision,
            reason,
        } => {
            client
                .named("monitor")
                .call(DecidePermission {
                    permission_id: id,
                    body: DecisionBody { decision, reason },
                })
                .await
                .map_err(error_message)?;
            Ok(match decision {
                Decision::AllowOnce => "allowed once",
                Decision::AllowForSession => "allowed for the session",
                Decision::Deny => "denied",
            }
            .to_owned())
        }
        Command::Answer { id, text } => client
            .call(AnswerQuestion {
                question_id: id,
                body: AnswerBody { answer: text },
            })
            .await
            .map(|_| "answered".to_owned())
            .map_err(error_message),
        Command::Export { trace, dir } => {
            let exported = export::export(source, trace.as_str(), Path::new(&dir)).await;
            exported
                .map(|exported| exported.summary())
                .map_err(|failure| failure.what)
        }
    }
}

async fn cancel(client: &Client, runs: Vec<RunId>) -> Result<String, String> {
    let mut failed = None;
    // Concurrently, because each request waits for a commit.
    let requests = runs.iter().map(async |run_id| {
        let request = CancelRun {
            run_id: run_id.clone(),
        };
        client.call(request).await
    });
    for cancelled in futures::future::join_all(requests).await {
        match cancelled {
            // The run has ended in the meantime.
            Err(error) if error.code == ErrorCode::NothingRunning => {}
            // The other runs are cancelled nevertheless.
            Err(error) => drop(failed.get_or_insert(error.message)),
            Ok(_) => {}
        }
    }
    failed.map_or(Ok(()), Err)?;
    Ok(format!(
        "cancelling {}",
        format::plural(runs.len(), "run", "runs")
    ))
}
