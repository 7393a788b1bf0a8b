//! Messages of servers that the SDK does not read, although their meaning is clear: an answer to
//! `initialize` without required fields, and messages that are sent together as an array.
//!
//! Not covered: an array, or a byte order mark, as the body of an HTTP response.

use rmcp::{
    RoleClient,
    model::{CustomResult, InitializeResult, JsonRpcMessage, ServerJsonRpcMessage, ServerResult},
    service::{RxJsonRpcMessage, TxJsonRpcMessage},
    transport::Transport,
};
use serde_json::{Value, json, value::RawValue};

/// Transport that completes answers to `initialize`.
pub(super) struct LenientTransport<T>(pub(super) T);

impl<T: Transport<RoleClient>> Transport<RoleClient> for LenientTransport<T> {
    type Error = T::Error;

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        self.0.send(message)
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        self.0.receive().await.map(with_required_fields)
    }

    fn close(&mut self) -> impl Future<Output = Result<(), Self::Error>> + Send {
        self.0.close()
    }
}

/// Completes an answer to `initialize`, recognized by its protocol version, that lacks
/// `capabilities`, `serverInfo`, or its name or version. Nothing depends on the name. Returns other
/// messages unchanged.
pub(super) fn with_required_fields(mut message: ServerJsonRpcMessage) -> ServerJsonRpcMessage {
    let JsonRpcMessage::Response(response) = &mut message else {
        return message;
    };
    let ServerResult::CustomResult(CustomResult(value)) = &response.result else {
        return message;
    };
    if let Some(result) = completed(value.clone()) {
        response.result = ServerResult::InitializeResult(result);
    }
    message
}

fn completed(mut result: Value) -> Option<InitializeResult> {
    let fields = result.as_object_mut()?;
    fields.get("protocolVersion")?;
    for field in ["capabilities", "serverInfo"] {
        let value = fields.entry(field).or_insert_with(|| json!({}));
        if value.is_null() {
            *value = json!({});
        }
    }
    let server_info = fields.get_mut("serverInfo")?.as_object_mut()?;
    for field in ["name", "version"] {
        server_info.entry(field).or_insert_with(|| json!("unknown"));
    }
    serde_json::from_value(result).ok()
}

/// Returns the messages of an array. `None` if the text is not an array of messages.
pub(super) fn messages_of_batch(text: &[u8]) -> Option<Vec<String>> {
    if text.first() != Some(&b'[') {
        return None;
    }
    let messages: Vec<&RawValue> = serde_json::from_slice(text).ok()?;
    let mut texts = Vec::new();
    for message in messages {
        if !message.get().starts_with('{') {
            return None;
        }
        texts.push(message.get().to_owned());
    }
    Some(texts)
}

/// Divides the arrays in a stream of lines into lines with one message each.
#[derive(Default)]
pub(super) struct BatchSplitter {
    /// The current line so far, if it begins like an array.
    batch: Option<Vec<u8>>,
    is_within_line: bool,
}

impl BatchSplitter {
    /// Takes the next bytes of the stream, and appends to `output` what the reader may have now.
    /// Returns `false` if it takes none, because the reader may have them as they are.
    ///
    /// A line that is incomplete after `max_bytes` is not changed.
    pub(super) fn take(&mut self, bytes: &[u8], max_bytes: usize, output: &mut Vec<u8>) -> bool {
        if self.batch.is_none() && !self.contains_start_of_array(bytes) {
            if let Some(last) = bytes.last() {
                self.is_within_line = *last != b'\n';
            }
            return false;
        }
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            if !self.is_within_line && piece.first() == Some(&b'[') {
                self.batch = Some(Vec::new());
            }
            let is_complete = piece.last() == Some(&b'\n');
            self.is_within_line = !is_complete;
            let Some(batch) = &mut self.batch else {
                output.extend_from_slice(piece);
                continue;
            };
            batch.extend_from_slice(piece);
            if !is_complete && batch.len() <= max_bytes {
                continue;
            }
            match messages_of_batch(batch) {
                Some(messages) => {
                    for message in messages {
                        output.extend_from_slice(message.as_bytes());
                        output.push(b'\n');
                    }
                }
                None => output.extend_from_slice(batch),
            }
            self.batch = None;
        }
        true
    }

    fn contains_start_of_array(&self, bytes: &[u8]) -> bool {
        let mut is_start = !self.is_within_line;
        for byte in bytes {
            if is_start && *byte == b'[' {
                return true;
            }
            is_start = *byte == b'\n';
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn split_at(text: &str, size: usize) -> String {
        let mut splitter = BatchSplitter::default();
        let mut output = Vec::new();
        for piece in text.as_bytes().chunks(size) {
            if !splitter.take(piece, 100, &mut output) {
                output.extend_from_slice(piece);
            }
        }
        String::from_utf8(output).unwrap()
    }

    #[test]
    fn arrays_of_messages_become_lines() {
        for (text, lines) in [
            (
                "{\"id\": 1}\n[{\"id\": 2}, {\"id\": [3]}]\r\n{}\n",
                "{\"id\": 1}\n{\"id\": 2}\n{\"id\": [3]}\n{}\n",
            ),
            ("[]\n{}\n", "{}\n"),
            ("[info] started\n{}\n", "[info] started\n{}\n"),
            ("[1, 2]\n", "[1, 2]\n"),
            ("[[[\n\n{}\n", "[[[\n\n{}\n"),
        ] {
            for size in 1..=text.len() {
                assert_eq!(split_at(text, size), lines, "{size}");
            }
        }
        let long = format!("[{{\"a\": \"{}\"}}]\n", "x".repeat(200));
        assert_eq!(split_at(&long, 7), long);
    }

    #[test]
    fn incomplete_answer_to_initialize_is_completed() {
        let answer = |result: Value| -> ServerJsonRpcMessage {
            serde_json::from_value(json!({"jsonrpc": "2.0", "id": 1, "result": result})).unwrap()
        };
        let version = "2025-06-18";
        for result in [
            json!({"protocolVersion": version, "capabilities": {"tools": {}}}),
            json!({"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": null}),
            json!({"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": {"name": "n"}}),
            json!({"protocolVersion": version, "serverInfo": {"version": "1"}}),
        ] {
            let JsonRpcMessage::Response(response) = with_required_fields(answer(result.clone()))
            else {
                panic!()
            };
            assert!(
                matches!(response.result, ServerResult::InitializeResult(_)),
                "{result}"
            );
        }
        for result in [
            json!({"other": 1}),
            json!({"protocolVersion": version, "serverInfo": 1}),
            json!({}),
        ] {
            let message = answer(result);
            let unchanged = with_required_fields(message.clone());
            assert_eq!(
                serde_json::to_value(unchanged).unwrap(),
                serde_json::to_value(message).unwrap()
            );
        }
    }

    proptest! {
        #[test]
        fn lines_without_arrays_pass(text in "[{}a-z\n ]{0,60}", size in 1_usize..9) {
            prop_assume!(!text.contains('['));
            prop_assert_eq!(split_at(&text, size), text);
        }
    }
}
