//! SearXNG: `GET /search?format=json` of an instance that allows the format.

use reqwest::{
    Client, RequestBuilder, Url,
    header::{AUTHORIZATION, HeaderValue},
};
use serde::Deserialize;

use super::{Hit, bearer, endpoint, json};

/// Puts a question. An instance takes no key itself; one that is set is for what stands before it.
pub(super) fn request(http: &Client, base: &Url, key: Option<&HeaderValue>, query: &str) -> RequestBuilder {
    let request = http.get(endpoint(base, "search", &[("q", query), ("format", "json")]));
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

/// Reads an answer.
pub(super) fn hits(bytes: &[u8]) -> Result<Vec<Hit>, String> {
    let hit = |found: Found| Hit {
        title: found.title.unwrap_or_default(),
        url: found.url,
        snippet: found.content.unwrap_or_default(),
    };
    Ok(json::<Answer>(bytes)?.results.into_iter().map(hit).collect())
}
