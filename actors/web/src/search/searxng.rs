//! SearXNG: `GET /search?format=json` of an instance that allows the JSON format.

use reqwest::{
    Client, RequestBuilder, Url,
    header::{AUTHORIZATION, HeaderValue},
};
use serde::Deserialize;

use super::{SearchHit, bearer, endpoint, json};

/// Builds the request of a search. SearXNG itself uses no key; a configured key is for a proxy in
/// front of it.
pub(super) fn request(
    http: &Client,
    base: &Url,
    key: Option<&HeaderValue>,
    query: &str,
) -> RequestBuilder {
    let request = http.get(endpoint(
        base,
        "search",
        &[("q", query), ("format", "json")],
    ));
    match key {
        Some(key) => request.header(AUTHORIZATION, bearer(key)),
        None => request,
    }
}

#[derive(Deserialize)]
struct SearxngResponse {
    results: Vec<SearxngResult>,
}

#[derive(Deserialize)]
struct SearxngResult {
    url: String,
    title: Option<String>,
    content: Option<String>,
}

/// Parses the response of a search.
pub(super) fn hits(bytes: &[u8]) -> Result<Vec<SearchHit>, String> {
    let hit = |found: SearxngResult| SearchHit {
        title: found.title.unwrap_or_default(),
        url: found.url,
        snippet: found.content.unwrap_or_default(),
    };
    Ok(json::<SearxngResponse>(bytes)?
        .results
        .into_iter()
        .map(hit)
        .collect())
}
