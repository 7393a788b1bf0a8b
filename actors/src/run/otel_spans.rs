//! Tracing spans of runs, model calls and tool calls. The spans of a run tree form one trace.
//!
//! Names follow the OpenTelemetry semantic conventions for generative AI, which are still in
//! development, and are defined only here. Spans contain no text of users, models or tools. They
//! cost nothing if no subscriber records them. Exporting them is left to the program.

use soong_model::Completion;
use soong_protocol::{ErrorInfo, Run};
use tracing::{Span, debug_span, field::Empty, info_span};

use crate::run::machine::spec::RunSpec;

/// Target of the spans that follow the conventions. Exporters select spans by it.
pub(crate) const TARGET: &str = "soong::gen_ai";

/// Creates the span of a run, as a child of the parent run's span.
pub(crate) fn run_span(run: &Run, parent: Option<&Span>) -> Span {
    let parent_id = parent.and_then(Span::id);
    let span = info_span!(
        target: TARGET,
        parent: parent_id,
        "run",
        otel.name = Empty,
        session = %run.session_id,
        run = %run.run_id,
        parent = Empty,
        gen_ai.operation.name = "invoke_agent",
        gen_ai.agent.name = %run.settings.agent_type,
        gen_ai.agent.id = %run.trace_id,
        gen_ai.conversation.id = %run.session_id,
        soong.status = Empty,
        error.r#type = Empty,
    );
    if !span.is_disabled() {
        span.record(
            "otel.name",
            format!("invoke_agent {}", run.settings.agent_type),
        );
        if let Some(parent) = &run.parent_run_id {
            span.record("parent", parent.as_str());
        }
    }
    span
}

/// Records the outcome of a run in its span.
pub(crate) fn run_ended(span: &Span, status: &str, error: Option<&ErrorInfo>) {
    span.record("soong.status", status);
    record_error(span, error);
}

/// Creates the span of a model call.
pub(crate) fn model_span(spec: &RunSpec, run: &Span) -> Span {
    let span = debug_span!(
        target: TARGET,
        parent: run,
        "model",
        otel.name = Empty,
        otel.kind = "client",
        gen_ai.operation.name = "chat",
        gen_ai.provider.name = %spec.model.provider,
        gen_ai.request.model = %spec.model.name,
        gen_ai.conversation.id = %spec.identity.session_id,
        gen_ai.response.model = Empty,
        gen_ai.response.finish_reasons = Empty,
        gen_ai.usage.input_tokens = Empty,
        gen_ai.usage.output_tokens = Empty,
        error.r#type = Empty,
    );
    if !span.is_disabled() {
        span.record("otel.name", format!("chat {}", spec.model.name));
    }
    span
}

/// Records the outcome of a model call in its span, and the model that was called last.
pub(crate) fn model_ended(span: &Span, model: &str, outcome: &Result<Completion, ErrorInfo>) {
    if span.is_disabled() {
        return;
    }
    span.record("gen_ai.response.model", model);
    if let Ok(completion) = outcome {
        span.record(
            "gen_ai.response.finish_reasons",
            completion.finish_reason.as_str(),
        );
        if let Some(usage) = completion.usage {
            span.record("gen_ai.usage.input_tokens", usage.prompt_tokens);
            span.record("gen_ai.usage.output_tokens", usage.completion_tokens);
        }
    }
    record_error(span, outcome.as_ref().err());
}

/// Creates the span of a tool call.
pub(crate) fn tool_span(id: &str, name: &str, run: &Span) -> Span {
    let span = debug_span!(
        target: TARGET,
        parent: run,
        "tool",
        otel.name = Empty,
        gen_ai.operation.name = "execute_tool",
        gen_ai.tool.name = name,
        gen_ai.tool.call.id = id,
        error.r#type = Empty,
    );
    if !span.is_disabled() {
        span.record("otel.name", format!("execute_tool {name}"));
    }
    span
}

/// Records the code of an error, if there is one.
pub(crate) fn record_error(span: &Span, error: Option<&ErrorInfo>) {
    if let Some(error) = error {
        span.record("error.type", error.code.as_str());
    }
}
