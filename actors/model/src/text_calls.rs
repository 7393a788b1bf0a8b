//! Calls of tools that a server left in the text of an answer, because its parser for the model is
//! off or another one.
//!
//! Five forms are recognized: `hermes` (`<tool_call>{…}</tool_call>`; Qwen, Hermes), `qwen`
//! (`<function=NAME>` with `<parameter=NAME>`; Qwen3-Coder), `mistral` (`[TOOL_CALLS]`), `deepseek`
//! (`<｜tool▁call▁begin｜>`) and `json` (the whole answer is `{"name": …, "arguments": …}`; Llama).
//! The calls must be the end of the answer and outside of quotes, and a code fence around them must
//! be the whole answer: an answer that shows such a text, for example from a file, calls nothing.
//! Pure.
//!
//! Elsewhere: whether the calls are run (`actors/src/run/tasks/text_calls.rs`).

use serde_json::{Map, Value};

/// Maximum number of calls in a text.
const MAX_CALLS: usize = 64;

/// Calls of tools at the end of an answer.
#[derive(Debug, Clone, PartialEq)]
pub struct TextCalls {
    /// Name of the form, such as `hermes`.
    pub form: &'static str,
    /// Length of the text before the calls, in bytes.
    pub text_bytes: usize,
    /// The calls, in order.
    pub calls: Vec<TextCall>,
}

/// A call of a tool in a text.
#[derive(Debug, Clone, PartialEq)]
pub struct TextCall {
    /// Name of the tool, as the model writes it.
    pub name: String,
    /// Arguments. Those of the form `qwen` are texts or JSON values.
    pub arguments: Map<String, Value>,
}

/// Parses the calls at the start of a text; `None` if anything else follows them.
type ParseCalls = fn(&str) -> Option<Vec<TextCall>>;

/// The forms that begin with a mark: name, marks, and parser.
const MARKED_FORMS: [(&str, &[&str], ParseCalls); 4] = [
    (
        "deepseek",
        &["<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>"],
        deepseek,
    ),
    ("mistral", &["[TOOL_CALLS]"], mistral),
    ("qwen", &["<tool_call>", "<function="], qwen),
    ("hermes", &["<tool_call>"], hermes),
];

/// Finds calls of tools at the end of an answer. Reasoning before them is skipped.
pub fn find_calls(answer: &str) -> Option<TextCalls> {
    let reasoning_bytes = answer.len() - soong_text::after_reasoning(answer).len();
    let text = answer[reasoning_bytes..].trim_end();
    let (fenced, text) = match whole_fence(text) {
        Some(content) => (true, content),
        None => (false, text),
    };
    for (form, starts, parse) in MARKED_FORMS {
        let Some(start) = starts.iter().filter_map(|start| text.find(start)).min() else {
            continue;
        };
        if is_quoted(&text[..start]) {
            continue;
        }
        if let Some(calls) =
            parse(&text[start..]).filter(|calls| !calls.is_empty() && calls.len() <= MAX_CALLS)
        {
            let text_bytes = if fenced {
                reasoning_bytes
            } else {
                reasoning_bytes + start
            };
            return Some(TextCalls {
                form,
                text_bytes,
                calls,
            });
        }
    }
    let whole = text.trim();
    let whole = whole.strip_prefix("<|python_tag|>").unwrap_or(whole).trim();
    let call = object_call(&serde_json::from_str(whole).ok()?)?;
    Some(TextCalls {
        form: "json",
        text_bytes: reasoning_bytes,
        calls: vec![call],
    })
}

/// Returns the content of a code fence that is the whole text.
fn whole_fence(text: &str) -> Option<&str> {
    let body = text.trim().strip_prefix("```")?.strip_suffix("```")?;
    let (_, content) = body.split_once('\n')?;
    // DeepSeek's calls contain fences themselves.
    let is_one_fence = !content.contains("```") || content.contains("<｜tool▁call▁begin｜>");
    is_one_fence.then(|| content.trim_end())
}

/// Returns whether what follows a text is quoted: by a mark before it, in a quoted or indented
/// line, or in a code fence that is open.
fn is_quoted(before: &str) -> bool {
    let line = before.rsplit('\n').next().unwrap_or_default();
    let is_marked = line.ends_with(['"', '\'', '`', '“', '«', '„', '‘', '(']);
    let is_indented = line.starts_with("    ") || line.starts_with('\t');
    is_marked
        || is_indented
        || line.trim_start().starts_with('>')
        || before.matches("```").count() % 2 == 1
}

fn hermes(text: &str) -> Option<Vec<TextCall>> {
    let mut calls = Vec::new();
    let mut rest = text.trim();
    while !rest.is_empty() {
        rest = rest.strip_prefix("<tool_call>")?;
        let (call, after) = rest.split_once("</tool_call>").unwrap_or((rest, ""));
        calls.push(object_call(&serde_json::from_str(call.trim()).ok()?)?);
        rest = after.trim_start();
    }
    Some(calls)
}

fn qwen(text: &str) -> Option<Vec<TextCall>> {
    let mut calls = Vec::new();
    let mut rest = text.trim();
    while !rest.is_empty() {
        rest = rest
            .strip_prefix("<tool_call>")
            .unwrap_or(rest)
            .trim_start();
        let (name, body) = rest.strip_prefix("<function=")?.split_once('>')?;
        let (body, after) = body.split_once("</function>").unwrap_or((body, ""));
        let mut arguments = Map::new();
        let mut parameters = body.trim_start();
        while !parameters.trim().is_empty() {
            let (parameter, value) = parameters.strip_prefix("<parameter=")?.split_once('>')?;
            let (value, following) = value.split_once("</parameter>")?;
            arguments.insert(parameter.to_owned(), parameter_value(value));
            parameters = following.trim_start();
        }
        calls.push(TextCall {
            name: name.trim().to_owned(),
            arguments,
        });
        let after = after.trim_start();
        rest = after
            .strip_prefix("</tool_call>")
            .unwrap_or(after)
            .trim_start();
    }
    Some(calls)
}

/// Returns the value of a parameter: JSON that is no text, else the text without the line breaks
/// around it.
fn parameter_value(text: &str) -> Value {
    let text = text.strip_prefix('\n').unwrap_or(text);
    let text = text.strip_suffix('\n').unwrap_or(text);
    serde_json::from_str(text)
        .ok()
        .filter(|value: &Value| !value.is_string())
        .unwrap_or_else(|| text.into())
}

fn mistral(text: &str) -> Option<Vec<TextCall>> {
    let mut calls = Vec::new();
    let mut rest = text.trim();
    while !rest.is_empty() && calls.len() <= MAX_CALLS {
        rest = rest
            .strip_prefix("[TOOL_CALLS]")
            .unwrap_or(rest)
            .trim_start();
        if rest.starts_with('[') {
            let (list, after) = json_prefix(rest)?;
            for call in list.as_array()? {
                calls.push(object_call(call)?);
            }
            rest = after.trim_start();
            continue;
        }
        let (name, following) = rest.split_at_checked(rest.find(['[', '{'])?)?;
        let following = match following.strip_prefix("[CALL_ID]") {
            Some(id) => &id[id.find(['[', '{'])?..],
            None => following,
        };
        let arguments = following.strip_prefix("[ARGS]").unwrap_or(following);
        let name = name.trim();
        let (arguments, after) = json_prefix(arguments)?;
        calls.push(named_call(name, arguments)?);
        rest = after.trim_start();
    }
    Some(calls)
}

fn deepseek(text: &str) -> Option<Vec<TextCall>> {
    const BEGIN: &str = "<｜tool▁call▁begin｜>";
    let text = text
        .trim()
        .strip_prefix("<｜tool▁calls▁begin｜>")
        .unwrap_or(text);
    let text = text
        .trim_end()
        .strip_suffix("<｜end▁of▁sentence｜>")
        .unwrap_or(text)
        .trim_end();
    let text = text.strip_suffix("<｜tool▁calls▁end｜>").unwrap_or(text);
    let mut calls = Vec::new();
    let mut rest = text.trim();
    while !rest.is_empty() {
        rest = rest.strip_prefix(BEGIN)?;
        let (call, after) = rest.split_once("<｜tool▁call▁end｜>").unwrap_or((rest, ""));
        let (first, second) = call.split_once("<｜tool▁sep｜>")?;
        // `function<sep>NAME\n` with a fence, or `NAME<sep>` with JSON.
        let (name, arguments) = if second.trim_start().starts_with('{') {
            (first, second)
        } else {
            second.split_once('\n')?
        };
        let arguments = arguments
            .trim()
            .trim_start_matches("```json")
            .trim_start_matches("```");
        let (arguments, _) = json_prefix(arguments.trim_start())?;
        calls.push(named_call(name.trim(), arguments)?);
        rest = after.trim_start();
    }
    Some(calls)
}

/// Returns the JSON value that a text begins with, and the rest.
fn json_prefix(text: &str) -> Option<(Value, &str)> {
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<Value>();
    let value = values.next()?.ok()?;
    let length = values.byte_offset();
    Some((value, &text[length..]))
}

/// Returns the call `{"name": …, "arguments": …}`. Llama names the arguments `parameters`; some
/// wrap it in `function`.
fn object_call(value: &Value) -> Option<TextCall> {
    let call = value
        .get("function")
        .filter(|function| function.is_object())
        .unwrap_or(value);
    let arguments = call.get("arguments").or_else(|| call.get("parameters"))?;
    let known = [
        "name",
        "arguments",
        "parameters",
        "id",
        "type",
        "function",
        "index",
    ];
    let has_only_known = call
        .as_object()?
        .keys()
        .all(|key| known.contains(&key.as_str()));
    named_call(call.get("name")?.as_str()?, arguments.clone()).filter(|_| has_only_known)
}

fn named_call(name: &str, arguments: Value) -> Option<TextCall> {
    let arguments = match arguments {
        Value::Object(arguments) => arguments,
        // Some models encode the arguments twice.
        Value::String(text) => serde_json::from_str(&text).ok()?,
        _ => return None,
    };
    let is_name = !name.is_empty() && !name.contains(char::is_whitespace);
    is_name.then(|| TextCall {
        name: name.to_owned(),
        arguments,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const HERMES: &str =
        "<tool_call>\n{\"name\": \"read\", \"arguments\": {\"path\": \"a\"}}\n</tool_call>";
    const QWEN: &str = "<tool_call>\n<function=read>\n<parameter=path>\na\n</parameter>\n</function>\n</tool_call>";
    const MISTRAL: &str = "[TOOL_CALLS][{\"name\": \"read\", \"arguments\": {\"path\": \"a\"}}]";
    const DEEPSEEK: &str = "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>read\n```json\n{\"path\": \
                            \"a\"}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>";
    const JSON: &str = "{\"name\": \"read\", \"parameters\": {\"path\": \"a\"}}";

    fn found(answer: &str) -> Option<(&'static str, String, usize)> {
        let found = find_calls(answer)?;
        for call in &found.calls {
            assert_eq!(
                (call.name.as_str(), &call.arguments["path"]),
                ("read", &json!("a")),
                "{answer}"
            );
        }
        Some((
            found.form,
            answer[..found.text_bytes].to_owned(),
            found.calls.len(),
        ))
    }

    #[test]
    fn five_forms_are_found_at_the_end_of_an_answer() {
        for (form, calls) in [
            ("hermes", HERMES),
            ("qwen", QWEN),
            ("mistral", MISTRAL),
            ("deepseek", DEEPSEEK),
            ("json", JSON),
        ] {
            let expected = |text: &str| Some((form, text.to_owned(), 1));
            assert_eq!(found(calls), expected(""), "{form}");
            assert_eq!(
                found(&format!("\n{calls}\n")).map(|found| found.0),
                Some(form)
            );
            let reasoning = format!("<think>I read {JSON}</think>");
            assert_eq!(found(&format!("{reasoning}{calls}")), expected(&reasoning));
            let after_prose = format!("I will read it.\n\n{calls}");
            let prose = if form == "json" {
                None
            } else {
                expected("I will read it.\n\n")
            };
            assert_eq!(found(&after_prose), prose, "{form} after prose");
            for quoted in [
                format!("The file says:\n> {calls}"),
                format!("It is `{calls}`"),
                format!("It is \"{calls}\""),
                format!("{calls}\nThat is what the file says."),
                format!("```\n{calls}\n```\nThat is it."),
                format!("```\n{calls}"),
            ] {
                assert_eq!(found(&quoted), None, "{form}: {quoted}");
            }
        }
        assert_eq!(
            found(&format!("```xml\n{HERMES}\n```")),
            Some(("hermes", String::new(), 1))
        );
        assert_eq!(
            found(&format!("Like this:\n```xml\n{HERMES}\n```")),
            None,
            "a fence is the whole answer"
        );
        assert_eq!(
            found(&format!("```json\n{JSON}\n```")),
            Some(("json", String::new(), 1))
        );
        assert_eq!(
            found(&format!("Like this:\n```json\n{JSON}\n```")),
            None,
            "bare JSON is the whole answer"
        );
    }

    #[test]
    fn variants_of_the_forms() {
        for (answer, calls) in [
            (format!("{HERMES}\n{HERMES}"), 2),
            ("<tool_call>{\"name\": \"read\", \"arguments\": {\"path\": \"a\"}}".to_owned(), 1),
            ("<tool_call>{\"name\": \"read\", \"arguments\": \"{\\\"path\\\": \\\"a\\\"}\"}</tool_call>".to_owned(), 1),
            ("<function=read>\n<parameter=path>\na\n</parameter>\n</function>".to_owned(), 1),
            ("[TOOL_CALLS]read[ARGS]{\"path\": \"a\"}[TOOL_CALLS]read{\"path\": \"a\"}".to_owned(), 2),
            ("[TOOL_CALLS]read{\"path\": \"a\"}[TOOL_CALLS]read[ARGS]{\"path\": \"a\"}".to_owned(), 2),
            ("[TOOL_CALLS]read[CALL_ID]x1[ARGS]{\"path\": \"a\"}".to_owned(), 1),
            ("<｜tool▁call▁begin｜>read<｜tool▁sep｜>{\"path\": \"a\"}<｜tool▁call▁end｜>".to_owned(), 1),
            ("<|python_tag|>{\"name\": \"read\", \"parameters\": {\"path\": \"a\"}}".to_owned(), 1),
            (
                "{\"type\": \"function\", \"function\": {\"name\": \"read\", \"arguments\": {\"path\": \"a\"}}}"
                    .to_owned(),
                1,
            ),
        ] {
            assert_eq!(found(&answer).map(|(_, _, count)| count), Some(calls), "{answer}");
        }
        for answer in [
            "",
            "hello",
            "{\"name\": \"Ann\", \"age\": 3}",
            "{\"name\": \"read\", \"arguments\": {}, \"answer\": 1}",
            "{\"name\": \"two words\", \"arguments\": {}}",
            "<tool_call>{\"name\": \"read\"",
            "<tool_call></tool_call>",
            "<function=read><parameter=path>a",
            "[TOOL_CALLS]",
            "<｜tool▁call▁begin｜>read",
            "```",
        ] {
            assert_eq!(find_calls(answer), None, "{answer}");
        }
        let typed = find_calls(
            "<function=read><parameter=n>\n3\n</parameter><parameter=s>\n\"3\"\n</parameter></function>",
        );
        assert_eq!(
            Value::from(typed.unwrap().calls[0].arguments.clone()),
            json!({"n": 3, "s": "\"3\""})
        );
    }
}
