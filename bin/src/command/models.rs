//! `soong models`: lists the model profiles and the known models, and updates the table of known
//! models.
//!
//! An API key is shown by the name of its variable and whether that is set, never by value.

use std::{io::Write as _, path::Path};

use serde::Serialize;
use soong::{
    Environment,
    model::{
        ModelCatalog,
        catalog::{HOME_FILE, ModelEntry},
    },
    protocol::{InputKind, ModelConfig, PriceConfig, Prices, Provider},
};
use soong_tui::{format, table::Column};

use crate::{
    cli,
    config::{self, Endpoint, Models},
    context::Context,
    exit::{Exit, Failure},
    file, print, secret,
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
    /// Maximum length of an answer, in tokens. Absent if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    max_output_tokens: Option<u64>,
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
    /// Whether a run can start with it: only the vendor's own service requires a key.
    is_usable: bool,
}

/// Printed form of the table of known models.
#[derive(Debug, Serialize)]
struct KnownModels<'a> {
    date: &'a str,
    models: Vec<KnownModel<'a>>,
}

/// Printed form of a known model.
#[derive(Debug, Serialize)]
struct KnownModel<'a> {
    name: &'a str,
    /// Absent if the name alone selects no service.
    #[serde(skip_serializing_if = "Option::is_none")]
    provider: Option<Provider>,
    context_window: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_output_tokens: Option<u64>,
    input: &'a [InputKind],
    /// Absent if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    prices: Option<PriceConfig>,
}

pub(super) fn models(context: &Context<'_>, options: &cli::Models) -> Result<Exit, Failure> {
    let is_known_only = match options {
        cli::Models::List { known } => *known,
        cli::Models::Update { file } => return update(context, file),
    };
    let settings = context.settings()?;
    let models = settings.models(&context.environment);
    let known = known(models.catalog);
    match (context.global.json, is_known_only) {
        (true, true) => print::json(&known)?,
        (true, false) => print::json(&shown(&models, &context.environment))?,
        (false, true) => print_known(context, &known)?,
        (false, false) => {
            let rows: Vec<Vec<String>> = shown(&models, &context.environment)
                .iter()
                .map(row)
                .collect();
            print::table(
                context.terminal,
                &[
                    Column::whole("PROFILE"),
                    Column::whole("PROVIDER").drops(2),
                    Column::text("MODEL", 12),
                    Column::text("BASE URL", 16).drops(1),
                    Column::text("KEY", 10),
                    Column::text("USD PER MILLION TOKENS", 16).drops(3),
                ],
                &rows,
            )?;
            print::line("")?;
            print_known(context, &known)?;
        }
    }
    Ok(Exit::Success)
}

/// Replaces the table of the home. Its entries take precedence over the built-in ones.
fn update(context: &Context<'_>, path: &Path) -> Result<Exit, Failure> {
    let advice = "Give a file in the form of catalog/models.json of Soong's sources.";
    let refuse = |error: String| {
        Failure::usage(
            format!("the table {} cannot be used: {error}", path.display()),
            advice,
        )
    };
    let text = soong_server::text_file::read_text(path, file::MAX_TEXT_BYTES)
        .map_err(|error| refuse(error.to_string()))?;
    let table = ModelCatalog::parse(&text).map_err(|error| refuse(error.to_string()))?;
    let home = context.home()?;
    config::make_home(&home).map_err(|error| refuse(error.to_string()))?;
    write(&home.join(HOME_FILE), &text).map_err(|error| refuse(error.to_string()))?;
    let count = format::plural(table.models.len(), "model", "models");
    print::line(&format!(
        "saved {count} (table of {}); restart a running owner process to use them",
        table.date
    ))?;
    Ok(Exit::Success)
}

/// Writes a file of the home. After an error, the previous file is unchanged.
fn write(path: &Path, text: &str) -> std::io::Result<()> {
    let mut file = tempfile::NamedTempFile::new_in(path.parent().unwrap_or(Path::new(".")))?;
    file.write_all(text.as_bytes())?;
    file.persist(path).map_err(|error| error.error)?;
    Ok(())
}

/// Lists `[model]` as `default`, then the other profiles, then the built-in offline model.
fn shown(models: &Models<'_>, environment: &Environment) -> Vec<ModelRow> {
    let config = &models.config;
    let names = ["default"]
        .into_iter()
        .chain(config.model_profiles.keys().map(String::as_str));
    let mut shown: Vec<ModelRow> = names
        .filter(|name| *name != "offline") // the built-in profile takes precedence
        .filter_map(|name| Some(one(name, &config.profile(name)?, models, environment)))
        .collect();
    let offline = ModelConfig {
        provider: Some(Provider::Offline),
        ..ModelConfig::default()
    };
    shown.push(one("offline", &offline, models, environment));
    shown
}

fn one(
    profile: &str,
    model: &ModelConfig,
    models: &Models<'_>,
    environment: &Environment,
) -> ModelRow {
    let server = (model.provider() != Provider::Offline).then(|| {
        let reach = Endpoint::of(model, environment);
        ModelServer {
            base_url: secret::hide_in_address(&reach.base_url),
            api_key_env: model.api_key_env().to_owned(),
            is_set: reach.has_key,
            is_usable: reach.is_usable(),
        }
    });
    let name = model.model_name();
    let known = || {
        models
            .catalog
            .find(name)
            .and_then(ModelEntry::prices)
            .map(price_config)
    };
    ModelRow {
        profile: profile.to_owned(),
        provider: model.provider(),
        server,
        max_output_tokens: models.catalog.limits(model, name).max_output_tokens,
        prices: models.config.prices.get(name).cloned().or_else(known),
        name: name.to_owned(),
    }
}

fn known(catalog: &ModelCatalog) -> KnownModels<'_> {
    let mut models: Vec<KnownModel<'_>> = catalog.models.values().map(KnownModel::of).collect();
    models.sort_by_key(|model| {
        (
            model.provider.is_none(),
            model.provider.map(Provider::as_str),
            model.name,
        )
    });
    KnownModels {
        date: &catalog.date,
        models,
    }
}

impl<'a> KnownModel<'a> {
    fn of(entry: &'a ModelEntry) -> Self {
        Self {
            name: &entry.name,
            provider: entry.provider,
            context_window: entry.context_window,
            max_output_tokens: entry.max_output_tokens,
            input: &entry.input,
            prices: entry.prices().map(price_config),
        }
    }
}

fn print_known(context: &Context<'_>, known: &KnownModels<'_>) -> Result<(), Failure> {
    let rows = known.models.iter().map(|model| {
        let input: Vec<&str> = model.input.iter().map(|kind| kind.as_str()).collect();
        vec![
            model.name.to_owned(),
            model.provider.map_or("-", Provider::as_str).to_owned(),
            format::count(model.context_window),
            model
                .max_output_tokens
                .map_or_else(|| "-".to_owned(), format::count),
            input.join(" "),
            model
                .prices
                .as_ref()
                .map_or_else(|| "no price".to_owned(), price_text),
        ]
    });
    let rows: Vec<Vec<String>> = rows.collect();
    print::table(
        context.terminal,
        &[
            Column::whole("KNOWN MODEL"),
            Column::whole("PROVIDER").drops(3),
            Column::whole("WINDOW").drops(1),
            Column::whole("OUTPUT").drops(4),
            Column::text("INPUT", 8).drops(2),
            Column::text("USD PER MILLION TOKENS", 16),
        ],
        &rows,
    )?;
    print::line(&format!(
        "Prices of {}; `soong models update FILE` reads newer ones.",
        known.date
    ))
}

fn price_config(prices: Prices) -> PriceConfig {
    PriceConfig {
        prompt_per_mtok: prices.prompt,
        completion_per_mtok: prices.completion,
        cached_per_mtok: Some(prices.cached),
        cache_write_per_mtok: Some(prices.cache_write),
        long_cache_write_per_mtok: Some(prices.long_cache_write),
    }
}

fn price_text(prices: &PriceConfig) -> String {
    let cached = prices
        .cached_per_mtok
        .map_or_else(String::new, |usd| format!(", {usd} cached"));
    format!(
        "{} in, {} out{cached}",
        prices.prompt_per_mtok, prices.completion_per_mtok
    )
}

fn row(shown: &ModelRow) -> Vec<String> {
    let key = |server: &ModelServer| match (server.is_set, server.is_usable) {
        (true, _) => format!("{} (set)", server.api_key_env),
        (false, true) => format!(
            "{} (not set; your own server may not need it)",
            server.api_key_env
        ),
        (false, false) => format!("{} (not set)", server.api_key_env),
    };
    let prices = match &shown.prices {
        Some(prices) => price_text(prices),
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
    use crate::config::Settings;

    #[test]
    fn profiles_show_provider_address_key_and_price() {
        let text = "[model]\nname = \"big\"\n[model_profiles.local]\nbase_url = \"http://me:s3cret@l/v1\"\n\
                    [model_profiles.other]\napi_key_env = \"OTHER\"\n[model_profiles.rules]\nprovider = \"offline\"\n\
                    [prices.big]\nprompt_per_mtok = \"0.40\"\ncompletion_per_mtok = \"1.60\"\n";
        let environment = Environment::of([("OTHER", "s3cret")]);
        let rows: Vec<String> = shown(&Settings::of("c", text).models(&environment), &environment)
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
                "rules | offline | offline | - | - | free (no language model)",
                "offline | offline | offline | - | - | free (no language model)",
            ]
        );
    }
}
