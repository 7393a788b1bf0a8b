//! Tests of failed calls and of their error messages.

use std::time::Duration;

use super::*;

#[tokio::test]
async fn malformed_answers_are_invalid_responses() {
    for (row, reply, part) in [
        ("cut", Reply::sse([text("hi")]).then_cut(), "cut off"),
        (
            "ended",
            Reply::stream([format!("data: {}\n\n", text("hi"))]),
            "before it was complete",
        ),
        (
            "not a chunks",
            Reply::stream([": ping\n\n", "data: [DONE]\n\n"]),
            ": ping",
        ),
        ("empty body", Reply::status(200, ""), "is empty"),
        (
            "plain text",
            Reply::status(200, "hello there"),
            "hello there",
        ),
        (
            "HTML",
            Reply::status(200, "<html>\n<b>hi</b>"),
            "<html> <b>hi</b>",
        ),
        (
            "other JSON",
            Reply::status(200, "{\"ok\": true}"),
            "{\"ok\": true}",
        ),
        (
            "half a chunk",
            Reply::stream(["data: {\"choices\": [\n\n"]),
            "{\"choices\": [",
        ),
        (
            "nameless call",
            Reply::sse([
                call_piece(json!({"index": 0, "id": "x", "function": {"arguments": "{}"}})),
                stop(),
            ]),
            "without a name",
        ),
        (
            "finish reason error",
            Reply::sse([text("hi"), delta(json!({}), "error".into())]),
            "`error`",
        ),
    ] {
        let error = answer_to(reply).await.unwrap_err();
        assert_eq!(error.failure, Failure::InvalidResponse, "{row}: {error}");
        assert!(error.message.contains(part), "{row}: {error}");
    }
}

#[tokio::test]
async fn bytes_that_are_no_utf8_are_replaced() {
    let chunk =
        b"data: {\"choices\": [{\"delta\": {\"content\": \"a\xff\"}, \"finish_reason\": \"stop\"}]}\n\n".to_vec();
    assert_eq!(
        answer_to(Reply::stream([chunk])).await.unwrap().text,
        "a\u{fffd}"
    );
}

#[tokio::test]
async fn http_statuses_map_to_failures() {
    let limited = |retry_after_ms| Failure::RateLimited { retry_after_ms };
    let openai = |message: &str, code: &str| {
        json!({"error": {"message": message, "type": "t", "param": null, "code": code}}).to_string()
    };
    for (reply, failure, part) in [
        (
            Reply::status(
                401,
                openai(
                    &format!("Incorrect API key provided: {KEY}"),
                    "invalid_api_key",
                ),
            ),
            Failure::Unauthorized,
            "OPENAI_API_KEY",
        ),
        (Reply::status(403, KEY), Failure::Unauthorized, "[key]"),
        (
            Reply::status(401, openai(&format!("wrong key: {}*****", &KEY[..20]), "x")),
            Failure::Unauthorized,
            "key: [key]",
        ),
        (
            Reply::status(403, "x".repeat(270) + KEY),
            Failure::Unauthorized,
            "x",
        ), // half a key must not be shown either
        (
            Reply::status(404, openai("no such model", "model_not_found")),
            Failure::Rejected,
            "`model.base_url`",
        ),
        (
            Reply::status(308, "").header("location", "https://new.example/v1"),
            Failure::Rejected,
            "https://new.example/v1",
        ),
        (Reply::status(402, "pay"), Failure::Rejected, "credit"),
        (Reply::status(408, ""), Failure::Timeout, "408"),
        (Reply::status(409, ""), limited(None), "409"),
        (Reply::status(425, ""), limited(None), "425"),
        (
            Reply::status(429, "<html>slow down</html>"),
            limited(None),
            "slow down",
        ),
        (
            Reply::status(429, "{\"error\": {\"message\": \"m\", \"code\": 429}}")
                .header("retry-after", "7"),
            limited(Some(7_000)),
            "a delay of 7 s",
        ),
        (
            Reply::status(429, "")
                .header("retry-after-ms", "1500")
                .header("retry-after", "9"),
            limited(Some(1_500)),
            "a delay of 2 s",
        ),
        (
            Reply::status(429, "").header("retry-after", "Wed, 21 Oct 2015 07:28:00 GMT"),
            limited(Some(0)),
            "429",
        ),
        (
            Reply::status(429, "").header("retry-after", "soon"),
            limited(None),
            "429",
        ),
        (
            Reply::status(
                429,
                openai("You exceeded your current quota", "insufficient_quota"),
            ),
            Failure::Rejected,
            "credit",
        ),
        (
            Reply::status(500, "oops\u{7}\n\nbad"),
            Failure::Unavailable,
            "oops bad",
        ),
        (
            Reply::status(503, "").header("retry-after", "3"),
            Failure::Unavailable,
            "a delay of 3 s",
        ),
        (Reply::status(529, ""), Failure::Unavailable, "529"),
        (
            Reply::status(400, openai("too much", "context_length_exceeded")),
            Failure::PromptTooLong,
            "send less",
        ),
        (
            Reply::status(
                400,
                "{\"message\": \"This model's maximum context length is 8\", \"code\": 400}",
            ),
            Failure::PromptTooLong,
            "maximum",
        ),
        (
            Reply::status(400, "[{\"error\": {\"message\": \"prompt is too long\"}}]"),
            Failure::PromptTooLong,
            "too long",
        ),
        (
            Reply::status(500, "exceeds the context window"),
            Failure::PromptTooLong,
            "window",
        ),
        (Reply::status(413, ""), Failure::PromptTooLong, "413"),
        (
            Reply::status(400, "{\"error\": \"m does not support tools\"}"),
            Failure::Unsupported,
            "supports tools",
        ),
        (
            Reply::status(
                422,
                "{\"detail\": [{\"loc\": [\"body\", \"x\"], \"msg\": \"bad\"}]}",
            ),
            Failure::Rejected,
            "\"bad\"",
        ),
        (
            Reply::status(
                400,
                openai("temperature must be at most 2", "invalid_value"),
            ),
            Failure::Rejected,
            "at most 2",
        ),
        (
            Reply::status(400, "x ".repeat(5_000)),
            Failure::Rejected,
            "…",
        ),
    ] {
        let row = format!("{reply:?}");
        let error = answer_to(reply).await.unwrap_err();
        assert_eq!(error.failure, failure, "{row}: {error}");
        assert!(error.message.contains(part), "{row}: {error}");
        assert_fit_to_show(&error);
    }
}

fn assert_fit_to_show(error: &ModelError) {
    assert!(!error.message.contains(&KEY[..7]), "{error}");
    assert!(!error.message.chars().any(char::is_control), "{error:?}");
    assert!(error.message.chars().count() <= 500, "{error}");
    assert!(error.message.contains("127.0.0.1:"), "{error}");
}

#[tokio::test]
async fn errors_in_stream_are_classified_by_code_and_message() {
    for (error, failure) in [
        (
            json!({"message": "slow down", "code": 429}),
            Failure::RateLimited {
                retry_after_ms: None,
            },
        ),
        (
            json!({"message": "m", "type": "rate_limit_error"}),
            Failure::RateLimited {
                retry_after_ms: None,
            },
        ),
        (
            json!({"message": "m", "code": "insufficient_quota"}),
            Failure::Rejected,
        ),
        (
            json!({"message": "m", "code": "context_length_exceeded"}),
            Failure::PromptTooLong,
        ),
        (
            json!({"message": "m", "code": "401"}),
            Failure::Unauthorized,
        ),
        (
            json!({"message": "m", "type": "invalid_request_error"}),
            Failure::Rejected,
        ),
        (
            json!({"message": "m", "type": "server_error"}),
            Failure::Unavailable,
        ),
        (
            json!({"message": "Provider returned error", "code": 400, "metadata": {"raw": "prompt is too long"}}),
            Failure::PromptTooLong,
        ),
        (json!({"message": KEY, "type": "timeout"}), Failure::Timeout),
        (json!("it broke"), Failure::Unavailable),
    ] {
        let body = json!({"error": error});
        for reply in [
            Reply::sse([text("hi"), body.clone()]),
            Reply::status(200, body.to_string()),
        ] {
            let got = answer_to(reply).await.unwrap_err();
            assert_eq!(got.failure, failure, "{body}: {got}");
            assert_fit_to_show(&got);
        }
    }
    let bare = json!({"object": "error", "message": "too many", "code": 429});
    let got = answer_to(Reply::sse([bare])).await.unwrap_err();
    assert_eq!(
        got.failure,
        Failure::RateLimited {
            retry_after_ms: None
        }
    );
}

#[tokio::test]
async fn oversized_answer_is_aborted_while_streaming() {
    let call = |index: usize, bytes: usize| {
        let arguments = format!("{{\"x\":\"{}\"}}", "x".repeat(bytes));
        json!({"index": index, "id": format!("c{index}"), "function": {"name": "f", "arguments": arguments}})
    };
    let many: Vec<Value> = (0..35_000).map(|index| call(index, 0)).collect();
    let hundred: Vec<Value> = (0..100).map(|index| call(index, 20_000)).collect();
    let piece =
        |arguments: &str| call_piece(json!({"index": 0, "function": {"arguments": arguments}}));
    let endless: Vec<Value> = std::iter::repeat_with(|| piece(&"x".repeat(100_000)))
        .take(600)
        .collect();
    let texts: Vec<Value> = std::iter::repeat_with(|| text(&"x".repeat(100_000)))
        .take(300)
        .collect();
    for (name, reply, setting) in [
        (
            "calls, one by one",
            Reply::sse(many.iter().map(|call| call_piece(call.clone()))),
            "max_tool_calls",
        ),
        (
            "calls, in one event",
            Reply::sse([delta(json!({"tool_calls": many}), Value::Null)]),
            "max_tool_calls",
        ),
        (
            "arguments of several calls",
            Reply::sse(hundred.into_iter().map(call_piece)),
            "max_argument_bytes",
        ),
        (
            "arguments without an end",
            Reply::sse(endless),
            "max_argument_bytes",
        ),
        ("text without an end", Reply::sse(texts), "max_answer_bytes"),
        (
            "an event without an end",
            Reply::sse([text(&"x".repeat(30_000_000))]),
            "max_answer_bytes",
        ),
        (
            "a body without an end",
            Reply::status(200, format!("{{\"x\":\"{}", "x".repeat(30_000_000))),
            "max_answer_bytes",
        ),
    ] {
        let error = answer_to(reply).await.unwrap_err();
        assert_eq!(error.failure, Failure::AnswerTooLarge, "{name}: {error}");
        assert!(
            error.message.contains(setting) && !error.is_retryable(),
            "{name}: {error}"
        );
    }
}

#[tokio::test]
async fn silence_at_any_point_is_a_timeout() {
    // Before the first byte, a server of this network may be silent five times as long.
    for (reply, first_byte_ms, limit, setting) in [
        (Reply::hang(), None, "500 ms", "model.first_byte_timeout_ms"),
        (
            Reply::hang(),
            Some(50),
            " 50 ms",
            "model.first_byte_timeout_ms",
        ),
        (
            Reply::stream([""]).then_hang(),
            Some(50),
            " 50 ms",
            "model.first_byte_timeout_ms",
        ),
        (
            Reply::stream(["", ": x\n"]).then_hang(),
            None,
            "100 ms",
            "model.timeout_ms",
        ),
        (
            Reply::sse([text("hi")]).then_hang(),
            Some(5_000),
            "100 ms",
            "model.timeout_ms",
        ),
    ] {
        let server = ScriptedServer::start(move |_| reply.clone());
        let config = ModelConfig {
            timeout_ms: 100,
            first_byte_timeout_ms: first_byte_ms,
            ..config(server.base_url())
        };
        let provider = open_ai(&config, Some(KEY)).unwrap();
        let error = ask(&provider, &request()).await.unwrap_err();
        assert_eq!(error.failure, Failure::Timeout, "{error}");
        assert!(
            error.message.contains(limit) && error.message.contains(setting),
            "{error}"
        );
        assert_fit_to_show(&error);
        server.until_hung_up(1).await;
    }
}

#[tokio::test]
async fn unreachable_service_is_unavailable() {
    let url = ScriptedServer::start(|_| Reply::hang()).base_url(); // stopped again
    let provider = open_ai(&config(url), Some(KEY)).unwrap();
    let error = ask(&provider, &request()).await.unwrap_err();
    assert_eq!(error.failure, Failure::Unavailable, "{error}");
    assert!(
        error.message.starts_with("could not connect to 127.0.0.1:"),
        "{error}"
    );
    assert_fit_to_show(&error);
    let error = answer_to(Reply::raw("")).await.unwrap_err();
    assert_eq!(error.failure, Failure::Unavailable, "{error}");
    let error = answer_to(Reply::raw("nonsense\r\n\r\n")).await.unwrap_err();
    assert_eq!(error.failure, Failure::Unavailable, "{error}");
}

#[test]
fn retry_after_is_parsed_in_every_format() {
    let now = std::time::UNIX_EPOCH + Duration::from_secs(1_445_412_470); // ten seconds before the date
    for (name, value, want) in [
        ("retry-after", "2", Some(2_000)),
        ("retry-after", "0.5", Some(500)),
        ("retry-after", "Wed, 21 Oct 2015 07:28:00 GMT", Some(10_000)),
        ("retry-after", "Wed, 21 Oct 2015 07:27:00 GMT", Some(0)),
        ("retry-after-ms", "20.2", Some(21)),
        ("retry-after", "-1", None),
        ("retry-after", "NaN", None),
        ("x-other", "2", None),
    ] {
        let mut headers = reqwest::header::HeaderMap::new();
        headers.insert(name, value.parse().unwrap());
        assert_eq!(
            crate::service::failure::retry_after_ms(&headers, now),
            want,
            "{name}: {value}"
        );
    }
}
