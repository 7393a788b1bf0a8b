//! Prints the messages of a trace.

use soong::{
    MessagePath,
    protocol::{Message, Role},
};
use soong_tui::{format, terminal::TextStyle, text};

use crate::{context::Context, exit::Failure, message_marks, print, source::Source};

/// Number of lines of a system prompt that a terminal shows.
const FOLDED_LINES: usize = 3;

/// Returns the style of the heading of a message.
const fn style(role: Role) -> TextStyle {
    match role {
        Role::System => TextStyle::Dim,
        Role::User => TextStyle::Cyan,
        Role::Assistant => TextStyle::Bold,
        Role::Tool => TextStyle::Yellow,
    }
}

/// Prints the messages of a trace: those of the main path, or all. `last`: at most this number of
/// messages, from the end.
pub(super) async fn messages(
    context: &Context<'_>,
    source: &Source,
    id: &str,
    all: bool,
    last: Option<usize>,
) -> Result<(), Failure> {
    let path = if all {
        MessagePath::All
    } else {
        MessagePath::Main
    };
    let mut messages = source.messages(id, path).await?;
    if let Some(last) = last {
        messages.drain(..messages.len().saturating_sub(last));
    }
    if context.global.json {
        return print::json(&messages);
    }
    let path = if all {
        source.messages(id, MessagePath::Main).await?
    } else {
        Vec::new()
    };
    let marks = message_marks::marks(&messages, if all { &path } else { &messages });
    for (message, mark) in messages.iter().zip(marks) {
        print_message(context, message, &mark)?;
    }
    Ok(())
}

fn print_message(context: &Context<'_>, message: &Message, mark: &str) -> Result<(), Failure> {
    let answers = message
        .tool_call_id
        .as_ref()
        .map_or_else(String::new, |id| format!(" answers {id}"));
    let partial = if message.partial { " (partial)" } else { "" };
    let head = format!(
        "#{} {}{answers}{partial}{mark}",
        message.sequence,
        message.role.as_str()
    );
    print::line(
        &context
            .terminal
            .stdout
            .paint(style(message.role), &text::safe_line(&head)),
    )?;
    if !message.content.is_empty() {
        let content = text::safe_block(message.content.trim_end());
        let is_folded = message.role == Role::System && context.terminal.has_stdout;
        let shown = if is_folded { FOLDED_LINES } else { usize::MAX };
        let mut lines = content.lines();
        lines.by_ref().take(shown).try_for_each(print::line)?;
        let more = lines.count();
        if more > 0 {
            let more = format!(
                "({}; in a pipe, all are printed)",
                format::plural(more, "more line", "more lines")
            );
            print::line(&context.terminal.stdout.paint(TextStyle::Dim, &more))?;
        }
    }
    for file in message.content.files() {
        print::line(&text::safe_line(&format!("[{}]", file.description())))?;
    }
    for call in &message.tool_calls {
        let line = format!("-> {} {} [{}]", call.name, call.arguments, call.id);
        print::line(&text::safe_line(&line))?;
    }
    print::line("")
}
