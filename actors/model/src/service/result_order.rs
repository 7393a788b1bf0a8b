//! Results of tool calls in the order of the calls.
//!
//! Results are recorded in the order in which the calls ended. Many chat templates, and services
//! whose calls have no ids, pair results with calls by position.

use std::{borrow::Cow, ops::Range, sync::Arc};

use soong_protocol::{Message, Role};

use crate::ModelRequest;

/// Returns the request with the results after each answer in the order of its calls.
///
/// Results stay on their side of the end of what other runs send too, because services cache that
/// part.
pub(crate) fn in_call_order(request: &ModelRequest) -> Cow<'_, ModelRequest> {
    let mut request = Cow::Borrowed(request);
    let mut next = 0;
    while let Some(answer) = request.messages.get(next) {
        let first = next + 1;
        next = first;
        if answer.role != Role::Assistant || answer.tool_calls.len() < 2 {
            continue;
        }
        let is_result = |message: &&Arc<Message>| message.role == Role::Tool;
        let end = first
            + request.messages[first..]
                .iter()
                .take_while(is_result)
                .count();
        next = end;
        let shared_end = request.cache.shared_messages.clamp(first, end);
        for part in [first..shared_end, shared_end..end] {
            sort(&mut request, first - 1, part);
        }
    }
    request
}

/// Sorts the results in one part of the messages by the position of their calls in an answer.
/// Results of other calls stay at the end.
fn sort(request: &mut Cow<'_, ModelRequest>, answer: usize, part: Range<usize>) {
    let calls = &request.messages[answer].tool_calls;
    let position = |result: &Message| {
        let is_its_call = |id: &str| Some(id) == result.tool_call_id.as_deref();
        calls
            .iter()
            .position(|call| is_its_call(&call.id))
            .unwrap_or(calls.len())
    };
    let results = &request.messages[part.clone()];
    if results.is_sorted_by_key(|result| position(result)) {
        return;
    }
    let mut sorted = results.to_vec();
    sorted.sort_by_key(|result| position(result));
    request.to_mut().messages[part].clone_from_slice(&sorted);
}

#[cfg(test)]
mod tests {
    use soong_protocol::{Timestamp, ToolCall, TraceId};

    use super::*;
    use crate::{
        anthropic::Messages,
        gemini::Gemini,
        openai::ChatCompletions,
        responses::Responses,
        service::{
            Api,
            testing::{
                ask, caller, request, result,
                scripted::{Reply, ScriptedServer},
                service,
            },
        },
    };

    fn message(role: Role, calls: &[&str], result_of: Option<&str>) -> Arc<Message> {
        let mut message = Message::new(TraceId::new("t"), 1, None, role, "", Timestamp::default());
        message.tool_calls = calls
            .iter()
            .map(|id| ToolCall {
                id: (*id).to_owned(),
                name: "read".to_owned(),
                arguments: "{}".to_owned(),
            })
            .collect();
        message.tool_call_id = result_of.map(str::to_owned);
        Arc::new(message)
    }

    /// A conversation as text: `abc` are the calls of an answer, `a` after a `.` is a result, `!` a
    /// message of the user.
    fn messages(text: &str) -> Vec<Arc<Message>> {
        let mut messages = Vec::new();
        for word in text.split(' ') {
            messages.push(match word {
                "!" => message(Role::User, &[], None),
                word if word.starts_with('.') => message(Role::Tool, &[], Some(&word[1..])),
                word => message(Role::Assistant, &word.split(',').collect::<Vec<_>>(), None),
            });
        }
        messages
    }

    fn text_of(messages: &[Arc<Message>]) -> String {
        let word = |message: &Arc<Message>| match message.role {
            Role::Tool => format!(".{}", message.tool_call_id.as_deref().unwrap_or_default()),
            Role::Assistant => message
                .tool_calls
                .iter()
                .map(|call| call.id.as_str())
                .collect::<Vec<_>>()
                .join(","),
            Role::User | Role::System => "!".to_owned(),
        };
        messages.iter().map(word).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn results_have_the_order_of_their_calls() {
        for (given, shared, wanted) in [
            ("! a,b,c .c .a .b !", 0, "! a,b,c .a .b .c !"),
            ("! a,b .b .a a,b .a .b", 0, "! a,b .a .b a,b .a .b"),
            ("! a,b .x .b .a", 0, "! a,b .a .b .x"),
            ("! a,b .b ! .a", 0, "! a,b .b ! .a"),
            ("! a .a b .b", 0, "! a .a b .b"),
            // The first three messages are shared.
            ("! a,b,c .c .b .a", 3, "! a,b,c .c .a .b"),
            ("! a,b,c .c .b .a", 5, "! a,b,c .a .b .c"),
            ("! a,b .b .a", 9, "! a,b .a .b"),
        ] {
            let mut request = ModelRequest {
                messages: messages(given),
                ..ModelRequest::default()
            };
            request.cache.shared_messages = shared;
            let ordered = in_call_order(&request);
            assert_eq!(text_of(&ordered.messages), wanted, "{given}");
            assert_eq!(
                matches!(ordered, Cow::Borrowed(_)),
                given == wanted,
                "{given}"
            );
        }
    }

    /// Returns the body that a service with an API sends for a request.
    async fn sent_body<A: Api>(request: &ModelRequest) -> String {
        let server = ScriptedServer::start(|_| Reply::status(404, "not found".to_owned()));
        let _ = ask(&service::<A>(&server, "m"), request).await;
        server.requests()[0].body.to_string()
    }

    #[tokio::test]
    async fn every_api_sends_results_in_the_order_of_their_calls() {
        let calls = [
            ("c1", "read", "{}"),
            ("c2", "read", "{}"),
            ("c3", "read", "{}"),
        ];
        let mut request = request();
        request.messages.push(Arc::new(caller("", &calls)));
        request.messages.extend(
            [
                result("c3", "third"),
                result("c1", "first"),
                result("c2", "second"),
            ]
            .map(Arc::new),
        );
        for (api, body) in [
            (
                "chat completions",
                sent_body::<ChatCompletions>(&request).await,
            ),
            ("responses", sent_body::<Responses>(&request).await),
            ("messages", sent_body::<Messages>(&request).await),
            ("gemini", sent_body::<Gemini>(&request).await),
        ] {
            let positions = ["first", "second", "third"].map(|text| body.find(text).unwrap());
            assert!(positions.is_sorted(), "{api}: {body}");
        }
    }
}
