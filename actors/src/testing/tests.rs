//! Tests of the scripted model.

use std::sync::Arc;

use serde_json::json;

use super::*;

/// Records what a call streams.
#[derive(Default)]
struct RecordingSink(Vec<Delta>);

impl DeltaSink for RecordingSink {
    fn push(&mut self, delta: Delta) {
        self.0.push(delta);
    }
}

/// Makes a call. Returns what it streamed, too.
async fn complete(model: &ScriptedModel) -> (Vec<Delta>, Result<Completion, ModelError>) {
    let mut sink = RecordingSink::default();
    let outcome = model.complete(&ModelRequest::default(), &mut sink).await;
    (sink.0, outcome)
}

#[tokio::test]
async fn steps_stream_and_end_as_described() {
    let limited = Completion {
        finish_reason: "length".to_owned(),
        ..Completion::text("too lo")
    };
    let reasoning = Delta::Reasoning {
        text: "hm".to_owned(),
    };
    let usage = Usage {
        prompt_tokens: 7,
        ..Usage::default()
    };
    let error = ModelError::new(Failure::InvalidResponse, "no end");
    for (step, deltas, outcome) in [
        (
            text("two words"),
            vec![piece("two "), piece("words")],
            Ok(Completion::text("two words")),
        ),
        (
            text("x").streaming([reasoning.clone()]),
            vec![reasoning],
            Ok(Completion::text("x")),
        ),
        (limited.clone().into(), vec![], Ok(limited)),
        (
            text("").usage(usage),
            vec![],
            Ok(Completion {
                usage: Some(usage),
                ..Completion::text("")
            }),
        ),
        (
            cut("half", error.failure, "no end"),
            vec![piece("half")],
            Err(error.clone()),
        ),
        (
            fail(error.failure, "no end").usage(usage),
            vec![],
            Err(error),
        ),
    ] {
        assert_eq!(complete(&script([step])).await, (deltas, outcome));
    }
}

#[tokio::test]
async fn tool_calls_without_id_get_unique_ids() {
    let named = ToolCall {
        id: "mine".to_owned(),
        name: "read".to_owned(),
        arguments: "{}".to_owned(),
    };
    let steps = [
        calls([("read", json!({})), ("read", json!({}))]),
        Completion::tool_calls(vec![named]).into(),
    ];
    let model = script(steps.into_iter().chain([call("read", json!({}))]));
    let mut ids = Vec::new();
    for _ in 0..3 {
        ids.extend(
            complete(&model)
                .await
                .1
                .unwrap()
                .tool_calls
                .into_iter()
                .map(|call| call.id),
        );
    }
    assert_eq!(ids, ["call_0", "call_1", "mine", "call_2"]);
}

#[tokio::test]
async fn chosen_call_takes_its_step_and_script_goes_on() {
    let model = script([text("one"), text("two")])
        .at_call(1, fail(Failure::Unavailable, "down"))
        .recording();
    let mut outcomes = Vec::new();
    for _ in 0..4 {
        outcomes.push(
            complete(&model)
                .await
                .1
                .map(|completion| completion.text)
                .map_err(|error| error.failure),
        );
    }
    let want = [
        Ok("one".to_owned()),
        Err(Failure::Unavailable),
        Ok("two".to_owned()),
        Err(Failure::Rejected),
    ];
    assert_eq!(outcomes, want);
    assert_eq!((model.calls(), model.requests().len()), (4, 4));
}

#[tokio::test(start_paused = true)]
async fn calls_are_in_flight_until_they_end_or_are_cancelled() {
    let model = Arc::new(respond_async(|request| {
        let hangs = request.model.is_some();
        async move {
            tokio::time::sleep(Duration::from_secs(1)).await;
            if hangs {
                hang("half")
            } else {
                text("done").pause(Duration::from_secs(1))
            }
        }
    }));
    let begin = |name: Option<&str>| {
        let model = Arc::clone(&model);
        let request = ModelRequest {
            model: name.map(str::to_owned),
            ..ModelRequest::default()
        };
        tokio::spawn(async move {
            model
                .complete(&request, &mut RecordingSink::default())
                .await
        })
    };
    let ends = begin(None);
    let hangs = begin(Some("hangs"));
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    assert_eq!((model.calls(), model.in_flight()), (2, 2));
    assert_eq!(ends.await.unwrap().unwrap().text, "done");
    assert_eq!(model.in_flight(), 1);
    hangs.abort();
    assert!(hangs.await.unwrap_err().is_cancelled());
    assert_eq!((model.in_flight(), model.max_in_flight()), (0, 2));
}
