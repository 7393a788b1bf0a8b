//! The providers of models, and the defaults of each.

use serde::{Deserialize, Serialize};

/// API of a model service. Its facts are in one table, by variant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Provider {
    /// Chat completions: OpenAI, and many compatible servers.
    #[default]
    Openai,
    /// OpenAI's Responses API.
    OpenaiResponses,
    /// Anthropic's Messages API.
    Anthropic,
    /// Google's Gemini API.
    Gemini,
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
    /// Model of profiles that name none.
    model: &'static str,
}

impl Provider {
    fn facts(self) -> &'static ProviderFacts {
        match self {
            Self::Openai => &ProviderFacts {
                name: "openai",
                base_url: "https://api.openai.com/v1",
                base_url_env: "OPENAI_BASE_URL",
                api_key_env: "OPENAI_API_KEY",
                model: "gpt-4.1-mini",
            },
            Self::OpenaiResponses => &ProviderFacts {
                name: "openai-responses",
                base_url: "https://api.openai.com/v1",
                base_url_env: "OPENAI_BASE_URL",
                api_key_env: "OPENAI_API_KEY",
                model: "gpt-6-luna",
            },
            Self::Anthropic => &ProviderFacts {
                name: "anthropic",
                base_url: "https://api.anthropic.com",
                base_url_env: "ANTHROPIC_BASE_URL",
                api_key_env: "ANTHROPIC_API_KEY",
                model: "claude-haiku-5-5",
            },
            Self::Gemini => &ProviderFacts {
                name: "gemini",
                base_url: "https://generativelanguage.googleapis.com/v1beta",
                base_url_env: "GEMINI_BASE_URL",
                api_key_env: "GEMINI_API_KEY",
                model: "gemini-3.8-flash",
            },
            Self::Offline => &ProviderFacts {
                name: "offline",
                base_url: "",
                base_url_env: "",
                api_key_env: "",
                model: "offline",
            },
        }
    }

    /// All providers.
    pub const ALL: [Self; 5] = [
        Self::Openai,
        Self::OpenaiResponses,
        Self::Anthropic,
        Self::Gemini,
        Self::Offline,
    ];

    /// Returns whether two providers are APIs of the same vendor, with the same keys.
    pub fn is_same_vendor(self, other: Self) -> bool {
        self.api_key_env() == other.api_key_env()
    }

    /// Returns the value of the setting `provider`.
    pub fn as_str(self) -> &'static str {
        self.facts().name
    }

    /// Returns the base URL of the vendor's own service. Empty for the offline model.
    pub fn base_url(self) -> &'static str {
        self.facts().base_url
    }

    /// Returns the environment variable with the base URL for profiles that set none. Empty for the
    /// offline model.
    pub fn base_url_env(self) -> &'static str {
        self.facts().base_url_env
    }

    /// Returns the model of profiles that name none.
    pub fn default_model(self) -> &'static str {
        self.facts().model
    }

    /// Returns the environment variable with the key for profiles that name none. Empty for the
    /// offline model.
    pub fn api_key_env(self) -> &'static str {
        self.facts().api_key_env
    }
}
