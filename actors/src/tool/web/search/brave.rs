//! Brave Search: `GET /res/v1/web/search`, with the key in a separate header.

use reqwest::{Client, RequestBuilder, Url, header::HeaderValue};
use serde::Deserialize;

use super::{Hit, endpoint, json};

/// Default base URL of the service.
pub(super) const BASE_URL: &str = "https://api.search.brave.com";

/// Builds the request of a search.
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
    /// Absent if there are no results.
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

/// Parses the response of a search.
pub(super) fn hits(bytes: &[u8]) -> Result<Vec<Hit>, String> {
    let hit = |found: Found| Hit {
        title: plain(&found.title.unwrap_or_default()),
        url: found.url,
        snippet: plain(&found.description.unwrap_or_default()),
    };
    Ok(json::<Answer>(bytes)?.web.map(|web| web.results).unwrap_or_default().into_iter().map(hit).collect())
}

/// Removes the tags that highlight the words of the query.
fn plain(text: &str) -> String {
    text.replace("<strong>", "").replace("</strong>", "")
}
