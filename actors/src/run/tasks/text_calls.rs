//! Calls of tools that a server left in the text of an answer: whether they are run.
//!
//! They are run only if they cannot be meant as text: the run has had no call from the server's own
//! parser, all of them fit an offered tool, and the text does not match the output schema of the
//! run. The permission is asked as for any call.
//!
//! Elsewhere: finding them (`actors/model/src/text_calls.rs`).

use soong_model::{
    Completion,
    text_calls::{TextCall, find_calls},
};
use soong_protocol::{ErrorCode, ErrorInfo, ToolCall, ToolSpec};

use crate::run::machine::spec::RunSpec;

/// Moves the calls at the end of an answer's text to its calls, and returns the name of their form.
/// `None` if the answer has none, or is meant as text. `is_text`: the run has had calls that the
/// service has read, or the text matches the output schema of the run.
///
/// # Errors
/// The text is a call, but of a tool that is not offered, or with wrong arguments.
pub(super) fn take_text_calls(
    spec: &RunSpec,
    completion: &mut Completion,
    is_text: bool,
) -> Result<Option<&'static str>, ErrorInfo> {
    let is_complete =
        completion.finish_reason == "stop" || completion.finish_reason == "tool_calls";
    let is_candidate =
        completion.tool_calls.is_empty() && is_complete && !spec.tools.specs.is_empty();
    if !is_candidate || is_text {
        return Ok(None);
    }
    let Some(found) = find_calls(&completion.text) else {
        return Ok(None);
    };
    let has_text = !soong_text::after_reasoning(&completion.text[..found.text_bytes])
        .trim()
        .is_empty();
    let mut calls = Vec::with_capacity(found.calls.len());
    for (number, call) in found.calls.into_iter().enumerate() {
        match checked_call(spec, call, number) {
            Ok(call) => calls.push(call),
            // Any JSON object may have a name and arguments, and a text before the calls may be
            // about them.
            Err(_) if found.form == "json" || has_text => return Ok(None),
            Err(why) => return Err(unreadable_call(found.form, &why)),
        }
    }
    completion.text.truncate(found.text_bytes);
    let text_bytes = completion.text.trim_end().len();
    completion.text.truncate(text_bytes);
    completion.tool_calls = calls;
    completion.finish_reason = "tool_calls".to_owned();
    // It describes the whole text.
    completion.provider_data = None;
    Ok(Some(found.form))
}

fn checked_call(spec: &RunSpec, call: TextCall, number: usize) -> Result<ToolCall, String> {
    // Dots of a name are sent as underscores.
    let is_named =
        |tool: &ToolSpec| tool.name == call.name || tool.name.replace('.', "__") == call.name;
    let tool = spec.tools.specs.iter().find(|tool| is_named(tool));
    let tool = tool.ok_or_else(|| format!("there is no tool {:?}", call.name))?;
    let arguments = serde_json::Value::Object(call.arguments).to_string();
    spec.catalog
        .registry
        .check_arguments(&tool.name, &arguments)
        .map_err(|error| error.message)?;
    Ok(ToolCall {
        id: format!("text_call_{}", number + 1),
        name: tool.name.clone(),
        arguments,
    })
}

/// Returns the error for a call that the server should have read.
fn unreadable_call(form: &str, why: &str) -> ErrorInfo {
    let parser = match form {
        "qwen" => "qwen3_coder",
        "deepseek" => "deepseek_v3",
        form => form,
    };
    let message = format!(
        "the model did not call a tool, but wrote a call as text, which cannot be run ({why}). Let the server read its calls: \
         llama.cpp `--jinja`; vLLM `--enable-auto-tool-choice --tool-call-parser {parser}`; SGLang `--tool-call-parser \
         {parser}`; or use a model that calls tools"
    );
    ErrorInfo::new(ErrorCode::UnsupportedCapability, message)
}
