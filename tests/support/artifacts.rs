//! A model that executes the steps in its prompt, and helpers for artifacts.
//!
//! A prompt is a JSON list of turns. A turn is a call `["tool", {…}]`, several calls `[[…], […]]`,
//! or a word: `"hang"` (until cancelled) or `"fail"`. After the last turn the model repeats the
//! last message. The tool `pause` blocks a run until the test releases it.

use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
};

use futures::future::{BoxFuture, FutureExt};
use serde_json::{Value, json};
use soong::{
    RunHandle, RunOutcome, RunRequest, RuntimeBuilder,
    artifact::{ArtifactOwner, Content, Save},
    model::{Failure, ModelError, ModelRequest},
    protocol::{
        Artifact, ArtifactEvent, ArtifactWrite, Event, EventRecord, Role, SessionId, ToolEvent,
        ToolSpec, Write,
    },
    testing::respond,
    tool::{Tool, ToolContext, ToolOutput, ToolResult},
};
use soong_storage::store::{Ack, Append, Store, StoreError};
use tokio::sync::Semaphore;

use super::{
    model::{ScriptedModel, Turn, last_of, scripted_model},
    world::{TestRuntime, wait_until, with_timeout},
};

/// Returns a model that executes the steps in its prompt.
pub fn prompt_driven_model() -> Arc<ScriptedModel> {
    scripted_model(next_turn)
}

/// Returns such a model that records its requests.
pub fn recording_model() -> Arc<ScriptedModel> {
    Arc::new(respond(|request| next_turn(request).step(request)).recording())
}

/// Opens a world with such a model and a tool `pause`, which waits at the gate.
pub async fn open_with_gate(
    build: impl FnOnce(RuntimeBuilder) -> RuntimeBuilder,
) -> (TestRuntime, Arc<Gate>) {
    let gate = Arc::new(Gate {
        go: Semaphore::new(0),
        arrivals: AtomicUsize::new(0),
    });
    let pause = Pause {
        spec: ToolSpec::read("pause", "Pause", "Waits.", json!({"type": "object"})),
        gate: gate.clone(),
    };
    (
        TestRuntime::with(prompt_driven_model(), |builder| {
            build(builder.tool(Arc::new(pause)))
        })
        .await,
        gate,
    )
}

/// Gate at which runs wait until the test releases them.
pub struct Gate {
    go: Semaphore,
    arrivals: AtomicUsize,
}

impl Gate {
    /// Waits until runs have arrived at the gate `times` times in total.
    pub async fn reached(&self, times: usize) {
        wait_until("the runs come to the gate", || {
            self.arrivals.load(SeqCst) >= times
        })
        .await;
    }

    /// Releases one run.
    pub fn pass(&self) {
        self.go.add_permits(1);
    }
}

struct Pause {
    spec: ToolSpec,
    gate: Arc<Gate>,
}

impl Tool for Pause {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn call(&self, _: ToolContext, _: Value) -> BoxFuture<'static, ToolResult> {
        let gate = Arc::clone(&self.gate);
        async move {
            gate.arrivals.fetch_add(1, SeqCst);
            gate.go.acquire().await.unwrap().forget();
            Ok(ToolOutput::text("passed", "passed"))
        }
        .boxed()
    }
}

/// A store that calls a hook before and after it commits an edit, with the number of the edit (from
/// 1) and whether it is committed.
pub struct EditHookStore<F> {
    store: Box<dyn Store>,
    edits: usize,
    hook: F,
}

impl<F: FnMut(usize, bool) -> Result<(), StoreError> + Send> EditHookStore<F> {
    pub fn new(store: impl Store + 'static, hook: F) -> Self {
        Self {
            store: Box::new(store),
            edits: 0,
            hook,
        }
    }
}

impl<F: FnMut(usize, bool) -> Result<(), StoreError> + Send> Store for EditHookStore<F> {
    fn commit(&mut self, batch: &[Append]) -> Result<Vec<Result<Ack, StoreError>>, StoreError> {
        let is_edit = batch
            .iter()
            .flat_map(|append| &append.writes)
            .any(|write| matches!(write, Write::Artifact(ArtifactWrite::Edit(_))));
        if is_edit {
            self.edits += 1;
            (self.hook)(self.edits, false)?;
        }
        let acks = self.store.commit(batch)?;
        if is_edit {
            (self.hook)(self.edits, true)?;
        }
        Ok(acks)
    }
}

fn next_turn(request: &ModelRequest) -> Turn {
    let user_index = request
        .messages
        .iter()
        .rposition(|message| message.role == Role::User)
        .unwrap_or(0);
    let turn = request.messages[user_index..]
        .iter()
        .filter(|message| message.role == Role::Assistant)
        .count();
    let prompt = &*request.messages[user_index].content;
    let steps: Vec<Value> = serde_json::from_str(prompt).unwrap_or_default();
    let call = |step: &Value| -> (&'static str, Value) {
        // Leaked until the process ends; only a few bytes.
        (
            Box::leak(step[0].as_str().unwrap().to_owned().into_boxed_str()),
            step[1].clone(),
        )
    };
    match steps.get(turn) {
        None => Turn::say(last_of(request)),
        Some(Value::String(word)) => match word.as_str() {
            "fail" => Turn::Fail(ModelError::new(Failure::Rejected, "no")),
            _ => Turn::Hang("text"),
        },
        Some(Value::Array(calls)) if calls[0].is_array() => {
            Turn::Call(calls.iter().map(call).collect())
        }
        Some(step) => Turn::Call(vec![call(step)]),
    }
}

/// Returns a turn that waits at the gate.
pub fn pause() -> Value {
    json!(["pause", {}])
}

pub fn create(name: &str, content: &str) -> Value {
    json!(["create_artifact", {"name": name, "content": content}])
}

pub fn update(name: &str, old: &str, new: &str) -> Value {
    json!(["update_artifact", {"name": name, "old": old, "new": new}])
}

pub fn rewrite(name: &str, content: &str) -> Value {
    json!(["rewrite_artifact", {"name": name, "content": content}])
}

pub fn read(name: &str) -> Value {
    json!(["read_artifact", {"name": name}])
}

/// Returns the turns that create a document and extend it step by step: `0`, then `0 1`, and so on.
pub fn growing(name: &str, edits: usize) -> Vec<Value> {
    let more = (1..=edits).map(|n| update(name, &(n - 1).to_string(), &format!("{} {n}", n - 1)));
    [create(name, "0")].into_iter().chain(more).collect()
}

/// Formats turns as a prompt.
pub fn turns(steps: &[Value]) -> String {
    Value::from(steps.to_vec()).to_string()
}

/// Starts a run of a session with these turns.
pub async fn begin(world: &TestRuntime, session: &str, steps: &[Value]) -> RunHandle {
    world
        .runtime()
        .start(RunRequest::new(turns(steps)).session(session))
        .await
        .unwrap()
}

/// Runs these turns in a session and waits until the run has ended.
pub async fn run(
    world: &TestRuntime,
    session: &str,
    steps: &[Value],
) -> (RunHandle, Arc<RunOutcome>) {
    let run = begin(world, session, steps).await;
    let outcome = with_timeout(run.wait()).await.unwrap();
    (run, outcome)
}

/// Returns the namespace of a session of the local user.
pub fn local_owner(session: &str) -> ArtifactOwner {
    ArtifactOwner {
        session_id: SessionId::new(session),
        uid: "local".into(),
    }
}

/// Returns the current text of an artifact.
pub async fn text(world: &TestRuntime, owner: &ArtifactOwner, key: &str) -> String {
    with_timeout(world.runtime().artifacts().load(owner, key, None))
        .await
        .unwrap()
        .text()
        .await
        .unwrap()
}

/// Returns the text of a stored version.
pub async fn text_at(
    world: &TestRuntime,
    owner: &ArtifactOwner,
    key: &str,
    version: u64,
) -> String {
    with_timeout(world.runtime().artifacts().load(owner, key, Some(version)))
        .await
        .unwrap()
        .text()
        .await
        .unwrap()
}

/// Returns the numbers of the stored versions.
pub async fn versions(world: &TestRuntime, owner: &ArtifactOwner, key: &str) -> Vec<u64> {
    let service = world.runtime().artifacts().service();
    let versions = with_timeout(service.list_versions(owner, key))
        .await
        .unwrap();
    versions.iter().map(|version| version.version).collect()
}

/// Returns the record of an artifact as listed.
pub async fn listed(world: &TestRuntime, owner: &ArtifactOwner, key: &str) -> Artifact {
    let all = world.runtime().artifacts().list(owner).await.unwrap();
    all.into_iter()
        .find(|artifact| artifact.key() == key)
        .unwrap_or_else(|| panic!("{key} is not listed"))
}

/// Stores a text through the library.
pub async fn save(
    world: &TestRuntime,
    owner: &ArtifactOwner,
    key: &str,
    text: impl Into<Content>,
) -> Artifact {
    let service = world.runtime().artifacts().service();
    with_timeout(service.save(owner, Save::new(key, "text/markdown", text.into())))
        .await
        .unwrap()
}

/// Returns the snapshots of a document's edits, in order: version and text.
pub fn edits(events: &[Arc<EventRecord>], name: &str) -> Vec<(u64, String)> {
    let edit = |event: &Arc<EventRecord>| match &event.event {
        Event::Artifact(ArtifactEvent::Edited {
            name: edited,
            snapshot,
            ..
        }) if edited == name => Some((
            snapshot.version,
            snapshot.content.clone().unwrap_or_default(),
        )),
        _ => None,
    };
    events.iter().filter_map(edit).collect()
}

/// Returns each flush of a run: name and version of the documents.
pub fn flushes(events: &[Arc<EventRecord>]) -> Vec<Vec<(String, u64)>> {
    let flush = |event: &Arc<EventRecord>| match &event.event {
        Event::Artifact(ArtifactEvent::Flushed { versions, .. }) => {
            Some(versions.clone().into_iter().collect())
        }
        _ => None,
    };
    events.iter().filter_map(flush).collect()
}

/// Returns the outcome of each call of a tool: `Ok`, or the error code.
pub fn calls(events: &[Arc<EventRecord>], tool: &str) -> Vec<Result<(), String>> {
    let call = |event: &Arc<EventRecord>| match &event.event {
        Event::Tool(ToolEvent::Completed { name, .. }) if name == tool => Some(Ok(())),
        Event::Tool(ToolEvent::Failed { name, error, .. }) if name == tool => {
            Some(Err(error.code.to_string()))
        }
        Event::Tool(ToolEvent::Denied { name, .. }) if name == tool => {
            Some(Err("permission_denied".to_owned()))
        }
        _ => None,
    };
    events.iter().filter_map(call).collect()
}

/// Whether an actor with this id is in the actor tree.
pub fn is_alive(world: &TestRuntime, actor_id: &str) -> bool {
    serde_json::to_string(&world.runtime().tree().snapshot())
        .unwrap()
        .contains(&format!("\"{actor_id}\""))
}

/// Returns the folder that contains the versions of an artifact.
pub fn folder(world: &TestRuntime, artifact: &Artifact) -> PathBuf {
    let owner = match &artifact.scope {
        soong::protocol::ArtifactScope::Session { session_id } => format!("sessions/{session_id}"),
        soong::protocol::ArtifactScope::User { uid } => format!("users/{uid}"),
    };
    world
        .home()
        .join(owner)
        .join("artifacts")
        .join(artifact.artifact_id.as_str())
}
