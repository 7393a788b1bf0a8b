//! Exports a trace and its sub-traces to one HTML page: tree, timeline, transcript and cost.
//!
//! The page needs no other file, no network and no script. Known secrets are redacted.
//!
//! Elsewhere: the steps of the transcript (`soong_tui::transcript`), reading the records
//! (`source.rs`).

use std::{
    collections::HashMap,
    fmt::Write as _,
    path::{Path, PathBuf},
};

use futures::StreamExt;
use serde::Serialize;
use soong::protocol::{
    Event, EventRecord, Message, MessageContent, MessageEvent, Role, RunEvent, RunId, Timestamp,
    ToolEvent, Trace, TraceId, TraceStatus, api::TraceView,
};
use soong_tui::{
    format,
    markdown::{self, PageFormat},
    spent::Spent,
    styled_line::StyledLine,
    terminal::TextStyle,
    text,
    transcript::Transcript,
};

use crate::{exit::Failure, file, secret, source::Source};

const STYLE: &str = include_str!("page.css");
/// Width of the texts, in columns.
const FORMAT: PageFormat = PageFormat {
    width: 110,
    unicode: true,
};
/// Width of the timeline, in units of the picture.
const TIMELINE_WIDTH: u64 = 1000;
/// Width of the labels left of the timeline.
const LABEL_WIDTH: u64 = 170;
/// Height of a row of the timeline.
const ROW_HEIGHT: usize = 18;
/// Maximum length of a task in the tree, in columns.
const TASK_COLUMNS: usize = 90;

/// Result of an export.
#[derive(Debug, Serialize)]
pub(crate) struct ExportedPage {
    file: PathBuf,
    /// The exported traces. The requested trace is first.
    traces: Vec<TraceId>,
    size: u64,
}

impl ExportedPage {
    /// Describes the export on one line.
    pub(crate) fn summary(&self) -> String {
        let traces = format::plural(self.traces.len(), "trace", "traces");
        let line = format!(
            "{traces} written to {}, {}",
            self.file.display(),
            format::bytes(self.size)
        );
        text::safe_line_keep_spaces(&line)
    }
}

/// Exports a trace and all traces below it to a page. An existing file is replaced when the page is
/// complete.
pub(crate) async fn export_page(
    source: &Source,
    id: &str,
    file: &Path,
) -> Result<ExportedPage, Failure> {
    let mut traces = Vec::new();
    let mut open = vec![(source.trace(id).await?, 0)];
    while let Some((view, depth)) = open.pop() {
        for below in view.sub_traces.iter().rev() {
            open.push((source.trace(below.trace_id.as_str()).await?, depth + 1));
        }
        traces.push(ExportedTrace {
            events: events(source, &view.trace).await?,
            view,
            depth,
        });
    }
    let page = page(&traces);
    let body = futures::stream::once(async { Ok(page.into()) }).boxed();
    let size = file::write(file, body).await?;
    let traces = traces
        .into_iter()
        .map(|exported| exported.view.trace.trace_id)
        .collect();
    Ok(ExportedPage {
        file: file.to_owned(),
        traces,
        size,
    })
}

/// Reads the events of a trace, up to the last event that its record names. Long messages, whose
/// text is not part of their events, are added to them, and known secrets are redacted.
async fn events(source: &Source, trace: &Trace) -> Result<Vec<EventRecord>, Failure> {
    let mut events: Vec<EventRecord> = Vec::new();
    let keep = |record| {
        events.push(record);
        Ok(())
    };
    source
        .each_event(&trace.trace_id, trace.last_event_id, keep)
        .await?;
    let is_long = |record: &EventRecord| {
        matches!(
            record.event,
            Event::Message(MessageEvent::Added { content: None, .. })
        )
    };
    let mut texts: HashMap<u64, MessageContent> = HashMap::new();
    if events.iter().any(is_long) {
        let keep = |message: Message| {
            texts.insert(message.sequence, message.content);
            Ok(())
        };
        source
            .each_message(&trace.trace_id, trace.last_sequence, keep)
            .await?;
    }
    for record in &mut events {
        match &mut record.event {
            Event::Message(MessageEvent::Added {
                sequence, content, ..
            }) => {
                let whole = content.take().or_else(|| texts.remove(sequence));
                *content = whole.map(|whole| secret::redacted(whole.as_str()).into_owned().into());
            }
            Event::Tool(ToolEvent::Started {
                arguments_preview, ..
            }) => {
                *arguments_preview = secret::redacted(arguments_preview).into_owned();
            }
            _ => {}
        }
    }
    Ok(events)
}

/// A trace of the page.
struct ExportedTrace {
    view: TraceView,
    /// Number of traces above it.
    depth: usize,
    events: Vec<EventRecord>,
}

impl ExportedTrace {
    fn trace(&self) -> &Trace {
        &self.view.trace
    }

    /// Returns the times of the first and the last event.
    fn span(&self) -> Option<(Timestamp, Timestamp)> {
        Some((self.events.first()?.ts, self.events.last()?.ts))
    }

    /// Returns the mark of the status in the tree, and the class of the bar in the timeline.
    const fn status(&self) -> (&'static str, &'static str) {
        match self.view.trace.status {
            TraceStatus::Completed => ("✓", "completed"),
            TraceStatus::Failed => ("✗", "failed"),
            TraceStatus::Stopped => ("⊘", "stopped"),
            TraceStatus::Running | TraceStatus::Interrupted => ("…", "open"),
        }
    }

    fn short_task(&self) -> String {
        text::cut(&text::safe_line(&self.trace().task), TASK_COLUMNS, "…")
    }

    fn agent(&self) -> String {
        text::safe_line(&self.trace().agent_type)
    }
}

/// Returns the page.
fn page(traces: &[ExportedTrace]) -> String {
    let Some(main) = traces.first() else {
        return String::new();
    };
    let title = main.short_task();
    let mut html = format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>{0}</title>\n\
         <style>\n{STYLE}</style>\n<h1>{0}</h1>\n",
        escaped(&title)
    );
    push_facts(&mut html, main.trace());
    push_tree(&mut html, traces);
    push_timeline(&mut html, traces);
    push_costs(&mut html, traces);
    for (number, exported) in traces.iter().enumerate() {
        push_transcript(&mut html, number, exported);
    }
    let _ = writeln!(
        html,
        "<p class=\"dim\">Exported by soong {}.</p>\n</html>",
        env!("CARGO_PKG_VERSION")
    );
    html
}

fn push_facts(html: &mut String, trace: &Trace) {
    let facts = format!(
        "{}, {} messages, {} tokens, {}, {}; trace {} with model {}, started {} UTC",
        trace.status.as_str(),
        trace.total_messages,
        Spent::from(trace).tokens(),
        Spent::from(trace).cost(),
        format::duration(trace.total_duration_ms),
        trace.trace_id,
        trace.model,
        format::time(trace.created_at)
    );
    let _ = writeln!(
        html,
        "<p class=\"facts\">{}</p>",
        escaped(&text::safe_line(&facts))
    );
    if let Some(error) = &trace.error_message {
        let _ = writeln!(
            html,
            "<p class=\"red\">{}</p>",
            escaped(&text::safe_line(error))
        );
    }
}

/// Adds the traces as nested lists. They are in the order of a tree.
fn push_tree(html: &mut String, traces: &[ExportedTrace]) {
    html.push_str("<h2>Agents</h2>\n");
    let mut depth = 0;
    html.push_str("<ul class=\"tree\">\n");
    for (number, exported) in traces.iter().enumerate() {
        while depth < exported.depth {
            html.push_str("<ul class=\"tree\">\n");
            depth += 1;
        }
        while depth > exported.depth {
            html.push_str("</ul>\n");
            depth -= 1;
        }
        let task = exported.short_task();
        let figures = format!(
            "{}, {} tokens, {}",
            format::duration(exported.trace().total_duration_ms),
            Spent::from(exported.trace()).tokens(),
            Spent::from(exported.trace()).cost()
        );
        let _ = writeln!(
            html,
            "<li>{} <a href=\"#t{number}\">{}</a> {} <span class=\"dim\">{}</span></li>",
            exported.status().0,
            escaped(&exported.agent()),
            escaped(&task),
            escaped(&figures)
        );
    }
    html.push_str(&"</ul>\n".repeat(depth + 1));
}

/// Adds a picture with one bar per trace.
fn push_timeline(html: &mut String, traces: &[ExportedTrace]) {
    let spans: Vec<(&ExportedTrace, Timestamp, Timestamp)> = traces
        .iter()
        .filter_map(|exported| exported.span().map(|(start, end)| (exported, start, end)))
        .collect();
    let Some(start) = spans.iter().map(|(_, start, _)| *start).min() else {
        return;
    };
    let total = spans
        .iter()
        .map(|(_, _, end)| end.millis_since(start))
        .max()
        .unwrap_or(0)
        .max(1);
    let height = (spans.len() + 1) * ROW_HEIGHT;
    let _ = writeln!(
        html,
        "<h2>Timeline</h2>\n<svg viewBox=\"0 0 {} {height}\" role=\"img\" aria-label=\"Timeline\">",
        LABEL_WIDTH + TIMELINE_WIDTH
    );
    for quarter in 0..=4 {
        let x = LABEL_WIDTH + TIMELINE_WIDTH * quarter / 4;
        let anchor = if quarter == 4 { "end" } else { "start" };
        let at = format::duration(total * quarter / 4);
        let _ = writeln!(
            html,
            "<line x1=\"{x}\" y1=\"0\" x2=\"{x}\" y2=\"{height}\"/><text class=\"axis\" x=\"{x}\" y=\"12\" text-anchor=\"{anchor}\">{at}</text>"
        );
    }
    for (row, (exported, begin, end)) in spans.iter().enumerate() {
        let y = (row + 1) * ROW_HEIGHT;
        let x = LABEL_WIDTH + begin.millis_since(start) * TIMELINE_WIDTH / total;
        let width = (end.millis_since(*begin) * TIMELINE_WIDTH / total).max(2);
        let label = text::cut(&exported.agent(), 22, "…");
        let _ = writeln!(
            html,
            "<text x=\"{}\" y=\"{}\">{}</text><rect class=\"{}\" x=\"{x}\" y=\"{}\" width=\"{width}\" height=\"12\" rx=\"2\"><title>{}</title></rect>",
            exported.depth * 10,
            y + 12,
            escaped(&label),
            exported.status().1,
            y + 3,
            escaped(&exported.short_task())
        );
    }
    html.push_str("</svg>\n");
}

/// Adds tokens and cost of each model.
fn push_costs(html: &mut String, traces: &[ExportedTrace]) {
    let mut models: Vec<(&str, usize, Spent)> = Vec::new();
    for exported in traces {
        let trace = exported.trace();
        let at = models
            .iter()
            .position(|(model, ..)| *model == trace.model)
            .unwrap_or_else(|| {
                models.push((&trace.model, 0, Spent::NOTHING));
                models.len() - 1
            });
        let (_, count, spent) = &mut models[at];
        *count += 1;
        *spent = spent.plus(Spent::from(trace));
    }
    html.push_str("<h2>Cost</h2>\n<table>\n<tr><th>Model</th><th>Agents</th><th>Tokens</th><th>Cost</th></tr>\n");
    for (model, count, spent) in models {
        let _ = writeln!(
            html,
            "<tr><td>{}</td><td class=\"n\">{count}</td><td class=\"n\">{}</td><td>{}</td></tr>",
            escaped(&text::safe_line(model)),
            spent.tokens(),
            escaped(&spent.usd_or("unknown"))
        );
    }
    html.push_str("</table>\n");
}

/// Adds the messages and the steps of a trace. `number`: its position, which the tree links to.
fn push_transcript(html: &mut String, number: usize, exported: &ExportedTrace) {
    let mut steps: HashMap<&RunId, Transcript> = HashMap::new();
    let heading = format!("{}: {}", exported.agent(), exported.short_task());
    let _ = writeln!(html, "<h2 id=\"t{number}\">{}</h2>", escaped(&heading));
    for record in &exported.events {
        if let Some(run) = &record.run_id {
            let transcript = steps
                .entry(run)
                .or_insert_with(|| Transcript::new(run.clone()));
            for step in transcript.apply(record) {
                push_lines(html, &step.lines(FORMAT.width, FORMAT.unicode));
            }
        }
        match &record.event {
            Event::Message(MessageEvent::Added {
                role,
                content: Some(content),
                ..
            }) => {
                push_message(html, *role, content.as_str());
            }
            Event::Run(RunEvent::Failed { error, .. }) => {
                let _ = writeln!(
                    html,
                    "<p class=\"red\">failed: {}</p>",
                    escaped(&text::safe_line(&error.to_string()))
                );
            }
            Event::Message(MessageEvent::Rewind { head_sequence, .. }) => {
                let _ = writeln!(
                    html,
                    "<p class=\"dim\">continued after message {head_sequence}</p>"
                );
            }
            Event::Run(RunEvent::Cancelled { .. }) => {
                html.push_str("<p class=\"yellow\">cancelled</p>\n")
            }
            _ => {}
        }
    }
    for step in steps.values_mut().flat_map(Transcript::flush) {
        push_lines(html, &step.lines(FORMAT.width, FORMAT.unicode));
    }
}

fn push_message(html: &mut String, role: Role, content: &str) {
    if content.trim().is_empty() {
        return;
    }
    match role {
        Role::System => {
            let _ = writeln!(
                html,
                "<details><summary>System prompt</summary><pre>{}</pre></details>",
                escaped(&text::safe_block(content))
            );
        }
        Role::User => {
            let _ = writeln!(
                html,
                "<div class=\"message user\"><pre>{}</pre></div>",
                escaped(&text::safe_block(content.trim_end()))
            );
        }
        Role::Assistant => {
            html.push_str("<div class=\"message\">");
            push_lines(html, &markdown::render(content, &FORMAT));
            html.push_str("</div>\n");
        }
        // The steps of the transcript show the results of tools.
        Role::Tool => {}
    }
}

fn push_lines(html: &mut String, lines: &[StyledLine]) {
    html.push_str("<pre>");
    for (number, line) in lines.iter().enumerate() {
        if number > 0 {
            html.push('\n');
        }
        for (style, piece) in line.pieces() {
            let class = class(style);
            let _ = match class {
                "" => write!(html, "{}", escaped(piece)),
                class => write!(html, "<span class=\"{class}\">{}</span>", escaped(piece)),
            };
        }
    }
    html.push_str("</pre>\n");
}

/// Returns the class of a style, or an empty text for text without one.
const fn class(style: TextStyle) -> &'static str {
    match style {
        TextStyle::Plain => "",
        TextStyle::Bold => "bold",
        TextStyle::Dim => "dim",
        TextStyle::Italic => "italic",
        TextStyle::Strikethrough => "strikethrough",
        TextStyle::Red => "red",
        TextStyle::Green => "green",
        TextStyle::Yellow => "yellow",
        TextStyle::Blue => "blue",
        TextStyle::Cyan => "cyan",
    }
}

/// Redacts known secrets, and escapes text for HTML, in elements and attributes.
fn escaped(text: &str) -> String {
    secret::redacted(text)
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_cannot_become_markup() {
        assert_eq!(
            escaped("<a href=\"x\">&amp;"),
            "&lt;a href=&quot;x&quot;&gt;&amp;amp;"
        );
        let mut html = String::new();
        push_message(
            &mut html,
            Role::Assistant,
            "**bold** <script>alert(1)</script>\n\n```\n</pre><b>\n```\n",
        );
        push_message(&mut html, Role::User, "</div><script>");
        assert!(
            !html.contains("<script") && !html.contains("</pre><b>"),
            "{html}"
        );
        assert!(html.contains("<span class=\"bold\">bold</span>"), "{html}");
    }
}
