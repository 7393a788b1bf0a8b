//! `soong models`: lists the model profiles and the endpoint of each.
//!
//! An API key is shown by the name of its variable and whether that is set, never by value.

use serde::Serialize;
use soong::{
    Config, Environment,
    protocol::{ModelConfig, PriceConfig, Provider},
};

use crate::{
    cli,
    config::Endpoint,
    context::Context,
    exit::{Exit, Failure},
    print, secret,
};

/// Printed form of a model profile.
#[derive(Debug, Serialize)]
struct ModelRow {
    profile: String,
    provider: Provider,
    name: String,
    /// Absent for the offline provider.
    #[serde(skip_serializing_if = "Option::is_none")]
    server: Option<ModelServer>,
    max_output_tokens: u64,
    /// Absent if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    prices: Option<PriceConfig>,
}

/// Endpoint and API key of a model.
#[derive(Debug, Serialize)]
struct ModelServer {
    base_url: String,
    api_key_env: String,
    /// Whether the variable of the key is set.
    is_set: bool,
    /// Whether a run can start with it: only OpenAI's own service requires a key.
    is_usable: bool,
}

pub(super) fn models(context: &Context<'_>, options: &cli::List) -> Result<Exit, Failure> {
    let cli::List::List = options;
    let settings = context.settings()?;
    let shown = shown(&settings.config, &context.environment);
    if context.global.json {
        print::json(&shown)?;
        return Ok(Exit::Success);
    }
    let rows: Vec<Vec<String>> = shown.iter().map(row).collect();
    print::table(&["PROFILE", "PROVIDER", "MODEL", "BASE URL", "KEY", "USD PER MILLION TOKENS"], &rows)?;
    Ok(Exit::Success)
}

/// Lists `[model]` as `default`, then the other profiles, then the built-in offline model.
fn shown(config: &Config, environment: &Environment) -> Vec<ModelRow> {
    let names = ["default"].into_iter().chain(config.model_profiles.keys().map(String::as_str));
    let mut shown: Vec<ModelRow> = names
        .filter(|name| *name != "offline") // the built-in profile takes precedence
        .filter_map(|name| Some(one(name, config.profile(name)?, config, environment)))
        .collect();
    let offline = ModelConfig { provider: Provider::Offline, name: "offline".to_owned(), ..ModelConfig::default() };
    shown.push(one("offline", offline, config, environment));
    shown
}

fn one(name: &str, model: ModelConfig, config: &Config, environment: &Environment) -> ModelRow {
    let server = (model.provider != Provider::Offline).then(|| {
        let reach = Endpoint::of(&model, environment);
        ModelServer {
            base_url: secret::hide_in_address(&reach.base_url),
            api_key_env: model.api_key_env.clone(),
            is_set: reach.has_key,
            is_usable: reach.is_usable(),
        }
    });
    ModelRow {
        profile: name.to_owned(),
        provider: model.provider,
        server,
        max_output_tokens: model.max_output_tokens,
        prices: config.prices.get(&model.name).cloned(),
        name: model.name,
    }
}

fn row(shown: &ModelRow) -> Vec<String> {
    let key = |server: &ModelServer| match (server.is_set, server.is_usable) {
        (true, _) => format!("{} (set)", server.api_key_env),
        (false, true) => format!("{} (not set; your own server may not need it)", server.api_key_env),
        (false, false) => format!("{} (not set)", server.api_key_env),
    };
    let prices = match &shown.prices {
        Some(prices) => {
            let cached = prices.cached_per_mtok.map_or_else(String::new, |usd| format!(", {usd} cached"));
            format!("{} in, {} out{cached}", prices.prompt_per_mtok, prices.completion_per_mtok)
        }
        None if shown.server.is_none() => "free (no language model)".to_owned(),
        None => "unknown".to_owned(),
    };
    let server = shown.server.as_ref();
    vec![
        shown.profile.clone(),
        shown.provider.as_str().to_owned(),
        shown.name.clone(),
        server.map_or_else(|| "-".to_owned(), |server| server.base_url.clone()),
        server.map_or_else(|| "-".to_owned(), key),
        prices,
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn profiles_show_provider_address_key_and_price() {
        let text = "[model]\nname = \"big\"\n[model_profiles.local]\nbase_url = \"http://me:s3cret@l/v1\"\n\
                    [model_profiles.other]\napi_key_env = \"OTHER\"\n[model_profiles.rules]\nprovider = \"offline\"\n\
                    [prices.big]\nprompt_per_mtok = \"0.40\"\ncompletion_per_mtok = \"1.60\"\n";
        let environment = Environment::of([("OTHER", "s3cret")]);
        let rows: Vec<String> = shown(&Config::parse("c", text).unwrap(), &environment)
            .iter()
            .map(|shown| row(shown).join(" | "))
            .collect();
        assert_eq!(
            rows,
            [
                "default | openai | big | https://api.openai.com/v1 | OPENAI_API_KEY (not set) | 0.40 in, 1.60 out",
                "local | openai | big | http://[hidden]@l/v1 | OPENAI_API_KEY (not set; your own server may not need \
                 it) | 0.40 in, 1.60 out",
                "other | openai | big | https://api.openai.com/v1 | OTHER (set) | 0.40 in, 1.60 out",
                "rules | offline | big | - | - | 0.40 in, 1.60 out",
                "offline | offline | offline | - | - | free (no language model)",
            ]
        );
    }
}
