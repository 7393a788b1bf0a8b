//! Models that repeat themselves: a note first, then the end of the run.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::SeqCst},
};

use serde_json::{Value, json};
use soong::{
    ErrorCode, RunRequest,
    model::Completion,
    protocol::{Role, RunStatus, ToolCall},
};

use crate::support::{
    history::check_session,
    model::{Turn, assistant_count, scripted_model},
    world::{TestRuntime, quick_config, with_timeout},
};

/// Runs a model that gives these turns, by their number from 0. The limits are 3 calls for the note
/// and 6 for the end.
async fn outcome(
    turn: impl Fn(usize) -> Turn + Send + Sync + 'static,
) -> (Arc<soong::RunOutcome>, Vec<String>) {
    let model = scripted_model(move |request| turn(assistant_count(request)));
    let world = TestRuntime::with(model, |builder| {
        let mut config = quick_config();
        config.runtime.repeated_calls_note = 3;
        config.runtime.repeated_calls_limit = 6;
        config.runtime.max_turns = 30;
        builder.config(config)
    })
    .await;
    std::fs::write(world.project().join("a.txt"), "A\n").unwrap();
    let run = world
        .runtime()
        .start(RunRequest::new("go").session("s"))
        .await
        .unwrap();
    let outcome = with_timeout(run.wait()).await.unwrap();
    let messages = world
        .runtime()
        .traces()
        .messages(run.trace_id(), soong::MessagePath::Main)
        .await
        .unwrap();
    let outputs = messages.iter().filter(|message| message.role == Role::Tool);
    let outputs = outputs.map(|message| message.content.to_string()).collect();
    check_session(world.runtime(), run.session_id()).await;
    world.finish().await;
    (outcome, outputs)
}

fn has_note(output: &str) -> bool {
    output.contains("times in a row")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn identical_calls_get_a_note_and_then_end_the_run() {
    for (name, tool, arguments) in [
        ("valid", "read", json!({"path": "a.txt"})),
        ("broken JSON", "read", Value::from("{\"path\": ")),
        ("unknown tool", "nope", json!({})),
        ("wrong argument", "read", json!({"path": [1]})),
    ] {
        let (outcome, outputs) = outcome(move |_| Turn::call(tool, arguments.clone())).await;
        let error = outcome.error.as_ref().unwrap();
        assert_eq!(
            (outcome.status, error.code),
            (RunStatus::Failed, ErrorCode::RepeatedCalls),
            "{name}: {error}"
        );
        assert_eq!(error.details["count"], 6, "{name}");
        assert_eq!(outputs.len(), 6, "{name}");
        let notes: Vec<bool> = outputs.iter().map(|output| has_note(output)).collect();
        assert_eq!(
            notes,
            [false, false, true, true, true, true],
            "{name}: {outputs:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn identical_texts_with_different_calls_get_a_note_and_then_end_the_run() {
    let call = |turn: usize, text: &str| {
        let arguments = json!({ "path": "a.txt", "max_lines": turn + 1 }).to_string();
        let call = ToolCall {
            id: format!("call_{turn}"),
            name: "read".to_owned(),
            arguments,
        };
        let completion = Completion {
            text: text.to_owned(),
            ..Completion::tool_calls(vec![call])
        };
        Turn::Whole(Vec::new(), Box::new(completion))
    };
    let (ended, outputs) = outcome(move |turn| {
        call(turn, "I will look at the file once more, from its first line, because I may have missed something in it.")
    })
    .await;
    let error = ended.error.as_ref().unwrap();
    assert_eq!(
        (error.code, &error.details["count"]),
        (ErrorCode::RepeatedCalls, &json!(6)),
        "{error}"
    );
    assert!(error.message.contains("same text"), "{error}");
    let notes: Vec<bool> = outputs.iter().map(|output| has_note(output)).collect();
    assert_eq!(notes, [false, false, true, true, true, true]);
    let (ended, outputs) = outcome(move |turn| {
        if turn < 12 {
            call(turn, "Now let me update the next file:")
        } else {
            Turn::say("done")
        }
    })
    .await;
    assert_eq!(
        ended.output, "done",
        "a short text may introduce different calls"
    );
    assert!(!outputs.iter().any(|output| has_note(output)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_with_others_between_them_are_no_repetition() {
    let (outcome, outputs) = outcome(|turn| match turn {
        20.. => Turn::say("done"),
        turn if turn % 5 == 4 => Turn::call("list_files", json!({})),
        _ => Turn::call("read", json!({"path": "a.txt"})),
    })
    .await;
    assert_eq!(
        (outcome.status, outcome.output.as_str()),
        (RunStatus::Completed, "done")
    );
    assert_eq!(
        outputs.iter().filter(|output| has_note(output)).count(),
        8,
        "the third and fourth of each row"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_whose_results_differ_are_no_repetition() {
    let count = Arc::new(AtomicUsize::new(0));
    let project: Arc<std::sync::Mutex<Option<std::path::PathBuf>>> = Arc::default();
    let folder = Arc::clone(&project);
    let model = scripted_model(move |request| {
        let turn = assistant_count(request);
        let path = folder.lock().unwrap().clone().unwrap();
        std::fs::write(
            path.join("a.txt"),
            format!("{}\n", count.fetch_add(1, SeqCst)),
        )
        .unwrap();
        match turn {
            15.. => Turn::say("done"),
            _ => Turn::call("read", json!({"path": "a.txt"})),
        }
    });
    let world = TestRuntime::with(model, |builder| {
        let mut config = quick_config();
        config.runtime.repeated_calls_limit = 4;
        builder.config(config)
    })
    .await;
    *project.lock().unwrap() = Some(world.project().to_owned());
    let run = world
        .runtime()
        .start(RunRequest::new("go").session("s"))
        .await
        .unwrap();
    assert_eq!(with_timeout(run.wait()).await.unwrap().output, "done");
    world.finish().await;
}
