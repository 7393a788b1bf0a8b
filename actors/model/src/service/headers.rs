//! HTTP headers of a profile: those of the configuration, and those whose values are environment
//! variables.

use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use soong_protocol::ModelConfig;
use soong_text::Environment;

use crate::{Failure, ModelError};

/// Headers that carry a key. If a profile sets one of them, its key is not sent in another one.
const KEY_HEADERS: [&str; 4] = ["authorization", "api-key", "x-api-key", "x-goog-api-key"];

/// Returns the value of a header that carries a key. `None` if the key cannot be sent, which the
/// caller has checked.
pub(crate) fn key_value(key: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_str(key).ok()?;
    value.set_sensitive(true);
    Some(value)
}

/// Returns the key of a profile, or `None` if its variable is not set.
///
/// # Errors
/// A key that cannot be sent in a header.
pub(crate) fn read_key<'a>(
    config: &ModelConfig,
    environment: &'a Environment,
) -> Result<Option<&'a str>, ModelError> {
    let key = environment
        .get(config.api_key_env())
        .map(str::trim)
        .filter(|key| !key.is_empty());
    if key.is_some_and(|key| HeaderValue::from_str(key).is_err()) {
        let env = config.api_key_env();
        let message =
            format!("the key contains invalid characters; check the environment variable {env}");
        return Err(ModelError::new(Failure::Unauthorized, message));
    }
    Ok(key)
}

/// Headers of a profile, ready to be sent.
#[derive(Clone, Default)]
pub(crate) struct Headers(HeaderMap);

impl Headers {
    /// Reads the values of `header_env`. If a header is in both tables, the environment wins.
    ///
    /// # Errors
    /// A variable that is not set, or a name or value that HTTP does not allow.
    pub(crate) fn of(config: &ModelConfig, environment: &Environment) -> Result<Self, ModelError> {
        let refuse = |message: String| ModelError::new(Failure::Rejected, message);
        let mut headers = HeaderMap::new();
        let mut add = |table: &str, name: &str, value: &str, is_secret: bool| {
            let header = HeaderName::try_from(name).map_err(|_| {
                refuse(format!(
                    "`model.{table}`: {name:?} is not a valid HTTP header name"
                ))
            })?;
            let mut value = HeaderValue::from_str(value.trim()).map_err(|_| {
                refuse(format!(
                    "`model.{table}`: the value of {name:?} cannot be sent in a header"
                ))
            })?;
            value.set_sensitive(is_secret);
            headers.insert(header, value);
            Ok(())
        };
        for (name, value) in &config.headers {
            add("headers", name, value, false)?;
        }
        for (name, variable) in &config.header_env {
            let value = environment.get(variable).ok_or_else(|| {
                refuse(format!("`model.header_env`: the environment variable {variable} for {name:?} is not set"))
            })?;
            add("header_env", name, value, true)?;
        }
        Ok(Self(headers))
    }

    /// Returns whether a header is set. `false` for an empty name.
    pub(crate) fn contains(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// Returns whether a header carries a key.
    pub(crate) fn carries_key(&self) -> bool {
        KEY_HEADERS.iter().any(|name| self.0.contains_key(*name))
    }

    /// Returns the values that came from the environment.
    pub(crate) fn secrets(&self) -> impl Iterator<Item = &str> {
        self.0
            .values()
            .filter(|value| value.is_sensitive())
            .filter_map(|value| value.to_str().ok())
    }

    /// Adds the headers to a request, replacing headers of the same name.
    pub(crate) fn apply(&self, request: &mut HeaderMap) {
        if self.carries_key() {
            KEY_HEADERS
                .iter()
                .for_each(|name| drop(request.remove(*name)));
        }
        for (name, value) in &self.0 {
            request.insert(name, value.clone());
        }
    }
}
