//! Artifacts in prompts and events: match reports, the plan, the inventory, stored outputs, outputs
//! that are read once, and snapshots (ART-7 … ART-10).

use std::sync::Arc;

use futures::future::{BoxFuture, FutureExt};
use serde_json::{Value, json};
use soong::{
    MessagePath, RunRequest,
    artifact::Save,
    model::ModelRequest,
    protocol::{Artifact, ArtifactSnapshot, Event, Role, RunMode, RunStatus, ToolEvent, ToolSpec},
    tool::{Tool, ToolContext, ToolOutput, ToolResult},
};

use crate::support::{
    artifacts::{
        begin, calls, create, folder, local_owner, open_with_gate, pause, prompt_driven_model,
        read, recording_model, rewrite, run, save, text, turns, update,
    },
    history::{check_session, stored},
    model::{ScriptedModel, is_parent},
    world::{TestRuntime, quick_config, wait_until, with_timeout},
};

/// (ART-7)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn update_result_reports_match_layer_and_replaced_text() {
    let world = TestRuntime::open(prompt_driven_model()).await;
    let here = local_owner("s");
    run(&world, "s", &[]).await;
    for (old, says, want) in [
        (
            "beta",
            "<match layer=\"exact\" similarity=\"1.000\"/>",
            "alpha NEW “gamma” delta\nline  with a tail   \n",
        ),
        (
            "\"gamma\" delta",
            "<match layer=\"normalized\" similarity=\"1.000\"><replaced>“gamma” delta</replaced></match>",
            "alpha beta NEW\nline  with a tail   \n",
        ),
        (
            "line  wit a tale",
            // Among equally similar spans, the longest one is matched.
            "<match layer=\"fuzzy\" similarity=\"0.812\"><replaced>line  with a tail </replaced></match>",
            "alpha beta “gamma” delta\nNEW  \n",
        ),
        ("l", "[ambiguous_match]", ""),
        ("zzzzzz", "[no_match]", ""),
        ("alphaXXXXX", "[match_too_different]", ""),
        ("", "[validation_error]", ""),
    ] {
        save(
            &world,
            &here,
            "doc",
            "alpha beta “gamma” delta\nline  with a tail   \n",
        )
        .await;
        let (_, outcome) = run(&world, "s", &[update("doc", old, "NEW")]).await;
        assert!(outcome.output.contains(says), "{old:?}: {}", outcome.output);
        if !want.is_empty() {
            assert_eq!(text(&world, &here, "doc").await, want, "{old:?}");
        } else {
            assert!(
                text(&world, &here, "doc").await.starts_with("alpha beta"),
                "{old:?}"
            );
        }
    }
    world.finish().await;
}

/// (ART-7)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_match_is_stopped_and_does_not_block_other_runs() {
    let world = TestRuntime::open(prompt_driven_model()).await;
    run(&world, "slow", &[]).await;
    let alike: String = (0..1_000_000)
        .map(|n: u64| char::from(b'a' + (n * n / 7 % 3) as u8))
        .collect();
    let wanted: String = (0..20_000)
        .map(|n: u64| char::from(b'a' + (n * n / 5 % 4) as u8))
        .collect();
    save(&world, &local_owner("slow"), "doc", alike).await;
    let slow = begin(&world, "slow", &[update("doc", &wanted, "x")]).await;
    // The other run begins during the match, so that it cannot have ended before.
    loop {
        let events = stored(world.runtime(), slow.trace_id()).await;
        if events
            .iter()
            .any(|event| event.event.kind() == "tool_started")
        {
            break;
        }
        tokio::task::yield_now().await;
    }
    let steps = vec![json!(["read", {"path": "a.txt"}]); 150];
    let busy = begin(&world, "busy", &steps).await;
    let outcome = with_timeout(slow.wait()).await.unwrap();
    assert!(
        outcome.output.contains("[match_budget_exceeded]"),
        "{}",
        outcome.output
    );
    let events = stored(world.runtime(), slow.trace_id()).await;
    let place_of = |kind: &str| {
        events
            .iter()
            .rfind(|event| event.event.kind() == kind)
            .unwrap()
    };
    let from = place_of("tool_started").ts;
    let to = place_of("tool_failed").ts;
    let took = to.millis_since(from);
    assert!((500..5_000).contains(&took), "{took} ms");
    with_timeout(busy.cancel()).await.unwrap();
    let of_busy = stored(world.runtime(), busy.trace_id()).await;
    let meanwhile = of_busy
        .iter()
        .filter(|event| event.event.kind() == "model_started" && event.ts > from && event.ts < to);
    assert!(meanwhile.count() >= 3, "the other run stood still");
    world.finish().await;
}

fn system(request: &ModelRequest) -> String {
    request.system_and_context() + "\n"
}

/// (ART-8)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plan_is_in_every_prompt_of_agents_with_artifact_access() {
    let model = recording_model();
    let world = TestRuntime::open(model.clone()).await;
    run(&world, "s", &[]).await;
    world
        .runtime()
        .artifacts()
        .upload(
            &local_owner("s"),
            "facts.txt",
            "text/plain",
            "from the user".into(),
        )
        .await
        .unwrap();
    let before = model.calls();
    let list = turns(&[json!(["list_files", {}])]);
    let reads = turns(&[json!(["list_artifacts", {}])]);
    let writes = turns(&[
        rewrite("task_plan", "hijacked"),
        create("task_plan", "hijacked"),
    ]);
    let agent = |kind: &str, task: &str| json!(["agent", {"task": task, "agent_type": kind}]);
    let steps = [
        create("task_plan", "- [ ] first\n- [ ] second"),
        create("long", &"x".repeat(300)),
        agent("explore", &list),
        update("task_plan", "[ ] first", "[x] first"),
        agent("analyst", &reads),
        agent("default", &writes),
    ];
    let start = RunRequest::new(turns(&steps))
        .session("s")
        .mode(RunMode::Orchestrator);
    let run = world.runtime().start(start).await.unwrap();
    assert_eq!(
        with_timeout(run.wait()).await.unwrap().status,
        RunStatus::Completed
    );
    let requests = model.requests().split_off(before);
    let (parents, children): (Vec<_>, Vec<_>) =
        requests.iter().partition(|request| is_parent(request));
    assert_eq!(parents.len(), 7);
    for (turn, request) in parents.iter().enumerate() {
        let system = system(request);
        let plan = match turn {
            0 => None,
            1..=3 => Some("### task_plan (version 1)\n- [ ] first\n- [ ] second\n"),
            _ => Some("### task_plan (version 2)\n- [x] first\n- [ ] second\n"),
        };
        assert_eq!(
            system.contains("### task_plan"),
            plan.is_some(),
            "turn {turn}"
        );
        assert!(
            plan.is_none_or(|plan| system.contains(plan)),
            "turn {turn}: {system}"
        );
        assert!(system.contains(
            "- facts.txt (version 1, text/plain, 13 bytes, uploaded by the user): from the user\n"
        ));
        let line = format!(
            "- long (version 1, text/markdown, 300 bytes): {}…\n",
            "x".repeat(200)
        );
        assert_eq!(system.contains(&line), turn >= 2, "turn {turn}: {system}");
    }
    assert!(children.len() >= 6);
    for request in children {
        let may_read = request
            .tools
            .iter()
            .any(|tool| tool.name == "read_artifact");
        assert_eq!(system(request).contains("- [ ] second"), may_read);
        assert_eq!(system(request).contains("## Artifacts"), may_read);
    }
    for child in run
        .children()
        .await
        .unwrap()
        .iter()
        .filter(|child| child.settings.agent_type == "default")
    {
        let events = stored(world.runtime(), &child.trace_id).await;
        assert_eq!(
            calls(&events, "rewrite_artifact"),
            [Err("permission_denied".to_owned())]
        );
        assert_eq!(
            calls(&events, "create_artifact"),
            [Err("permission_denied".to_owned())]
        );
    }
    assert!(
        text(&world, &local_owner("s"), "task_plan")
            .await
            .starts_with("- [x] first")
    );
    check_session(world.runtime(), run.session_id()).await;
    world.finish().await;
}

/// Tool that returns the text given in its arguments.
struct Parrot(ToolSpec);

impl Parrot {
    fn tool() -> Arc<dyn Tool> {
        Arc::new(Self(ToolSpec::read(
            "parrot",
            "Parrot",
            "Repeats.",
            json!({"type": "object"}),
        )))
    }
}

impl Tool for Parrot {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    fn call(&self, _: ToolContext, arguments: Value) -> BoxFuture<'static, ToolResult> {
        let line = arguments["line"].as_str().unwrap_or_default().to_owned();
        let lines = arguments["lines"].as_u64().unwrap_or(1);
        let output: Vec<String> = (1..=lines)
            .map(|n| line.replace('#', &n.to_string()))
            .collect();
        let flag = |key: &str| arguments[key].as_bool().unwrap_or_default();
        let output = ToolOutput {
            long_term_memory: arguments["memory"].as_str().map(str::to_owned),
            include_output_only_once: flag("once"),
            store_output: flag("store"),
            ..ToolOutput::text("repeats its arguments", output.join("\n"))
        };
        async move { Ok(output) }.boxed()
    }
}

/// (ART-9)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_output_becomes_artifact_and_shows_head_and_tail() {
    let mut config = quick_config();
    config.artifacts.max_inline_bytes = 1_000;
    config.artifacts.max_inline_tokens = 225;
    let world = TestRuntime::with(prompt_driven_model(), |builder| {
        builder.config(config).tool(Parrot::tool())
    })
    .await;
    let here = local_owner("s");
    let long = (1..=400)
        .map(|n| format!("line {n} of it"))
        .collect::<Vec<_>>()
        .join("\n");
    for (arguments, whole) in [
        (json!({"line": "a".repeat(1_001)}), Some("a".repeat(1_001))),
        (json!({"line": "a".repeat(1_000)}), None),
        (json!({"line": "好".repeat(320)}), Some("好".repeat(320))), // 960 bytes, 240 tokens
        (json!({"line": "好".repeat(250)}), None),
        (
            json!({"line": "short", "store": true}),
            Some("short".to_owned()),
        ),
        (
            json!({"line": "line # of it", "lines": 400}),
            Some(long.clone()),
        ),
    ] {
        let (run, outcome) = run(&world, "s", &[json!(["parrot", arguments])]).await;
        let all: Vec<Artifact> = world.runtime().artifacts().list(&here).await.unwrap();
        let mine = all
            .iter()
            .find(|artifact| artifact.provenance.run_id.as_ref() == Some(run.run_id()));
        let Some(whole) = whole else {
            assert!(mine.is_none(), "{arguments}");
            continue;
        };
        let artifact = mine.unwrap_or_else(|| panic!("{arguments} is stored"));
        assert_eq!(
            (&artifact.name, artifact.content_type.as_str()),
            (&None, "text/plain")
        );
        assert_eq!(outcome.artifacts[0].artifact_id, artifact.artifact_id);
        assert_eq!(
            text(&world, &here, artifact.artifact_id.as_str()).await,
            whole,
            "{arguments}"
        );
        assert!(
            outcome
                .output
                .contains(&format!("read_artifact(name=\"{}\"", artifact.artifact_id)),
            "{arguments}"
        );
        assert!(
            outcome
                .output
                .contains(&format!(": {} bytes in ", whole.len())),
            "{}",
            outcome.output
        );
        if whole == long {
            assert!(
                outcome.output.contains("line 1 of it\nline 2 of it")
                    && outcome.output.ends_with("line 400 of it")
            );
            assert!(!outcome.output.contains("line 200 of it"));
            assert!(folder(&world, artifact).join("v1").exists());
        }
    }
    // A stored output is read by lines, and a page of it is not stored again.
    let id = world
        .runtime()
        .artifacts()
        .list(&here)
        .await
        .unwrap()
        .into_iter()
        .find(|one| one.size > 4_000)
        .unwrap()
        .artifact_id;
    let before = world.runtime().artifacts().list(&here).await.unwrap().len();
    let page = json!(["read_artifact", {"name": id, "offset": 399}]);
    assert_eq!(
        run(&world, "s", &[page]).await.1.output,
        "line 399 of it\nline 400 of it\n"
    );
    let (_, outcome) = run(&world, "s", &[read(id.as_str())]).await;
    assert!(
        outcome.output.contains("of 400; continue with offset="),
        "{}",
        outcome.output
    );
    std::fs::write(
        world.project().join("large.txt"),
        format!("{}\n", "y".repeat(90)).repeat(500),
    )
    .unwrap();
    let (_, outcome) = run(&world, "s", &[json!(["read", {"path": "large.txt"}])]).await;
    assert!(outcome.output.contains("yyy") && !outcome.output.contains("stored as artifact"));
    assert_eq!(
        world.runtime().artifacts().list(&here).await.unwrap().len(),
        before
    );
    world.finish().await;
}

/// Returns the content of the tool result in each request that contains it.
fn tool_results(model: &ScriptedModel) -> Vec<String> {
    let result = |request: &ModelRequest| {
        let message = request
            .messages
            .iter()
            .find(|message| message.role == Role::Tool);
        message.map(|message| message.content.to_string())
    };
    model.requests().iter().filter_map(result).collect()
}

/// (ART-9)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn read_once_output_is_shortened_when_the_prompt_is_rebuilt() {
    for (memory, later) in [
        (Some("a page was read"), "a page was read"),
        (None, "repeats its arguments"),
    ] {
        let model = recording_model();
        // The prompt passes 60 % of the window with one of the large files.
        let with_window = |builder: soong::RuntimeBuilder| {
            let mut config = quick_config();
            config.model.context_window = Some(8_500);
            builder.config(config)
        };
        let mut world = TestRuntime::with(model.clone(), |builder| {
            with_window(builder).tool(Parrot::tool())
        })
        .await;
        std::fs::write(
            world.project().join("large.txt"),
            "some words of a large file\n".repeat(500),
        )
        .unwrap();
        let mut arguments = json!({"line": "the whole page", "once": true});
        if let Some(memory) = memory {
            arguments["memory"] = memory.into();
        }
        let look = json!(["read", {"path": "large.txt"}]);
        let (first, outcome) = run(
            &world,
            "s",
            &[
                json!(["parrot", arguments]),
                look.clone(),
                look.clone(),
                look.clone(),
            ],
        )
        .await;
        assert_eq!(outcome.status, RunStatus::Completed, "{:?}", outcome.error);
        let seen = tool_results(&model);
        assert_eq!(
            (seen.len(), &*seen[0], &*seen[1]),
            (4, "the whole page", "the whole page")
        );
        let last = &seen[3];
        assert!(
            last.contains(later) && !last.contains("whole page"),
            "{seen:?}"
        );
        let trace = first.trace_id().clone();
        drop(first);
        let second_model = recording_model();
        world.reopen_with(second_model.clone(), with_window).await;
        run(&world, "s", &[]).await;
        assert!(
            tool_results(&second_model)
                .iter()
                .all(|text| text.contains(later) && !text.contains("whole page")),
            "{second_model:?}"
        );
        let messages = world
            .runtime()
            .traces()
            .messages(&trace, MessagePath::All)
            .await
            .unwrap();
        let result_message = messages
            .iter()
            .find(|message| message.role == Role::Tool)
            .unwrap();
        assert_eq!(
            (
                result_message.content.as_str(),
                result_message.long_term_memory.as_deref()
            ),
            ("the whole page", Some(later))
        );
        assert!(result_message.include_output_only_once);
        world.finish().await;
    }
}

/// (ART-9)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn output_shown_once_can_be_read_again() {
    for may_read in [true, false] {
        let model = recording_model();
        let world = TestRuntime::with(model.clone(), |builder| {
            let mut config = quick_config();
            config.model.context_window = Some(9_500);
            if !may_read {
                config.tools.disabled = vec!["read_artifact".to_owned()];
            }
            builder.config(config).tool(Parrot::tool())
        })
        .await;
        std::fs::write(
            world.project().join("large.txt"),
            "some words of a large file\n".repeat(500),
        )
        .unwrap();
        let page = "x".repeat(1_000);
        let parrot = json!(["parrot", {"line": page, "once": true, "memory": "a page was read"}]);
        let look = json!(["read", {"path": "large.txt"}]);
        let (_, outcome) = run(&world, "s", &[parrot, look.clone(), look.clone(), look]).await;
        assert_eq!(outcome.status, RunStatus::Completed, "{:?}", outcome.error);
        let seen = tool_results(&model);
        assert_eq!((&*seen[0], &*seen[1]), (&*page, &*page));
        let stored = world
            .runtime()
            .artifacts()
            .list(&local_owner("s"))
            .await
            .unwrap();
        assert_eq!(stored.len(), usize::from(may_read));
        let line = match stored.first() {
            Some(artifact) => {
                let label = artifact.artifact_id.as_str();
                assert_eq!(text(&world, &local_owner("s"), label).await, page);
                format!("a page was read [read it again with read_artifact(name=\"{label}\")]")
            }
            None => "a page was read".to_owned(),
        };
        assert_eq!(seen[3], line);
        // It is not a result of the run.
        assert!(outcome.artifacts.is_empty());
        world.finish().await;
    }
}

/// (ART-10)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn write_event_has_snapshot_up_to_256_000_characters() {
    // The text fits into the context window, so no summary is made.
    let mut config = quick_config();
    config.model.context_window = Some(10_000_000);
    let (world, gate) = open_with_gate(|builder| builder.config(config)).await;
    let most = "好".repeat(ArtifactSnapshot::MAX_CHARS);
    let steps = [
        create("doc", &format!("{}END", &most[..most.len() - 9])),
        update("doc", "END", "ENDE"),
        create("user:doc", "mine"),
        pause(),
    ];
    let run = begin(&world, "s", &steps).await;
    gate.reached(1).await;
    // Nothing has been flushed yet, but watchers already see the current text.
    let events = stored(world.runtime(), run.trace_id()).await;
    let completed: Vec<_> = events
        .iter()
        .filter_map(|event| match &event.event {
            Event::Tool(ToolEvent::Completed {
                artifact_snapshot,
                artifact_delta,
                artifact_ref,
                ..
            }) => Some((
                artifact_snapshot.clone().unwrap(),
                artifact_delta.clone(),
                artifact_ref.clone().unwrap(),
            )),
            _ => None,
        })
        .collect();
    let first = &completed[0];
    let second = &completed[1];
    let third = &completed[2];
    assert_eq!(
        first.0.content.as_ref().map(|text| text.chars().count()),
        Some(ArtifactSnapshot::MAX_CHARS)
    );
    assert_eq!((first.0.version, &first.0.note), (1, &None));
    assert_eq!((second.0.version, &second.0.content), (2, &None));
    assert!(second.0.note.as_ref().unwrap().contains("256000"));
    assert_eq!(third.0.content.as_deref(), Some("mine"));
    assert_eq!(first.1, [("doc".to_owned(), 1)].into());
    assert_eq!(second.1, [("doc".to_owned(), 2)].into());
    assert_eq!(third.1, [("user:doc".to_owned(), 1)].into());
    assert_eq!(
        (third.2.name.as_deref(), third.2.version),
        (Some("user:doc"), 1)
    );
    gate.pass();
    with_timeout(run.wait()).await.unwrap();
    world.finish().await;
}

/// (ART-8)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn debug_artifacts_are_not_shown_in_prompts() {
    // A debug artifact is stored, but not shown to models.
    let model = recording_model();
    let world = TestRuntime::open(model.clone()).await;
    run(&world, "s", &[]).await;
    let debug_artifact = Save {
        debug: true,
        ..Save::new("traffic", "text/plain", "raw")
    };
    world
        .runtime()
        .artifacts()
        .service()
        .save(&local_owner("s"), debug_artifact)
        .await
        .unwrap();
    let (_, outcome) = run(&world, "s", &[json!(["list_artifacts", {}])]).await;
    assert_eq!(outcome.output, "no artifacts yet");
    wait_until("it was asked", || model.calls() == 3).await;
    assert!(
        model
            .requests()
            .iter()
            .all(|request| !system(request).contains("traffic"))
    );
    world.finish().await;
}
