//! Images and files of messages: they reach the model, survive a restart, and are described where a
//! model does not take them.

use std::{io::Cursor, sync::Arc};

use serde_json::{Value, json};
use soong::{
    ErrorCode, RunRequest,
    artifact::ArtifactOwner,
    model::{Completion, Failure, ModelError, ModelRequest},
    protocol::{
        ContentPart, ContextEvent, Event, InputKind, Message, ModelSource, ProviderData,
        ProviderItem, Role, SessionId, TraceId,
    },
    testing::{ScriptedModel, call, hang, respond, text},
};

use crate::support::{
    history::check_session,
    world::{TestRuntime, read_to_end, with_timeout},
};

/// Returns a PNG image of this size.
fn png(width: u32, height: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    image::DynamicImage::new_rgb8(width, height)
        .write_to(&mut Cursor::new(&mut bytes), image::ImageFormat::Png)
        .unwrap();
    bytes
}

fn attached(message: &str, width: u32, height: u32) -> RunRequest {
    RunRequest::new(message)
        .session("s")
        .attach(ContentPart::inline(
            "image/png",
            Some("a.png".into()),
            png(width, height),
        ))
}

/// Returns a model that takes images, and answers with its number of messages.
fn seeing() -> Arc<ScriptedModel> {
    let model = respond(|request| text(format!("{} messages", request.messages.len())));
    Arc::new(
        model
            .taking([InputKind::Text, InputKind::Image])
            .recording(),
    )
}

fn last(model: &ScriptedModel) -> ModelRequest {
    model.requests().pop().unwrap()
}

/// Returns the last message with a role.
fn last_with(request: &ModelRequest, role: Role) -> &Message {
    request
        .messages
        .iter()
        .rfind(|message| message.role == role)
        .unwrap()
}

async fn omitted(world: &TestRuntime) -> Vec<Vec<String>> {
    let events = read_to_end(world.runtime().traces().events(&TraceId::new("s"), 0)).await;
    let files = events.iter().filter_map(|record| match &record.event {
        Event::Context(ContextEvent::FilesOmitted { files, .. }) => Some(files.clone()),
        _ => None,
    });
    files.collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn image_reaches_the_model_also_after_a_restart() {
    let model = seeing();
    let mut world = TestRuntime::open(model.clone()).await;
    let run = world
        .runtime()
        .start(attached("What is it?", 8, 6))
        .await
        .unwrap();
    with_timeout(run.wait()).await.unwrap();
    let request = last(&model);
    let message = last_with(&request, Role::User);
    let file = message.content.files().next().unwrap().clone();
    assert_eq!(message.content.as_str(), "What is it?");
    assert_eq!(
        (file.width, file.height, file.filename.as_deref()),
        (Some(8), Some(6), Some("a.png"))
    );
    let sent = request.files[&file.artifact_id].clone();
    assert_eq!(sent.len(), png(8, 6).len().div_ceil(3) * 4, "base64");
    // It is an artifact without a name, so prompts do not list it.
    let instructions = request.system_and_context();
    assert!(
        !instructions.contains(file.artifact_id.as_str()),
        "{instructions}"
    );
    let stored = world
        .runtime()
        .traces()
        .messages(&TraceId::new("s"), soong::MessagePath::Main)
        .await
        .unwrap();
    let shown = serde_json::to_value(&stored[1]).unwrap();
    assert_eq!(
        shown["content"][0],
        json!({"type": "text", "text": "What is it?"})
    );
    assert_eq!(shown["content"][1]["type"], "image");
    assert_eq!(
        serde_json::to_value(&stored[2]).unwrap()["content"],
        Value::from("1 messages")
    );

    let model = seeing();
    world.reopen(model.clone()).await;
    let run = world
        .runtime()
        .start(RunRequest::new("And now?").session("s"))
        .await
        .unwrap();
    with_timeout(run.wait()).await.unwrap();
    assert_eq!(last(&model).files[&file.artifact_id], sent);
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn model_without_images_rejects_a_new_one_before_any_request() {
    let model = Arc::new(respond(|_| text("ok")).recording());
    let world = TestRuntime::open(model.clone()).await;
    let error = world
        .runtime()
        .start(attached("What is it?", 8, 6))
        .await
        .unwrap_err();
    assert_eq!(error.code, ErrorCode::UnsupportedCapability, "{error}");
    assert!(
        error.message.contains("model.input") && error.message.contains("image"),
        "{error}"
    );
    assert_eq!(model.calls(), 0);
    let error = world
        .runtime()
        .sessions()
        .get(&SessionId::new("s"))
        .await
        .unwrap_err();
    assert_eq!(error.code, ErrorCode::SessionNotFound, "nothing is stored");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_change_of_model_an_image_is_described() {
    let seeing = seeing();
    let blind = Arc::new(respond(|_| text("ok")).recording());
    let second = blind.clone();
    let world = TestRuntime::with(seeing, |builder| builder.model("blind", second)).await;
    let run = world
        .runtime()
        .start(attached("What is it?", 8, 6))
        .await
        .unwrap();
    with_timeout(run.wait()).await.unwrap();
    assert!(omitted(&world).await.is_empty());
    for message in ["More.", "And more."] {
        let run = world
            .runtime()
            .start(RunRequest::new(message).session("s").model("blind"))
            .await
            .unwrap();
        with_timeout(run.wait()).await.unwrap();
    }
    assert!(last(&blind).files.is_empty());
    // Each run reports it once.
    let description = format!("image a.png, image/png, 8x6, {} bytes", png(8, 6).len());
    assert_eq!(
        omitted(&world).await,
        [vec![description.clone()], vec![description]]
    );
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn image_that_a_tool_reads_reaches_the_model() {
    let model = respond(|request| {
        if request
            .messages
            .iter()
            .any(|message| message.role == Role::Tool)
        {
            text("seen")
        } else {
            call("read", json!({"path": "a.png"}))
        }
    });
    let model = Arc::new(
        model
            .taking([InputKind::Text, InputKind::Image])
            .recording(),
    );
    let world = TestRuntime::open(model.clone()).await;
    std::fs::write(world.project().join("a.png"), png(3_000, 10)).unwrap();
    let run = world
        .runtime()
        .start(RunRequest::new("Look.").session("s"))
        .await
        .unwrap();
    assert_eq!(with_timeout(run.wait()).await.unwrap().output, "seen");
    let request = last(&model);
    let result = last_with(&request, Role::Tool);
    let file = result.content.files().next().unwrap();
    assert_eq!(
        (file.width, file.height),
        (Some(2_000), Some(7)),
        "it is scaled to the limit of the model"
    );
    assert_eq!(file.scaled_from, Some((3_000, 10)));
    assert!(request.files.contains_key(&file.artifact_id));

    // A deleted file is described to the model.
    let owner = ArtifactOwner {
        session_id: SessionId::new("s"),
        uid: "local".into(),
    };
    world
        .runtime()
        .artifacts()
        .delete(&owner, file.artifact_id.as_str())
        .await
        .unwrap();
    let run = world
        .runtime()
        .start(RunRequest::new("Again.").session("s"))
        .await
        .unwrap();
    with_timeout(run.wait()).await.unwrap();
    assert!(last(&model).files.is_empty());
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn file_of_a_request_that_is_rejected_later_is_deleted() {
    let model = respond(|request| match request.messages.len() {
        1 => hang("thinking"),
        _ => text("ok"),
    });
    let model = Arc::new(model.taking([InputKind::Text, InputKind::Image]));
    let world = TestRuntime::open(model).await;
    let run = world
        .runtime()
        .start(RunRequest::new("Wait.").session("s"))
        .await
        .unwrap();
    let error = world
        .runtime()
        .start(attached("And this?", 2, 2).reject_if_busy())
        .await
        .unwrap_err();
    assert_eq!(error.code, ErrorCode::SessionActive, "{error}");
    let owner = ArtifactOwner {
        session_id: SessionId::new("s"),
        uid: "local".into(),
    };
    assert!(
        world
            .runtime()
            .artifacts()
            .list(&owner)
            .await
            .unwrap()
            .is_empty()
    );
    run.cancel().await.unwrap();
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn model_cannot_give_an_artifact_as_a_file_to_a_sub_agent() {
    let image = json!({"type": "image", "artifact_id": "notes.md", "content_type": "image/png"});
    let messages = json!([{"role": "user", "content": [image]}]);
    let model = respond(move |request| match request.messages.len() {
        1 => call("agent", json!({"task": "Look.", "messages": messages})),
        _ => text(last_with(request, Role::Tool).content.to_string()),
    });
    let world = TestRuntime::open(Arc::new(model)).await;
    let run = world.runtime().start("Delegate it.").await.unwrap();
    let output = with_timeout(run.wait()).await.unwrap().output.clone();
    assert!(output.contains("only text"), "{output}");
    world.finish().await;
}

/// Returns a JPEG image of this size whose EXIF data says that it must be turned by 90 degrees.
fn turned_jpeg(width: u32, height: u32) -> Vec<u8> {
    let mut jpeg = Vec::new();
    let image = image::DynamicImage::new_rgb8(width, height);
    image
        .write_to(&mut Cursor::new(&mut jpeg), image::ImageFormat::Jpeg)
        .unwrap();
    // One entry: tag 0x0112 (orientation), type SHORT, one value, 6.
    let exif = [
        &b"Exif\0\0MM\0*"[..],
        &8_u32.to_be_bytes(),
        &1_u16.to_be_bytes(),
        &[0x01, 0x12, 0, 3, 0, 0, 0, 1, 0, 6, 0, 0],
        &0_u32.to_be_bytes(),
    ]
    .concat();
    let length = u16::try_from(exif.len() + 2).unwrap().to_be_bytes();
    [&jpeg[..2], &[0xff, 0xe1], &length, &exif, &jpeg[2..]].concat()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scaled_photo_is_turned_as_its_exif_data_says() {
    let model = seeing();
    let world = TestRuntime::open(model.clone()).await;
    let photo = ContentPart::inline(
        "IMAGE/JPG; q=1",
        Some("a\nb.jpg".into()),
        turned_jpeg(3_000, 1_000),
    );
    let run = world
        .runtime()
        .start(RunRequest::new("Look.").session("s").attach(photo))
        .await
        .unwrap();
    with_timeout(run.wait()).await.unwrap();
    let request = last(&model);
    let file = last_with(&request, Role::User)
        .content
        .files()
        .next()
        .unwrap();
    assert_eq!(
        (file.width, file.height, file.scaled_from),
        (Some(667), Some(2_000), Some((1_000, 3_000)))
    );
    assert_eq!(
        (file.content_type.as_str(), file.filename.as_deref()),
        ("image/jpeg", Some("a b.jpg"))
    );
    world.finish().await;
}

/// Returns a model whose answers carry data for it.
fn signing() -> Arc<ScriptedModel> {
    let source = ModelSource {
        dialect: "openai".into(),
        base_url: "https://h/v1".into(),
        api_key_env: "KEY".into(),
        model: "scripted".into(),
    };
    let model = respond(move |_| {
        let data = json!({"signature": "s"});
        let items = vec![ProviderItem::Text { bytes: 3, data }];
        let provider_data = Some(Box::new(ProviderData {
            source: source.clone(),
            items,
        }));
        Completion {
            provider_data,
            ..Completion::text("yes")
        }
        .into()
    });
    Arc::new(model.recording())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn data_of_an_answer_survives_a_restart_and_a_fork() {
    let mut world = TestRuntime::open(signing()).await;
    let run = world
        .runtime()
        .start(RunRequest::new("One.").session("s"))
        .await
        .unwrap();
    with_timeout(run.wait()).await.unwrap();
    let shown = world
        .runtime()
        .traces()
        .messages(&TraceId::new("s"), soong::MessagePath::Main)
        .await
        .unwrap();
    assert!(
        !serde_json::to_string(&shown).unwrap().contains("signature"),
        "clients do not see it"
    );
    let model = signing();
    world.reopen(model.clone()).await;
    let fork = soong::Fork {
        session_id: Some("copy".into()),
        ..soong::Fork::default()
    };
    world
        .runtime()
        .sessions()
        .fork(&SessionId::new("s"), fork)
        .await
        .unwrap();
    for session in ["s", "copy"] {
        let run = world
            .runtime()
            .start(RunRequest::new("Two.").session(session))
            .await
            .unwrap();
        with_timeout(run.wait()).await.unwrap();
        let request = last(&model);
        let data = last_with(&request, Role::Assistant)
            .provider_data
            .as_ref()
            .unwrap();
        assert_eq!(
            data.items,
            [ProviderItem::Text {
                bytes: 3,
                data: json!({"signature": "s"})
            }],
            "{session}"
        );
    }
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fork_keeps_its_image_after_its_source_is_deleted() {
    let model = seeing();
    let world = TestRuntime::open(model.clone()).await;
    let run = world
        .runtime()
        .start(attached("What is it?", 8, 6))
        .await
        .unwrap();
    with_timeout(run.wait()).await.unwrap();
    let fork = soong::Fork {
        session_id: Some("copy".into()),
        ..soong::Fork::default()
    };
    world
        .runtime()
        .sessions()
        .fork(&SessionId::new("s"), fork)
        .await
        .unwrap();
    world
        .runtime()
        .sessions()
        .delete(&SessionId::new("s"))
        .await
        .unwrap();
    let run = world
        .runtime()
        .start(RunRequest::new("And now?").session("copy"))
        .await
        .unwrap();
    with_timeout(run.wait()).await.unwrap();
    assert_eq!(last(&model).files.len(), 1);
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_and_unreadable_files_are_rejected() {
    let world = TestRuntime::open(seeing()).await;
    let broken = RunRequest::new("x")
        .session("s")
        .attach(ContentPart::inline("image/png", None, *b"no image"));
    let error = world.runtime().start(broken).await.unwrap_err();
    assert_eq!(error.code, ErrorCode::ValidationError, "{error}");
    let text: ContentPart =
        serde_json::from_value(json!({"type": "file", "artifact_id": "none"})).unwrap();
    let error = world
        .runtime()
        .start(RunRequest::new("x").session("s").attach(text))
        .await
        .unwrap_err();
    assert_eq!(error.code, ErrorCode::ArtifactNotFound, "{error}");
    let second = attached("x", 2, 2).attach(ContentPart::inline("image/png", None, *b"no image"));
    assert_eq!(
        world.runtime().start(second).await.unwrap_err().code,
        ErrorCode::ValidationError
    );
    let error = world
        .runtime()
        .sessions()
        .get(&SessionId::new("s"))
        .await
        .unwrap_err();
    assert_eq!(error.code, ErrorCode::SessionNotFound, "nothing is stored");
    world.finish().await;
}

/// Returns a model that rejects images of 4 pixels in width, as a service does.
fn rejecting() -> Arc<ScriptedModel> {
    let model = respond(|request| {
        let mut files = request
            .messages
            .iter()
            .flat_map(|message| message.content.files());
        if files.any(|file| file.width == Some(4) && request.files.contains_key(&file.artifact_id))
        {
            let error = ModelError::new(Failure::Rejected, "Could not process image");
            return ModelError {
                status: Some(400),
                is_about_file: true,
                ..error
            }
            .into();
        }
        text(format!("{} files", request.files.len()))
    });
    Arc::new(
        model
            .taking([InputKind::Text, InputKind::Image])
            .recording(),
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn file_that_the_service_rejects_is_left_out_from_then_on() {
    let model = rejecting();
    let mut world = TestRuntime::open(model.clone()).await;
    for (width, output) in [(8, "1 files"), (4, "1 files"), (6, "2 files")] {
        let run = world
            .runtime()
            .start(attached("What is it?", width, 6))
            .await
            .unwrap();
        let outcome = with_timeout(run.wait()).await.unwrap();
        assert_eq!(outcome.output, output, "width {width}: {:?}", outcome.error);
        check_session(world.runtime(), run.session_id()).await;
    }
    assert_eq!(model.calls(), 4, "one call was rejected");
    let described: Vec<Vec<String>> = omitted(&world).await;
    assert!(
        described.len() == 1 && described[0][0].contains("4x6"),
        "{described:?}"
    );
    let model = rejecting();
    world.reopen(model.clone()).await;
    let run = world
        .runtime()
        .start(RunRequest::new("And now?").session("s"))
        .await
        .unwrap();
    assert_eq!(with_timeout(run.wait()).await.unwrap().output, "2 files");
    assert_eq!(model.calls(), 1, "later runs leave it out too");
    let shown = last_with(&last(&model), Role::User)
        .content
        .as_str()
        .to_owned();
    assert_eq!(shown, "And now?");
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rejected_prompt_without_files_is_not_repeated() {
    let model = respond(|_| {
        let error = ModelError::new(Failure::Rejected, "no image here");
        ModelError {
            status: Some(400),
            is_about_file: true,
            ..error
        }
        .into()
    });
    let model = Arc::new(
        model
            .taking([InputKind::Text, InputKind::Image])
            .recording(),
    );
    let world = TestRuntime::open(model.clone()).await;
    let run = world
        .runtime()
        .start(RunRequest::new("hello").session("s"))
        .await
        .unwrap();
    let outcome = with_timeout(run.wait()).await.unwrap();
    assert_eq!(
        (outcome.error.as_ref().unwrap().code, model.calls()),
        (ErrorCode::ProviderError, 1)
    );
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn damaged_files_are_rejected_before_they_are_stored() {
    let model = Arc::new(
        respond(|_| text("ok"))
            .taking([InputKind::Text, InputKind::Image, InputKind::Pdf])
            .recording(),
    );
    let world = TestRuntime::open(model.clone()).await;
    let whole = png(64, 64);
    let mut flipped = whole.clone();
    let middle = flipped.len() / 2;
    flipped[middle] ^= 0xff;
    let mut jpeg = Vec::new();
    let image = image::DynamicImage::new_rgb8(64, 64);
    image
        .write_to(&mut Cursor::new(&mut jpeg), image::ImageFormat::Jpeg)
        .unwrap();
    for (name, content_type, bytes, is_valid) in [
        (
            "half.png",
            "image/png",
            whole[..whole.len() / 2].to_vec(),
            false,
        ),
        ("header.png", "image/png", whole[..33].to_vec(), false),
        ("flipped.png", "image/png", flipped, false),
        (
            "half.jpg",
            "image/jpeg",
            jpeg[..jpeg.len() - 40].to_vec(),
            false,
        ),
        ("whole.jpg", "image/jpeg", jpeg, true),
        ("png.jpg", "image/jpeg", whole, true),
        (
            "cut.pdf",
            "application/pdf",
            b"%PDF\x2d1.4\nthis is cut off".to_vec(),
            false,
        ),
        (
            "page.pdf",
            "application/pdf",
            b"<html>%%EOF".to_vec(),
            false,
        ),
        (
            "whole.pdf",
            "application/pdf",
            b"%PDF\x2d1.4\n...\nstartxref\n9\n%%EOF\n".to_vec(),
            true,
        ),
    ] {
        let part = ContentPart::inline(content_type, Some(name.into()), bytes);
        let started = world
            .runtime()
            .start(RunRequest::new("What is it?").session(name).attach(part))
            .await;
        match started {
            Ok(run) => {
                with_timeout(run.wait()).await.unwrap();
                assert!(is_valid, "{name}");
            }
            Err(error) => {
                assert!(!is_valid, "{name}: {error}");
                assert_eq!(error.code, ErrorCode::ValidationError, "{name}");
                assert!(error.message.contains(name), "{error}");
            }
        }
    }
    world.finish().await;
}
