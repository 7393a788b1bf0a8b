//! Client side of a connection: the handler of notifications and requests from the server, and the
//! handle for calls.
//!
//! The server may report the progress of a call, and that its tools have changed. All its requests
//! (sampling, roots, elicitation) are rejected, because the client does not declare these
//! capabilities.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use rmcp::{
    ClientHandler, ErrorData, Peer, RoleClient,
    model::{
        ClientCapabilities, ClientConfig, ErrorCode as RpcCode, Implementation,
        ProgressNotificationParam, ProgressToken, ProtocolVersion,
    },
    service::{NotificationContext, RequestContext},
};
use soong_protocol::{ErrorCode, ErrorInfo};
use soong_tool::Progress;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use super::{stdio::MAX_LINE_BYTES, tool_list::sanitize};

/// Protocol version to request: the newest one that starts with `initialize`, which all servers
/// support.
const PROTOCOL: ProtocolVersion = ProtocolVersion::V_2025_11_25;
/// Maximum length of a progress message, in characters.
const MAX_PROGRESS_CHARS: usize = 200;

/// Handle for calls to a server. Cheap to clone, and used by many calls concurrently.
#[derive(Clone)]
pub(super) struct ServerClient {
    pub(super) peer: Peer<RoleClient>,
    pub(super) listeners: Arc<ProgressListeners>,
    /// Cancelled when the server's output ends.
    pub(super) closed: CancellationToken,
    /// Number of messages that were discarded because they were too long.
    pub(super) long_messages: watch::Receiver<u64>,
}

impl ServerClient {
    /// Resolves with an error when the server sends a message over the size limit, after this call.
    ///
    /// Such a message cannot be matched to a request, so every pending request fails.
    pub(super) fn oversized_message(
        &self,
        what: &'static str,
    ) -> impl Future<Output = ErrorInfo> + use<> {
        let mut messages = self.long_messages.clone();
        messages.mark_unchanged();
        async move {
            if messages.changed().await.is_err() {
                std::future::pending::<()>().await; // a server at a URL, or the connection is closing
            }
            let message = format!("its response to `{what}` is longer than {MAX_LINE_BYTES} bytes");
            ErrorInfo::new(ErrorCode::PayloadTooLarge, message)
        }
    }

    /// Returns whether no request can be sent any more, even if the actor of the server has not
    /// noticed it yet.
    pub(super) fn is_closed(&self) -> bool {
        self.closed.is_cancelled() || self.peer.is_transport_closed()
    }
}

/// Receivers of progress notifications, by token.
#[derive(Default)]
pub(super) struct ProgressListeners(Mutex<HashMap<ProgressToken, ProgressListener>>);

/// Receiver of the progress of one call.
#[derive(Clone)]
struct ProgressListener {
    progress: Progress,
    /// Notified with each report.
    reported: Arc<Notify>,
}

impl ProgressListeners {
    /// Forwards the progress of a call to `progress` until the returned guard is dropped.
    pub(super) fn subscribe(
        self: &Arc<Self>,
        token: ProgressToken,
        progress: Progress,
    ) -> ProgressSubscription {
        let reported = Arc::<Notify>::default();
        let listener = ProgressListener {
            progress,
            reported: Arc::clone(&reported),
        };
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(token.clone(), listener);
        ProgressSubscription {
            listeners: Arc::clone(self),
            token,
            reported,
        }
    }

    fn notify(&self, notification: &ProgressNotificationParam) {
        let listener = self
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(&notification.progress_token)
            .cloned();
        if let Some(listener) = listener {
            listener.progress.report(format_progress(notification));
            listener.reported.notify_one();
        }
    }
}

/// Guard that ends the forwarding of progress when it is dropped.
pub(super) struct ProgressSubscription {
    listeners: Arc<ProgressListeners>,
    token: ProgressToken,
    reported: Arc<Notify>,
}

impl ProgressSubscription {
    /// Waits until nothing has been reported for this time.
    pub(super) async fn silence(&self, limit: Duration) {
        while tokio::time::timeout(limit, self.reported.notified())
            .await
            .is_ok()
        {}
    }
}

impl Drop for ProgressSubscription {
    fn drop(&mut self) {
        self.listeners
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&self.token);
    }
}

fn format_progress(update: &ProgressNotificationParam) -> String {
    let amount = match update.total {
        Some(total) => format!("{} of {total}", update.progress),
        None => update.progress.to_string(),
    };
    match update
        .message
        .as_deref()
        .map(|message| sanitize(message, MAX_PROGRESS_CHARS))
    {
        Some(message) if !message.is_empty() => format!("{message} ({amount})"),
        _ => amount,
    }
}

/// Handler of notifications and requests from the server.
pub(super) struct NotificationHandler {
    pub(super) listeners: Arc<ProgressListeners>,
    /// Notified when the tools of the server have changed.
    pub(super) changed: Arc<Notify>,
}

impl ClientHandler for NotificationHandler {
    fn get_info(&self) -> ClientConfig {
        let ours = Implementation::new("soong", env!("CARGO_PKG_VERSION"));
        ClientConfig::new(ClientCapabilities::default(), ours).with_protocol_version(PROTOCOL)
    }

    async fn on_progress(
        &self,
        notification: ProgressNotificationParam,
        _: NotificationContext<RoleClient>,
    ) {
        self.listeners.notify(&notification);
    }

    async fn on_tool_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.changed.notify_one();
    }

    #[allow(
        deprecated,
        reason = "servers of older protocols still ask, and get an answer"
    )]
    async fn list_roots(
        &self,
        _: RequestContext<RoleClient>,
    ) -> Result<rmcp::model::ListRootsResult, ErrorData> {
        Err(ErrorData::new(
            RpcCode::METHOD_NOT_FOUND,
            "this client has no roots",
            None,
        ))
    }
}
