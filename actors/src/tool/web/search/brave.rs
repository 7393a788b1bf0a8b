//! Brave Search: `GET /res/v1/web/search` with a header of its own for the key.

use reqwest::{Client, RequestBuilder, Url, header::HeaderValue};
use serde::Deserialize;

use super::{Hit, endpoint, json};

/// Where the service is.
pub(super) const BASE_URL: &str = "https://api.search.brave.com";

/// Puts a question.
pub(super) fn request(
    http: &Client,
    base: &Url,
    key: Option<&HeaderValue>,
    query: &str,
    limit: usize,
) -> RequestBuilder {
    let query = [("q", query), ("count", &limit.to_string())];
    let request = http.get(endpoint(base, "res/v1/web/search", &query)).header("Accept", "application/json");
    match key {
        Some(key) => request.header("X-Subscription-Token", key.clone()),
        None => request,
    }
}

#[derive(Deserialize)]
struct Answer {
    /// Absent where nothing was found.
    web: Option<Web>,
}

#[derive(Deserialize)]
struct Web {
    #[serde(default)]
    results: Vec<Found>,
}

#[derive(Deserialize)]
struct Found {
    url: String,
    title: Option<String>,
    description: Option<String>,
}

/// Reads an answer.
pub(super) fn hits(bytes: &[u8]) -> Result<Vec<Hit>, String> {
    let hit = |found: Found| Hit {
        title: plain(&found.title.unwrap_or_default()),
        url: found.url,
        snippet: plain(&found.description.unwrap_or_default()),
    };
    Ok(json::<Answer>(bytes)?.web.map(|web| web.results).unwrap_or_default().into_iter().map(hit).collect())
}

/// Takes out the marks of what fits the query.
fn plain(text: &str) -> String {
    text.replace("<strong>", "").replace("</strong>", "")
}
