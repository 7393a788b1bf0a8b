//! Brave Search: `GET /res/v1/web/search`, with the key in a separate header.

use reqwest::{Client, RequestBuilder, Url, header::HeaderValue};
use serde::Deserialize;

use super::{SearchHit, endpoint, json};

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
    let request = http
        .get(endpoint(base, "res/v1/web/search", &query))
        .header("Accept", "application/json");
    match key {
        Some(key) => request.header("X-Subscription-Token", key.clone()),
        None => request,
    }
}

#[derive(Deserialize)]
struct BraveResponse {
    /// Absent if there are no results.
    web: Option<BraveWebResults>,
}

#[derive(Deserialize)]
struct BraveWebResults {
    #[serde(default)]
    results: Vec<BraveResult>,
}

#[derive(Deserialize)]
struct BraveResult {
    url: String,
    title: Option<String>,
    description: Option<String>,
}

/// Parses the response of a search.
pub(super) fn hits(bytes: &[u8]) -> Result<Vec<SearchHit>, String> {
    let hit = |found: BraveResult| SearchHit {
        title: strip_highlight(&found.title.unwrap_or_default()),
        url: found.url,
        snippet: strip_highlight(&found.description.unwrap_or_default()),
    };
    Ok(json::<BraveResponse>(bytes)?
        .web
        .map(|web| web.results)
        .unwrap_or_default()
        .into_iter()
        .map(hit)
        .collect())
}

/// Removes the tags that highlight the words of the query.
fn strip_highlight(text: &str) -> String {
    text.replace("<strong>", "").replace("</strong>", "")
}
