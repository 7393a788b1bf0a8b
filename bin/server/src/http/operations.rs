//! The handler of each operation, and its route.
//!
//! Architecture invariant: an operation of the table in `soong::protocol::api::operation` without a
//! handler here does not compile. A handler takes the values of a request and returns those of the
//! response; this module reads the request from HTTP and writes the response. The table says what each
//! operation does, so most handlers have no documentation of their own. A few operations have a route
//! of their own, because over HTTP they also read or write headers, have another form of body or
//! response, or need no caller.

use axum::{
    Json, Router,
    extract::{FromRequest, Request},
    http::StatusCode,
    response::{IntoResponse, Response},
    routing::{MethodFilter, MethodRouter, get, on, patch, post},
};
use soong::protocol::{
    api::operation::{Endpoint, Method, Operation},
    for_each_operation,
};

use super::{
    Api, artifact,
    caller::Access,
    error::ApiError,
    health, memory, permission, preset, question,
    request::{self, Path, Query},
    run, session, settings, stream, trace, tree, usage,
};

/// An operation that the server executes.
pub(super) trait Serve: Operation + 'static {
    /// Executes the operation for a caller.
    fn serve(
        self,
        access: &Access,
    ) -> impl Future<Output = Result<Self::Response, ApiError>> + Send;

    /// Returns the route of the operation.
    fn route() -> MethodRouter<Api> {
        on(method_filter(Self::METHOD), handle::<Self>)
    }
}

/// Names the handler of each operation, and its route if that is not [`handle`].
macro_rules! serve {
    ($($operation:ident => $handler:path $(, $route:expr)?;)*) => {
        $(
            impl Serve for soong::protocol::api::operation::$operation {
                async fn serve(self, access: &Access) -> Result<Self::Response, ApiError> {
                    $handler(access, self).await
                }

                $(fn route() -> MethodRouter<Api> {
                    $route
                })?
            }
        )*
    };
}

serve! {
    StartRun => run::start, post(run::start_or_stream);
    ResumeTrace => run::resume;
    StopTrace => run::stop;
    ReflectOnTrace => run::reflect;
    ReadRun => run::show;
    CancelRun => run::cancel;
    AddChildren => run::add_children;

    ListTraces => trace::list;
    ListRunningTraces => trace::running;
    ReadTrace => trace::show;
    ReadMessages => trace::messages;
    ReadEvents => stream::page, get(stream::page_or_stream);

    ListSessions => session::list;
    CreateSession => session::create;
    ReadSession => session::show;
    DeleteSession => session::delete;
    ForkSession => session::fork;
    SwitchHead => session::switch_head;
    SetPermissionMode => session::permission_mode;

    ListArtifacts => artifact::list;
    ReadArtifact => artifact::show, get(artifact::show_with_etag);
    EditArtifact => artifact::edit, patch(artifact::edit_if_matching);
    DeleteArtifact => artifact::delete, axum::routing::delete(artifact::delete_if_matching);
    ListVersions => artifact::versions;
    ReadVersion => artifact::version;
    CleanUpArtifacts => artifact::clean_up;

    ListPermissions => permission::list;
    DecidePermission => permission::decide;
    ListQuestions => question::list;
    AnswerQuestion => question::answer;

    ListExperiences => memory::experiences, get(memory::experiences_in_format);
    ListSkills => memory::skills;
    ListPresets => preset::list;
    ReadSettingsDigests => settings::show;
    ReadUsage => usage::show;

    ReadTree => tree::show;
    CrashActor => tree::crash_actor;

    CheckLiveness => health::live, get(health::live_without_caller);
    CheckReadiness => health::ready, get(health::ready_without_caller);
}

/// Adds the routes of all operations.
macro_rules! add_routes {
    ($router:expr; $([$operation:ident $response:ty])*) => {
        $router
            $(.route(
                soong::protocol::api::operation::$operation::PATH,
                soong::protocol::api::operation::$operation::route(),
            ))*
    };
}

/// Returns the routes of all operations.
pub(super) fn routes() -> Router<Api> {
    for_each_operation!(add_routes; Router::new())
}

/// Executes the operation of a request.
async fn handle<O: Serve>(
    access: Access,
    Path(parameters): Path<O::PathParameters>,
    Query(query): Query<O::Query>,
    request: Request,
) -> Result<Response, ApiError> {
    let body = read_body::<O>(&access, request).await?;
    let operation = O::from_parts(parameters, query, body);
    let response = operation.serve(&access).await?;
    Ok(success::<O>(response))
}

/// Reads the body of a request. An operation without one gets an empty body, which is read as `{}`.
async fn read_body<O: Operation>(access: &Access, request: Request) -> Result<O::Body, ApiError> {
    let request = if O::HAS_JSON_BODY {
        request
    } else {
        Request::default()
    };
    let request::Json(body) = request::Json::from_request(request, access.api()).await?;
    Ok(body)
}

/// Returns the response to a successful operation.
fn success<O: Operation>(response: O::Response) -> Response {
    // Each status in the table is valid.
    let status = StatusCode::from_u16(O::STATUS).unwrap_or(StatusCode::OK);
    if status == StatusCode::NO_CONTENT {
        return status.into_response();
    }
    (status, Json(response)).into_response()
}

const fn method_filter(method: Method) -> MethodFilter {
    match method {
        Method::Get => MethodFilter::GET,
        Method::Post => MethodFilter::POST,
        Method::Put => MethodFilter::PUT,
        Method::Patch => MethodFilter::PATCH,
        Method::Delete => MethodFilter::DELETE,
    }
}
