//! Invariants of every event history and every conversation.

use std::{collections::HashMap, sync::Arc};

use serde_json::json;
use soong::{
    MessagePath, Runtime, StreamItem,
    protocol::{Event, EventRecord, Message, Role, RunId, SessionId, ToolCall, ToolEvent, TraceId},
};

use super::{pairing, world::with_timeout};

/// Checks the invariants of a run's events.
pub fn check_run(events: &[Arc<EventRecord>]) {
    let kinds: Vec<&str> = events.iter().map(|event| event.event.kind()).collect();
    // Children may be added to a queued run.
    let is_before_start = |kind: &&str| {
        matches!(
            *kind,
            "run_queued" | "run_dequeued" | "sub_trace_started" | "collaborator_updated"
        )
    };
    let first_work = kinds.iter().position(|kind| !is_before_start(kind));
    // A queued run may be cancelled or interrupted before it starts.
    let never_began = kinds.last() != Some(&"run_completed") && !kinds.contains(&"loop_started");
    if !never_began {
        assert_eq!(
            first_work.map(|index| kinds[index]),
            Some("loop_started"),
            "{kinds:?}"
        );
    }
    let terminal: Vec<usize> = events
        .iter()
        .enumerate()
        .filter(|(_, event)| event.event.is_terminal())
        .map(|(index, _)| index)
        .collect();
    assert_eq!(
        terminal,
        [events.len() - 1],
        "one terminal event, and it is the last: {kinds:?}"
    );
    for (index, event) in events.iter().enumerate() {
        assert_eq!(event.run_seq, Some(index as u64 + 1), "{kinds:?}");
    }
    let mut open: HashMap<&str, i32> = HashMap::new();
    let mut children: HashMap<String, i32> = HashMap::new();
    for event in events {
        match &event.event {
            Event::Tool(ToolEvent::Started { tool_call_id, .. }) => {
                assert_eq!(
                    open.insert(tool_call_id, 1),
                    None,
                    "{tool_call_id} started twice"
                );
            }
            Event::Tool(
                ToolEvent::Completed { tool_call_id, .. }
                | ToolEvent::Failed { tool_call_id, .. }
                | ToolEvent::Denied { tool_call_id, .. },
            ) => {
                assert_eq!(
                    open.insert(tool_call_id, 0),
                    Some(1),
                    "{tool_call_id} closed without being open"
                );
            }
            // Ids are unique only within one model answer.
            Event::Model(soong::protocol::ModelEvent::Started { .. }) => {
                assert!(
                    open.values().all(|open| *open == 0),
                    "a call is open when the model is called: {kinds:?}"
                );
                open.clear();
            }
            Event::SubAgent(soong::protocol::SubAgentEvent::Started { run_id, .. }) => {
                assert_eq!(children.insert(run_id.to_string(), 1), None);
            }
            Event::SubAgent(soong::protocol::SubAgentEvent::Completed { run_id, .. }) => {
                assert_eq!(
                    children.insert(run_id.to_string(), 0),
                    Some(1),
                    "{run_id} ended twice"
                );
            }
            _ => {}
        }
    }
    assert!(
        open.values().all(|open| *open == 0),
        "a tool call has no closing event: {kinds:?}"
    );
    assert!(
        children.values().all(|open| *open == 0),
        "the run ended before a child: {kinds:?}"
    );
}

/// Checks that OpenAI accepts a conversation: every tool call is answered once, directly after it.
pub fn check_messages(messages: &[Message]) {
    let mut previous = 0;
    let mut owed: Vec<String> = Vec::new();
    for message in messages {
        // A summary has a higher sequence than the messages after it.
        if message.covers.is_none() {
            assert!(message.sequence > previous, "sequences grow");
            previous = message.sequence;
        }
        assert!(!message.partial, "a partial message is on the main path");
        if message.role == Role::Tool {
            let id = message.tool_call_id.clone().unwrap();
            let index = owed.iter().position(|call| *call == id);
            owed.remove(index.unwrap_or_else(|| panic!("{id} is answered but was not requested")));
        } else {
            assert!(
                owed.is_empty(),
                "{owed:?} are not answered before the next {:?} message",
                message.role
            );
            owed.extend(message.tool_calls.iter().map(|call| call.id.clone()));
        }
    }
    assert!(owed.is_empty(), "{owed:?} are not answered");
    // Check the same as providers see it. A conversation with only system messages has not been
    // sent yet.
    let sent: Vec<serde_json::Value> = messages.iter().map(sent).collect();
    if messages.iter().any(|message| message.role != Role::System) {
        assert_eq!(pairing::openai(&sent), Ok(()), "{sent:#?}");
        assert_eq!(pairing::anthropic(&sent), Ok(()), "{sent:#?}");
    }
}

/// Returns a message in OpenAI's format.
fn sent(message: &Message) -> serde_json::Value {
    let call = |call: &ToolCall| json!({"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}});
    let mut form = json!({"role": message.role.as_str(), "content": message.content});
    if !message.tool_calls.is_empty() {
        form["tool_calls"] = message.tool_calls.iter().map(call).collect();
    }
    if let Some(id) = &message.tool_call_id {
        form["tool_call_id"] = id.as_str().into();
    }
    form
}

/// Reads all stored events of a trace.
pub async fn stored(runtime: &Runtime, trace: &TraceId) -> Vec<Arc<EventRecord>> {
    let record = runtime.traces().get(trace).await.unwrap();
    let first = record.first_event_id;
    let mut stream = runtime.traces().events(trace, 0);
    let mut events = Vec::new();
    while first + (events.len() as u64) <= record.last_event_id {
        if let StreamItem::Event(event) = with_timeout(stream.next()).await.unwrap().unwrap() {
            events.push(event);
        }
    }
    for (index, event) in events.iter().enumerate() {
        assert_eq!(
            event.event_id,
            first + index as u64,
            "event ids have no gap"
        );
    }
    events
}

/// Checks all stored data of a session whose runs have all ended.
pub async fn check_session(runtime: &Runtime, session: &SessionId) {
    let filter = soong::TraceFilter {
        session_id: Some(session.clone()),
        ..Default::default()
    };
    let mut cursor = None;
    loop {
        let page = runtime
            .traces()
            .list(filter.clone(), 100, cursor)
            .await
            .unwrap();
        for trace in &page.items {
            let events = stored(runtime, &trace.trace_id).await;
            let mut runs: Vec<RunId> = events
                .iter()
                .filter_map(|event| event.run_id.clone())
                .collect();
            runs.dedup();
            runs.sort();
            runs.dedup();
            for run in runs {
                let own: Vec<_> = events
                    .iter()
                    .filter(|event| event.run_id.as_ref() == Some(&run))
                    .cloned()
                    .collect();
                check_run(&own);
            }
            check_messages(
                &runtime
                    .traces()
                    .messages(&trace.trace_id, MessagePath::Main)
                    .await
                    .unwrap(),
            );
            let all = runtime
                .traces()
                .messages(&trace.trace_id, MessagePath::All)
                .await
                .unwrap();
            assert_eq!(all.len() as u64, trace.total_messages);
            let added = events
                .iter()
                .filter(|event| event.event.kind() == "message_added")
                .count();
            assert_eq!(added, all.len(), "each message is announced once");
        }
        cursor = page.next_cursor;
        if cursor.is_none() {
            return;
        }
    }
}
