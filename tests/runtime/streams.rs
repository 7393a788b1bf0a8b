//! Event streams: every event once, in order, from any cursor, whatever the reader does (EVT-1 …
//! EVT-4).

use std::sync::Arc;

use serde_json::json;
use soong::{
    ErrorCode, RunRequest, StreamItem,
    protocol::{Delta, RunId, RunMode},
};

use crate::support::{
    history::{check_run, stored},
    model::{ScriptedModel, Turn, assistant_count, is_parent, scripted_model, task_of},
    world::{TestRuntime, kinds, read_to_end, with_timeout},
};

fn busy() -> Arc<ScriptedModel> {
    scripted_model(
        |request| match (is_parent(request), assistant_count(request)) {
            (true, 0..=4) => Turn::Call(vec![
                ("agent", json!({"task": ["a", "b", "c", "d"]})),
                ("read", json!({"path": "a.txt"})),
            ]),
            (true, _) => Turn::say("end"),
            (false, 0..=2) => Turn::call("list_files", json!({})),
            (false, _) => Turn::say(task_of(request)),
        },
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn live_stream_equals_the_stored_events() {
    let world = TestRuntime::open(busy()).await;
    let run = world
        .runtime()
        .start(RunRequest::new("x").mode(RunMode::Orchestrator))
        .await
        .unwrap();
    let live = read_to_end(run.events().unwrap()).await;
    check_run(&live);
    let stored = stored(world.runtime(), run.trace_id()).await;
    let text = |events: &[Arc<soong::protocol::EventRecord>]| -> Vec<String> {
        events
            .iter()
            .map(|event| serde_json::to_string(event.as_ref()).unwrap())
            .collect()
    };
    assert_eq!(text(&live), text(&stored));
    for child in run.children().await.unwrap() {
        let of_child = read_to_end(run.child_events(&child.run_id).await.unwrap()).await;
        check_run(&of_child);
        assert_eq!(kinds(&of_child).last(), Some(&"run_completed"));
    }
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reconnecting_readers_miss_and_repeat_no_event() {
    let world = TestRuntime::open(busy()).await;
    let run = world
        .runtime()
        .start(RunRequest::new("x").mode(RunMode::Orchestrator))
        .await
        .unwrap();
    let readers: Vec<_> = (1..=8_usize)
        .map(|step| {
            let runtime = world.runtime().clone();
            let trace = run.trace_id().clone();
            tokio::spawn(async move {
                let mut seen = Vec::new();
                let mut cursor = 0;
                loop {
                    // Reconnects after every few events, with the id of the last received event.
                    let mut stream = runtime.traces().events(&trace, cursor);
                    for _ in 0..step {
                        let Some(item) = with_timeout(stream.next()).await else {
                            return seen;
                        };
                        if let StreamItem::Event(event) = item.unwrap() {
                            cursor = event.event_id;
                            seen.push(event.event_id);
                            if event.event.is_terminal() {
                                return seen;
                            }
                        }
                    }
                }
            })
        })
        .collect();
    with_timeout(run.wait()).await.unwrap();
    let last = world
        .runtime()
        .traces()
        .get(run.trace_id())
        .await
        .unwrap()
        .last_event_id;
    for reader in readers {
        assert_eq!(
            with_timeout(reader).await.unwrap(),
            (1..=last).collect::<Vec<_>>()
        );
    }
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_whole_session_is_one_stream_with_one_cursor() {
    let world = TestRuntime::open(busy()).await;
    let run = world
        .runtime()
        .start(
            RunRequest::new("x")
                .mode(RunMode::Orchestrator)
                .session("s"),
        )
        .await
        .unwrap();
    // This stream is read only after all events have occurred, when its buffer has overflowed.
    let mut late = world.runtime().sessions().events(run.session_id(), 0);
    with_timeout(run.wait()).await.unwrap();
    let last = world
        .runtime()
        .sessions()
        .get(run.session_id())
        .await
        .unwrap()
        .last_session_seq;
    let mut fresh = world.runtime().sessions().events(run.session_id(), 0);
    read_session(&mut fresh, last, 0).await;
    read_session(&mut late, last, 0).await;
    let mut rest = world
        .runtime()
        .sessions()
        .events(run.session_id(), last - 10);
    read_session(&mut rest, last, last - 10).await;
    world.finish().await;
}

async fn read_session(stream: &mut soong::EventStream, last: u64, since: u64) {
    let mut seen = since;
    while seen < last {
        if let StreamItem::Event(event) = with_timeout(stream.next()).await.unwrap().unwrap() {
            assert_eq!(event.session_seq, seen + 1);
            seen = event.session_seq;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn text_streams_between_the_events_and_is_not_stored() {
    let go = Arc::new(tokio::sync::Notify::new());
    let signal = Arc::clone(&go);
    let model = scripted_model(move |request| match assistant_count(request) {
        0 => Turn::When(Arc::clone(&signal), "first".into()),
        _ => Turn::say("second"),
    });
    let world = TestRuntime::open(model).await;
    let run = world
        .runtime()
        .start(RunRequest::new("x").session("s"))
        .await
        .unwrap();
    go.notify_one();
    with_timeout(run.wait()).await.unwrap();
    let mut session = world.runtime().sessions().events(run.session_id(), 0);
    let next_run = world
        .runtime()
        .start(RunRequest::new("y").session("s"))
        .await
        .unwrap();
    let mut text = String::new();
    loop {
        match with_timeout(session.next()).await.unwrap().unwrap() {
            StreamItem::Delta(delta) => {
                if let Delta::Text { text: piece } = &delta.delta {
                    text.push_str(piece);
                }
            }
            StreamItem::Event(event)
                if event.run_id.as_ref() == Some(next_run.run_id())
                    && event.event.is_terminal() =>
            {
                break;
            }
            StreamItem::Event(_) | StreamItem::Lost(_) => {}
        }
    }
    assert_eq!(text, "second");
    let stored = stored(world.runtime(), run.trace_id()).await;
    assert!(
        stored
            .iter()
            .all(|event| !event.event.kind().contains("delta"))
    );
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_watchers_read_one_run_from_any_cursor() {
    let world = TestRuntime::open(busy()).await;
    let run = world
        .runtime()
        .start(RunRequest::new("x").mode(RunMode::Orchestrator))
        .await
        .unwrap();
    let outcome = with_timeout(world.runtime().wait(run.run_id()))
        .await
        .unwrap();
    assert_eq!(outcome.output, "end");
    let mut read = Vec::new();
    for since in [0, 3] {
        let mut events = world
            .runtime()
            .run_events(run.run_id(), since)
            .await
            .unwrap();
        let mut ids = Vec::new();
        while let Some(item) = with_timeout(events.next()).await {
            let item = item.unwrap();
            ids.push((item.id().unwrap(), item.kind().to_owned()));
        }
        read.push(ids);
    }
    assert_eq!(read[0].last().unwrap().1, "run_completed");
    assert_eq!(
        read[1],
        read[0]
            .iter()
            .filter(|(id, _)| *id > 3)
            .cloned()
            .collect::<Vec<_>>()
    );
    let last = read[0].last().unwrap().0;
    let mut after_the_end = world
        .runtime()
        .run_events(run.run_id(), last)
        .await
        .unwrap();
    assert!(
        with_timeout(after_the_end.next()).await.is_none(),
        "a client that reconnects after the end"
    );
    let missing = world
        .runtime()
        .run_events(&RunId::new("missing"), 0)
        .await
        .err()
        .unwrap();
    assert_eq!(missing.code, ErrorCode::RunNotFound);
    assert_eq!(
        world
            .runtime()
            .wait(&RunId::new("missing"))
            .await
            .unwrap_err()
            .code,
        ErrorCode::RunNotFound
    );
    world.finish().await;
}
