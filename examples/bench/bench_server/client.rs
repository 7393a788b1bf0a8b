//! Client of the server under test.

use futures::StreamExt;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_tungstenite::{
    MaybeTlsStream, WebSocketStream, connect_async,
    tungstenite::{Message, client::IntoClientRequest, http::HeaderValue},
};

use crate::Failed;

pub(crate) type Socket = WebSocketStream<MaybeTlsStream<TcpStream>>;

/// A client with pooled connections. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Client {
    http: reqwest::Client,
    url: String,
    token: String,
}

impl Client {
    pub(crate) fn new(url: &str, token: &str) -> Result<Self, Failed> {
        let http = soong_http::client_builder()
            .pool_max_idle_per_host(1_024)
            .build()?;
        Ok(Self {
            http,
            url: url.to_owned(),
            token: token.to_owned(),
        })
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Result<Value, Failed> {
        let request = self
            .http
            .post(format!("{}{path}", self.url))
            .bearer_auth(&self.token)
            .json(body);
        let response = request.send().await?.error_for_status()?;
        Ok(response.json().await?)
    }

    pub(crate) async fn get(&self, path: &str) -> Result<Value, Failed> {
        let request = self
            .http
            .get(format!("{}{path}", self.url))
            .bearer_auth(&self.token);
        Ok(request.send().await?.error_for_status()?.json().await?)
    }

    /// Starts a run in a session. Returns the run id.
    pub(crate) async fn start(&self, session: &str, prompt: &str) -> Result<String, Failed> {
        let accepted = self
            .post(
                "/api/traces",
                &json!({ "prompt": prompt, "session_id": session }),
            )
            .await?;
        Ok(accepted["run_id"].as_str().ok_or("no run")?.to_owned())
    }

    /// Opens an event stream: with a body by POST, which starts a run, else by GET.
    pub(crate) async fn stream(&self, path: &str, body: Option<&Value>) -> Result<Frames, Failed> {
        let url = format!("{}{path}", self.url);
        let request = match body {
            Some(body) => self.http.post(url).json(body),
            None => self.http.get(url),
        };
        let request = request
            .bearer_auth(&self.token)
            .header("accept", "text/event-stream");
        Ok(Frames {
            response: request.send().await?.error_for_status()?,
            open: Vec::new(),
        })
    }

    pub(crate) async fn watch(&self, path: &str) -> Result<Socket, Failed> {
        let mut request =
            format!("{}{path}", self.url.replace("http://", "ws://")).into_client_request()?;
        let bearer = HeaderValue::from_str(&format!("Bearer {}", self.token))?;
        request.headers_mut().insert("authorization", bearer);
        Ok(connect_async(request).await?.0)
    }
}

/// Returns the next text message, or `None` if the connection has ended.
pub(crate) async fn text(socket: &mut Socket) -> Option<String> {
    loop {
        match socket.next().await {
            Some(Ok(Message::Text(text))) => return Some(text.as_str().to_owned()),
            Some(Ok(Message::Close(_)) | Err(_)) | None => return None,
            Some(Ok(_)) => {}
        }
    }
}

/// Reader of the data of an event stream's frames.
pub(crate) struct Frames {
    response: reqwest::Response,
    open: Vec<u8>,
}

impl Frames {
    /// Returns the data of the next frame, or `None` if the stream has ended.
    pub(crate) async fn next(&mut self) -> Option<String> {
        loop {
            if let Some(at) = self.open.windows(2).position(|pair| pair == b"\n\n") {
                let frame = String::from_utf8_lossy(&self.open[..at]).into_owned();
                self.open.drain(..at + 2);
                if let Some(data) = frame.lines().find_map(|line| line.strip_prefix("data: ")) {
                    return Some(data.to_owned());
                }
                continue;
            }
            self.open
                .extend_from_slice(&self.response.chunk().await.ok()??);
        }
    }
}
