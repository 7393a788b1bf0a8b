//! The operations of a home, each declared once: method, path, query, body and response.
//!
//! The server routes each operation to its handler and describes it in the OpenAPI document, and
//! clients build their requests from the values.
//!
//! An [`Endpoint`] with a response in its row is an [`Operation`]: its request and its response are
//! JSON. The others have content as request or response, have responses of several types, or are
//! WebSockets. A stream of events over SSE has no row: it is the answer of [`ReadEvents`] and
//! [`StartRun`] to a client that accepts `text/event-stream`.

use std::fmt::Display;

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::{
    Accepted, AnswerBody, ArtifactCleanupBody, ArtifactView, Artifacts, CallQuery, ChildrenBody,
    ChildrenView, DecisionBody, EditBody, EditView, EventPage, EventQuery, Experiences,
    ExportQuery, ForkBody, HeadBody, HeadView, Killed, Live, MessageQuery, Messages,
    NewSessionBody, PageQuery, PermissionModeBody, PermissionQuery, Permissions, PresetList,
    QuestionQuery, Questions, Ready, ReflectBody, RunWithOutcome, SessionPage, SessionQuery,
    SessionView, SettingsDigests, SkillList, StartBody, TaskCleanupBody, TracePage, TraceQuery,
    TraceView, UsageQuery, VersionQuery, Versions,
};
use crate::{
    ArtifactVersion, CleanupReport, Permission, PermissionId, Question, QuestionId, RunId,
    SessionId, TraceId, UsageReport, tree::ActorView,
};

/// Method of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// Reads, and changes nothing.
    Get,
    /// Has an effect. May be sent with an [`IDEMPOTENCY_KEY`](super::IDEMPOTENCY_KEY).
    Post,
    /// Stores content under a name.
    Put,
    /// Changes a part of something.
    Patch,
    /// Deletes.
    Delete,
}

impl Method {
    /// Returns the name of the method in HTTP.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Patch => "PATCH",
            Self::Delete => "DELETE",
        }
    }
}

/// A caller who may send a request to an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AllowedCaller {
    /// Any client, also without a token.
    Anyone,
    /// Each user, about their own records.
    User,
    /// The user of the home, because the response or the effect concerns all users.
    Operator,
}

/// Type of a query or a body that an endpoint does not have. Fields of a request are ignored.
#[derive(Debug, Default, Clone, Copy, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Nothing {}

#[cfg(feature = "openapi")]
impl utoipa::IntoParams for Nothing {
    fn into_params(
        _: impl Fn() -> Option<utoipa::openapi::path::ParameterIn>,
    ) -> Vec<utoipa::openapi::path::Parameter> {
        Vec::new()
    }
}

/// A request to an endpoint of a home.
pub trait Endpoint: Sized + Send + Sync {
    /// Values of the path's parameters, in order.
    type PathParameters: DeserializeOwned + Send;
    /// Query of the request.
    type Query: Serialize + DeserializeOwned + Send;
    /// Body of the request: a JSON object.
    type Body: Serialize + DeserializeOwned + Send;

    /// Name of the endpoint.
    const NAME: &'static str;
    /// Method of the request.
    const METHOD: Method;
    /// Path of the request, with parameters in braces.
    const PATH: &'static str;
    /// Whether the request has a JSON body.
    const HAS_JSON_BODY: bool;
    /// Whether the description of the endpoint says that the body may be omitted.
    const IS_BODY_OPTIONAL: bool;
    /// Who may send the request.
    const CALLER: AllowedCaller;
    /// Group of endpoints to which this one belongs.
    const GROUP: &'static str;
    /// Description in Markdown. Its first paragraph is a summary. Each line starts with a space.
    const ABOUT: &'static str;

    /// Returns the values of the path's parameters, in order.
    fn path_parameters(&self) -> Vec<&dyn Display>;

    /// Returns the query.
    fn query(&self) -> &Self::Query;

    /// Returns the body.
    fn body(&self) -> &Self::Body;

    /// Creates the request from its parts.
    fn from_parts(parameters: Self::PathParameters, query: Self::Query, body: Self::Body) -> Self;

    /// Returns the path with its parameters filled in. `encode` turns a value into one segment.
    fn path(&self, encode: impl Fn(&str) -> String) -> String {
        let mut path = String::with_capacity(Self::PATH.len());
        let mut values = self.path_parameters().into_iter();
        for segment in Self::PATH.split('/').skip(1) {
            path.push('/');
            let value = segment.starts_with('{').then(|| values.next()).flatten();
            match value {
                Some(value) => path.push_str(&encode(&value.to_string())),
                None => path.push_str(segment),
            }
        }
        path
    }
}

/// An endpoint that answers with JSON.
pub trait Operation: Endpoint {
    /// The response.
    type Response: Serialize + DeserializeOwned + Send;

    /// Status of a successful response in HTTP.
    const STATUS: u16;

    /// Wraps the request.
    fn into_any(self) -> AnyRequest;

    /// Extracts the response of this operation; `None` if it is that of another operation.
    fn response_of(response: AnyResponse) -> Option<Self::Response>;
}

/// Row of an endpoint in the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EndpointEntry {
    /// Method of its requests.
    pub method: Method,
    /// Path of its requests, with parameters in braces.
    pub path: &'static str,
    /// Who may send the request.
    pub caller: AllowedCaller,
    /// Whether a request with an idempotency key is recorded before it is executed. Set if each
    /// execution creates something with which the key is not recorded.
    pub is_recorded_first: bool,
}

impl EndpointEntry {
    /// Returns the endpoint with a method and a path, in which parameters are in braces. A HEAD
    /// request is one to the endpoint of GET.
    pub fn find(method: &str, path: &str) -> Option<&'static Self> {
        let method = if method == "HEAD" { "GET" } else { method };
        ENDPOINTS
            .iter()
            .find(|endpoint| endpoint.path == path && endpoint.method.as_str() == method)
    }
}

/// Expands to an optional part of a row, or to its default. The first token selects the form:
/// `type`, `ref`, `has`, `value` or `caller`.
macro_rules! part {
    (type) => {
        Nothing
    };
    (type $type:ty) => {
        $type
    };
    (ref) => {
        &Nothing {}
    };
    (ref $value:expr; $type:ty) => {
        &$value
    };
    (has) => {
        false
    };
    (has $part:tt) => {
        true
    };
    (value $value:ident $type:ty) => {
        $value
    };
    (caller) => {
        AllowedCaller::User
    };
    (caller $caller:ident) => {
        AllowedCaller::$caller
    };
}

/// Declares the endpoints, in groups:
///
/// - `query(…)` and `body(…)` name the types of these parts. `body(…, optional)`: it may be omitted.
/// - `by CALLER`: who may call it. Default: each user.
/// - `[recorded_first]`: see [`EndpointEntry::is_recorded_first`].
/// - `= METHOD PATH`.
/// - `=> RESPONSE, STATUS`: the endpoint is an operation.
///
/// The first argument is a `$`, which a macro cannot write into the macro that it declares.
macro_rules! endpoints {
    ($dollar:tt $($group:ident {$(
        $(#[doc = $doc:literal])*
        $name:ident {$($parameter:ident: $type:ty),*}
        $(query($query:ty))?
        $(body($body:ty $(, $optional:ident)?))?
        $(by $caller:ident)?
        $([$recorded_first:ident])?
        = $method:ident $path:literal $(=> $response:ty, $status:literal)?;
    )*})*) => {
        $($(
            $(#[doc = $doc])*
            #[derive(Debug, Clone)]
            #[allow(missing_docs, reason = "the fields are the parts of the request")]
            pub struct $name {
                $(pub $parameter: $type,)*
                $(pub query: $query,)?
                $(pub body: $body,)?
            }

            impl Endpoint for $name {
                type PathParameters = ($($type,)*);
                type Query = part!(type $($query)?);
                type Body = part!(type $($body)?);

                const NAME: &'static str = stringify!($name);
                const METHOD: Method = Method::$method;
                const PATH: &'static str = $path;
                const HAS_JSON_BODY: bool = part!(has $([$body])?);
                const IS_BODY_OPTIONAL: bool = part!(has $($($optional)?)?);
                const CALLER: AllowedCaller = part!(caller $($caller)?);
                const GROUP: &'static str = stringify!($group);
                const ABOUT: &'static str = concat!($($doc, "\n"),*);

                fn path_parameters(&self) -> Vec<&dyn Display> {
                    vec![$(&self.$parameter),*]
                }

                fn query(&self) -> &Self::Query {
                    part!(ref $(self.query; $query)?)
                }

                fn body(&self) -> &Self::Body {
                    part!(ref $(self.body; $body)?)
                }

                #[allow(unused_variables, reason = "not every request has each part")]
                fn from_parts(
                    parameters: Self::PathParameters,
                    query_part: Self::Query,
                    body_part: Self::Body,
                ) -> Self {
                    let ($($parameter,)*) = parameters;
                    Self {
                        $($parameter,)*
                        $(query: part!(value query_part $query),)?
                        $(body: part!(value body_part $body),)?
                    }
                }
            }

            $(impl Operation for $name {
                type Response = $response;

                const STATUS: u16 = $status;

                fn into_any(self) -> AnyRequest {
                    AnyRequest::$name(self)
                }

                fn response_of(response: AnyResponse) -> Option<Self::Response> {
                    match response {
                        AnyResponse::$name(response) => Some(response),
                        _ => None,
                    }
                }
            })?
        )*)*

        /// All endpoints, in the order of their declaration.
        pub const ENDPOINTS: &[EndpointEntry] = &[
            $($(EndpointEntry {
                method: Method::$method,
                path: $path,
                caller: part!(caller $($caller)?),
                is_recorded_first: part!(has $($recorded_first)?),
            },)*)*
        ];

        /// Calls a macro with an argument, and then the name and the response of each operation:
        /// `for_each_operation!(add_routes; router)` is
        /// `add_routes! { router; [ListSessions SessionPage] … }`.
        #[macro_export]
        macro_rules! for_each_operation {
            ($dollar callback:ident; $dollar argument:expr) => {
                $dollar callback! { $dollar argument; $($($([$name $response])?)*)* }
            };
        }
    };
}

endpoints! {
    $
    runs {
        /// Starts a run in a new or an existing session.
        ///
        /// A client that accepts `text/event-stream` receives the session's event stream from this
        /// point on, after a first frame `accepted`. The stream is opened before the run starts, so
        /// that no streamed text is missed.
        StartRun {} body(StartBody) = Post "/api/traces" => Accepted, 202;
        /// Makes one model call without tools, in a session of its own.
        ///
        /// With `wait_s`, the response is the record of the run if it has ended by then, whatever
        /// its status is. A failure of the model's service, or an answer that it refuses, is an
        /// error response. If the run has not ended, it continues.
        CallModel {} query(CallQuery) body(StartBody) = Post "/api/calls";
        /// Continues a conversation, also that of a sub-agent: with another message, from an
        /// earlier message, or where it stopped (MSG-2).
        ResumeTrace { trace_id: TraceId } body(StartBody, optional)
            = Post "/api/traces/{trace_id}/run" => Accepted, 202;
        /// Cancels the active or interrupted run of a trace and all runs below it.
        StopTrace { trace_id: TraceId } = Post "/api/traces/{trace_id}/stop" => Accepted, 202;
        /// Reflects on a conversation, also that of a sub-agent, and stores what was learned
        /// (MEM-4).
        ReflectOnTrace { trace_id: TraceId } body(ReflectBody, optional)
            = Post "/api/traces/{trace_id}/reflect" => Accepted, 202;
        /// Reads a run. Once the run has ended, the response includes its output, artifacts and
        /// stats.
        ReadRun { run_id: RunId } = Get "/api/runs/{run_id}" => RunWithOutcome, 200;
        /// Cancels a run and all runs below it.
        CancelRun { run_id: RunId } = Post "/api/runs/{run_id}/cancel" => Accepted, 202;
        /// Adds children to a run that has not ended.
        ///
        /// The children of a queued run are `queued`: they start with it, and end with it if it is
        /// cancelled.
        AddChildren { run_id: RunId } body(ChildrenBody) [recorded_first]
            = Post "/api/runs/{run_id}/children" => ChildrenView, 202;
    }
    traces {
        /// Lists traces, newest first.
        ListTraces {} query(TraceQuery) = Get "/api/traces" => TracePage, 200;
        /// Lists traces with an active or waiting run, newest first.
        ListRunningTraces {} query(PageQuery) = Get "/api/traces/running" => TracePage, 200;
        /// Reads a trace with its goals and its sub-traces.
        ReadTrace { trace_id: TraceId } = Get "/api/traces/{trace_id}" => TraceView, 200;
        /// Reads the messages of a trace.
        ReadMessages { trace_id: TraceId } query(MessageQuery)
            = Get "/api/traces/{trace_id}/messages" => Messages, 200;
        /// Reads the events of a trace: a page of stored events, or a stream if the client accepts
        /// `text/event-stream`.
        ///
        /// The stream sends each event once, in order, with the event's number as `id`. A client
        /// that reconnects with `Last-Event-ID` receives the events after that number. Frames with
        /// text of a model answer in progress have no `id` and are not sent again. With `tree`, the
        /// numbers are those of the session. If the runtime fails or the trace
        /// does not exist, the server sends a frame named
        /// `error` with the reason and ends the stream. A cursor that does not belong to this
        /// store, for example because a backup was restored, is rejected with `cursor_unknown`
        /// (410); the error contains the number to restart from.
        ReadEvents { trace_id: TraceId } query(EventQuery)
            = Get "/api/traces/{trace_id}/events" => EventPage, 200;
        /// Watches a trace over a WebSocket.
        WatchTrace { trace_id: TraceId } query(EventQuery) = Get "/api/traces/{trace_id}/watch";
    }
    sessions {
        /// Lists sessions, newest first.
        ListSessions {} query(SessionQuery) = Get "/api/sessions" => SessionPage, 200;
        /// Creates a session without a run, so that files can be uploaded first.
        CreateSession {} body(NewSessionBody, optional) = Post "/api/sessions" => SessionView, 201;
        /// Reads a session.
        ReadSession { session_id: SessionId }
            = Get "/api/sessions/{session_id}" => SessionView, 200;
        /// Deletes a session and everything in it. Responds once it is deleted.
        DeleteSession { session_id: SessionId } = Delete "/api/sessions/{session_id}" => (), 204;
        /// Copies a session with its conversation, goals and documents as of a message.
        ForkSession { session_id: SessionId } body(ForkBody, optional)
            = Post "/api/sessions/{session_id}/fork" => SessionView, 201;
        /// Moves the head of a conversation to another message, on its main path or off it. Starts
        /// no run.
        SwitchHead { session_id: SessionId } body(HeadBody)
            = Post "/api/sessions/{session_id}/head" => HeadView, 200;
        /// Sets the permission mode of the session's active run and its sub-agents. It applies from
        /// the next tool call.
        SetPermissionMode { session_id: SessionId } body(PermissionModeBody)
            = Post "/api/sessions/{session_id}/permission-mode" => PermissionModeBody, 200;
    }
    artifacts {
        /// Lists the artifacts of a session and of its user. With `-` as the session id, lists only
        /// the artifacts of the calling user.
        ListArtifacts { session_id: SessionId }
            = Get "/api/sessions/{session_id}/artifacts" => Artifacts, 200;
        /// Reads an artifact: its record, its content if that is text, and its stored versions.
        ///
        /// `ETag` is its current version, for `If-Match` of a change. `If-None-Match` is ignored:
        /// the list of stored versions also changes without a new version.
        ReadArtifact { session_id: SessionId, name: String }
            = Get "/api/sessions/{session_id}/artifacts/{name}" => ArtifactView, 200;
        /// Stores the request body as the next version of an artifact.
        PutArtifact { session_id: SessionId, name: String }
            = Put "/api/sessions/{session_id}/artifacts/{name}";
        /// Stores the files of a multipart form as artifacts. `name` must be
        /// [`UPLOAD_NAME`](super::UPLOAD_NAME).
        UploadArtifacts { session_id: SessionId, name: String } [recorded_first]
            = Post "/api/sessions/{session_id}/artifacts/{name}";
        /// Replaces a passage of an artifact's text. If the text does not contain the exact
        /// passage, the most similar one is replaced (ART-7).
        EditArtifact { session_id: SessionId, name: String } body(EditBody)
            = Patch "/api/sessions/{session_id}/artifacts/{name}" => EditView, 200;
        /// Deletes an artifact with all its versions.
        DeleteArtifact { session_id: SessionId, name: String }
            = Delete "/api/sessions/{session_id}/artifacts/{name}" => (), 204;
        /// Reads the content of an artifact, or that of a stored version, as bytes.
        ReadContent { session_id: SessionId, name: String } query(VersionQuery)
            = Get "/api/sessions/{session_id}/artifacts/{name}/content";
        /// Lists the stored versions of an artifact.
        ListVersions { session_id: SessionId, name: String }
            = Get "/api/sessions/{session_id}/artifacts/{name}/versions" => Versions, 200;
        /// Reads the record of a stored version.
        ReadVersion { session_id: SessionId, name: String, version: u64 }
            = Get "/api/sessions/{session_id}/artifacts/{name}/versions/{version}"
            => ArtifactVersion, 200;
        /// Exports the last stored version of a text artifact in another format, as bytes.
        ExportArtifact { session_id: SessionId, name: String } query(ExportQuery)
            = Get "/api/sessions/{session_id}/artifacts/{name}/export";
        /// Selects artifacts for deletion in the sessions that the caller may see, and deletes them
        /// unless it is a dry run (ART-13).
        CleanUpArtifacts {} body(ArtifactCleanupBody, optional)
            = Post "/api/cleanup/artifacts" => CleanupReport, 200;
    }
    people {
        /// Lists the permissions that tool calls have requested, oldest first.
        ListPermissions {} query(PermissionQuery) = Get "/api/permissions" => Permissions, 200;
        /// Grants or denies permission for a tool call, and resumes its run, even a run that an
        /// earlier process left interrupted.
        DecidePermission { permission_id: PermissionId } body(DecisionBody)
            = Post "/api/permissions/{permission_id}" => Permission, 200;
        /// Lists the questions of agents, oldest first.
        ListQuestions {} query(QuestionQuery) = Get "/api/questions" => Questions, 200;
        /// Answers a question and resumes the run, even a run that an earlier process left
        /// interrupted.
        AnswerQuestion { question_id: QuestionId } body(AnswerBody)
            = Post "/api/questions/{question_id}" => Question, 200;
    }
    home {
        /// Reads the experiences of the caller's runs: the Markdown file, or JSON records if
        /// `Accept` requests that.
        ListExperiences {} = Get "/api/experiences" => Experiences, 200;
        /// Lists the available skills, except those of projects.
        ListSkills {} = Get "/api/skills" => SkillList, 200;
        /// Lists the presets.
        ListPresets {} = Get "/api/presets" => PresetList, 200;
        /// Reads digests of the settings that the owner of the home uses, and of its keys and
        /// addresses. A process compares them with its own settings. Only for the user of the home.
        ReadSettingsDigests {} by Operator = Get "/api/settings" => SettingsDigests, 200;
        /// Selects the task journals of a project for deletion, and deletes them unless it is a dry
        /// run.
        CleanUpTasks {} body(TaskCleanupBody) by Operator = Post "/api/cleanup/tasks";
        /// Sums up the usage and cost of runs.
        ReadUsage {} query(UsageQuery) = Get "/api/usage" => UsageReport, 200;
    }
    tree {
        /// Reads the current supervision tree.
        ReadTree {} = Get "/api/tree" => ActorView, 200;
        /// Watches the supervision tree over a WebSocket.
        WatchTree {} = Get "/api/tree/watch";
        /// Makes an actor crash, to test its restart. Its supervisor restarts it within its restart
        /// limit.
        CrashActor { actor_id: String } = Post "/api/tree/{actor_id}/kill" => Killed, 202;
    }
    health {
        /// Checks that the process responds. Requires no token.
        CheckLiveness {} by Anyone = Get "/health/live" => Live, 200;
        /// Checks whether runs are accepted. Requires no token.
        ///
        /// Returns 503 while the owner of the home shuts down, while the disk cannot be written,
        /// and after the runtime or the gateway of the default model profile has failed
        /// permanently.
        CheckReadiness {} by Anyone = Get "/health/ready" => Ready, 200;
        /// Reads the metrics in the format of Prometheus.
        ReadMetrics {} by Operator = Get "/metrics";
    }
}

/// Declares [`AnyRequest`] and [`AnyResponse`]; its argument is not used.
macro_rules! any_operation {
    ($argument:expr; $([$operation:ident $response:ty])*) => {
        /// A request to any operation.
        #[derive(Debug, Clone)]
        #[allow(missing_docs, reason = "a variant is an operation")]
        pub enum AnyRequest {
            $($operation($operation),)*
        }

        /// The response of any operation.
        #[derive(Debug, Clone)]
        #[allow(missing_docs, reason = "a variant is the response of an operation")]
        #[expect(clippy::large_enum_variant, reason = "a response is moved only a few times")]
        pub enum AnyResponse {
            $($operation($response),)*
        }
    };
}

for_each_operation!(any_operation; ());
