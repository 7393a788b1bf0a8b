//! Tools made from functions: the shortest way for a program to add a tool.
//!
//! The program defines a type for the arguments. The schema is derived from it, and each call
//! receives arguments that fit it (TOOL-1).

use std::{future::Future, marker::PhantomData, sync::Arc};

use futures::{FutureExt, future::BoxFuture};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::Value;
use soong_protocol::{AccessRequest, ErrorCode, ErrorInfo, NETWORK_TAG, ToolEffect, ToolSpec};

use super::{Tool, ToolContext, ToolOutput, ToolResult, arguments, schema_of};

type CallFn<A> = dyn Fn(ToolContext, A) -> BoxFuture<'static, ToolResult> + Send + Sync;
type AccessFn<A> = dyn Fn(&ToolContext, &A) -> Option<AccessRequest> + Send + Sync;

/// Error of a tool made from a function, or of a callback. Any error converts to it with `?`, so it
/// is no error type itself.
///
/// An [`ErrorInfo`] keeps its code; any other error is reported to the model as `internal_error`
/// with its message and the messages of its sources.
#[derive(Debug)]
pub struct ToolError(ErrorInfo);

impl ToolError {
    /// Returns the code and the message of the error.
    pub fn into_info(self) -> ErrorInfo {
        self.0
    }
}

impl<E: std::error::Error + 'static> From<E> for ToolError {
    fn from(error: E) -> Self {
        let error: &(dyn std::error::Error + 'static) = &error;
        if let Some(info) = error.downcast_ref::<ErrorInfo>() {
            return Self(info.clone());
        }
        let mut message = error.to_string();
        let mut source = error.source();
        while let Some(cause) = source {
            message = format!("{message}: {cause}");
            source = cause.source();
        }
        Self(ErrorInfo::new(ErrorCode::InternalError, message))
    }
}

/// State of a [`FunctionTool`] that does not say yet whether its calls change anything. It cannot
/// be built.
#[derive(Debug)]
pub struct UnstatedEffect;

/// State of a [`FunctionTool`] that says whether its calls change anything.
#[derive(Debug)]
pub struct StatedEffect;

/// Builder of a tool made from a function; see [`function`]. `E`: whether the effect of its calls
/// has been stated.
#[must_use = "a tool has no effect until it is registered with `RuntimeBuilder::tool`"]
pub struct FunctionTool<A, E = UnstatedEffect> {
    spec: ToolSpec,
    call: Box<CallFn<A>>,
    required_access: Option<Box<AccessFn<A>>>,
    arguments: PhantomData<fn(A)>,
    effect: PhantomData<E>,
}

/// Makes a tool from a function.
///
/// Whether its calls change anything must be stated, because it decides whether they run in
/// parallel, require permission, and are repeated after a crash: [`FunctionTool::reads`],
/// [`FunctionTool::writes`] or [`FunctionTool::dangerous`].
///
/// `name` is the name that models call, and `description` helps them to choose the tool. The fields
/// of `A` and their doc comments describe the arguments to models. With
/// `#[serde(deny_unknown_fields)]`, unknown arguments are reported to the model.
///
/// The function returns text, JSON or a [`ToolOutput`], and may use `?` on any error: see
/// [`ToolError`].
///
/// ```
/// // `soong::tool` re-exports this crate.
/// use soong_tool::{Tool, function};
///
/// #[derive(serde::Deserialize, schemars::JsonSchema)]
/// #[serde(deny_unknown_fields)]
/// struct Text {
///     /// What to count.
///     text: String,
/// }
///
/// let tool = function("count_words", "Counts the words of a text.", |_, Text { text }| async move {
///     Ok(text.split_whitespace().count().to_string())
/// })
/// .reads()
/// .build();
/// assert_eq!(tool.spec().parameters["required"][0], "text");
/// ```
///
/// Without an effect, it is no tool:
///
/// ```compile_fail,E0599
/// # use soong_tool::function;
/// # #[derive(serde::Deserialize, schemars::JsonSchema)]
/// # struct Text { text: String }
/// let tool = function("count_words", "Counts the words of a text.", |_, Text { text }| async move {
///     Ok(text.split_whitespace().count().to_string())
/// })
/// .build();
/// ```
pub fn function<A, F, R, O>(name: &str, description: &str, call: F) -> FunctionTool<A>
where
    A: JsonSchema + DeserializeOwned + Send + 'static,
    F: Fn(ToolContext, A) -> R + Send + Sync + 'static,
    R: Future<Output = Result<O, ToolError>> + Send + 'static,
    O: Into<ToolOutput>,
{
    let title = name.replace(['_', '-', '.'], " ");
    FunctionTool {
        spec: ToolSpec {
            idempotent: false,
            ..ToolSpec::read(name, &title, description, schema_of::<A>())
        },
        call: Box::new(move |context, arguments| {
            let result = call(context, arguments);
            async move { result.await.map(Into::into).map_err(|ToolError(info)| info) }.boxed()
        }),
        required_access: None,
        arguments: PhantomData,
        effect: PhantomData,
    }
}

impl<A> FunctionTool<A, UnstatedEffect> {
    /// States that calls only read: they run in parallel, require no permission, and are repeated
    /// after a crash.
    pub fn reads(self) -> FunctionTool<A, StatedEffect> {
        self.effect(ToolEffect::Read)
    }

    /// States that calls write: they run alone, require permission, and are not repeated after a
    /// crash.
    pub fn writes(self) -> FunctionTool<A, StatedEffect> {
        self.effect(ToolEffect::Write)
    }

    /// States that what calls change cannot be known in advance. Otherwise the same as
    /// [`FunctionTool::writes`].
    pub fn dangerous(self) -> FunctionTool<A, StatedEffect> {
        self.effect(ToolEffect::Dangerous)
    }

    fn effect(self, effect: ToolEffect) -> FunctionTool<A, StatedEffect> {
        let mut spec = self.spec;
        spec.idempotent |= effect == ToolEffect::Read;
        spec.effect = effect;
        FunctionTool {
            spec,
            call: self.call,
            required_access: self.required_access,
            arguments: PhantomData,
            effect: PhantomData,
        }
    }
}

impl<A: DeserializeOwned + Send + 'static, E> FunctionTool<A, E> {
    /// Sets the title for users. Default: the name, with `_`, `-` and `.` replaced by spaces.
    pub fn title(mut self, title: &str) -> Self {
        title.clone_into(&mut self.spec.title);
        self
    }

    /// Marks the tool as using the network: its calls require permission.
    pub fn network(mut self) -> Self {
        self.spec = self.spec.with_tag(NETWORK_TAG);
        self
    }

    /// Marks the calls as repeatable: an interrupted call may run again, because a second run
    /// changes nothing more (DUR-4).
    pub fn idempotent(mut self) -> Self {
        self.spec.idempotent = true;
        self
    }

    /// Sets the time limit of one call, in milliseconds. Default: `tools.default_timeout_ms`.
    pub fn timeout_ms(mut self, timeout_ms: u64) -> Self {
        self.spec.timeout_ms = Some(timeout_ms);
        self
    }

    /// Sets the function that returns the access for which a call requires permission; `None` if it
    /// requires none. It is called before the tool call, and again after permission was granted.
    pub fn requires_access(
        mut self,
        ask: impl Fn(&ToolContext, &A) -> Option<AccessRequest> + Send + Sync + 'static,
    ) -> Self {
        self.required_access = Some(Box::new(ask));
        self
    }

    /// Lets all calls run without permission, whatever the tool changes. For tools that only access
    /// resources of the program.
    pub fn without_permission(self) -> Self {
        self.requires_access(|_, _| None)
    }
}

impl<A: DeserializeOwned + Send + 'static> FunctionTool<A, StatedEffect> {
    /// Builds the tool, for `RuntimeBuilder::tool`.
    pub fn build(self) -> Arc<dyn Tool> {
        Arc::new(self)
    }
}

impl<A: DeserializeOwned + Send + 'static> Tool for FunctionTool<A, StatedEffect> {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn required_access(
        &self,
        context: &ToolContext,
        value: &Value,
    ) -> Result<Option<AccessRequest>, ErrorInfo> {
        match &self.required_access {
            Some(ask) => Ok(ask(context, &arguments(value.clone())?)),
            None => Ok(self
                .spec
                .requires_permission()
                .then(|| AccessRequest::whole_tool(self.spec.title.clone()))),
        }
    }

    fn call(&self, context: ToolContext, value: Value) -> BoxFuture<'static, ToolResult> {
        match arguments(value) {
            Ok(wanted) => {
                let result = (self.call)(context, wanted);
                let title = self.spec.title.clone();
                async move {
                    let mut output = result.await?;
                    if output.title.is_empty() {
                        output.title = title;
                    }
                    Ok(output)
                }
                .boxed()
            }
            Err(error) => async { Err(error) }.boxed(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;
    use serde_json::json;
    use soong_protocol::{ErrorCode, Scope};

    use super::*;
    use crate::{ToolOutput, testing::TestProject};

    #[derive(Deserialize, JsonSchema)]
    #[serde(deny_unknown_fields)]
    struct TestArguments {
        /// How often.
        times: u64,
    }

    fn tool() -> FunctionTool<TestArguments> {
        function(
            "say_it",
            "Says it.",
            |_, TestArguments { times }| async move {
                Ok(ToolOutput::text(
                    "said",
                    "x".repeat(usize::try_from(times).unwrap_or_default()),
                ))
            },
        )
    }

    #[tokio::test]
    async fn function_tool_has_schema_of_its_arguments() {
        let project = TestProject::new(&[]);
        let tool = tool().reads().build();
        assert_eq!(
            (
                tool.spec().title.as_str(),
                tool.spec().effect,
                tool.spec().idempotent
            ),
            ("say it", ToolEffect::Read, true)
        );
        let times = &tool.spec().parameters["properties"]["times"];
        assert_eq!(
            (&times["type"], &times["description"]),
            (&json!("integer"), &json!("How often."))
        );
        assert_eq!(
            project.call(&*tool, json!({"times": 3})).await.unwrap(),
            "xxx"
        );
        let refused = project
            .call(&*tool, json!({"times": -1}))
            .await
            .unwrap_err();
        assert_eq!(refused.code, ErrorCode::ValidationError);
    }

    #[test]
    fn function_tool_requires_permission_as_declared() {
        let context = TestProject::new(&[]).context();
        let access = |tool: FunctionTool<TestArguments, StatedEffect>| {
            tool.required_access(&context, &json!({"times": 3}))
                .unwrap()
        };
        assert_eq!(access(tool().reads()), None);
        for asks in [
            tool().writes(),
            tool().dangerous(),
            tool().network().reads(),
            tool().reads().network(),
        ] {
            assert_eq!(access(asks).unwrap().scope, Scope::Tool);
        }
        assert_eq!(access(tool().writes().without_permission()), None);
        let by_arguments = |_: &ToolContext, arguments: &TestArguments| {
            (arguments.times > 2).then(|| AccessRequest::whole_tool("many"))
        };
        assert_eq!(
            access(tool().reads().requires_access(by_arguments))
                .unwrap()
                .target,
            "many"
        );
        assert!(!tool().writes().spec.idempotent && tool().reads().spec.idempotent);
        assert!(
            tool().writes().idempotent().spec.idempotent
                && tool().idempotent().writes().spec.idempotent
        );
    }
}
