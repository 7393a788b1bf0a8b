//! The home of this process, for its own commands: operations and events pass as values, without
//! HTTP. Only content passes through the routes.
//!
//! Elsewhere: the handlers of the operations (`operations.rs`), which are the same as for requests
//! over HTTP.

use axum::{
    Router,
    http::{Request, Response},
};
use futures::{FutureExt, StreamExt, future::BoxFuture};
use soong::{
    ErrorInfo, TreeEvent, TreeWatch,
    protocol::{
        api::{
            Accepted,
            operation::{AnyRequest, AnyResponse, ReadEvents, StartRun},
        },
        for_each_operation,
    },
};
use soong_client::{Body, Items, LocalOwner, Routes, TreeUpdates};
use tower::ServiceExt;

use super::{
    Api,
    caller::{Access, TokenWatch},
    error::ApiError,
    operations::Serve,
    run::start_and_follow,
    stream::{follow, items},
};

/// The home of this process.
pub struct LocalHome {
    api: Api,
    router: Router,
}

impl LocalHome {
    /// Creates the home from the state of its handlers and from its routes.
    pub fn new(api: Api, router: Router) -> Self {
        Self { api, router }
    }

    fn access(&self, client: Option<&str>) -> Access {
        Access::of_operator(self.api.clone(), client)
    }
}

/// Executes an operation for a caller.
async fn execute(access: &Access, request: AnyRequest) -> Result<AnyResponse, ApiError> {
    macro_rules! dispatch {
        ($access:expr; $([$operation:ident $response:ty])*) => {
            match request {
                $(AnyRequest::$operation(request) => {
                    request.serve($access).await.map(AnyResponse::$operation)
                })*
            }
        };
    }
    for_each_operation!(dispatch; access)
}

impl Routes for LocalHome {
    fn send(&self, request: Request<Body>) -> BoxFuture<'static, Response<Body>> {
        let answer = self.router.clone().oneshot(request);
        async move {
            let response = answer.await.unwrap_or_else(|never| match never {});
            response.map(|body| Body::wrap_stream(body.into_data_stream()))
        }
        .boxed()
    }
}

impl LocalOwner for LocalHome {
    fn call(
        &self,
        request: AnyRequest,
        client: &'static str,
    ) -> BoxFuture<'static, Result<AnyResponse, ErrorInfo>> {
        let access = self.access(Some(client));
        async move {
            let response = execute(&access, request).await;
            response.map_err(ApiError::into_info)
        }
        .boxed()
    }

    fn events(&self, request: ReadEvents) -> BoxFuture<'static, Result<Items, ErrorInfo>> {
        let access = self.access(None);
        async move {
            let ReadEvents { trace_id, query } = request;
            let stream = follow(&access, &trace_id, &query, None)
                .await
                .map_err(ApiError::into_info)?;
            Ok(items(TokenWatch(None), stream).boxed())
        }
        .boxed()
    }

    fn start_and_watch(
        &self,
        request: StartRun,
    ) -> BoxFuture<'static, Result<(Accepted, Items), ErrorInfo>> {
        let access = self.access(None);
        async move {
            let (accepted, stream) = start_and_follow(&access, request.body)
                .await
                .map_err(ApiError::into_info)?;
            Ok((accepted, items(TokenWatch(None), stream).boxed()))
        }
        .boxed()
    }

    fn watch_tree(&self) -> Box<dyn TreeUpdates> {
        Box::new(LocalTree(self.api.runtime.tree().watch()))
    }
}

/// Updates of the supervision tree of this process.
struct LocalTree(TreeWatch);

impl TreeUpdates for LocalTree {
    fn next(&mut self) -> BoxFuture<'_, Option<TreeEvent>> {
        self.0.next().boxed()
    }
}
