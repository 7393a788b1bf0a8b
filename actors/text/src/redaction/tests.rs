//! Tests of redaction: every form of a secret, whole and in pieces.

use proptest::prelude::*;

use super::*;

const CANARY: &str = "ca\"nary\\secret/0123";

fn redactor() -> Redactor {
    let environment = Environment::of([
        ("SERVICE_TOKEN", CANARY),
        ("DB_PASSWORD", "pässwörd with a/slash 🔑"),
        ("OPENAI_API_KEY", "sk-0123456789abcdef"),
        ("MY_PASSWORD", "short"),
        ("PWD", "/home/me/project"),
        ("KEYBOARD_LAYOUT", "de-latin1-nodeadkeys"),
        ("TICKETS_AUTHORIZATION", "Basic dXNlcjpwYXNz"),
        (
            "PEM_KEY",
            "-----BEGIN-----\nMIIEvQIBADANBgkqhkiG9w0\nab\n-----END-----",
        ),
        ("INNER_SECRET", "0123456789abcdef"),
    ]);
    let mut config = Config::default();
    let server = soong_protocol::McpConfig {
        url: Some("http://127.0.0.1/".into()),
        header_env: [(
            "Authorization".to_owned(),
            "TICKETS_AUTHORIZATION".to_owned(),
        )]
        .into(),
        ..soong_protocol::McpConfig::default()
    };
    config.mcp.insert("tickets".to_owned(), server);
    Redactor::new(&environment, &config)
}

#[test]
fn secret_is_redacted_in_every_encoding() {
    let redactor = redactor();
    let json = serde_json::json!({ "a": CANARY }).to_string();
    let nested = serde_json::json!({ "arguments": json }).to_string();
    for (text, want) in [
        ("nothing".to_owned(), "nothing"),
        (format!("a {CANARY} b"), "a [redacted:SERVICE_TOKEN] b"),
        (json, r#"{"a":"[redacted:SERVICE_TOKEN]"}"#),
        (
            nested,
            r#"{"arguments":"{\"a\":\"[redacted:SERVICE_TOKEN]\"}"}"#,
        ),
        (
            format!("?t={}", percent_encoded(CANARY)),
            "?t=[redacted:SERVICE_TOKEN]",
        ),
        (
            "?t=ca%22nary%5cSecret%2f0123".replace('S', "s"),
            "?t=[redacted:SERVICE_TOKEN]",
        ),
        (
            "p\\u00e4ssw\\u00f6rd with a/slash \\ud83d\\udd11".to_owned(),
            "[redacted:DB_PASSWORD]",
        ),
        (
            "\\\"p\\\\u00e4ssw\\\\u00f6rd with a/slash \\\\ud83d\\\\udd11\\\"".to_owned(),
            "\\\"[redacted:DB_PASSWORD]\\\"",
        ),
        (
            "pässwörd with a\\/slash 🔑".to_owned(),
            "[redacted:DB_PASSWORD]",
        ),
        (
            "p%C3%A4ssw%C3%B6rd+with+a%2Fslash+%F0%9F%94%91".to_owned(),
            "[redacted:DB_PASSWORD]",
        ),
        (
            "sk-0123456789abcdef".to_owned(),
            "[redacted:OPENAI_API_KEY]",
        ),
        ("0123456789abcdef".to_owned(), "[redacted:INNER_SECRET]"),
        ("short".to_owned(), "short"),
        ("/home/me/project".to_owned(), "/home/me/project"),
        ("de-latin1-nodeadkeys".to_owned(), "de-latin1-nodeadkeys"),
        (
            "x Basic dXNlcjpwYXNz y".to_owned(),
            "x [redacted:TICKETS_AUTHORIZATION] y",
        ),
        ("MIIEvQIBADANBgkqhkiG9w0".to_owned(), "[redacted:PEM_KEY]"),
        ("ab".to_owned(), "ab"),
    ] {
        assert_eq!(redactor.text(&text), want, "{text}");
        assert_eq!(
            redactor.text(&redactor.text(&text)),
            want,
            "once redacted it stays: {text}"
        );
    }
}

/// Secrets that occur in the marks with which secrets are replaced.
#[test]
fn mark_that_contains_a_secret_is_kept() {
    let environment = Environment::of([
        ("ONE_TOKEN", "redacted"),
        ("TWO_API_KEY", "ONE_TOKEN"),
        ("THREE_SECRET", "sk-TWO_API_KEY-and-more-of-it"),
        ("SK_TWO_API_KEY", "[redacted"),
        ("FOUR_TOKEN", "]-0123456789"),
        ("FIVE_TOKEN", "[redacted]"),
    ]);
    let redactor = Redactor::new(&environment, &Config::default());
    for (text, want) in [
        ("redacted", "[redacted:ONE_TOKEN]"),
        ("ONE_TOKEN", "[redacted:TWO_API_KEY]"),
        ("[redacted:ONE_TOKEN]", "[redacted:ONE_TOKEN]"),
        (
            "a [redacted:ONE_TOKEN] and redacted",
            "a [redacted:ONE_TOKEN] and [redacted:ONE_TOKEN]",
        ),
        ("[redacted", "[redacted:SK_TWO_API_KEY]"),
        ("Bearer abcdefghij0123456789", "Bearer [redacted]"),
        ("Bearer [redacted]", "Bearer [redacted]"),
        ("sk-TWO_API_KEY-and-more-of-it", "[redacted:THREE_SECRET]"),
        ("[redacted:ONE_TOKEN]-012", "[redacted:ONE_TOKEN]-012"),
        // The name of no secret: only marks of this redactor are known.
        (
            "[redacted:redacted]",
            "[redacted:SK_TWO_API_KEY]:[redacted:ONE_TOKEN]]",
        ),
    ] {
        assert_eq!(redactor.text(text), want, "{text}");
        assert_eq!(redactor.text(want), want, "once redacted it stays: {text}");
        for cut in 1..text.len() {
            let mut stream = StreamRedactor::new(&redactor);
            let pieces = [
                stream.push(&text[..cut]),
                stream.push(&text[cut..]),
                stream.end(),
            ];
            assert_eq!(pieces.concat(), want, "{text} in pieces, cut at {cut}");
        }
    }
    assert!(matches!(
        redactor.text("[redacted:ONE_TOKEN]"),
        Cow::Borrowed(_)
    ));
}

#[test]
fn bearer_token_is_redacted() {
    let redactor = Redactor::default();
    for (text, want) in [
        (
            "Authorization: Bearer abcdefghij",
            "Authorization: Bearer [redacted]",
        ),
        (
            "authorization=bearer abcdefghij!",
            "authorization=bearer [redacted]!",
        ),
        (
            r#"{"Authorization": "Bearer abc.def.ghi="}"#,
            r#"{"Authorization": "Bearer [redacted]"}"#,
        ),
        ("bearer abc123def", "bearer [redacted]"),
        ("bearer abcdefghijklmnopqrstuvwxyz", "bearer [redacted]"),
        ("bearer certificates are old", "bearer certificates are old"),
        ("the bearer of news", "the bearer of news"),
        ("Bearer", "Bearer"),
        ("Bearer [redacted]", "Bearer [redacted]"),
    ] {
        assert_eq!(redactor.text(text), want, "{text}");
    }
}

#[test]
fn truncated_secret_is_redacted_in_errors() {
    let redactor = redactor();
    for (text, want) in [
        (
            "the key is sk-0123456789ab…",
            "the key is [redacted:OPENAI_API_KEY]…",
        ),
        (
            "the key is sk-0123456789ab",
            "the key is [redacted:OPENAI_API_KEY]",
        ),
        (
            "sk-0123456789a… [cut]\nsk-0123456789…",
            "[redacted:OPENAI_API_KEY]… [cut]\n[redacted:OPENAI_API_KEY]…",
        ),
        (
            "sk-0123456789ab\n[cut: the answer has",
            "[redacted:OPENAI_API_KEY]\n[cut: the answer has",
        ),
        (
            "sk-0123456789ab is the key",
            "[redacted:OPENAI_API_KEY] is the key",
        ),
        ("sk-0123456 is no key", "sk-0123456 is no key"),
        ("pässwörd wi…", "[redacted:DB_PASSWORD]…"),
        ("sk-0123456…", "sk-0123456…"),
        ("nothing…", "nothing…"),
    ] {
        let error = redactor.redact_error(ErrorInfo::new(
            soong_protocol::ErrorCode::InternalError,
            text,
        ));
        assert_eq!(error.message, want, "{text}");
    }
}

#[test]
fn prefix_of_secret_is_redacted_anywhere() {
    let redactor = redactor();
    for (text, want) in [
        ("sk-01234567", "[redacted:OPENAI_API_KEY]"),
        ("sk-0123456", "sk-0123456"),
        (
            "your key sk-01234567*** is wrong",
            "your key [redacted:OPENAI_API_KEY] is wrong",
        ),
        // Nothing shows how much of a guess is right.
        (
            "sk-0123456789abcdeX sk-01234567zz",
            "[redacted:OPENAI_API_KEY] [redacted:OPENAI_API_KEY]",
        ),
        ("Basic dXNlcjpwYX…", "[redacted:TICKETS_AUTHORIZATION]…"),
        ("sk- and Basic alone", "sk- and Basic alone"),
        // A whole secret that starts inside the matched prefix of another one wins.
        (
            "sk-0123456789abc0123456789abcdef",
            "[redacted:OPENAI_API_KEY][redacted:INNER_SECRET]",
        ),
    ] {
        assert_eq!(redactor.text(text), want, "{text}");
    }
}

#[test]
fn text_without_secrets_is_borrowed() {
    assert!(matches!(
        redactor().text("a long text without any"),
        Cow::Borrowed(_)
    ));
}

#[test]
fn debug_output_contains_no_secret() {
    assert!(!format!("{:?}", redactor()).contains("0123456789"));
}

#[test]
fn json_keys_and_values_are_redacted() {
    let mut value = serde_json::json!({ CANARY: [CANARY, 1, { "x": format!("a{CANARY}") }] });
    redactor().redact_json(&mut value);
    assert!(!value.to_string().contains("nary"), "{value}");
}

proptest! {
    /// Wherever the text is split, the output equals the redaction of the whole text and never
    /// contains a part of a secret.
    #[test]
    fn stream_redaction_equals_whole_text_redaction(
        parts in prop::collection::vec(prop::sample::select(vec![
            "sk-0123456789abcdef", "sk-01234", "0123456789abcdef", "Bearer abc123def456\n", " Authorization: bearer xyzxyzxyz\n",
            "sk-01234567", "sk-0123456789abcdeX", "01234567", "0123456789abcdeX",
            "abcdefghijkl", " ", "\n", "ca\"nary\\secret/0123", "ca\"nary\\sec", "héllo ", "b", "sk-", " Bear",
        ]), 0..12),
        cuts in prop::collection::vec(1_usize..7, 0..60),
    ) {
        let redactor = redactor();
        let whole: String = parts.concat();
        let mut stream = StreamRedactor::new(&redactor);
        let (mut shown, mut rest, mut cuts) = (String::new(), whole.as_str(), cuts.into_iter().cycle());
        while !rest.is_empty() {
            let length = cuts.next().unwrap_or(3).min(rest.chars().count());
            let end = rest.char_indices().nth(length).map_or(rest.len(), |(at, _)| at);
            shown.push_str(&stream.push(&rest[..end]));
            rest = &rest[end..];
        }
        shown.push_str(&stream.end());
        prop_assert_eq!(shown.as_str(), &*redactor.text(&whole), "{:?}", whole);
        prop_assert!(!shown.contains("0123456789abcdef"));
    }
}

#[test]
fn event_stays_readable_if_a_number_equals_a_secret() {
    let environment = Environment::of([("DB_PASSWORD", "20000000")]);
    let redactor = Redactor::new(&environment, &Config::default());
    let event = soong_protocol::ArtifactEvent::Saved {
        name: Some("20000000".into()),
        artifact_id: soong_protocol::ArtifactId::new("a"),
        version: 1,
        content_type: "text/plain".into(),
        size: 20_000_000,
        source: soong_protocol::ArtifactSource::Tool,
        debug: false,
    };
    let mut draft = soong_protocol::EventDraft::new(
        soong_protocol::TraceId::new("s"),
        None,
        Default::default(),
        event,
    );
    for _ in 0..2 {
        redactor.redact_draft(&mut draft);
        let soong_protocol::Event::Artifact(soong_protocol::ArtifactEvent::Saved {
            name,
            size,
            ..
        }) = &draft.event
        else {
            panic!("{draft:?}")
        };
        assert_eq!(
            (name.as_deref(), *size),
            (Some("[redacted:DB_PASSWORD]"), 20_000_000)
        );
        assert_eq!(draft.data, draft.event.data_json());
    }
}
