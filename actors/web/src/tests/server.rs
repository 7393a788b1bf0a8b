//! Test server on this machine that sends configured responses and counts its connections.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
};

use futures::{FutureExt, future::BoxFuture};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};

/// Handles one request, given its head and body as far as they arrived in the first read.
type Handler = Arc<dyn Fn(String, TcpStream) -> BoxFuture<'static, ()> + Send + Sync>;

/// A running server; stops on drop.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    accepted: Arc<AtomicUsize>,
    /// Number of connections that the client has not closed.
    open: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

impl Server {
    /// Starts a server at `address`, such as `127.0.0.1:0`.
    pub(crate) async fn at(
        address: &str,
        answer: impl Fn(String, TcpStream) -> BoxFuture<'static, ()> + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        let accepted = Arc::new(AtomicUsize::new(0));
        let open = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&accepted);
        let counted_open = Arc::clone(&open);
        let answer = Arc::new(answer) as Handler;
        let task = tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                counted.fetch_add(1, SeqCst);
                counted_open.fetch_add(1, SeqCst);
                let answer = Arc::clone(&answer);
                let open = Arc::clone(&counted_open);
                tokio::spawn(async move {
                    let mut head = Vec::new();
                    let mut buffer = [0; 4096];
                    while !head.windows(4).any(|four| four == b"\r\n\r\n") {
                        match stream.read(&mut buffer).await {
                            Ok(read) if read > 0 => head.extend_from_slice(&buffer[..read]),
                            _ => break,
                        }
                    }
                    answer(String::from_utf8_lossy(&head).into_owned(), stream).await;
                    open.fetch_sub(1, SeqCst);
                });
            }
        });
        Self {
            address,
            accepted,
            open,
            task,
        }
    }

    /// Starts a server that answers each path with the given bytes, and all other paths with 404.
    pub(crate) async fn of(routes: &[(&str, Vec<u8>)]) -> Self {
        let routes: Vec<(String, Vec<u8>)> = routes
            .iter()
            .map(|(path, raw)| ((*path).to_owned(), raw.clone()))
            .collect();
        Self::at("127.0.0.1:0", move |head, mut stream| {
            let path = path_of(&head);
            let found = routes
                .iter()
                .find(|(route, _)| *route == path)
                .map(|(_, raw)| raw.clone());
            async move {
                let _ = stream
                    .write_all(&found.unwrap_or_else(|| response("404 Not Found", "", b"not here")))
                    .await;
                let _ = stream.shutdown().await;
            }
            .boxed()
        })
        .await
    }

    pub(crate) fn port(&self) -> u16 {
        self.address.port()
    }

    /// Returns the number of connections that were accepted.
    pub(crate) fn accepted(&self) -> usize {
        self.accepted.load(SeqCst)
    }

    /// Returns the number of open connections.
    pub(crate) fn open(&self) -> usize {
        self.open.load(SeqCst)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Returns the path and query of a request.
pub(crate) fn path_of(head: &str) -> String {
    head.split(' ').nth(1).unwrap_or_default().to_owned()
}

/// Returns a response; `headers` are whole lines.
pub(crate) fn response(status: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let head = format!(
        "HTTP/1.1 {status}\r\n{headers}Content-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

/// Returns a successful response.
pub(crate) fn page(content_type: &str, body: &[u8]) -> Vec<u8> {
    response("200 OK", &format!("Content-Type: {content_type}\r\n"), body)
}

/// Returns a redirect.
pub(crate) fn redirect(to: &str) -> Vec<u8> {
    response("302 Found", &format!("Location: {to}\r\n"), b"")
}
