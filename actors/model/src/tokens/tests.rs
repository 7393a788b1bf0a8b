//! Tests of counts and estimates: known texts by a table, any text by properties.

use proptest::prelude::*;
use soong_protocol::{Message, Role, Timestamp, ToolCall, TraceId};

use super::{TokenCounter, TokenDeviation, TokenDeviations, TokenRatio, estimate_tokens};

const ENGLISH: &str = "The quick brown fox jumps over the lazy dog.";
const CHINESE: &str = "上下文过长时，系统先省略已完成目标的消息，再生成摘要。";
const JAPANESE: &str = "すべての手順は永続的なイベントストリームに書き込まれます。";
const RUSSIAN: &str = "Каждый шаг записывается в журнал событий.";
const GERMAN: &str = "Jeder Schritt wird in einen dauerhaften Ereignisstrom geschrieben.";
const CODE: &str = "fn main() {\n    let x: u32 = 42;\n    println!(\"{}\", x + 1);\n}\n";
const JSON: &str = "{\"path\":\"src/main.rs\",\"lines\":[1,200],\"ok\":true}";
const EMOJI: &str = "Tests pass ✅ and docs 📚 are done 👍🏽 🎉🚀!";
const BASE64: &str = "aGVsbG8gd29ybGQsIHRoaXMgaXMgYmFzZTY0IGVuY29kZWQgdGV4dA==";

/// Texts with their number of `o200k_base` tokens, and the permitted deviation of the estimate in
/// percent.
const KNOWN: [(&str, u64, f64); 11] = [
    ("", 0, 0.0),
    ("hello world", 2, 0.0),
    (ENGLISH, 10, 20.0),
    (CHINESE, 19, 20.0),
    (JAPANESE, 23, 20.0),
    (RUSSIAN, 10, 35.0),
    (GERMAN, 13, 20.0),
    (CODE, 23, 20.0),
    (JSON, 17, 25.0),
    (EMOJI, 17, 20.0),
    (BASE64, 36, 20.0),
];

fn message(content: &str, calls: &[(&str, &str)]) -> Message {
    let mut message = Message::new(
        TraceId::new("t"),
        1,
        None,
        Role::Assistant,
        content.to_owned(),
        Timestamp::default(),
    );
    let call = |(name, arguments): &(&str, &str)| ToolCall {
        id: "call_1".to_owned(),
        name: (*name).to_owned(),
        arguments: (*arguments).to_owned(),
    };
    message.tool_calls = calls.iter().map(call).collect();
    message
}

fn uncorrected() -> TokenCounter {
    TokenCounter::estimating(TokenRatio::default())
}

#[test]
fn estimate_is_close_to_known_counts() {
    for (text, exact, per_cent) in KNOWN {
        let off = (estimate_tokens(text) as f64 - exact as f64).abs() / exact.max(1) as f64 * 100.0;
        assert!(
            off <= per_cent,
            "{text:?}: {} for {exact}, {off:.0} % off",
            estimate_tokens(text)
        );
    }
}

#[test]
fn message_tokens_include_text_calls_and_overhead() {
    let counter = uncorrected();
    let text = estimate_tokens(ENGLISH);
    let name = estimate_tokens("read");
    let arguments = estimate_tokens("{}");
    for (message, tokens) in [
        (message("", &[]), 4),
        (message(ENGLISH, &[]), 4 + text),
        (
            message(ENGLISH, &[("read", "{}")]),
            4 + text + 4 + name + arguments,
        ),
        (
            message("", &[("read", "{}"), ("read", "{}")]),
            4 + 2 * (4 + name + arguments),
        ),
    ] {
        assert_eq!(counter.count(&message), tokens, "{message:?}");
    }
    let mut thoughtful = message(ENGLISH, &[]);
    thoughtful.reasoning = Some("a long thought".to_owned());
    assert_eq!(
        counter.count(&thoughtful),
        4 + text,
        "reasoning is never sent"
    );
}

#[test]
fn models_of_other_vendors_are_estimated() {
    for name in [
        "claude-sonnet-4-5",
        "gemini-2.5-pro",
        "qwen3",
        "offline",
        "",
        "gpt-4",
        "gpt-3.5-turbo",
        "o1000",
        "/",
    ] {
        assert_eq!(TokenCounter::for_model(name), uncorrected(), "{name}");
    }
    assert!(!uncorrected().is_exact());
    assert_eq!(uncorrected().count_text(ENGLISH), estimate_tokens(ENGLISH));
}

#[test]
fn ratio_corrects_estimates_and_no_exact_counts() {
    let mut ratio = TokenRatio::default();
    ratio.add(1_000, 1_500);
    let counter = TokenCounter::for_model("claude-sonnet-4-5").corrected_by(ratio);
    let estimate = estimate_tokens(ENGLISH);
    assert_eq!(counter.count_text(ENGLISH), (estimate * 3).div_ceil(2));
    assert_eq!(
        counter.count(&message(ENGLISH, &[])),
        4 + (estimate * 3).div_ceil(2)
    );
    assert_eq!(
        (counter.correct(1_000), counter.uncorrected(1_500)),
        (1_500, Some(1_000))
    );
    assert_eq!(
        counter.correct(u64::MAX),
        u64::MAX / 1_000 + 1,
        "no overflow"
    );
    #[cfg(feature = "tokenizer")]
    {
        let exact = TokenCounter::for_model("gpt-5");
        assert_eq!(
            (exact.corrected_by(ratio), exact.uncorrected(1_500)),
            (exact, None)
        );
    }
}

#[test]
fn deviation_is_a_running_mean_per_model() {
    let deviations = TokenDeviations::default();
    for (model, counted, reported) in [
        ("a", 110, 100),
        ("a", 70, 100),
        ("b", 5, 5),
        ("a", 9, 0),
        ("c", 1, 0),
    ] {
        deviations.record(model, counted, reported);
    }
    let all = deviations.all();
    let check = |name: &str, samples, mean: f64| {
        let TokenDeviation {
            samples: known,
            mean: got,
        } = all[name];
        assert!(
            known == samples && (got - mean).abs() < 1e-9,
            "{name}: {known} {got}"
        );
    };
    check("a", 2, 0.2);
    check("b", 1, 0.0);
    assert!(
        !all.contains_key("c"),
        "a provider that reports nothing is no sample"
    );
}

proptest! {
    #[test]
    fn estimate_is_monotonic_and_at_most_byte_count(head in ".{0,40}", tail in ".{0,40}") {
        let whole = format!("{head}{tail}");
        prop_assert!(estimate_tokens(&head) <= estimate_tokens(&whole));
        prop_assert!(estimate_tokens(&whole) <= whole.len() as u64);
    }
}

#[cfg(feature = "tokenizer")]
mod exact {
    use std::time::Duration;

    use super::{super::vocabulary, *};

    /// Returns the exact counter, after waiting for the thread that reads the vocabulary.
    fn loaded() -> TokenCounter {
        TokenCounter::O200k.load_soon();
        while !TokenCounter::O200k.is_exact() {
            std::thread::yield_now();
        }
        TokenCounter::O200k
    }

    #[test]
    fn openai_models_use_their_vocabulary() {
        for name in [
            "gpt-4.1-mini",
            "gpt-4o",
            "gpt-4o-2024-08-06",
            "gpt-5",
            "gpt-5.1-codex",
            "o1",
            "o3-mini",
            "o4-mini",
            "openai/gpt-4o-mini",
            "ft:gpt-4o-mini:org::id",
            "gpt-oss-120b",
            "chatgpt-4o-latest",
        ] {
            assert_eq!(TokenCounter::for_model(name), TokenCounter::O200k, "{name}");
        }
    }

    #[test]
    fn known_texts_have_known_counts() {
        let counter = loaded();
        assert!(counter.is_exact());
        for (text, tokens, _) in KNOWN {
            assert_eq!(counter.count_text(text), tokens, "{text:?}");
        }
        assert_eq!(
            counter.count(&message("hello world", &[("read", "{}")])),
            4 + 2 + 4 + 1 + 1
        );
    }

    #[test]
    fn special_token_markers_are_counted_as_plain_text() {
        assert!(loaded().count_text("<|endoftext|>") > 1);
    }

    #[test]
    fn counting_in_chunks_is_accurate() {
        let counter = loaded();
        for (text, repeated) in [(ENGLISH, 2_000), (CODE, 1_000), (CHINESE, 1_000)] {
            let long = format!("{text}\n").repeat(repeated);
            let one = counter.count_text(&format!("{text}\n"));
            let whole = one * repeated as u64;
            assert!(
                counter.count_text(&long).abs_diff(whole) * 100 <= whole,
                "{text:?}"
            );
            // Beyond `MAX_WHOLE_BYTES`, the count is extrapolated from samples.
            let longer = long.repeat(10);
            assert!(
                counter.count_text(&longer).abs_diff(whole * 10) * 20 <= whole * 10,
                "{text:?}"
            );
        }
    }

    #[test]
    fn stored_vocabulary_equals_that_of_tiktoken() {
        let stored = vocabulary::read().unwrap();
        let whole = tiktoken_rs::o200k_base().unwrap();
        for rank in 0..199_998 {
            assert_eq!(
                stored.decode_bytes(&[rank]).unwrap(),
                whole.decode_bytes(&[rank]).unwrap(),
                "{rank}"
            );
        }
        assert!(
            stored.decode_bytes(&[199_998]).is_err() && whole.decode_bytes(&[199_998]).is_err()
        );
    }

    #[test]
    fn only_a_bounded_sample_of_text_is_tokenized() {
        for (text, most) in [
            ("a".repeat(1 << 20), 8 * 16 * 1024),
            ("好".repeat(100_000), 8 * 16 * 1024),
        ] {
            let seen = std::cell::Cell::new(0);
            let longest = std::cell::Cell::new(0);
            let tokens = vocabulary::count_in_pieces(&text, |piece| {
                seen.set(seen.get() + piece.len());
                longest.set(longest.get().max(piece.len()));
                piece.len() as u64
            });
            assert!(
                seen.get() <= most && longest.get() <= 16 * 1024,
                "{} {}",
                seen.get(),
                longest.get()
            );
            assert!(tokens.abs_diff(text.len() as u64) <= 1);
        }
    }

    /// The bound is far above the usual time (about 25 ms in release), so that a busy machine does
    /// not fail the test.
    #[test]
    fn pathological_texts_are_counted_in_bounded_time() {
        let counter = loaded();
        for odd in ["a", " ", "\n", "!", "好", "😀", "e\u{301}", "aB"] {
            let text = odd.repeat((1 << 20) / odd.len());
            let start = std::time::Instant::now();
            assert!(counter.count_text(&text) > 0);
            assert!(
                start.elapsed() < Duration::from_secs(5),
                "{odd:?}: {:?}",
                start.elapsed()
            );
        }
    }

    proptest! {
        #[test]
        fn count_is_at_most_byte_count_for_any_text(text in "\\PC{0,200}|[\\s\\S]{0,200}") {
            prop_assert!(loaded().count_text(&text) <= text.len() as u64);
        }
    }
}
