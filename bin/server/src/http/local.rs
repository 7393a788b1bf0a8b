//! The home of this process, for its own commands: operations, events and content pass as values,
//! without HTTP.
//!
//! Elsewhere: the handlers of the operations (`operations.rs`), which are the same as for requests
//! over HTTP.

use futures::{
    FutureExt, StreamExt,
    future::{BoxFuture, ready},
};
use soong::{
    ErrorCode, ErrorInfo, TreeEvent, TreeWatch,
    artifact::{ChangeCondition, Content},
    protocol::{
        api::{
            Accepted, Stored,
            operation::{AnyRequest, AnyResponse, PutArtifact, ReadEvents, StartRun},
        },
        for_each_operation,
    },
};
use soong_client::{
    ContentRequest, Download, EventStream, Home, TreeUpdates, Upload, UploadStream, UploadTarget,
};

use super::{
    Api, artifact,
    caller::{Access, TokenWatch},
    error::ApiError,
    operations::Serve,
    run::start_with_events,
    stream::{follow, items},
    upload::{UploadGuard, upload_content},
};

/// The home of this process.
pub struct LocalHome(Api);

impl LocalHome {
    /// Creates the home from the state of its handlers.
    pub fn new(api: Api) -> Self {
        Self(api)
    }

    fn access(&self, client: Option<&str>) -> Access {
        Access::of_operator(self.0.clone(), client)
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

/// Converts bytes that a command reads into the content of an artifact.
fn local_content(bytes: UploadStream) -> (Content, UploadGuard) {
    upload_content(bytes.map(|piece| {
        piece.map_err(|error| {
            let message = format!("the content cannot be read: {error}");
            ErrorInfo::new(ErrorCode::ValidationError, message)
        })
    }))
}

async fn open(access: &Access, request: ContentRequest) -> Result<Download, ApiError> {
    match request {
        ContentRequest::Read(request) => {
            let loaded = artifact::load(access, &request).await?;
            Ok(Download {
                content_type: loaded.content_type,
                body: loaded.body,
            })
        }
        ContentRequest::Export(request) => {
            let bytes = artifact::export_docx(access, &request).await?;
            Ok(Download::of_bytes(artifact::DOCX, bytes))
        }
    }
}

impl Home for LocalHome {
    fn call(
        &self,
        request: AnyRequest,
        client: &'static str,
    ) -> BoxFuture<'_, Result<AnyResponse, ErrorInfo>> {
        let access = self.access(Some(client));
        async move {
            let response = execute(&access, request).await;
            response.map_err(ApiError::into_info)
        }
        .boxed()
    }

    fn events(&self, request: ReadEvents) -> BoxFuture<'_, Result<EventStream, ErrorInfo>> {
        let access = self.access(None);
        async move {
            let ReadEvents { trace_id, query } = request;
            let stream = follow(&access, &trace_id, &query, None)
                .await
                .map_err(ApiError::into_info)?;
            Ok(EventStream::new(items(TokenWatch(None), stream).boxed()))
        }
        .boxed()
    }

    fn start_with_events(
        &self,
        request: StartRun,
    ) -> BoxFuture<'_, Result<(Accepted, EventStream), ErrorInfo>> {
        let access = self.access(None);
        async move {
            let (accepted, stream) = start_with_events(&access, request.body)
                .await
                .map_err(ApiError::into_info)?;
            let events = EventStream::new(items(TokenWatch(None), stream).boxed());
            Ok((accepted, events))
        }
        .boxed()
    }

    fn open_content(&self, request: ContentRequest) -> BoxFuture<'_, Result<Download, ErrorInfo>> {
        let access = self.access(None);
        async move { open(&access, request).await.map_err(ApiError::into_info) }.boxed()
    }

    fn put_artifact(
        &self,
        request: PutArtifact,
        upload: Upload,
    ) -> BoxFuture<'_, Result<Stored, ErrorInfo>> {
        let access = self.access(None);
        async move {
            let (content, guard) = local_content(upload.bytes);
            let condition = ChangeCondition::default();
            let stored =
                artifact::store(&access, &request, &upload.content_type, &condition, content);
            let stored = stored.await.map_err(|error| guard.map_error(error));
            stored.map_err(ApiError::into_info)
        }
        .boxed()
    }

    fn upload_file(
        &self,
        request: UploadTarget,
        upload: Upload,
    ) -> BoxFuture<'_, Result<Stored, ErrorInfo>> {
        let access = self.access(None);
        async move {
            let (content, guard) = local_content(upload.bytes);
            let stored = artifact::store_file(&access, &request, &upload.content_type, content);
            let stored = stored.await.map_err(|error| guard.map_error(error));
            stored.map_err(ApiError::into_info)
        }
        .boxed()
    }

    fn watch_tree(&self) -> BoxFuture<'_, Result<Box<dyn TreeUpdates>, ErrorInfo>> {
        let updates: Box<dyn TreeUpdates> = Box::new(LocalTree(self.0.runtime.tree().watch()));
        ready(Ok(updates)).boxed()
    }
}

/// Updates of the supervision tree of this process.
struct LocalTree(TreeWatch);

impl TreeUpdates for LocalTree {
    fn next(&mut self) -> BoxFuture<'_, Result<TreeEvent, ErrorInfo>> {
        async move {
            let event = self.0.next().await;
            event.ok_or_else(|| ErrorInfo::retryable(ErrorCode::Closing, "the runtime was closed"))
        }
        .boxed()
    }
}
