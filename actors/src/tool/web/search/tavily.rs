//! Tavily: `POST /search` with a bearer key.

use reqwest::{
    Client, RequestBuilder, Url,
    header::{AUTHORIZATION, HeaderValue},
};
use serde::Deserialize;
use serde_json::json;

use super::{Hit, bearer, endpoint};

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
    let request = http.post(endpoint(base, "search", &[])).json(&json!({"query": query, "max_results": limit}));
    match key {
        Some(key) => request.header(AUTHORIZATION, bearer(key)),
        None => request,
    }
}

#[derive(Deserialize)]
struct Answer {
    results: Vec<Found>,
}

#[derive(Deserialize)]
struct Found {
    url: String,
    title: Option<String>,
    content: Option<String>,
}

/// Parses the response of a search.
pub(super) fn hits(bytes: &[u8]) -> Result<Vec<Hit>, String> {
    let hit = |found: Found| Hit {
        title: found.title.unwrap_or_default(),
        url: found.url,
        snippet: found.content.unwrap_or_default(),
    };
    Ok(super::json::<Answer>(bytes)?.results.into_iter().map(hit).collect())
}
