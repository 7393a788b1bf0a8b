//! Finds the models that are available: by the keys in the environment, and from servers on this
//! machine.

use std::{collections::BTreeSet, time::Duration};

use futures::future::join_all;
use soong::{
    Environment,
    model::{ServedModel, served_models},
    protocol::{ModelConfig, Provider},
};

use crate::secret;

/// Servers on this machine that are asked for their models, at the addresses that they use by
/// default.
const LOCAL_SERVERS: [(&str, &str); 4] = [
    ("Ollama", "http://127.0.0.1:11434/v1"),
    ("LM Studio", "http://127.0.0.1:1234/v1"),
    ("llama.cpp", "http://127.0.0.1:8080/v1"),
    ("vLLM", "http://127.0.0.1:8000/v1"),
];
/// Providers that a key selects, with the name of the vendor.
const VENDORS: [(Provider, &str); 3] = [
    (Provider::OpenaiResponses, "OpenAI"),
    (Provider::Anthropic, "Anthropic"),
    (Provider::Gemini, "Google"),
];
/// Variable of the key for servers on this machine. The keys of the vendors are not sent to them.
const LOCAL_KEY: &str = "LOCAL_API_KEY";
/// Maximum time that a server may take to list its models.
const LIST_TIMEOUT: Duration = Duration::from_secs(3);

/// A model that agents can use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Candidate {
    pub(super) name: String,
    /// The provider. `None`: the default, chat completions.
    provider: Option<Provider>,
    /// Address for the configuration. `None`: that of the environment, or the vendor's own service.
    base_url: Option<String>,
    /// Whether the server was found on this machine. Any program may listen there, so its key has a
    /// variable of its own.
    is_local: bool,
    /// Description of the origin, for the user.
    pub(super) origin: String,
}

/// Result of the search.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct SearchResult {
    /// The server of the environment first, then the vendors whose keys are set, then the servers
    /// on this machine.
    pub(super) candidates: Vec<Candidate>,
    /// Descriptions of what was configured but cannot be used.
    pub(super) problems: Vec<String>,
}

impl Candidate {
    /// Returns a configuration file for the model.
    pub(super) fn config_text(&self) -> String {
        let mut lines = vec![
            "# Written by `soong init`. `soong guide configuration` explains the settings, and"
                .to_owned(),
            "# `soong init --full --force` replaces this file with one that lists all of them."
                .to_owned(),
            "[model]".to_owned(),
        ];
        lines.extend(
            self.provider
                .map(|provider| format!("provider = {}", quoted(provider.as_str()))),
        );
        lines.extend(
            self.base_url
                .as_ref()
                .map(|url| format!("base_url = {}", quoted(url))),
        );
        lines.extend(
            self.is_local
                .then(|| format!("api_key_env = {}", quoted(LOCAL_KEY))),
        );
        lines.push(format!("name = {}", quoted(&self.name)));
        lines.join("\n") + "\n"
    }
}

/// Returns a string of TOML. The escapes of JSON are valid in TOML; names and addresses have no
/// control characters.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// Searches for models. Takes at most as long as a server may take to list its models.
pub(super) async fn find(environment: &Environment) -> SearchResult {
    find_among(&LOCAL_SERVERS, environment).await
}

async fn find_among(local: &[(&str, &str)], environment: &Environment) -> SearchResult {
    let of_environment = environment
        .get(Provider::Openai.base_url_env())
        .map(str::trim)
        .filter(|url| !url.is_empty());
    let local = local.iter().map(|(name, url)| (Some(*name), *url));
    let listed = of_environment
        .map(|url| (None, url))
        .into_iter()
        .chain(local);
    let mut known = BTreeSet::new();
    let servers: Vec<(Option<&str>, &str)> = listed
        .filter(|(_, url)| known.insert(same_address(url)))
        .collect();
    let lists = join_all(servers.iter().map(|(_, url)| list(url, environment))).await;
    let mut found = SearchResult::default();
    let mut on_this_machine = Vec::new();
    for ((name, url), list) in servers.into_iter().zip(lists) {
        match (name, list) {
            (None, Ok(models)) => found.candidates = of_server(url, None, models),
            (None, Err(problem)) => found.problems.push(format!("OPENAI_BASE_URL: {problem}")),
            (Some(name), Ok(models)) => on_this_machine.extend(of_server(url, Some(name), models)),
            (Some(_), Err(_)) => {}
        }
    }
    // With a base URL of the environment, the key of OpenAI is that of its server.
    let vendors = VENDORS.into_iter().filter(|(provider, _)| {
        let is_vendor = *provider != Provider::OpenaiResponses || of_environment.is_none();
        is_vendor
            && environment
                .get(provider.api_key_env())
                .is_some_and(|key| !key.trim().is_empty())
    });
    found
        .candidates
        .extend(vendors.map(|(provider, vendor)| of_vendor(provider, vendor)));
    found.candidates.extend(on_this_machine);
    found
}

/// Returns an address in one form, to compare it with others.
fn same_address(url: &str) -> String {
    url.trim_end_matches('/')
        .replacen("//localhost", "//127.0.0.1", 1)
}

async fn list(base_url: &str, environment: &Environment) -> Result<Vec<ServedModel>, String> {
    let config = ModelConfig {
        base_url: Some(base_url.to_owned()),
        ..ModelConfig::default()
    };
    // The key is that of the server of the environment.
    let is_own = environment
        .get(Provider::Openai.base_url_env())
        .is_some_and(|own| own.trim() == base_url);
    let environment = if is_own {
        environment.clone()
    } else {
        Environment::default()
    };
    match tokio::time::timeout(
        LIST_TIMEOUT,
        served_models(&config, &environment, LIST_TIMEOUT),
    )
    .await
    {
        Ok(Ok(models)) if models.is_empty() => Err(format!(
            "{} has no models",
            secret::hide_in_address(base_url)
        )),
        Ok(listed) => listed.map_err(|error| error.message),
        Err(_) => Err(format!(
            "{} does not answer",
            secret::hide_in_address(base_url)
        )),
    }
}

/// Returns the models of a server. `local`: name of the server if it was found on this machine.
fn of_server(base_url: &str, local: Option<&str>, mut models: Vec<ServedModel>) -> Vec<Candidate> {
    // The default model is offered first.
    let default = ModelConfig::default();
    models.sort_by_key(|model| model.name != default.model_name());
    // An address with a user, a password or a query may contain a secret, so it stays in the
    // environment.
    let has_secret = base_url.contains(['@', '?']);
    let origin = format!(
        "{}, {}",
        local.unwrap_or("OPENAI_BASE_URL"),
        secret::hide_in_address(base_url)
    );
    let candidate = |model: ServedModel| Candidate {
        name: model.name,
        provider: None,
        base_url: (!has_secret).then(|| base_url.to_owned()),
        is_local: local.is_some(),
        origin: origin.clone(),
    };
    models.into_iter().map(candidate).collect()
}

fn of_vendor(provider: Provider, vendor: &str) -> Candidate {
    let config = ModelConfig {
        provider: Some(provider),
        ..ModelConfig::default()
    };
    Candidate {
        name: config.model_name().to_owned(),
        provider: Some(provider),
        base_url: None,
        is_local: false,
        origin: format!("{vendor}, {} is set", provider.api_key_env()),
    }
}

#[cfg(test)]
mod tests {
    use soong::Config;

    use super::*;
    use crate::config::Settings;

    async fn found(variables: &[(&str, &str)]) -> SearchResult {
        // Nothing listens on this port of the loopback interface.
        find_among(
            &[("Local", "http://127.0.0.1:9/v1")],
            &Environment::of(variables.iter().copied()),
        )
        .await
    }

    #[tokio::test]
    async fn keys_offer_the_models_of_their_vendors() {
        assert_eq!(found(&[]).await, SearchResult::default());
        let keys = [
            ("GEMINI_API_KEY", "k"),
            ("OPENAI_API_KEY", "k"),
            ("ANTHROPIC_API_KEY", " "),
        ];
        let offered = found(&keys).await.candidates;
        let names: Vec<&str> = offered
            .iter()
            .map(|candidate| candidate.name.as_str())
            .collect();
        assert_eq!(names, ["gpt-6-luna", "gemini-3.8-flash"]);
        assert_eq!(offered[0].origin, "OpenAI, OPENAI_API_KEY is set");
        let unreachable = found(&[
            ("OPENAI_API_KEY", "k"),
            ("OPENAI_BASE_URL", "http://u:pw@127.0.0.1:9/v1"),
        ])
        .await;
        assert_eq!(unreachable.candidates, []);
        assert_eq!(
            unreachable.problems,
            ["OPENAI_BASE_URL: 127.0.0.1:9 cannot be reached"]
        );
    }

    #[test]
    fn file_has_the_settings_of_the_model() {
        let served = |name: &str| ServedModel {
            name: name.to_owned(),
            context_window: Some(32_768),
        };
        let local = of_server(
            "http://127.0.0.1:8000/v1",
            Some("vLLM"),
            vec![served("a\"b\\c")],
        )
        .remove(0);
        assert_eq!(local.config_text().lines().count(), 6);
        let model = Config::parse("c", &local.config_text()).unwrap().model;
        assert_eq!(
            (model.base_url.as_deref(), model.name.as_deref()),
            (Some("http://127.0.0.1:8000/v1"), Some("a\"b\\c"))
        );
        // Each process asks the server for it.
        assert_eq!(
            (model.api_key_env(), model.context_window),
            (LOCAL_KEY, None)
        );
        assert_eq!(model.provider(), Provider::Openai);
        let secret = of_server("https://me:s3cret@h/v1", None, vec![served("m")]).remove(0);
        assert!(!format!("{secret:?}").contains("s3cret"));
        let vendor = of_vendor(Provider::Anthropic, "Anthropic");
        let settings = Settings::of("c", &vendor.config_text());
        settings
            .check_model(None, &Environment::of([("ANTHROPIC_API_KEY", "k")]))
            .unwrap();
        assert_eq!(vendor.config_text().lines().count(), 5);
    }
}
