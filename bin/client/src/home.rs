//! A home: it executes the operations of the table in `soong_protocol::api::operation`.
//!
//! Three implementations exist: the owner of the home in this process (`soong-server`), the store of
//! a home without owner (the command line), and a home of another process (`remote.rs`). Operations,
//! events and content pass as values; only `remote.rs` encodes them.
//!
//! A home in this process takes any time that it needs. Requests to another process have a time
//! limit, after which it counts as unresponsive.

use bytes::Bytes;
use futures::{
    StreamExt,
    future::BoxFuture,
    stream::{self, BoxStream},
};
use soong_protocol::{
    ErrorInfo, SessionId, StreamItem,
    api::{
        Accepted, Stored,
        operation::{
            AnyRequest, AnyResponse, ExportArtifact, PutArtifact, ReadContent, ReadEvents, StartRun,
        },
    },
    tree::TreeEvent,
};

/// Executes the operations of a home.
pub trait Home: Send + Sync {
    /// Executes an operation. `client` is the name that is recorded with a decision.
    fn call(
        &self,
        request: AnyRequest,
        client: &'static str,
    ) -> BoxFuture<'_, Result<AnyResponse, ErrorInfo>>;

    /// Streams events, stored ones first and then live ones.
    fn events(&self, request: ReadEvents) -> BoxFuture<'_, Result<EventStream, ErrorInfo>>;

    /// Starts a run, and streams the events of its session from that point on.
    fn start_with_events(
        &self,
        request: StartRun,
    ) -> BoxFuture<'_, Result<(Accepted, EventStream), ErrorInfo>>;

    /// Opens the content of an artifact.
    fn open_content(&self, request: ContentRequest) -> BoxFuture<'_, Result<Download, ErrorInfo>>;

    /// Stores content as the next version of an artifact.
    fn put_artifact(
        &self,
        request: PutArtifact,
        upload: Upload,
    ) -> BoxFuture<'_, Result<Stored, ErrorInfo>>;

    /// Stores a file as a new artifact of a session, under its own name or a name derived from it.
    fn upload_file(
        &self,
        request: UploadTarget,
        upload: Upload,
    ) -> BoxFuture<'_, Result<Stored, ErrorInfo>>;

    /// Watches the supervision tree.
    fn watch_tree(&self) -> BoxFuture<'_, Result<Box<dyn TreeUpdates>, ErrorInfo>>;

    /// Returns the address of the server that executes the operations. `None` if that is this
    /// machine.
    fn server(&self) -> Option<&str> {
        None
    }
}

/// Stream of bytes to store.
pub type UploadStream = BoxStream<'static, std::io::Result<Bytes>>;

/// Content to store.
pub struct Upload {
    /// MIME type.
    pub content_type: String,
    /// The bytes. An error ends the upload, and nothing is stored.
    pub bytes: UploadStream,
}

/// Session and name of a file to store as a new artifact.
#[derive(Debug, Clone)]
pub struct UploadTarget {
    /// The session.
    pub session_id: SessionId,
    /// Name of the file, without its folder.
    pub filename: String,
}

/// A request for content.
#[derive(Debug, Clone)]
pub enum ContentRequest {
    /// The bytes of an artifact.
    Read(ReadContent),
    /// A text artifact in another format.
    Export(ExportArtifact),
}

impl From<ReadContent> for ContentRequest {
    fn from(request: ReadContent) -> Self {
        Self::Read(request)
    }
}

impl From<ExportArtifact> for ContentRequest {
    fn from(request: ExportArtifact) -> Self {
        Self::Export(request)
    }
}

/// Content that is being received.
pub struct Download {
    /// MIME type.
    pub content_type: String,
    /// The bytes.
    pub body: BoxStream<'static, Result<Bytes, ErrorInfo>>,
}

impl Download {
    /// Returns content that is in memory.
    pub fn of_bytes(content_type: &str, bytes: impl Into<Bytes>) -> Self {
        let bytes = bytes.into();
        Self {
            content_type: content_type.to_owned(),
            body: stream::once(async move { Ok(bytes) }).boxed(),
        }
    }
}

/// Stored events and live items of a home in this process. An error is the last one.
pub type Items = BoxStream<'static, Result<StreamItem, ErrorInfo>>;

/// Events of another process, which are polled if their stream is held back.
pub(crate) trait PollableEvents: Send {
    /// Returns the next item, as [`EventStream::next`] does.
    fn next(&mut self) -> BoxFuture<'_, Option<Result<StreamItem, ErrorInfo>>>;

    /// Polls from now on, if the stream can be held back.
    fn poll(&mut self);

    /// Returns whether events are polled.
    fn is_polled(&self) -> bool;
}

/// Stream of the events of a trace or of its whole session.
pub struct EventStream(EventSource);

enum EventSource {
    /// Items of a home in this process.
    Items(Items),
    /// Those of another process.
    Pollable(Box<dyn PollableEvents>),
}

impl EventStream {
    /// Creates a stream of a home in this process.
    pub fn new(items: Items) -> Self {
        Self(EventSource::Items(items))
    }

    /// Creates a stream of another process.
    pub(crate) fn pollable(events: Box<dyn PollableEvents>) -> Self {
        Self(EventSource::Pollable(events))
    }

    /// Returns the next item. `None` if the home has closed the stream; an error if the connection
    /// is lost or an item is invalid.
    ///
    /// Cancel-safe: a dropped call loses no item.
    pub async fn next(&mut self) -> Option<Result<StreamItem, ErrorInfo>> {
        match &mut self.0 {
            EventSource::Items(items) => items.next().await,
            EventSource::Pollable(events) => events.next().await,
        }
    }

    /// Polls from now on, if the stream can be held back by something between client and server.
    /// For a caller that does not want to wait until a silent stream counts as held back.
    pub fn poll(&mut self) {
        if let EventSource::Pollable(events) = &mut self.0 {
            events.poll();
        }
    }

    /// Returns whether the stream stayed silent, so that events are polled.
    pub fn is_polled(&self) -> bool {
        match &self.0 {
            EventSource::Items(_) => false,
            EventSource::Pollable(events) => events.is_polled(),
        }
    }
}

/// Updates of the supervision tree: a snapshot of the whole tree first, then changes. They end when
/// dropped.
pub trait TreeUpdates: Send {
    /// Waits for the next update. An error contains the reason why there are no more.
    fn next(&mut self) -> BoxFuture<'_, Result<TreeEvent, ErrorInfo>>;
}
