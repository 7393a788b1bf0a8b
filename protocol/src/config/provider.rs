//! The providers of models, and the defaults of each.

use serde::{Deserialize, Serialize};

/// API of a model service. Its facts are in one table, by variant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Provider {
    /// Chat completions: OpenAI, and many compatible servers.
    #[default]
    Openai,
    /// Built-in rule-based substitute that needs no key, no network and no language model.
    Offline,
}

/// Facts about a provider. All texts are empty for the offline model, except the names.
struct ProviderFacts {
    /// Value of the setting `provider`.
    name: &'static str,
    /// Base URL of the vendor's own service.
    base_url: &'static str,
    /// Environment variable with the base URL for profiles that set none.
    base_url_env: &'static str,
    /// Environment variable with the key for profiles that name none.
    api_key_env: &'static str,
}

impl Provider {
    fn facts(self) -> &'static ProviderFacts {
        match self {
            Self::Openai => &ProviderFacts {
                name: "openai",
                base_url: "https://api.openai.com/v1",
                base_url_env: "OPENAI_BASE_URL",
                api_key_env: "OPENAI_API_KEY",
            },
            Self::Offline => &ProviderFacts { name: "offline", base_url: "", base_url_env: "", api_key_env: "" },
        }
    }

    /// Returns the value of the setting `provider`.
    pub fn as_str(self) -> &'static str {
        self.facts().name
    }

    /// Returns the base URL of the vendor's own service. Empty for the offline model.
    pub fn base_url(self) -> &'static str {
        self.facts().base_url
    }

    /// Returns the environment variable with the base URL for profiles that set none. Empty for the offline model.
    pub fn base_url_env(self) -> &'static str {
        self.facts().base_url_env
    }

    /// Returns the environment variable with the key for profiles that name none. Empty for the offline model.
    pub fn api_key_env(self) -> &'static str {
        self.facts().api_key_env
    }
}
