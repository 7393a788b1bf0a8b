//! A connection to an MCP server: opens it, lists the tools, closes it.
//!
//! Dropping the connection, or the future that opens it, cleans up completely, including the
//! process (`stdio.rs`).
//!
//! Elsewhere: when to reconnect (`supervisor.rs`), calls (`tool.rs`).

use std::{error::Error, sync::Arc, time::Duration};

use futures::{FutureExt, future::BoxFuture};
use rmcp::{
    ServiceError,
    model::{ClientRequest, ErrorCode as RpcCode, ListToolsRequest, PaginatedRequestParams},
    service::{
        ClientInitializeError, PeerRequestOptions, RunningServiceCancellationToken, serve_client,
    },
    transport::{async_rw::AsyncRwTransport, streamable_http_client::StreamableHttpError},
};
use soong_protocol::{ErrorCode, ErrorInfo, ToolsConfig};
use soong_text::Environment;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use super::{
    Server,
    client::{NotificationHandler, ProgressListeners, ServerClient},
    http,
    leniency::LenientTransport,
    stdio::{Pipes, Process},
    target::Target,
    task_tools::TaskTools,
    tool_list::{ListedTool, MAX_TOOLS, ToolPage, convert_tool, sanitize},
};

/// Maximum number of pages of a tool list. A server with more is assumed to repeat pages.
const MAX_PAGES: usize = 50;
/// Maximum time for a connection to close before its process is ended.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);
/// Maximum length of a server's message in an error, in characters.
const MAX_MESSAGE_CHARS: usize = 500;

/// Reason why there is no connection.
pub(super) struct ConnectionError {
    pub(super) error: ErrorInfo,
    /// Whether another attempt may succeed. `false` if the configuration must be changed first.
    pub(super) is_retryable: bool,
}

/// An initialized connection.
pub(super) struct Connection {
    client: ServerClient,
    changed: Arc<Notify>,
    /// Completes when the connection has ended; dropping it ends the connection. `None`: it has
    /// ended.
    service: Option<BoxFuture<'static, ()>>,
    stop: RunningServiceCancellationToken,
    process: Option<Process>,
    /// Tools that the server only allows to be called as tasks.
    task_tools: TaskTools,
    _guard: CancelOnDrop,
}

/// Cancels its token when it is dropped.
#[derive(Default)]
struct CancelOnDrop(CancellationToken);

impl CancelOnDrop {
    fn token(&self) -> CancellationToken {
        self.0.clone()
    }
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

impl Connection {
    /// Connects to a server and initializes it.
    pub(super) async fn open(
        server: &Server,
        tools: &ToolsConfig,
        environment: &Environment,
    ) -> Result<Self, ConnectionError> {
        let fatal = |error| ConnectionError {
            error,
            is_retryable: false,
        };
        let guard = CancelOnDrop::default();
        let listeners = Arc::<ProgressListeners>::default();
        let changed = Arc::<Notify>::default();
        let client = NotificationHandler {
            listeners: Arc::clone(&listeners),
            changed: Arc::clone(&changed),
        };
        let target =
            Target::resolve(&server.name, &server.config, tools, environment).map_err(fatal)?;
        let task_tools = TaskTools::default();
        let (hello, process, over, long_messages) = match target {
            Target::Program {
                command,
                args,
                variables,
            } => {
                let (mut process, Pipes { stdin, stdout }) =
                    Process::start(&server.name, &command, &args, &variables, &task_tools)
                        .await
                        .map_err(fatal)?;
                let over = stdout.closed.clone();
                let long_lines = stdout.long_lines();
                let mut is_too_long = stdout.long_lines();
                let transport = LenientTransport(AsyncRwTransport::new_client(stdout, stdin));
                let initialized = tokio::time::timeout(
                    server.initialize_timeout(),
                    serve_client(client, transport),
                );
                let hello = tokio::select! {
                    hello = initialized => hello,
                    Ok(()) = is_too_long.changed() => {
                        let message = "its response to `initialize` is larger than 16 MiB";
                        let error = ErrorInfo::new(ErrorCode::ProviderError, message);
                        return Err(ConnectionError { error, is_retryable: true });
                    }
                };
                // The process may have ended before or during the handshake.
                use ClientInitializeError::{ConnectionClosed, TransportError};
                if let Ok(Err(ConnectionClosed(_) | TransportError { .. })) = &hello {
                    let error =
                        ErrorInfo::new(ErrorCode::ProviderError, process.exit_reason().await);
                    return Err(ConnectionError {
                        error,
                        is_retryable: true,
                    });
                }
                (hello, Some(process), over, long_lines)
            }
            Target::Http { url, headers } => {
                let transport =
                    http::transport(&url, headers, server.timeout(), guard.token(), &task_tools)
                        .map_err(fatal)?;
                let hello = tokio::time::timeout(
                    server.initialize_timeout(),
                    serve_client(client, transport),
                )
                .await;
                (
                    hello,
                    None,
                    guard.token(),
                    watch::Sender::default().subscribe(),
                )
            }
        };
        match hello {
            Ok(Ok(service)) => {
                let line = ServerClient {
                    peer: service.peer().clone(),
                    listeners,
                    closed: over,
                    long_messages,
                };
                let stop = service.cancellation_token();
                let service = Some(service.waiting().map(drop).boxed());
                Ok(Self {
                    client: line,
                    changed,
                    service,
                    stop,
                    process,
                    task_tools,
                    _guard: guard,
                })
            }
            Ok(Err(error)) => Err(ConnectionError {
                error: initialize_error(&error),
                is_retryable: true,
            }),
            Err(_) => {
                let limit = server.initialize_timeout().as_millis();
                let message = format!(
                    "it did not answer `initialize` within {limit} ms (mcp.{}.timeout_ms)",
                    server.name
                );
                Err(ConnectionError {
                    error: ErrorInfo::new(ErrorCode::Timeout, message),
                    is_retryable: true,
                })
            }
        }
    }

    /// Returns the client for calls.
    pub(super) fn client(&self) -> ServerClient {
        self.client.clone()
    }

    /// Returns the notifier that fires when the server reports that its tools have changed.
    pub(super) fn changes(&self) -> Arc<Notify> {
        Arc::clone(&self.changed)
    }

    /// Lists all tools. Calls `left_out` with the reason for each tool that cannot be offered.
    pub(super) async fn list(
        &mut self,
        server: &Server,
        mut on_omitted: impl FnMut(String),
    ) -> Result<Vec<ListedTool>, ErrorInfo> {
        let mut listed: Vec<ListedTool> = Vec::new();
        let mut cursor: Option<String> = None;
        for _ in 0..MAX_PAGES {
            let page = self.page(server, cursor.take()).await?;
            for offered in page.tools {
                match offered
                    .and_then(|offered| convert_tool(&server.name, &server.config, offered))
                {
                    Ok(tool) if self.task_tools.contains(&tool.remote_name) => {
                        on_omitted(format!(
                            "tool {}: it can only be called as an MCP task, which Soong does not support",
                            tool.spec.name
                        ));
                    }
                    Ok(tool) if server.config.disabled_tools.contains(&tool.remote_name) => {}
                    Ok(tool) if listed.iter().any(|other| other.spec.name == tool.spec.name) => {
                        on_omitted(format!("tool {}: it is listed twice", tool.spec.name));
                    }
                    Ok(_) if listed.len() == MAX_TOOLS => {
                        on_omitted(format!(
                            "more than {MAX_TOOLS} tools: the remaining ones are not offered"
                        ));
                        return Ok(listed);
                    }
                    Ok(tool) => listed.push(tool),
                    Err(why) => on_omitted(why),
                }
            }
            match page.next {
                Some(next) if !next.is_empty() => cursor = Some(next),
                _ => return Ok(listed),
            }
        }
        on_omitted(format!(
            "its tool list has more than {MAX_PAGES} pages: the remaining ones were not read"
        ));
        Ok(listed)
    }

    /// Requests a page of the tools. A server without the method has no tools.
    async fn page(
        &mut self,
        server: &Server,
        cursor: Option<String>,
    ) -> Result<ToolPage, ErrorInfo> {
        let params = PaginatedRequestParams::default().with_cursor(cursor);
        let request = ClientRequest::ListToolsRequest(ListToolsRequest::with_param(params));
        let options = PeerRequestOptions::with_timeout(server.timeout());
        let too_long = self.client.oversized_message("tools/list");
        let answer = async {
            let pending = self
                .client
                .peer
                .send_cancellable_request(request, options)
                .await?;
            pending.await_response().await
        };
        let result = tokio::select! {
            biased;
            answer = answer => match answer {
                Err(ServiceError::McpError(error)) if error.code == RpcCode::METHOD_NOT_FOUND => {
                    return Ok(ToolPage { tools: Vec::new(), next: None });
                }
                answer => answer.map_err(|error| request_error("tools/list", &error))?,
            },
            error = too_long => return Err(error),
        };
        ToolPage::read(result).ok_or_else(|| {
            ErrorInfo::new(
                ErrorCode::ProviderError,
                "its response to `tools/list` is not a list of tools",
            )
        })
    }

    /// Waits until the connection ends, and returns the reason. Cancel-safe: it may be dropped and
    /// called again.
    pub(super) async fn ended(&mut self) -> String {
        if let Some(service) = &mut self.service {
            tokio::select! {
                () = service => self.service = None,
                // For a server at a URL: the transport has given up the connection.
                () = self.client.closed.cancelled(), if self.process.is_none() => {}
            }
        }
        match &mut self.process {
            Some(process) => process.exit_reason().await,
            None if self.service.is_some() => "its URL no longer responds".to_owned(),
            None => "its connection ended".to_owned(),
        }
    }

    /// Closes the connection and ends its process. Both are completely gone when this returns.
    pub(super) async fn close(mut self) {
        self.stop.cancel();
        if let Some(service) = self.service.take() {
            // The server's input is normally closed by then, unless a write is blocked because the
            // program does not read.
            let _ = tokio::time::timeout(CLOSE_TIMEOUT, service).await;
        }
        if let Some(process) = self.process.take() {
            process.end().await;
        }
    }
}

/// Returns the reason why the handshake failed.
fn initialize_error(error: &ClientInitializeError) -> ErrorInfo {
    let message = match error {
        ClientInitializeError::TransportError { error, .. } => format_error_chain(&*error.error),
        ClientInitializeError::JsonRpcError(data) => {
            format!("it rejected `initialize`: {}", data.message)
        }
        ClientInitializeError::ExpectedInitResult(_) => {
            "its response to `initialize` is invalid".to_owned()
        }
        other => other.to_string(),
    };
    ErrorInfo::new(
        ErrorCode::ProviderError,
        sanitize(&message, MAX_MESSAGE_CHARS),
    )
}

/// Returns the reason why a request failed.
pub(super) fn request_error(what: &str, error: &ServiceError) -> ErrorInfo {
    let (code, message) = match error {
        // The transport itself answers so if a response is missing.
        ServiceError::McpError(data) if data.message.ends_with(http::UNKNOWN_EFFECT) => (
            ErrorCode::ProviderError,
            format!("`{what}` failed: {}", data.message),
        ),
        ServiceError::McpError(data) => (
            ErrorCode::ProviderError,
            format!("it rejected `{what}`: {}", data.message),
        ),
        ServiceError::TransportSend(failed) => {
            let why = format_error_chain(&*failed.error);
            let message = match Delivery::of(error) {
                Delivery::Unsent => format!("`{what}` could not be sent: {why}"),
                Delivery::Rejected => format!("it rejected `{what}`: {why}"),
                Delivery::Unknown => {
                    format!(
                        "its answer to `{what}` cannot be read: {why}: {}",
                        http::UNKNOWN_EFFECT
                    )
                }
            };
            (ErrorCode::ProviderError, message)
        }
        ServiceError::TransportClosed => (
            ErrorCode::Interrupted,
            format!(
                "its connection ended during `{what}`: {}",
                http::UNKNOWN_EFFECT
            ),
        ),
        ServiceError::Timeout { timeout } => (
            ErrorCode::Timeout,
            format!(
                "it did not answer `{what}` within {} ms",
                timeout.as_millis()
            ),
        ),
        other => (
            ErrorCode::ProviderError,
            format!("`{what}` failed: {other}"),
        ),
    };
    ErrorInfo::new(code, sanitize(&message, MAX_MESSAGE_CHARS))
}

/// Returns whether a request certainly did not reach the server, because no connection was
/// established.
pub(super) fn is_unsent(error: &ServiceError) -> bool {
    matches!(error, ServiceError::TransportSend(_)) && Delivery::of(error) == Delivery::Unsent
}

/// Whether a request that failed reached the server.
#[derive(Debug, PartialEq)]
enum Delivery {
    /// No connection was made, or the program does not read its input.
    Unsent,
    /// The server, or a proxy before it, answered that it does not take the request.
    Rejected,
    Unknown,
}

impl Delivery {
    fn of(error: &ServiceError) -> Self {
        use StreamableHttpError::{
            AuthRequired, Client, HttpStatus, InsufficientScope, UnexpectedServerResponse,
        };
        let ServiceError::TransportSend(error) = error else {
            return Self::Unknown;
        };
        let rejections = [
            "HTTP 30", "HTTP 401", "HTTP 403", "HTTP 404", "HTTP 405", "HTTP 406", "HTTP 415",
            "HTTP 429",
        ];
        match error.error.downcast_ref::<http::TransportError>() {
            // The other transport writes to a program.
            None => Self::Unsent,
            Some(Client(error)) if error.is_connect() || error.is_builder() => Self::Unsent,
            Some(AuthRequired(_) | InsufficientScope(_)) => Self::Rejected,
            Some(HttpStatus(error)) if error.status == 429 => Self::Rejected,
            Some(UnexpectedServerResponse(response))
                if rejections.iter().any(|start| response.starts_with(start)) =>
            {
                Self::Rejected
            }
            Some(_) => Self::Unknown,
        }
    }
}

/// Formats an error with its causes, without repeating a text.
fn format_error_chain(error: &dyn Error) -> String {
    let mut message = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let text = cause.to_string();
        if !message.contains(&text) {
            message.push_str(&format!(": {text}"));
        }
        next = cause.source();
    }
    message
}
