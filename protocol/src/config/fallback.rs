//! Fallbacks of a model profile: the models that answer when its own cannot.

use std::fmt;

use serde::{
    Deserialize, Deserializer, Serialize,
    de::{Error, MapAccess, Visitor, value::MapAccessDeserializer},
};

/// Why a call is made with another model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FallbackReason {
    /// The service has too many requests at the moment.
    Overloaded,
    /// The service limits the rate of the requests.
    RateLimited,
    /// The service cannot be reached, does not answer, or fails.
    Down,
    /// The prompt does not fit into the context window of the model.
    ContextTooLong,
    /// The model or its provider refused to answer.
    Refused,
}

impl FallbackReason {
    /// The reasons of a fallback that names none: those about the service, which have nothing to do
    /// with the request.
    pub const DEFAULT: [Self; 3] = [Self::Overloaded, Self::RateLimited, Self::Down];

    /// Returns the name in configurations and events.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Overloaded => "overloaded",
            Self::RateLimited => "rate_limited",
            Self::Down => "down",
            Self::ContextTooLong => "context_too_long",
            Self::Refused => "refused",
        }
    }

    /// Returns whether the service is the reason, so that other requests would fail too.
    pub fn is_of_service(self) -> bool {
        Self::DEFAULT.contains(&self)
    }
}

/// A model that answers when the model of a profile cannot. In a configuration, a profile or model
/// name, or a table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum FallbackConfig {
    /// A profile or model name; for [`FallbackReason::DEFAULT`].
    Name(String),
    /// For some reasons only.
    When(ConditionalFallback),
}

/// A fallback for some reasons only.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConditionalFallback {
    /// A profile or model name.
    pub profile: String,
    /// The reasons. Default: [`FallbackReason::DEFAULT`].
    #[serde(default = "default_reasons")]
    pub on: Vec<FallbackReason>,
}

fn default_reasons() -> Vec<FallbackReason> {
    FallbackReason::DEFAULT.to_vec()
}

impl<'de> Deserialize<'de> for FallbackConfig {
    /// Reads a text or a table. Unlike a derived reader, it says which part of a table is wrong.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct NameOrTable;

        impl<'de> Visitor<'de> for NameOrTable {
            type Value = FallbackConfig;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the name of a profile or model, or a table with `profile` and `on`")
            }

            fn visit_str<E: Error>(self, name: &str) -> Result<FallbackConfig, E> {
                Ok(FallbackConfig::Name(name.to_owned()))
            }

            fn visit_map<A: MapAccess<'de>>(self, table: A) -> Result<FallbackConfig, A::Error> {
                ConditionalFallback::deserialize(MapAccessDeserializer::new(table))
                    .map(FallbackConfig::When)
            }
        }

        deserializer.deserialize_any(NameOrTable)
    }
}

impl FallbackConfig {
    /// Returns the profile or model name.
    pub fn name(&self) -> &str {
        match self {
            Self::Name(name) => name,
            Self::When(fallback) => &fallback.profile,
        }
    }

    /// Returns the reasons for which it is used.
    pub fn reasons(&self) -> &[FallbackReason] {
        match self {
            Self::Name(_) => &FallbackReason::DEFAULT,
            Self::When(fallback) => &fallback.on,
        }
    }
}
