//! Reasoning that a model writes into the text of its answer, between `<think>` and `</think>`.
//!
//! A server with a parser for the model sends its reasoning apart. Without one, the tags and the
//! reasoning are at the beginning of the text. Streamed text is sorted as it arrives
//! ([`ThinkTagSink`]), the whole answer at its end ([`move_reasoning`]). An answer with reasoning
//! of the service keeps its text.

use soong_protocol::Delta;

use crate::{AnswerProgress, Completion, DeltaSink};

const OPEN: &str = "<think>";
const CLOSE: &str = "</think>";

/// Moves the reasoning at the beginning of an answer's text to its reasoning.
///
/// A prompt template may end with `<think>`, so that the answer has only `</think>`. It counts if
/// it is a line of its own and not in a code fence, because a text may be about the tag.
pub(super) fn move_reasoning(completion: &mut Completion) {
    if completion.reasoning.is_some() {
        return;
    }
    let text = completion.text.as_str();
    let (reasoning, answer) = match text.trim_start().strip_prefix(OPEN) {
        Some(opened) => opened.split_once(CLOSE).unwrap_or((opened, "")),
        None => match without_open_tag(text) {
            Some(parts) => parts,
            None => return,
        },
    };
    let reasoning = reasoning.trim();
    completion.reasoning = Some(reasoning.to_owned()).filter(|reasoning| !reasoning.is_empty());
    completion.text = answer.trim_start().to_owned();
    // It describes the whole text.
    completion.provider_data = None;
}

/// Splits a text at a `</think>` that is a line of its own, without `<think>` and outside of a code
/// fence.
fn without_open_tag(text: &str) -> Option<(&str, &str)> {
    let (reasoning, answer) = text.split_once(CLOSE)?;
    let begins_line =
        reasoning.trim_end_matches([' ', '\t']).ends_with('\n') || reasoning.trim().is_empty();
    let ends_line = answer
        .trim_start_matches([' ', '\t'])
        .starts_with(['\n', '\r'])
        || answer.trim().is_empty();
    let is_in_fence = reasoning.matches("```").count() % 2 == 1;
    (begins_line && ends_line && !is_in_fence && !reasoning.contains(OPEN))
        .then_some((reasoning, answer))
}

/// Where the streamed text is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Position {
    /// Before the first character that is not white space.
    Start,
    /// Inside of the tags. `has_begun`: a character that is not white space has arrived.
    Reasoning {
        has_begun: bool,
    },
    /// Between the reasoning and the first character of the text.
    AfterReasoning,
    Text,
}

/// Passes a streamed answer on. Text between the tags at its beginning becomes reasoning.
pub(super) struct ThinkTagSink<'a> {
    sink: &'a mut dyn DeltaSink,
    position: Position,
    /// Text that may be the beginning of a tag, and white space that may be the end of the
    /// reasoning.
    pending: String,
}

impl<'a> ThinkTagSink<'a> {
    pub(super) fn new(sink: &'a mut dyn DeltaSink) -> Self {
        Self {
            sink,
            position: Position::Start,
            pending: String::new(),
        }
    }

    /// Passes on what may have been the beginning of a tag.
    pub(super) fn finish(mut self) {
        let pending = std::mem::take(&mut self.pending);
        match self.position {
            Position::Reasoning { .. } => self.pass_reasoning(pending.trim_end().to_owned()),
            Position::Start | Position::Text => self.pass_text(pending),
            Position::AfterReasoning => {}
        }
    }

    fn take_text(&mut self, text: String) {
        if self.position == Position::Text {
            self.pass_text(text);
            return;
        }
        self.pending.push_str(&text);
        if self.position == Position::Start {
            let start = self.pending.trim_start();
            if start.len() < OPEN.len() && OPEN.starts_with(start) {
                return; // it may become a tag
            }
            match start.strip_prefix(OPEN) {
                Some(reasoning) => {
                    self.pending = reasoning.to_owned();
                    self.position = Position::Reasoning { has_begun: false };
                }
                None => {
                    self.position = Position::Text;
                    let text = std::mem::take(&mut self.pending);
                    self.pass_text(text);
                    return;
                }
            }
        }
        if let Position::Reasoning { has_begun } = self.position {
            if !has_begun {
                self.pending = self.pending.trim_start().to_owned();
                self.position = Position::Reasoning {
                    has_begun: !self.pending.is_empty(),
                };
            }
            match self.pending.split_once(CLOSE) {
                Some((reasoning, rest)) => {
                    let reasoning = reasoning.trim_end().to_owned();
                    self.pending = rest.to_owned();
                    self.position = Position::AfterReasoning;
                    self.pass_reasoning(reasoning);
                }
                None => {
                    let before_tag =
                        &self.pending[..self.pending.len() - tag_start_bytes(&self.pending)];
                    let complete_bytes = before_tag.trim_end().len();
                    let rest = self.pending.split_off(complete_bytes);
                    let reasoning = std::mem::replace(&mut self.pending, rest);
                    self.pass_reasoning(reasoning);
                    return;
                }
            }
        }
        let text = self.pending.trim_start().to_owned();
        self.pending.clear();
        if !text.is_empty() {
            self.position = Position::Text;
            self.pass_text(text);
        }
    }

    fn pass_text(&mut self, text: String) {
        if !text.is_empty() {
            self.sink.push(Delta::Text { text });
        }
    }

    fn pass_reasoning(&mut self, text: String) {
        if !text.is_empty() {
            self.sink.push(Delta::Reasoning { text });
        }
    }
}

/// Returns the length of the longest end of a text with which `</think>` may begin.
fn tag_start_bytes(text: &str) -> usize {
    (1..CLOSE.len())
        .rev()
        .find(|length| text.ends_with(&CLOSE[..*length]))
        .unwrap_or(0)
}

impl DeltaSink for ThinkTagSink<'_> {
    fn push(&mut self, delta: Delta) {
        match delta {
            Delta::Text { text } => self.take_text(text),
            delta => {
                // The service sends the reasoning apart.
                if self.position == Position::Start {
                    let pending = std::mem::take(&mut self.pending);
                    self.position = Position::Text;
                    self.pass_text(pending);
                }
                self.sink.push(delta);
            }
        }
    }

    fn progress(&mut self, progress: AnswerProgress) {
        self.sink.progress(progress);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;
    use crate::{
        anthropic::Messages,
        gemini::Gemini,
        openai::ChatCompletions,
        responses::Responses,
        service::{
            Api,
            testing::{
                Collected, ask, events, request,
                scripted::{Reply, ScriptedServer},
                service,
            },
        },
    };

    fn moved(text: &str) -> (String, String) {
        let mut completion = Completion::text(text);
        move_reasoning(&mut completion);
        (completion.reasoning.unwrap_or_default(), completion.text)
    }

    fn streamed(pieces: &[&str]) -> (String, String) {
        let mut streamed = Collected::default();
        let mut sink = ThinkTagSink::new(&mut streamed);
        for piece in pieces {
            sink.push(Delta::Text {
                text: (*piece).to_owned(),
            });
        }
        sink.finish();
        (streamed.reasoning, streamed.text)
    }

    #[test]
    fn reasoning_at_the_beginning_is_moved_and_streamed_alike() {
        for (answer, reasoning, text) in [
            ("<think>a plan</think>Yes.", "a plan", "Yes."),
            ("\n<think>\na plan\n</think>\n\nYes.\n", "a plan", "Yes.\n"),
            ("<think></think>Yes.", "", "Yes."),
            ("<think>it never ends", "it never ends", ""),
            ("<think>a < b </thin", "a < b </thin", ""),
            (
                "<think>a</think>b <think>c</think>",
                "a",
                "b <think>c</think>",
            ),
            ("Yes.", "", "Yes."),
            ("", "", ""),
            ("  <thi", "", "  <thi"),
            (
                "The tag <think>a</think> is text.",
                "",
                "The tag <think>a</think> is text.",
            ),
            ("<thinking>a</thinking>", "", "<thinking>a</thinking>"),
        ] {
            let expected = (reasoning.to_owned(), text.to_owned());
            assert_eq!(moved(answer), expected, "{answer}");
            assert_eq!(streamed(&[answer]), expected, "{answer}");
            let characters: Vec<&str> = answer.split_inclusive(|_: char| true).collect();
            assert_eq!(streamed(&characters), expected, "{answer}");
        }
    }

    #[test]
    fn closing_tag_alone_counts_as_a_line_outside_of_fences() {
        for (answer, reasoning, text) in [
            ("a plan\n</think>\n\nYes.", "a plan", "Yes."),
            ("a plan\n</think>", "a plan", ""),
            ("</think>\nYes.", "", "Yes."),
            (
                "It ends with </think>\nYes.",
                "",
                "It ends with </think>\nYes.",
            ),
            ("```\n</think>\n```\n", "", "```\n</think>\n```\n"),
            ("text <think>\n</think>\n", "", "text <think>\n</think>\n"),
        ] {
            assert_eq!(
                moved(answer),
                (reasoning.to_owned(), text.to_owned()),
                "{answer}"
            );
        }
    }

    #[test]
    fn text_of_an_answer_with_reasoning_of_the_service_is_kept() {
        let mut completion = Completion {
            reasoning: Some("r".to_owned()),
            ..Completion::text("<think>a</think>b")
        };
        move_reasoning(&mut completion);
        assert_eq!(completion.text, "<think>a</think>b");
        let mut streamed = Collected::default();
        let mut sink = ThinkTagSink::new(&mut streamed);
        sink.push(Delta::Reasoning {
            text: "r".to_owned(),
        });
        sink.push(Delta::Text {
            text: "<think>a</think>b".to_owned(),
        });
        sink.finish();
        assert_eq!(streamed.text, "<think>a</think>b");
        assert_eq!(streamed.reasoning, "r");
    }

    async fn answer_of<A: Api>(data: Vec<Value>) -> (String, String) {
        let server = ScriptedServer::start(move |_| Reply::stream(events(&data)));
        let completion = ask(&service::<A>(&server, "m"), &request()).await.unwrap();
        (completion.reasoning.unwrap_or_default(), completion.text)
    }

    #[tokio::test]
    async fn reasoning_is_moved_in_the_answers_of_every_api() {
        let pieces = ["<thi", "nk>\na plan", "\n</think>\n\nYes", "."];
        let whole = pieces.concat();
        let chat = |text: &str| json!({"choices": [{"index": 0, "delta": {"content": text}}]});
        let mut chat_events: Vec<Value> = pieces.iter().map(|text| chat(text)).collect();
        chat_events.push(json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}));
        let delta = |text: &str| json!({"type": "response.output_text.delta", "item_id": "i", "output_index": 0, "delta": text});
        let message = json!({"type": "message", "id": "i", "content": [{"type": "output_text", "text": whole}]});
        let mut response_events: Vec<Value> = pieces.iter().map(|text| delta(text)).collect();
        response_events
            .push(json!({"type": "response.output_item.done", "output_index": 0, "item": message}));
        response_events
            .push(json!({"type": "response.completed", "response": {"status": "completed", "output": [message]}}));
        let block = |text: &str| json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}});
        let mut message_events = vec![
            json!({"type": "message_start", "message": {"usage": {"input_tokens": 1, "output_tokens": 1}}}),
            json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
        ];
        message_events.extend(pieces.iter().map(|text| block(text)));
        message_events.push(json!({"type": "content_block_stop", "index": 0}));
        message_events.push(json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}}));
        message_events.push(json!({"type": "message_stop"}));
        let part = |text: &str| json!({"candidates": [{"content": {"parts": [{"text": text}]}}]});
        let mut gemini_events: Vec<Value> = pieces.iter().map(|text| part(text)).collect();
        gemini_events
            .push(json!({"candidates": [{"content": {"parts": []}, "finishReason": "STOP"}]}));
        let expected = ("a plan".to_owned(), "Yes.".to_owned());
        assert_eq!(answer_of::<ChatCompletions>(chat_events).await, expected);
        assert_eq!(answer_of::<Responses>(response_events).await, expected);
        assert_eq!(answer_of::<Messages>(message_events).await, expected);
        assert_eq!(answer_of::<Gemini>(gemini_events).await, expected);
    }

    proptest! {
        #[test]
        fn streamed_parts_are_those_of_the_answer(pieces in proptest::collection::vec(
            prop_oneof![Just("<think>"), Just("</think>"), Just("<thi"), Just("nk>"), Just("</"), Just("a "), Just("\n")],
            0..8,
        )) {
            let answer = pieces.concat();
            let is_without_open_tag = !answer.trim_start().starts_with(OPEN);
            prop_assume!(!is_without_open_tag || without_open_tag(&answer).is_none());
            prop_assert_eq!(streamed(&pieces), moved(&answer));
        }
    }
}
