//! Canary secrets in the environment, configuration, headers, tool output and error bodies: none is
//! found in stored, sent or returned data (SAFE-1, issue 7).
//!
//! Every component that produces text in these tests discloses all secrets, on every path into the
//! store. Then everything is searched. Elsewhere: how a text is redacted
//! (`actors/text/src/redaction/tests.rs`), and the output of the command line.

mod leaks;
mod secrets;

use std::sync::Arc;

use bytes::Bytes;
use futures::StreamExt;
use leaks::Leak;
use secrets::{SECRETS, Search, blurt, environment};
use serde_json::{Value, json};
use soong::{
    MessagePath, PermissionFilter, QuestionFilter, RunHandle, RunRequest, Runtime, RuntimeBuilder,
    StreamItem, TraceFilter,
    artifact::{ArtifactOwner, Content, Save},
    model::{Completion, Failure, ModelError, ModelRequest},
    protocol::{
        Config, Decision, Delta, GivenMessage, McpConfig, Role, RunMode, SearchProvider, ToolCall,
        WebSearchConfig,
    },
};
use soong_sandbox::confinement;

use crate::support::{
    artifacts::local_owner,
    history::stored,
    model::{ScriptedModel, Turn, assistant_count, scripted_model, task_of},
    scripted::{Reply, Request, ScriptedServer, delta},
    world::{
        TestRuntime, kinds, quick_config, wait_for_permissions, wait_for_questions, with_timeout,
    },
};

/// Splits a text into pieces of one to five characters.
fn pieces(text: &str) -> Vec<String> {
    let chars = text.chars().collect::<Vec<_>>();
    let mut pieces = Vec::new();
    let mut at = 0;
    while at < chars.len() {
        let end = chars.len().min(at + 1 + pieces.len() % 5);
        pieces.push(chars[at..end].iter().collect());
        at = end;
    }
    pieces
}

/// Returns an answer with all secrets, as text and as reasoning, streamed in small pieces.
fn talk() -> Turn {
    let text = pieces(&blurt())
        .into_iter()
        .map(|text| Delta::Text { text });
    let reasoning = pieces(&blurt())
        .into_iter()
        .map(|text| Delta::Reasoning { text });
    let deltas = reasoning.chain(text).collect();
    let completion = Completion {
        text: blurt(),
        reasoning: Some(blurt()),
        finish_reason: "stop".into(),
        ..Completion::default()
    };
    Turn::Whole(deltas, Box::new(completion))
}

/// Returns these tool calls, with all secrets as text and as reasoning.
fn call(turn: usize, calls: &[(&str, Value)]) -> Turn {
    let call = |(index, (name, arguments)): (usize, &(&str, Value))| ToolCall {
        id: format!("call_{turn}_{index}"),
        name: (*name).to_owned(),
        arguments: arguments.to_string(),
    };
    let tool_calls = calls.iter().enumerate().map(call).collect();
    let completion = Completion {
        text: blurt(),
        reasoning: Some(blurt()),
        tool_calls,
        ..Completion::default()
    };
    Turn::Whole(Vec::new(), Box::new(completion))
}

/// Returns the model's tool calls in a scene, by turn. After the last turn, the model answers with
/// [`talk`].
fn turns(scene: &str) -> Vec<Vec<(&'static str, Value)>> {
    let cut = |at: usize, secret: usize, more: usize, titled: bool| {
        (
            "leak_cut",
            json!({"at": at, "secret": secret, "more": more, "titled": titled}),
        )
    };
    match scene {
        "tools" => vec![
            vec![("leak_print", json!({"text": blurt()}))],
            vec![
                ("leak_fail", json!({})),
                ("leak_progress", json!({})),
                ("leak_store", json!({})),
            ],
            vec![
                ("read", json!({"path": "notes.txt"})),
                ("grep", json!({"pattern": "is <"})),
            ],
            vec![
                ("read", json!({"path": blurt()})),
                ("no_such_tool", json!({"text": blurt()})),
            ],
            vec![
                ("mcp.tickets.tell", json!({})),
                ("mcp.tickets.refuse", json!({})),
            ],
            vec![
                ("mcp.tickets.crash", json!({})),
                ("web_search", json!({"query": blurt()})),
            ],
        ],
        // Positions at which texts are cut: previews, summaries, placeholders of stored outputs,
        // and the output limit.
        "cuts" => (0..SECRETS.len())
            .map(|secret| {
                let edges = [200, 1_000, 2_000, 4_096];
                edges
                    .into_iter()
                    .flat_map(|at| [cut(at, secret, 9_000, true), cut(at, secret, 3_000, false)])
                    .collect()
            })
            .collect(),
        "children" => vec![
            vec![(
                "agent",
                json!({"task": blurt(), "context": blurt(), "agent_type": "default"}),
            )],
            vec![(
                "agent",
                json!({"task": ["fail", "break", blurt()], "agent_type": "default"}),
            )],
            vec![(
                "agent",
                json!({"task": "x", "expected_output_schema": {"type": "object", "title": blurt()}}),
            )],
            vec![
                ("goal", json!({"add": blurt(), "reason": blurt()})),
                ("evaluate", json!({"context": blurt()})),
            ],
        ],
        "artifacts" => vec![
            vec![(
                "create_artifact",
                json!({"name": "doc", "content": format!("old {}", blurt()), "title": blurt()}),
            )],
            vec![(
                "update_artifact",
                json!({"name": "doc", "old": "old", "new": blurt()}),
            )],
            vec![
                ("read_artifact", json!({"name": "doc"})),
                ("create_artifact", json!({"name": blurt(), "content": ""})),
            ],
            vec![(
                "update_artifact",
                json!({"name": "doc", "old": blurt(), "new": "x"}),
            )],
            vec![(
                "rewrite_artifact",
                json!({"name": "doc", "content": blurt()}),
            )],
            vec![(
                "create_artifact",
                json!({"name": "task_plan", "content": blurt()}),
            )],
        ],
        "goals" => vec![
            vec![("goal", json!({"add": [blurt(), "two"], "reason": blurt()}))],
            vec![(
                "create_artifact",
                json!({"name": "task_plan", "content": blurt()}),
            )],
            vec![("goal", json!({"done": blurt()}))],
            vec![
                ("goal", json!({"focus": "2"})),
                ("goal", json!({"abandon": blurt()})),
            ],
        ],
        "people" => vec![vec![(
            "ask_human",
            json!({"question": blurt(), "to": "Ada"}),
        )]],
        "leave" => vec![
            vec![("leak_ask", json!({"text": blurt()}))],
            vec![("leak_ask", json!({"text": blurt()}))],
            vec![(
                "write",
                json!({"path": "by-link/made.txt", "content": blurt()}),
            )],
        ],
        "refused" => vec![vec![("leak_ask", json!({"text": blurt()}))]],
        "command" => vec![vec![(
            "bash",
            json!({"command": "env; printenv SERVICE_TOKEN DB_PASSWORD >&2"}),
        )]],
        _ => Vec::new(),
    }
}

fn scripted() -> Arc<ScriptedModel> {
    scripted_model(|request: &ModelRequest| {
        let scene = task_of(request)
            .split([' ', '\n'])
            .next()
            .unwrap_or_default()
            .to_owned();
        let turn = assistant_count(request);
        match (scene.as_str(), turns(&scene).get(turn)) {
            ("fail", _) => Turn::Fail(ModelError::new(Failure::Rejected, blurt())),
            ("break", _) => Turn::Break(said_first(), ModelError::new(Failure::Rejected, blurt())),
            ("hang", _) => Turn::Hang(said_first()),
            (_, Some(calls)) => call(turn, calls),
            _ => talk(),
        }
    })
}

/// Returns the text with all secrets, computed once.
fn said_first() -> &'static str {
    static SAID: std::sync::OnceLock<String> = std::sync::OnceLock::new();
    SAID.get_or_init(blurt)
}

/// Replies to every request with the request's headers and all secrets.
fn echo(request: &Request) -> Reply {
    let echoed = format!("{:?} {}", request.headers, blurt());
    Reply::status(
        401,
        json!({"error": {"message": echoed}, "headers": request.headers}).to_string(),
    )
}

/// Configuration that names two secrets whose variable names do not mark them as secrets.
fn naming(address: &str) -> Config {
    let mut config = quick_config();
    config.runtime.debug_artifacts = true;
    config.tools.web_search = WebSearchConfig {
        provider: SearchProvider::Tavily,
        base_url: Some(address.to_owned()),
        api_key_env: Some("SEARCH_WORD".into()),
    };
    let server = McpConfig {
        url: Some(address.to_owned()),
        header_env: [(
            "Authorization".to_owned(),
            "TICKETS_AUTHORIZATION".to_owned(),
        )]
        .into(),
        timeout_ms: 5_000,
        ..McpConfig::default()
    };
    config.mcp = [("remote".to_owned(), server)].into();
    config
}

/// The same configuration with a local MCP server, and with permission for all tools of the scenes
/// that do not test permissions.
fn config(address: &str, script: &std::path::Path) -> Config {
    let mut config = naming(address);
    config.tools.output_limit_bytes = 4_096;
    config
        .tools
        .env_allowlist
        .extend(["SERVICE_TOKEN", "DB_PASSWORD", "PLAIN_NOTE"].map(str::to_owned));
    let server = McpConfig {
        command: Some("python3".into()),
        args: vec![script.to_str().unwrap().to_owned()],
        env: [("SECRET".to_owned(), "SERVICE_TOKEN".to_owned())].into(),
        ..McpConfig::default()
    };
    config.mcp.insert("tickets".to_owned(), server);
    config.permissions.allow = ["bash", "web_search", "mcp.*"].map(str::to_owned).to_vec();
    config
}

/// Returns a summary with all secrets.
fn summary() -> String {
    let parts = [
        "Request and intent",
        "Artifacts",
        "Current work",
        "Next step",
    ];
    parts
        .map(|part| format!("## {part}\n{}\n", blurt()))
        .concat()
}

/// Searches the events, deltas and outcome of a run.
async fn hear(search: &mut Search, run: &RunHandle) {
    let mut events = run.events().unwrap();
    let mut streamed: [String; 3] = Default::default();
    while let Some(item) = with_timeout(events.next()).await {
        match item.unwrap() {
            StreamItem::Event(event) => {
                search.look("events", serde_json::to_string(&event).unwrap())
            }
            StreamItem::Delta(delta) => {
                search.look("deltas", serde_json::to_string(&delta.delta).unwrap());
                let kind = match &delta.delta {
                    Delta::Text { .. } => 0,
                    Delta::Reasoning { .. } => 1,
                    Delta::ToolProgress { .. } => 2,
                };
                streamed[kind].push_str(delta.delta.text());
            }
            other => search.look("other things of streams", format!("{other:?}")),
        }
    }
    streamed
        .iter()
        .for_each(|text| search.look("deltas put together", text));
    match with_timeout(run.wait()).await {
        Ok(outcome) => {
            search.look(
                "outcomes",
                format!(
                    "{} {:?} {:?}",
                    outcome.output, outcome.error, outcome.artifacts
                ),
            );
            search.look("outcomes", serde_json::to_string(&outcome.error).unwrap());
        }
        Err(error) => search.look("errors", serde_json::to_string(&error).unwrap()),
    }
}

/// Searches the results of all query methods of the runtime.
async fn ask_all(search: &mut Search, runtime: &Runtime) {
    let json = |value: Value| value.to_string();
    search.look(
        "tree",
        serde_json::to_string(&runtime.tree().snapshot()).unwrap(),
    );
    let sessions = runtime
        .sessions()
        .list(soong::SessionFilter::default(), 100, None)
        .await
        .unwrap();
    search.look("sessions", json(json!(sessions.items)));
    for trace in runtime
        .traces()
        .list(TraceFilter::default(), 100, None)
        .await
        .unwrap()
        .items
    {
        search.look("traces", json(json!(trace)));
        let messages = runtime
            .traces()
            .messages(&trace.trace_id, MessagePath::All)
            .await
            .unwrap();
        search.look("messages", json(json!(messages)));
        search.look(
            "goals",
            json(json!(
                runtime.traces().goal_tree(&trace.trace_id).await.unwrap()
            )),
        );
    }
    for session in sessions.items {
        let owner = runtime
            .artifacts()
            .owner(&session.session_id)
            .await
            .unwrap();
        for artifact in runtime.artifacts().list(&owner).await.unwrap() {
            search.look("artifacts", json(json!(artifact)));
            let text = runtime
                .artifacts()
                .load(&owner, &artifact.key(), None)
                .await
                .unwrap()
                .text()
                .await;
            search.look("texts of artifacts", text.unwrap_or_default());
        }
    }
    search.look(
        "questions",
        json(json!(
            runtime
                .questions()
                .list(QuestionFilter::default())
                .await
                .unwrap()
        )),
    );
    search.look(
        "permissions",
        json(json!(
            runtime
                .permissions()
                .list(PermissionFilter::default())
                .await
                .unwrap()
        )),
    );
}

/// Stores all secrets through every method of the library, and searches the results.
async fn store_all(search: &mut Search, runtime: &Runtime, dir: &std::path::Path) {
    let here: ArtifactOwner = local_owner("tools");
    let cut = pieces(&blurt())
        .into_iter()
        .map(|piece| Ok(Bytes::from(piece)));
    let bytes = blurt()
        .into_bytes()
        .into_iter()
        .map(|byte| Ok(Bytes::from(vec![byte])));
    let file = dir.join("upload.txt");
    std::fs::write(&file, blurt()).unwrap();
    for (name, content) in [
        ("bytes", Content::from(blurt())),
        (
            "stream",
            Content::Stream(futures::stream::iter(cut.collect::<Vec<_>>()).boxed()),
        ),
        (
            "bytewise",
            Content::Stream(futures::stream::iter(bytes.collect::<Vec<_>>()).boxed()),
        ),
        ("file", Content::File(file.clone())),
    ] {
        let stored = with_timeout(
            runtime
                .artifacts()
                .put(&here, name, "text/markdown", content),
        )
        .await
        .unwrap();
        search.look("returned artifacts", json!(stored).to_string());
    }
    let upload = runtime.artifacts().upload(
        &here,
        "upload.json",
        "application/json",
        json!({"a": blurt()}).to_string().into(),
    );
    search.look(
        "returned artifacts",
        json!(with_timeout(upload).await.unwrap()).to_string(),
    );
    let edited = with_timeout(
        runtime
            .artifacts()
            .edit(&here, "bytes", "PLAIN_NOTE", &blurt()),
    )
    .await
    .unwrap();
    search.look("returned artifacts", format!("{edited:?}"));
    let mut save = Save::new("user:mine", "text/plain", blurt());
    save.title = blurt();
    let saved = with_timeout(runtime.artifacts().service().save(&here, save))
        .await
        .unwrap();
    search.look("returned artifacts", json!(saved).to_string());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_secret_in_stored_sent_or_returned_data() {
    let server = ScriptedServer::start(echo);
    let script_dir = tempfile::tempdir().unwrap();
    let script = script_dir.path().join("server.py");
    std::fs::write(&script, leaks::SERVER).unwrap();
    let path = std::env::var("PATH").unwrap();
    let mut search = Search::new();
    let mut world = TestRuntime::with(scripted(), |builder: RuntimeBuilder| {
        let builder = builder
            .config(config(&server.base_url(), &script))
            .environment(environment(&[("PATH", path.as_str())]));
        Leak::all()
            .into_iter()
            .fold(builder.permissions_by_users(), |builder, tool| {
                builder.tool(tool)
            })
    })
    .await;
    let runtime = world.runtime();
    // Files that a user wrote into the project may contain secrets; data about them may not.
    std::fs::write(world.project().join("notes.txt"), blurt()).unwrap();
    let named = world.project().join(SECRETS[2].1);
    std::fs::create_dir(&named).unwrap();
    std::os::unix::fs::symlink(&named, world.project().join("by-link")).unwrap();
    for scene in [
        "talk",
        "tools",
        "cuts",
        "children",
        "artifacts",
        "goals",
        "fail",
        "break",
    ] {
        let mode = if scene == "goals" {
            RunMode::Orchestrator
        } else {
            RunMode::Normal
        };
        let given = |role, content: String| GivenMessage {
            role,
            content: content.into(),
            tool_call_id: None,
        };
        let mut start = RunRequest::new(format!("{scene} {}", blurt()))
            .session(scene)
            .mode(mode);
        start = start.system_prompt(format!("You work. {}", blurt()));
        // Given messages would shift the scripted turns, so only the scene without a script gets
        // them.
        if scene == "talk" {
            let messages = [
                given(Role::User, format!("{scene} {}", blurt())),
                given(Role::Assistant, blurt()),
            ];
            start = start.session_name(blurt()).messages(messages);
        }
        hear(&mut search, &runtime.start(start).await.unwrap()).await;
    }
    // Names, descriptions and collaborator entries are made from the first characters of a message.
    for (at, (_, secret)) in [60, 80, 160, 200]
        .into_iter()
        .flat_map(|at| SECRETS.map(|secret| (at, secret)))
    {
        let before = "x".repeat((at - 4_usize).saturating_sub(secret.chars().count()));
        let start = RunRequest::new(format!("short {before}{secret}"));
        hear(&mut search, &runtime.start(start).await.unwrap()).await;
    }
    if confinement().missing().is_none() {
        hear(
            &mut search,
            &runtime
                .start(RunRequest::new("command").session("command"))
                .await
                .unwrap(),
        )
        .await;
    } else {
        println!("commands are not tried: {:?}", confinement());
    }
    let run = runtime
        .start(RunRequest::new("people").session("people"))
        .await
        .unwrap();
    let question = with_timeout(wait_for_questions(runtime, 1)).await.remove(0);
    search.look("questions", json!(question).to_string());
    let answered = runtime
        .questions()
        .answer(&question.question_id, blurt())
        .await
        .unwrap();
    search.look("questions", json!(answered).to_string());
    hear(&mut search, &run).await;
    let run = runtime
        .start(RunRequest::new("leave").session("leave"))
        .await
        .unwrap();
    for decision in [Decision::AllowOnce, Decision::Deny, Decision::Deny] {
        let waiting = with_timeout(wait_for_permissions(runtime, 1))
            .await
            .remove(0);
        search.look("permissions", json!(waiting).to_string());
        search.look(
            "tree",
            serde_json::to_string(&runtime.tree().snapshot()).unwrap(),
        );
        let decided = runtime
            .permissions()
            .decide(&waiting.permission_id, decision, Some(blurt()))
            .await
            .unwrap();
        search.look("permissions", json!(decided).to_string());
    }
    hear(&mut search, &run).await;
    let refused = RunRequest::new("refused").session("refused").unattended();
    hear(&mut search, &runtime.start(refused).await.unwrap()).await;
    let hung = runtime
        .start(RunRequest::new("hang").session("hang"))
        .await
        .unwrap();
    let (_, ()) = tokio::join!(hear(&mut search, &hung), async {
        with_timeout(hung.cancel()).await.unwrap()
    });
    store_all(&mut search, runtime, script_dir.path()).await;
    ask_all(&mut search, runtime).await;
    let home = world.home();
    let project = world.project();
    std::fs::remove_file(project.join("notes.txt")).unwrap();
    world.close_runtime().await;
    search.look_below("home", &home);
    search.look_below("project", &project);
    search.end(20);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_secret_leaks_if_the_provider_echoes_the_request() {
    let mut search = Search::new();
    for (name, status) in [
        ("401", 401),
        ("400", 400),
        ("500", 500),
        ("429", 429),
        ("answer", 200),
        ("stream", 0),
    ] {
        let server = ScriptedServer::start(move |request: &Request| {
            let echoed = format!("{:?} {}", request.headers, blurt());
            match status {
                200 => Reply::answer(&echoed),
                0 => {
                    let error = json!({"error": {"message": echoed, "type": echoed}});
                    let pieces = pieces(&echoed)
                        .into_iter()
                        .map(|text| delta(json!({"content": text}), Value::Null));
                    Reply::sse(pieces.chain([error]))
                }
                _ => Reply::status(
                    status,
                    json!({"error": {"message": echoed, "type": echoed, "code": echoed}})
                        .to_string(),
                ),
            }
        });
        let dir = tempfile::tempdir().unwrap();
        let home = dir.path().join("home");
        let project = dir.path().join("project");
        std::fs::create_dir(&project).unwrap();
        let mut config = naming(&server.base_url());
        config.model.retry.max_attempts = 2;
        let environment = environment(&[("OPENAI_BASE_URL", &server.base_url())]);
        let runtime = Runtime::builder()
            .home(&home)
            .project_dir(&project)
            .config(config)
            .environment(environment);
        let runtime = runtime.build().await.unwrap();
        hear(
            &mut search,
            &runtime
                .start(RunRequest::new(name).session("s"))
                .await
                .unwrap(),
        )
        .await;
        ask_all(&mut search, &runtime).await;
        runtime.close().await;
        drop(runtime);
        let sent = server.requests();
        let key = |request: &Request| {
            request
                .headers
                .get("authorization")
                .is_some_and(|is| is.contains(SECRETS[2].1))
        };
        assert!(
            sent.iter().any(key),
            "{name}: the key is sent to its provider"
        );
        search.look_below("home", &home);
    }
    search.end(10);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_secret_in_summaries_or_messages_after_them() {
    let mut search = Search::new();
    let model = scripted_model(|request: &ModelRequest| match request.messages.len() {
        _ if request.tools.is_empty() => Turn::say(summary()),
        length if length < 15 => Turn::call("read", json!({ "path": "long.txt" })),
        _ => talk(),
    });
    let mut world = TestRuntime::with(model, |builder| {
        let mut config = naming("http://127.0.0.1:9");
        config.model.context_window = Some(20_000);
        config.model.max_output_tokens = Some(100);
        config.context.threshold_ratio = 0.35;
        config.context.keep_recent_messages = 4;
        builder.config(config).environment(environment(&[]))
    })
    .await;
    std::fs::write(
        world.project().join("long.txt"),
        format!("{}\n", blurt()).repeat(30),
    )
    .unwrap();
    let run = world
        .runtime()
        .start(RunRequest::new(format!("read {}", blurt())).session("s"))
        .await
        .unwrap();
    hear(&mut search, &run).await;
    let events = stored(world.runtime(), run.trace_id()).await;
    let summaries = kinds(&events)
        .into_iter()
        .filter(|kind| *kind == "compaction_completed")
        .count();
    assert!(
        summaries > 0,
        "something was summed up: {:?}",
        kinds(&events)
    );
    ask_all(&mut search, world.runtime()).await;
    let home = world.home();
    world.close_runtime().await;
    search.look_below("home", &home);
    search.end(10);
}

#[test]
fn search_finds_secrets_in_each_form_and_in_pieces() {
    let secret = SECRETS[0].1;
    let json = serde_json::to_string(secret).unwrap();
    for (text, is_found) in [
        (format!("a {secret} b"), true),
        (json.clone(), true),
        (serde_json::to_string(&json).unwrap(), true),
        ("tok%22en%5Ccanary%2F00%2541".to_owned(), true),
        (secret[..12].to_owned(), true),
        (secret[..11].to_owned(), false),
        ("[redacted:SERVICE_TOKEN]".to_owned(), false),
    ] {
        let found = std::panic::catch_unwind(|| {
            let mut search = Search::new();
            search.look("here", format!("{} {text}", secrets::CONTROL.1));
            search.end(1);
        });
        assert_eq!(found.is_err(), is_found, "{text}");
    }
    let mut search = Search::new();
    search.look("here", "nothing at all");
    assert!(
        std::panic::catch_unwind(|| search.end(1)).is_err(),
        "without its control a search proves nothing"
    );
}
