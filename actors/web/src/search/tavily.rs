//! Tavily: `POST /search` with a bearer key.

use reqwest::{
    Client, RequestBuilder, Url,
    header::{AUTHORIZATION, HeaderValue},
};
use serde::Deserialize;
use serde_json::json;

use super::{SearchHit, bearer, endpoint};

/// Default base URL of the service.
pub(super) const BASE_URL: &str = "https://api.tavily.com";

/// Builds the request of a search.
pub(super) fn request(
    http: &Client,
    base: &Url,
    key: Option<&HeaderValue>,
    query: &str,
    limit: usize,
) -> RequestBuilder {
    let request = http
        .post(endpoint(base, "search", &[]))
        .json(&json!({"query": query, "max_results": limit}));
    match key {
        Some(key) => request.header(AUTHORIZATION, bearer(key)),
        None => request,
    }
}

#[derive(Deserialize)]
struct TavilyResponse {
    results: Vec<TavilyResult>,
}

#[derive(Deserialize)]
struct TavilyResult {
    url: String,
    title: Option<String>,
    content: Option<String>,
}

/// Parses the response of a search.
pub(super) fn hits(bytes: &[u8]) -> Result<Vec<SearchHit>, String> {
    let hit = |found: TavilyResult| SearchHit {
        title: found.title.unwrap_or_default(),
        url: found.url,
        snippet: found.content.unwrap_or_default(),
    };
    Ok(super::json::<TavilyResponse>(bytes)?
        .results
        .into_iter()
        .map(hit)
        .collect())
}
