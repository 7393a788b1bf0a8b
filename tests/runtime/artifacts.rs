//! Artifacts through the library: the registry, files and streams, uploads, export, deletion and
//! cleanup (ART-1 … ART-3, ART-11 … ART-14).

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

use bytes::Bytes;
use futures::{
    StreamExt,
    future::{BoxFuture, FutureExt},
};
use serde_json::{Value, json};
use soong::{
    ErrorCode, ErrorInfo, SessionSpec,
    artifact::{ArtifactOwner, Candidate, Cleanup, Content, IfExists, Save},
    protocol::{
        Artifact, ArtifactScope, ArtifactSource, Provenance, SessionId, ToolSpec, UpdateType,
    },
    tool::{Tool, ToolContext, ToolOutput, ToolResult, ToolServices},
};
use soong_storage::{
    fault::{Fault, FaultPlan, FaultStore},
    store::StoreError,
};

use crate::support::{
    artifacts::{
        begin, create, folder, growing, listed, local_owner, open_with_gate, pause,
        prompt_driven_model, run, save, text, text_at, update, versions,
    },
    world::{TestRuntime, quick_config, with_timeout},
};

/// Creates a session without a run, and returns its artifact namespace.
async fn session(world: &TestRuntime, id: &str, uid: &str) -> ArtifactOwner {
    let spec = SessionSpec {
        session_id: Some(id.into()),
        uid: Some(uid.into()),
        ..SessionSpec::default()
    };
    let made = world.runtime().sessions().create(spec).await.unwrap();
    world
        .runtime()
        .artifacts()
        .owner(&made.session_id)
        .await
        .unwrap()
}

/// Returns all files below a folder.
fn files(folder: &Path) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                found.insert(path);
            }
        }
    }
    found
}

/// Returns the files of all artifacts in the home.
fn artifact_files(world: &TestRuntime) -> BTreeSet<PathBuf> {
    [
        files(&world.home().join("sessions")),
        files(&world.home().join("users")),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// (ART-1)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn registry_keeps_the_given_metadata() {
    let world = TestRuntime::open(prompt_driven_model()).await;
    let here = session(&world, "s", "local").await;
    let service = world.runtime().artifacts().service();
    let mut request = Save::new("data", "application/json", "{\"a\": 1}");
    request.title = "Numbers".into();
    request.source = ArtifactSource::Api;
    request.summary = Some("one number".into());
    request.metadata = json!({"unit": "m"}).as_object().unwrap().clone();
    request.debug = true;
    request.provenance = Provenance {
        message_sequence: Some(7),
        ..Provenance::default()
    };
    let saved = service.save(&here, request).await.unwrap();
    let mut unnamed = Save::new("", "image/png", vec![0xff, 0]);
    unnamed.key = None;
    let captured = service.save(&here, unnamed).await.unwrap();
    save(&world, &here, "user:data", "another's").await;
    let all = world.runtime().artifacts().list(&here).await.unwrap();
    assert_eq!(
        all.iter().map(Artifact::key).collect::<Vec<_>>(),
        ["data", captured.artifact_id.as_str(), "user:data"]
    );
    let listed = &all[0];
    assert_eq!(*listed, saved);
    assert_eq!(
        (listed.title.as_str(), listed.filename.as_str(), listed.size),
        ("Numbers", "data.json", 8)
    );
    assert_eq!(
        (
            listed.source,
            listed.debug,
            listed.provenance.message_sequence
        ),
        (ArtifactSource::Api, true, Some(7))
    );
    assert_eq!(
        (listed.summary.as_deref(), &listed.metadata["unit"]),
        (Some("one number"), &json!("m"))
    );
    assert_eq!(
        listed.scope,
        ArtifactScope::Session {
            session_id: SessionId::new("s")
        }
    );
    assert_eq!(
        (listed.current_version, listed.stored_version, listed.dirty),
        (1, 1, false)
    );
    let ids: BTreeSet<_> = all
        .iter()
        .map(|artifact| artifact.artifact_id.clone())
        .collect();
    assert_eq!(ids.len(), 3);
    // The key of an artifact unnamed is its id, which is not listed among the keys.
    let loaded = service
        .load(&here, captured.artifact_id.as_str(), None)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(loaded.bytes().await.unwrap().as_ref(), [0xff, 0]);
    assert_eq!(
        service.list_keys(&here).await.unwrap(),
        ["data", "user:data"]
    );
    // A new version keeps the artifact id and the creation time.
    let next = save(&world, &here, "data", "# new").await;
    assert_eq!(
        (&next.artifact_id, next.created_at),
        (&listed.artifact_id, listed.created_at)
    );
    assert_eq!(
        next.summary.as_deref(),
        Some("# new"),
        "the summary follows the text"
    );
    world.finish().await;
}

/// (ART-2)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_are_stored_by_id_and_version_without_leftovers() {
    let world = TestRuntime::open(prompt_driven_model()).await;
    let here = session(&world, "s", "ann").await;
    let source = world.project().join("made.bin");
    std::fs::write(&source, [1, 2, 3]).unwrap();
    let service = world.runtime().artifacts().service();
    let big = vec![7_u8; 3_000_000];
    let pieces: Vec<_> = big
        .chunks(100_000)
        .map(|piece| Ok(Bytes::copy_from_slice(piece)))
        .collect();
    let stream = Content::Stream(futures::stream::iter(pieces).boxed());
    let mut want = BTreeSet::new();
    for (key, content, size, filename) in [
        ("text", Content::from("abc"), 3, "v1/text.md"),
        ("user:text", Content::from("abcd"), 4, "v1/text.md"),
        ("text", Content::from("xy"), 2, "v2/text.md"),
        ("made", Content::File(source.clone()), 3, "v1/made.md"),
        ("big.tar", stream, 3_000_000, "v1/big.tar"),
    ] {
        let saved = service
            .save(&here, Save::new(key, "text/markdown", content))
            .await
            .unwrap();
        assert_eq!(saved.size, size, "{key}");
        want.insert(folder(&world, &saved).join(filename));
    }
    assert_eq!(artifact_files(&world), want);
    assert!(source.exists(), "a file that is taken in stays where it is");
    let loaded = service.load(&here, "big.tar", None).await.unwrap().unwrap();
    assert_eq!(
        (loaded.size, loaded.bytes().await.unwrap().as_ref()),
        (3_000_000, &big[..])
    );
    world.finish().await;
}

/// (ART-2)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failed_save_leaves_no_file_and_uses_no_version_number() {
    let mut config = quick_config();
    config.artifacts.max_text_bytes = 1_000;
    config.artifacts.max_blob_bytes = 2_000;
    let world = TestRuntime::with(prompt_driven_model(), |builder| builder.config(config)).await;
    let here = session(&world, "s", "local").await;
    let service = world.runtime().artifacts().service();
    save(&world, &here, "doc", "kept").await;
    let large = world.project().join("large");
    std::fs::write(&large, vec![0; 3_000]).unwrap();
    let before = artifact_files(&world);
    let stream = |pieces: Vec<Result<Bytes, ErrorInfo>>| {
        Content::Stream(futures::stream::iter(pieces).boxed())
    };
    let broken = || Err(ErrorInfo::new(ErrorCode::StorageError, "the line broke"));
    let half = || stream(vec![Ok(Bytes::from_static(b"half")), broken()]);
    let endless = || stream(vec![Ok(vec![0; 1_500].into()), Ok(vec![0; 600].into())]);
    let too_long = || Content::from("x".repeat(1_001));
    let too_large = || Content::File(large.clone());
    let missing = || Content::File(world.project().join("none"));
    let made: [(_, &dyn Fn() -> Content, _, _); 5] = [
        (
            "text/plain",
            &half,
            ErrorCode::ValidationError,
            "line broke",
        ),
        (
            "image/png",
            &endless,
            ErrorCode::PayloadTooLarge,
            "max_blob_bytes",
        ),
        (
            "text/plain",
            &too_long,
            ErrorCode::PayloadTooLarge,
            "max_text_bytes",
        ),
        (
            "image/png",
            &too_large,
            ErrorCode::PayloadTooLarge,
            "max_blob_bytes",
        ),
        ("image/png", &missing, ErrorCode::ValidationError, "none"),
    ];
    for (content_type, content, code, says) in made {
        for key in ["doc", "new"] {
            let error = service
                .save(&here, Save::new(key, content_type, content()))
                .await
                .unwrap_err();
            assert_eq!(error.code, code, "{content_type} {error}");
            assert!(error.message.contains(says), "{error}");
        }
    }
    assert_eq!(artifact_files(&world), before);
    assert_eq!(versions(&world, &here, "doc").await, [1]);
    assert_eq!(service.list_keys(&here).await.unwrap(), ["doc"]);
    assert_eq!(save(&world, &here, "doc", "next").await.current_version, 2);
    world.finish().await;
}

/// (ART-3)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sixteen_concurrent_saves_create_sixteen_versions() {
    let world = TestRuntime::open(prompt_driven_model()).await;
    session(&world, "s", "local").await;
    let saves: Vec<_> = (0..16)
        .map(|n| {
            let service = world.runtime().artifacts().service();
            tokio::spawn(async move {
                let here = local_owner("s");
                service
                    .save(&here, Save::new("doc", "text/plain", format!("text {n}")))
                    .await
                    .unwrap()
                    .current_version
            })
        })
        .collect();
    let mut numbers = Vec::new();
    for (n, save) in saves.into_iter().enumerate() {
        let number = with_timeout(save).await.unwrap();
        assert_eq!(
            text_at(&world, &local_owner("s"), "doc", number).await,
            format!("text {n}")
        );
        numbers.push(number);
    }
    numbers.sort_unstable();
    assert_eq!(numbers, (1..=16).collect::<Vec<u64>>());
    assert_eq!(versions(&world, &local_owner("s"), "doc").await, numbers);
    assert_eq!(artifact_files(&world).len(), 16);
    world.finish().await;
}

/// (ART-11)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn upload_is_named_after_its_file_and_numbered_if_taken() {
    let world = TestRuntime::open(prompt_driven_model()).await;
    let here = session(&world, "s", "local").await;
    for (filename, want) in [
        ("report.pdf", "report.pdf"),
        ("report.pdf", "report_1.pdf"),
        ("C:\\files\\report.pdf", "report_2.pdf"),
        ("../../etc/passwd", "passwd"),
        ("a:b*c?.txt", "a_b_c_.txt"),
        ("...", "upload"),
        ("", "upload_1"),
        ("user:notes.md", "user_notes.md"),
        ("报告 2026.md", "报告 2026.md"),
    ] {
        let uploaded = world
            .runtime()
            .artifacts()
            .upload(&here, filename, "application/pdf", "x".into())
            .await
            .unwrap();
        assert_eq!(uploaded.name.as_deref(), Some(want), "{filename:?}");
        assert_eq!(
            (uploaded.source, uploaded.current_version),
            (ArtifactSource::UserUpload, 1)
        );
        assert!(
            matches!(uploaded.scope, ArtifactScope::Session { .. }),
            "{filename:?}"
        );
    }
    assert_eq!(artifact_files(&world).len(), 9, "each is stored at once");
    for n in 3..=104 {
        let numbered = world
            .runtime()
            .artifacts()
            .upload(&here, "report.pdf", "application/pdf", "x".into())
            .await
            .unwrap();
        assert_eq!(numbered.name, Some(format!("report_{n}.pdf")));
    }
    world.finish().await;
}

/// Exports the last stored version of a text as `.docx`.
async fn exported(
    runtime: &soong::Runtime,
    owner: &ArtifactOwner,
    key: &str,
) -> Result<Vec<u8>, ErrorInfo> {
    soong_server::http::docx(runtime.artifacts().last_version(owner, key).await?).await
}

/// (ART-12)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn export_contains_the_stored_version_not_pending_edits() {
    let (world, gate) = open_with_gate(|builder| builder).await;
    let here = local_owner("s");
    let runtime = world.runtime();
    let run = begin(&world, "s", &[create("doc", "# New"), pause()]).await;
    gate.reached(1).await;
    assert_eq!(
        exported(runtime, &here, "doc").await.unwrap_err().code,
        ErrorCode::VersionNotFound
    );
    save(
        &world,
        &here,
        "doc",
        "# Stored\n\nA [link](https://example.com).",
    )
    .await;
    let stored = exported(runtime, &here, "doc").await.unwrap();
    runtime
        .artifacts()
        .edit(&here, "doc", "Stored", "Other")
        .await
        .unwrap();
    let other = exported(runtime, &here, "doc").await.unwrap();
    assert!(stored.starts_with(b"PK") && stored != other);
    gate.pass();
    with_timeout(run.wait()).await.unwrap();
    let run = begin(&world, "s", &[update("doc", "Other", "Edited"), pause()]).await;
    gate.reached(2).await;
    assert!(text(&world, &here, "doc").await.starts_with("# Edited"));
    assert_eq!(
        exported(runtime, &here, "doc").await.unwrap(),
        other,
        "the edit is no version yet"
    );
    gate.pass();
    with_timeout(run.wait()).await.unwrap();
    assert_ne!(exported(runtime, &here, "doc").await.unwrap(), other);
    let png = Save::new("picture", "image/png", vec![0_u8]);
    runtime
        .artifacts()
        .service()
        .save(&here, png)
        .await
        .unwrap();
    assert_eq!(
        exported(runtime, &here, "picture").await.unwrap_err().code,
        ErrorCode::UnsupportedMedia
    );
    assert_eq!(
        exported(runtime, &here, "none").await.unwrap_err().code,
        ErrorCode::ArtifactNotFound
    );
    world.finish().await;
}

/// Stores a debug artifact.
async fn save_debug(world: &TestRuntime, owner: &ArtifactOwner, key: &str) {
    let request = Save {
        debug: true,
        ..Save::new(key, "text/plain", "raw traffic")
    };
    world
        .runtime()
        .artifacts()
        .service()
        .save(owner, request)
        .await
        .unwrap();
}

fn names(candidates: &[Candidate]) -> Vec<&str> {
    candidates
        .iter()
        .map(|candidate| candidate.name.as_deref().unwrap())
        .collect()
}

/// (ART-13)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cleanup_defaults_to_dry_run_and_skips_active_sessions() {
    let (world, gate) = open_with_gate(|builder| builder).await;
    for id in ["a", "b"] {
        session(&world, id, "local").await;
        save_debug(&world, &local_owner(id), &format!("trace_{id}")).await;
        save(
            &world,
            &local_owner(id),
            &format!("kept_{id}"),
            "x".repeat(100),
        )
        .await;
    }
    save_debug(&world, &local_owner("a"), "user:trace").await;
    let live_run = begin(&world, "live", &[create("doc", "0"), pause()]).await;
    gate.reached(1).await;
    save_debug(&world, &local_owner("live"), "trace_live").await;
    let runtime = world.runtime();
    let before = artifact_files(&world);
    let plain = Cleanup::default;
    for (request, want) in [
        (plain(), vec!["trace_a", "trace_b"]),
        (
            Cleanup {
                session_id: Some(SessionId::new("b")),
                ..plain()
            },
            vec!["trace_b"],
        ),
        (
            Cleanup {
                include_all: true,
                ..plain()
            },
            vec!["trace_a", "kept_a", "trace_b", "kept_b"],
        ),
        (
            Cleanup {
                older_than_ms: Some(3_600_000),
                ..plain()
            },
            vec![],
        ),
        (
            Cleanup {
                max_bytes: Some(11),
                ..plain()
            },
            vec!["trace_a"],
        ),
        (
            Cleanup {
                max_bytes: Some(111),
                include_all: true,
                ..plain()
            },
            vec!["trace_a", "kept_a"],
        ),
        (
            Cleanup {
                session_id: Some(SessionId::new("live")),
                include_all: true,
                ..plain()
            },
            vec![],
        ),
    ] {
        let report = runtime.artifacts().clean_up(request.clone()).await.unwrap();
        assert_eq!(names(&report.candidates), want, "{request:?}");
        assert!(report.dry_run && report.deleted.is_empty() && report.failed.is_empty());
        let is_looked_at = request
            .session_id
            .as_ref()
            .is_none_or(|id| id.as_str() == "live");
        let left_out = if is_looked_at && request.older_than_ms.is_none() {
            1 + u64::from(request.include_all)
        } else {
            0
        };
        let busy: Vec<(&str, u64)> = report
            .busy
            .iter()
            .map(|one| (one.session_id.as_str(), one.artifacts))
            .collect();
        assert_eq!(
            busy,
            [("live", left_out)]
                .into_iter()
                .filter(|_| left_out > 0)
                .collect::<Vec<_>>(),
            "{request:?}"
        );
        assert!(
            report
                .candidates
                .iter()
                .all(|candidate| !candidate.reason.is_empty() && candidate.bytes > 0)
        );
    }
    assert_eq!(artifact_files(&world), before, "a dry run changes nothing");
    let report = runtime
        .artifacts()
        .clean_up(Cleanup {
            dry_run: false,
            ..plain()
        })
        .await
        .unwrap();
    assert_eq!(
        (names(&report.candidates), report.deleted.len()),
        (vec!["trace_a", "trace_b"], 2)
    );
    assert_eq!(artifact_files(&world).len(), before.len() - 2);
    let keys = runtime
        .artifacts()
        .service()
        .list_keys(&local_owner("a"))
        .await
        .unwrap();
    assert_eq!(keys, ["kept_a", "user:trace"]);
    gate.pass();
    with_timeout(live_run.wait()).await.unwrap();
    let report = runtime
        .artifacts()
        .clean_up(Cleanup {
            dry_run: false,
            include_all: true,
            ..plain()
        })
        .await
        .unwrap();
    assert_eq!(
        report.deleted.len(),
        4,
        "what lived has ended: {:?}",
        report.candidates
    );
    assert_eq!(artifact_files(&world).len(), 1, "a user's stay");
    world.finish().await;
}

/// (ART-13)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cleanup_reports_a_failed_deletion_and_continues() {
    let plan = FaultPlan::new();
    let wrapped = plan.clone();
    let world = TestRuntime::with(prompt_driven_model(), |builder| {
        builder.wrap_store(move |store| Box::new(FaultStore::new(store, wrapped)))
    })
    .await;
    let here = session(&world, "s", "local").await;
    for key in ["one", "two", "three"] {
        save_debug(&world, &here, key).await;
    }
    plan.inject_next(Fault::FailBeforeWrite(StoreError::Io(
        "no space left on device".into(),
    )));
    let request = Cleanup {
        dry_run: false,
        ..Cleanup::default()
    };
    let report = world.runtime().artifacts().clean_up(request).await.unwrap();
    assert_eq!(
        (
            report.candidates.len(),
            report.deleted.len(),
            report.failed.len()
        ),
        (3, 2, 1)
    );
    assert_eq!(
        report.failed[0].artifact_id,
        report.candidates[0].artifact_id
    );
    assert_eq!(report.failed[0].error.code, ErrorCode::StorageError);
    assert_eq!(text(&world, &here, "one").await, "raw traffic");
    assert_eq!(artifact_files(&world).len(), 1);
    world.finish().await;
}

/// (ART-13)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deletion_removes_versions_edits_files_and_frees_the_name() {
    let (world, gate) = open_with_gate(|builder| builder).await;
    let here = local_owner("s");
    let runtime = world.runtime();
    run(&world, "s", &growing("doc", 1)).await;
    let run = begin(
        &world,
        "s",
        &[
            update("doc", "1", "1 2"),
            pause(),
            create("doc", "anew"),
            pause(),
        ],
    )
    .await;
    gate.reached(1).await;
    let old = listed(&world, &here, "doc").await;
    runtime.artifacts().delete(&here, "doc").await.unwrap();
    assert_eq!(
        runtime
            .artifacts()
            .delete(&here, "doc")
            .await
            .unwrap_err()
            .code,
        ErrorCode::ArtifactNotFound
    );
    assert!(
        !runtime
            .artifacts()
            .service()
            .delete(&here, "doc")
            .await
            .unwrap()
    );
    assert_eq!(
        runtime
            .artifacts()
            .load(&here, "doc", None)
            .await
            .err()
            .unwrap()
            .code,
        ErrorCode::ArtifactNotFound
    );
    assert!(artifact_files(&world).is_empty());
    gate.pass();
    gate.reached(2).await;
    let new = listed(&world, &here, "doc").await;
    assert_eq!(
        (new.current_version, new.artifact_id != old.artifact_id),
        (1, true)
    );
    gate.pass();
    assert_eq!(with_timeout(run.wait()).await.unwrap().error, None);
    assert_eq!(versions(&world, &here, "doc").await, [1]);
    assert_eq!(text(&world, &here, "doc").await, "anew");
    world.finish().await;
}

/// (ART-14)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn service_follows_its_documented_contract() {
    let world = TestRuntime::open(prompt_driven_model()).await;
    let here = session(&world, "s", "local").await;
    let service = world.runtime().artifacts().service();
    for key in ["zeta", "user:alpha", "beta", "user:zeta", "Alpha"] {
        save(&world, &here, key, "one").await;
    }
    assert_eq!(
        service.list_keys(&here).await.unwrap(),
        ["Alpha", "beta", "user:alpha", "user:zeta", "zeta"]
    );
    assert!(service.load(&here, "none", None).await.unwrap().is_none());
    assert!(
        service
            .load(&here, "user:beta", None)
            .await
            .unwrap()
            .is_none()
    );
    assert!(
        service
            .load(&here, "beta", Some(2))
            .await
            .unwrap()
            .is_none()
    );
    assert!(
        service
            .load(&here, "../beta", None)
            .await
            .unwrap()
            .is_none()
    );
    assert!(
        service
            .list_versions(&here, "none")
            .await
            .unwrap()
            .is_empty()
    );
    assert!(
        service
            .get_version(&here, "beta", 2)
            .await
            .unwrap()
            .is_none()
    );
    save(&world, &here, "beta", "two").await;
    let second = service
        .get_version(&here, "beta", 2)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(
        (second.version, second.size, second.update_type),
        (2, 3, UpdateType::Rewrite)
    );
    let refused = Save {
        if_exists: IfExists::Fail,
        ..Save::new("beta", "text/plain", "x")
    };
    assert_eq!(
        service.save(&here, refused).await.unwrap_err().code,
        ErrorCode::ArtifactExists
    );
    // The content type decides whether the content is text; the file extension does not.
    let binary = Save::new("picture.txt", "image/png", vec![0xff_u8, 0xfe]);
    assert_eq!(service.save(&here, binary).await.unwrap().summary, None);
    let loaded = service
        .load(&here, "picture.txt", None)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(
        loaded.text().await.unwrap_err().code,
        ErrorCode::UnsupportedMedia
    );
    let written = service
        .save(&here, Save::new("words.png", "text/plain", "words"))
        .await
        .unwrap();
    assert_eq!(written.summary.as_deref(), Some("words"));
    assert!(service.delete(&here, "beta").await.unwrap());
    assert!(
        service
            .load(&here, "beta", Some(1))
            .await
            .unwrap()
            .is_none(),
        "all versions go"
    );
    assert_eq!(save(&world, &here, "beta", "anew").await.current_version, 1);
    world.finish().await;
}

/// Tool that records the errors of artifact operations in a context without an artifact service.
struct Placeless(ToolSpec, Arc<Mutex<Vec<ErrorCode>>>);

impl Tool for Placeless {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    fn call(&self, context: ToolContext, _: Value) -> BoxFuture<'static, ToolResult> {
        let seen = Arc::clone(&self.1);
        async move {
            let context = ToolContext {
                services: ToolServices::default(),
                ..context
            };
            seen.lock()
                .unwrap()
                .push(context.artifacts().err().unwrap().code);
            let registry =
                soong::builtin_tools::registry(&Default::default(), &Default::default(), None)
                    .unwrap();
            for (name, arguments) in [
                ("create_artifact", json!({"name": "doc", "content": "x"})),
                ("read_artifact", json!({"name": "doc"})),
                ("list_artifacts", json!({})),
            ] {
                let tool = registry
                    .get(name)
                    .and_then(|entry| entry.tool.clone())
                    .unwrap();
                let error = tool.call(context.clone(), arguments).await.unwrap_err();
                seen.lock().unwrap().push(error.code);
            }
            Ok(ToolOutput::text("tried", "tried"))
        }
        .boxed()
    }
}

/// (ART-14)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tool_without_artifact_service_gets_config_error() {
    let seen: Arc<Mutex<Vec<ErrorCode>>> = Arc::default();
    let tool = Placeless(
        ToolSpec::read("try", "Try", "Tries.", json!({"type": "object"})),
        Arc::clone(&seen),
    );
    let world = TestRuntime::with(prompt_driven_model(), |builder| {
        builder.tool(Arc::new(tool))
    })
    .await;
    run(&world, "s", &[json!(["try", {}])]).await;
    assert_eq!(*seen.lock().unwrap(), [ErrorCode::ConfigError; 4]);
    world.finish().await;
}
