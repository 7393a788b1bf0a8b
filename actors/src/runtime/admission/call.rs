//! Single model calls (RT-5): runs without tools, each in a session of its own.

use soong_protocol::{ErrorInfo, RunSettings};

use super::{existing_session::ExistingSession, invalid};
use crate::runtime::RunRequest;

/// Returns the settings of a call: without tools and memory, with one answer, and with the
/// instructions of a preset only if the request names it. An answer that does not match the schema
/// is corrected once.
///
/// # Errors
/// `validation_error` if the request names tools, a session that has had a run, or a message to
/// continue after.
pub(super) fn settings(
    start: &RunRequest,
    settings: RunSettings,
    known: Option<&ExistingSession>,
) -> Result<RunSettings, ErrorInfo> {
    let names_tools = start
        .settings
        .tools
        .as_set()
        .is_some_and(|tools| !tools.is_empty());
    if names_tools {
        return Err(invalid("tools: a call has none; start a run instead"));
    }
    if start.after_sequence.is_some()
        || start.driven
        || known.is_some_and(ExistingSession::has_conversation)
    {
        return Err(invalid(
            "a call starts a session of its own, and cannot be continued",
        ));
    }
    let mut settings = settings;
    let has_schema = settings.options.expected_output_schema.is_some();
    settings.options.tools = Some(Vec::new());
    settings.options.max_turns = Some(if has_schema { 2 } else { 1 });
    settings.enable_memory = Some(false);
    settings.auto_execute_tools = None;
    if !start.settings.preset.is_set() {
        settings.system_prompt.get_or_insert_default();
    }
    Ok(settings)
}
