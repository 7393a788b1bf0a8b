//! Calls of tools that a server left in the text of an answer.

use std::sync::Arc;

use serde_json::json;
use soong::{
    ErrorCode, RunRequest,
    protocol::{Event, ModelEvent, Role, RunStatus},
};

use crate::support::{
    history::{check_session, stored},
    model::{Turn, assistant_count, scripted_model},
    world::{TestRuntime, with_timeout},
};

const CALL: &str =
    "<tool_call>\n{\"name\": \"read\", \"arguments\": {\"path\": \"a.txt\"}}\n</tool_call>";

/// Starts a run whose model gives these answers in turn, and returns its outcome, the outputs of
/// its tools and the forms of calls that were found in texts.
async fn answers(
    answers: Vec<Turn>,
    request: RunRequest,
) -> (Arc<soong::RunOutcome>, Vec<String>, Vec<String>) {
    let answers = std::sync::Mutex::new(answers.into_iter().map(Some).collect::<Vec<_>>());
    let model = scripted_model(move |request| {
        let index = assistant_count(request);
        answers.lock().unwrap()[index]
            .take()
            .expect("no further answer is expected")
    });
    let world = TestRuntime::open(model).await;
    std::fs::write(world.project().join("a.txt"), format!("CONTENT\n{CALL}\n")).unwrap();
    let run = world.runtime().start(request).await.unwrap();
    let outcome = with_timeout(run.wait()).await.unwrap();
    let messages = world
        .runtime()
        .traces()
        .messages(run.trace_id(), soong::MessagePath::Main)
        .await
        .unwrap();
    let outputs = messages.iter().filter(|message| message.role == Role::Tool);
    let outputs = outputs.map(|message| message.content.to_string()).collect();
    let events = stored(world.runtime(), run.trace_id()).await;
    let forms = events.iter().filter_map(|event| match &event.event {
        Event::Model(ModelEvent::CallsFoundInText { form, .. }) => Some(form.clone()),
        _ => None,
    });
    let forms = forms.collect();
    check_session(world.runtime(), run.session_id()).await;
    world.finish().await;
    (outcome, outputs, forms)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_at_the_end_of_a_text_are_run() {
    let qwen = "<function=read>\n<parameter=path>\na.txt\n</parameter>\n</function>";
    let texts = vec![
        Turn::say(format!("I will read it.\n\n{CALL}")),
        Turn::say(qwen),
        Turn::say("done"),
    ];
    let (outcome, outputs, forms) = answers(texts, RunRequest::new("read a.txt")).await;
    assert_eq!(
        (outcome.status, outcome.output.as_str()),
        (RunStatus::Completed, "done")
    );
    assert_eq!(outputs.len(), 2);
    assert!(
        outputs.iter().all(|output| output.contains("CONTENT")),
        "{outputs:?}"
    );
    assert_eq!(forms, ["hermes", "qwen"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn quoted_calls_and_calls_after_native_ones_are_text() {
    let quoted = format!("The file contains:\n```\n{CALL}\n```\nNothing else.");
    for (turns, output) in [
        (vec![Turn::say(quoted.clone())], quoted.as_str()),
        (
            vec![
                Turn::call("read", json!({"path": "a.txt"})),
                Turn::say(CALL),
            ],
            CALL,
        ),
        (
            vec![Turn::say("{\"name\": \"Ann\", \"arguments\": {}}")],
            "{\"name\": \"Ann\", \"arguments\": {}}",
        ),
    ] {
        let native = turns.len() - 1;
        let (outcome, outputs, forms) =
            answers(turns, RunRequest::new("what does a.txt contain?")).await;
        assert_eq!(
            (outcome.status, outcome.output.as_str()),
            (RunStatus::Completed, output)
        );
        assert_eq!((outputs.len(), forms.len()), (native, 0));
    }
    let schema = json!({"type": "object", "required": ["name", "arguments"]});
    let call = "{\"name\": \"read\", \"arguments\": {\"path\": \"a.txt\"}}";
    let request = RunRequest::new("as JSON").expect(schema);
    let (outcome, outputs, _) = answers(vec![Turn::say(call)], request).await;
    assert_eq!(
        (outcome.output.as_str(), outputs.len()),
        (call, 0),
        "the text is the answer that was asked for"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn call_in_a_text_that_cannot_be_run_fails_the_run_with_advice() {
    for text in [
        "<tool_call>{\"name\": \"nope\", \"arguments\": {}}</tool_call>",
        "[TOOL_CALLS][{\"name\": \"read\", \"arguments\": {\"path\": [1]}}]",
    ] {
        let (outcome, outputs, _) =
            answers(vec![Turn::say(text)], RunRequest::new("read a.txt")).await;
        let error = outcome.error.as_ref().unwrap();
        assert_eq!(
            (error.code, outputs.len()),
            (ErrorCode::UnsupportedCapability, 0)
        );
        assert!(
            error.message.contains("--tool-call-parser") && error.message.contains("--jinja"),
            "{error}"
        );
    }
}
