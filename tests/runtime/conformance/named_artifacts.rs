//! Artifacts as named, versioned data: tools, callbacks and programs save, load and list them.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::SeqCst},
};

use serde_json::json;
use soong::{
    Config,
    artifact::NamedArtifacts,
    callback::{After, Before, Callback},
    protocol::RunStatus,
    schemars::{self, JsonSchema},
    tool::{self, Tool, ToolContext, ToolError, ToolOutput},
};

use crate::support::{
    artifacts::{folder, listed, local_owner},
    history::stored,
    model::{ScriptedModel, Turn, assistant_count, last_of, scripted_model},
    world::{TestRuntime, quick_config, with_timeout},
};

/// First bytes of a PNG image, which are no text.
const IMAGE: &[u8] = b"\x89PNG\r\n\x1a\n\x00\xff";

#[derive(serde::Deserialize, JsonSchema)]
struct Nothing {}

/// Tool that does `work` with the artifacts of its run.
fn with_artifacts<R>(
    name: &str,
    work: impl Fn(NamedArtifacts) -> R + Send + Sync + 'static,
) -> Arc<dyn Tool>
where
    R: Future<Output = Result<String, ToolError>> + Send + 'static,
{
    let call = move |context: ToolContext, Nothing {}| {
        let work = context.named_artifacts().map(&work);
        async move { work?.await }
    };
    tool::function(name, "Works with artifacts.", call)
        .reads()
        .build()
}

/// Model that calls these tools one after the other, and answers with the last result.
fn calling(tools: &'static [&'static str]) -> Arc<ScriptedModel> {
    scripted_model(move |request| match tools.get(assistant_count(request)) {
        Some(tool) => Turn::call(tool, json!({})),
        None => Turn::say(last_of(request)),
    })
}

/// Runs the tools in a session, and returns the last result.
async fn answer(world: &TestRuntime, session: &str) -> String {
    let run = world
        .runtime()
        .start(soong::RunRequest::new("go").session(session))
        .await
        .unwrap();
    let outcome = with_timeout(run.wait()).await.unwrap();
    assert_eq!(outcome.status, RunStatus::Completed, "{:?}", outcome.error);
    outcome.output.clone()
}

async fn open(
    tools: Vec<Arc<dyn Tool>>,
    names: &'static [&'static str],
    config: Config,
) -> TestRuntime {
    let build = |builder: soong::RuntimeBuilder| {
        tools
            .into_iter()
            .fold(builder.config(config), |all, one| all.tool(one))
    };
    TestRuntime::with(calling(names), build).await
}

/// A tool saves a report twice, loads the newest and the first version, and finds nothing under
/// other names.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn report_is_saved_and_loaded_by_name_and_version() {
    let report = with_artifacts("report", |artifacts| async move {
        let name = "generated_report.pdf";
        let first = artifacts
            .save(name, "application/pdf", b"%PDF one".to_vec())
            .await?;
        let second = artifacts
            .save(name, "application/pdf", b"%PDF two".to_vec())
            .await?;
        let text = |bytes: Option<_>| {
            bytes.map(|bytes: bytes::Bytes| String::from_utf8(bytes.to_vec()).unwrap())
        };
        let newest = text(artifacts.load(name, None).await?);
        let oldest = text(artifacts.load(name, Some(first)).await?);
        let none = (
            artifacts.load("other.pdf", None).await?,
            artifacts.load(name, Some(9)).await?,
        );
        Ok(format!("{first} {second} {newest:?} {oldest:?} {none:?}"))
    });
    let world = open(vec![report], &["report"], quick_config()).await;
    let output = answer(&world, "s").await;
    assert_eq!(
        output,
        "1 2 Some(\"%PDF two\") Some(\"%PDF one\") (None, None)"
    );
    let here = local_owner("s");
    let saved = listed(&world, &here, "generated_report.pdf").await;
    assert_eq!(
        (saved.content_type.as_str(), saved.current_version),
        ("application/pdf", 2)
    );
    // Each version is a file of its own: session, artifact, version, name.
    for version in ["v1", "v2"] {
        assert!(
            folder(&world, &saved)
                .join(version)
                .join("generated_report.pdf")
                .exists()
        );
    }
    // The event of the call names what it saved.
    let events = stored(world.runtime(), &soong::protocol::TraceId::new("s")).await;
    let kinds: Vec<&str> = events.iter().map(|event| event.event.kind()).collect();
    assert_eq!(
        kinds
            .iter()
            .filter(|kind| **kind == "artifact_saved")
            .count(),
        2,
        "{kinds:?}"
    );
    world
        .runtime()
        .artifacts()
        .delete(&here, "generated_report.pdf")
        .await
        .unwrap();
    let service = world.runtime().artifacts().service();
    assert!(
        service
            .list_versions(&here, "generated_report.pdf")
            .await
            .unwrap()
            .is_empty()
    );
    world.finish().await;
}

/// Names with `user:` belong to the user, others to the session. A tool lists both, sorted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tool_lists_the_names_of_its_session_and_user() {
    let save = with_artifacts("save", |artifacts| async move {
        artifacts
            .save(
                "user:settings.json",
                "application/json",
                "{\"theme\": \"dark\"}",
            )
            .await?;
        artifacts.save("summary.txt", "text/plain", "short").await?;
        artifacts
            .save("avatar.png", "image/png", IMAGE.to_vec())
            .await?;
        Ok("saved".into())
    });
    let list = with_artifacts("list", |artifacts| async move {
        let names = artifacts.names().await?;
        let lines: Vec<String> = names.iter().map(|name| format!("- {name}")).collect();
        Ok(if lines.is_empty() {
            "You have no artifacts.".into()
        } else {
            lines.join("\n")
        })
    });
    let world = open(
        vec![save, Arc::clone(&list)],
        &["save", "list"],
        quick_config(),
    )
    .await;
    assert_eq!(
        answer(&world, "s").await,
        "- avatar.png\n- summary.txt\n- user:settings.json"
    );
    let image = world
        .runtime()
        .artifacts()
        .load(&local_owner("s"), "avatar.png", None)
        .await
        .unwrap();
    assert_eq!(image.content_type, "image/png");
    assert_eq!(image.bytes().await.unwrap(), IMAGE);
    let other = local_owner("other");
    let service = world.runtime().artifacts().service();
    assert_eq!(
        service.list_keys(&other).await.unwrap(),
        ["user:settings.json"]
    );
    world.finish().await;
    let world = open(vec![list], &["list"], quick_config()).await;
    assert_eq!(answer(&world, "s").await, "You have no artifacts.");
    world.finish().await;
}

/// A callback before a tool answers from the cache; one after the tool fills it. The cache is that
/// of the user.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callbacks_cache_the_result_of_a_tool_as_an_artifact() {
    let drawn = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&drawn);
    let draw = tool::function(
        "draw_logo",
        "Draws the logo.",
        move |_: ToolContext, Nothing {}| {
            let number = count.fetch_add(1, SeqCst) + 1;
            async move { Ok(format!("logo number {number}")) }
        },
    );
    let cache = Callback::new("cache")
        .before_tool(|context, call| async move {
            let cached = context
                .artifacts()
                .load(&format!("user:cache {}", call.name), None)
                .await?;
            Ok(cached.map_or(Before::Continue, |bytes| {
                Before::Answer(Ok(ToolOutput::text(
                    "cached",
                    String::from_utf8_lossy(&bytes),
                )))
            }))
        })
        .after_tool(|context, call, result| async move {
            if let Ok(output) = result {
                let name = format!("user:cache {}", call.name);
                context
                    .artifacts()
                    .save(&name, "text/plain", output.output)
                    .await?;
            }
            Ok(After::Keep)
        });
    let build = |builder: soong::RuntimeBuilder| {
        builder
            .config(quick_config())
            .tool(draw.reads().build())
            .callback(cache)
    };
    let world = TestRuntime::with(calling(&["draw_logo"]), build).await;
    for session in ["one", "two"] {
        assert_eq!(answer(&world, session).await, "logo number 1");
    }
    assert_eq!(drawn.load(SeqCst), 1);
    world.finish().await;
}

/// The service that a runtime uses is a setting. The service in memory writes no file.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn runtime_is_opened_with_an_artifact_store() {
    for (store, is_on_disk) in [("memory", false), ("file", true)] {
        let mut config = quick_config();
        config.artifacts.store = store.into();
        let save = with_artifacts("save", |artifacts| async move {
            Ok(artifacts
                .save("a.txt", "text/plain", "text")
                .await?
                .to_string())
        });
        let world = open(vec![save], &["save"], config).await;
        assert_eq!(answer(&world, "s").await, "1");
        assert_eq!(
            world.home().join("sessions/s/artifacts").exists(),
            is_on_disk,
            "{store}"
        );
        let loaded = world
            .runtime()
            .artifacts()
            .load(&local_owner("s"), "a.txt", None)
            .await
            .unwrap();
        assert_eq!(loaded.text().await.unwrap(), "text");
        world.finish().await;
    }
}
