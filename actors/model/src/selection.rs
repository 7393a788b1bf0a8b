//! Which profile serves a model: the default one if none is configured, and the profile of a model
//! name.

use soong_protocol::{Config, ErrorCode, ErrorInfo, ModelOverride, Provider};
use soong_text::Environment;

use crate::ModelCatalog;

/// Providers whose key selects the default model, in order.
const BY_KEY: [Provider; 3] = [
    Provider::OpenaiResponses,
    Provider::Anthropic,
    Provider::Gemini,
];
/// Maximum number of similar names in an error.
const MAX_SUGGESTIONS: usize = 5;

/// Completes `[model]` if it names neither a provider nor a service: the provider is that of the
/// model name, else the first one whose key is set. Returns whether a provider or a base URL was
/// configured.
pub fn complete_default_model(
    config: &mut Config,
    catalog: &ModelCatalog,
    environment: &Environment,
) -> bool {
    let is_set = |name: &str| {
        environment
            .get(name)
            .is_some_and(|value| !value.trim().is_empty())
    };
    if config.model.provider.is_some()
        || config.model.base_url.is_some()
        || is_set(Provider::Openai.base_url_env())
    {
        return true;
    }
    let model = &mut config.model;
    if let Some((provider, own_name)) = model
        .name
        .as_deref()
        .and_then(|name| vendor_name(name, catalog))
    {
        let own_name = own_name.to_owned();
        model.provider = Some(provider);
        model.name = Some(own_name);
    }
    let has_provider = model.provider.is_some();
    for profile in config
        .model_profiles
        .values_mut()
        .filter(|profile| profile.provider.is_none())
    {
        complete_profile(profile, has_provider, catalog);
    }
    // Parameters are those of chat completions.
    let model = &mut config.model;
    if model.name.is_none() && model.api_key_env.is_none() && model.params.is_empty() {
        model.provider = BY_KEY
            .into_iter()
            .find(|provider| is_set(provider.api_key_env()));
    }
    false
}

/// Sets the provider of a profile that names none, so that it does not depend on the keys that are
/// set. `inherits_provider`: the model of `[model]` determines one.
fn complete_profile(profile: &mut ModelOverride, inherits_provider: bool, catalog: &ModelCatalog) {
    let known = profile
        .name
        .as_deref()
        .and_then(|name| vendor_name(name, catalog));
    if let (None, Some((provider, own_name))) = (&profile.base_url, known) {
        let own_name = own_name.to_owned();
        profile.provider = Some(provider);
        profile.name = Some(own_name);
    } else if !inherits_provider {
        let ModelOverride {
            base_url,
            name,
            api_key_env,
            headers,
            header_env,
            query,
            params,
            ..
        } = profile;
        let has_text = base_url.is_some() || name.is_some() || api_key_env.is_some();
        let has_table =
            headers.is_some() || header_env.is_some() || query.is_some() || params.is_some();
        profile.provider = (has_text || has_table).then_some(Provider::Openai);
    }
}

/// Splits the name of a model into a profile and a model name for it; `None`: the profile's own
/// model.
///
/// In this order: a profile; a model of the default profile if `default_takes_names`, because a
/// provider or base URL is configured; `PROVIDER/NAME`; a name in the table.
///
/// # Errors
/// `config_error` if no profile serves the name, with the names that are possible.
pub fn split_model_name<'a>(
    name: &'a str,
    is_profile: impl Fn(&str) -> bool,
    default_takes_names: bool,
    catalog: &ModelCatalog,
) -> Result<(&'a str, Option<&'a str>), ErrorInfo> {
    if matches!(name, "default" | "offline") || is_profile(name) {
        return Ok((name, None));
    }
    if default_takes_names {
        return Ok(("default", Some(name)));
    }
    match vendor_name(name, catalog) {
        Some((provider, own_name)) => Ok((provider.as_str(), Some(own_name))),
        None => Err(unknown_name(name, catalog)),
    }
}

/// Returns the provider of `PROVIDER/NAME`, or of a name in the table, and the name itself.
fn vendor_name<'a>(name: &'a str, catalog: &ModelCatalog) -> Option<(Provider, &'a str)> {
    if let Some((start, own_name)) = name.split_once('/') {
        let services = Provider::ALL
            .into_iter()
            .filter(|provider| *provider != Provider::Offline);
        let provider = services
            .into_iter()
            .find(|provider| provider.as_str() == start)?;
        let known = catalog
            .models
            .get(own_name)
            .and_then(|entry| entry.provider);
        // `openai/NAME`: the API that the model needs.
        let is_same_vendor =
            |known: &Provider| provider == Provider::Openai && known.is_same_vendor(provider);
        return Some((known.filter(is_same_vendor).unwrap_or(provider), own_name));
    }
    // Fine-tuned models are named `ft:BASE:…`.
    let base = name
        .strip_prefix("ft:")
        .and_then(|rest| rest.split(':').next())
        .unwrap_or(name);
    Some((catalog.models.get(base)?.provider?, name))
}

fn unknown_name(name: &str, catalog: &ModelCatalog) -> ErrorInfo {
    let start: String = name.chars().take_while(|c| c.is_alphabetic()).collect();
    let has_provider = catalog
        .models
        .values()
        .filter(|entry| entry.provider.is_some());
    let mut similar: Vec<&str> = has_provider
        .map(|entry| entry.name.as_str())
        .filter(|known| !start.is_empty() && known.starts_with(&start))
        .collect();
    similar.sort_unstable();
    similar.reverse(); // newer versions first
    similar.truncate(MAX_SUGGESTIONS);
    let similar = if similar.is_empty() {
        String::new()
    } else {
        format!(" such as {}", similar.join(", "))
    };
    let message = format!(
        "there is no model {name:?}: give the name of a profile, PROVIDER/NAME such as anthropic/claude-opus-5-5, or a \
         name that `soong models list --known` shows{similar}; for your own server, set model.base_url"
    );
    ErrorInfo::new(ErrorCode::ConfigError, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_model_follows_name_or_key() {
        for (text, variables, provider, name, is_configured) in [
            ("", &[][..], None, "gpt-4.1-mini", false),
            (
                "",
                &["OPENAI_API_KEY", "ANTHROPIC_API_KEY"],
                Some(Provider::OpenaiResponses),
                "gpt-6-luna",
                false,
            ),
            (
                "",
                &["GEMINI_API_KEY", "ANTHROPIC_API_KEY"],
                Some(Provider::Anthropic),
                "claude-haiku-5-5",
                false,
            ),
            (
                "",
                &["GEMINI_API_KEY"],
                Some(Provider::Gemini),
                "gemini-3.8-flash",
                false,
            ),
            (
                "",
                &["OPENAI_BASE_URL", "ANTHROPIC_API_KEY"],
                None,
                "gpt-4.1-mini",
                true,
            ),
            (
                "name = \"claude-opus-5-5\"",
                &["OPENAI_API_KEY"],
                Some(Provider::Anthropic),
                "claude-opus-5-5",
                false,
            ),
            (
                "name = \"gemini/new\"",
                &[],
                Some(Provider::Gemini),
                "new",
                false,
            ),
            (
                "name = \"llama\"",
                &["ANTHROPIC_API_KEY"],
                None,
                "llama",
                false,
            ),
            (
                "api_key_env = \"X\"",
                &["ANTHROPIC_API_KEY"],
                None,
                "gpt-4.1-mini",
                false,
            ),
            (
                "base_url = \"http://l\"\nname = \"claude-opus-5-5\"",
                &[],
                None,
                "claude-opus-5-5",
                true,
            ),
            (
                "provider = \"gemini\"",
                &["OPENAI_API_KEY"],
                Some(Provider::Gemini),
                "gemini-3.8-flash",
                true,
            ),
        ] {
            let mut config = Config::parse("c", &format!("[model]\n{text}\n")).unwrap();
            let environment = Environment::of(variables.iter().map(|name| (*name, "x")));
            let found = complete_default_model(&mut config, ModelCatalog::built_in(), &environment);
            let model = (config.model.provider, config.model.model_name(), found);
            assert_eq!(
                model,
                (provider, name, is_configured),
                "{text} {variables:?}"
            );
        }
    }

    #[test]
    fn profiles_do_not_depend_on_the_keys_that_are_set() {
        let text = "[model_profiles.local]\nbase_url = \"http://l/v1\"\n\
                    [model_profiles.work]\nname = \"gpt-4.1-mini\"\napi_key_env = \"WORK\"\n\
                    [model_profiles.keyed]\napi_key_env = \"WORK\"\n\
                    [model_profiles.unlisted]\nname = \"gpt-9\"\n\
                    [model_profiles.claude]\nname = \"anthropic/claude-opus-5-5\"\n\
                    [model_profiles.same]\ntimeout_ms = 9\n";
        for key in BY_KEY.map(Provider::api_key_env) {
            let mut config = Config::parse("c", text).unwrap();
            complete_default_model(
                &mut config,
                ModelCatalog::built_in(),
                &Environment::of([(key, "x")]),
            );
            let service = |name: &str| {
                let profile = config.profile(name).unwrap();
                (profile.provider(), profile.api_key_env().to_owned())
            };
            assert_eq!(
                service("local"),
                (Provider::Openai, "OPENAI_API_KEY".to_owned()),
                "{key}"
            );
            assert_eq!(
                service("work"),
                (Provider::Openai, "WORK".to_owned()),
                "{key}"
            );
            assert_eq!(
                service("keyed"),
                (Provider::Openai, "WORK".to_owned()),
                "{key}"
            );
            assert_eq!(service("unlisted").0, Provider::Openai, "{key}");
            assert_eq!(service("claude").0, Provider::Anthropic, "{key}");
            assert_eq!(
                config.profile("claude").unwrap().model_name(),
                "claude-opus-5-5"
            );
            assert_eq!(service("same").1, key);
        }
        let text =
            "[model]\nname = \"claude-opus-5-5\"\n[model_profiles.work]\napi_key_env = \"WORK\"\n";
        let mut config = Config::parse("c", text).unwrap();
        complete_default_model(
            &mut config,
            ModelCatalog::built_in(),
            &Environment::default(),
        );
        let work = config.profile("work").unwrap();
        assert_eq!(
            (work.provider(), work.model_name()),
            (Provider::Anthropic, "claude-opus-5-5")
        );
    }

    #[test]
    fn names_select_a_profile_in_the_documented_order() {
        for (name, takes_names, expected) in [
            ("small", true, Some(("small", None))),
            ("small", false, Some(("small", None))),
            ("offline", true, Some(("offline", None))),
            (
                "anthropic/claude-x",
                true,
                Some(("default", Some("anthropic/claude-x"))),
            ),
            (
                "anthropic/claude-x",
                false,
                Some(("anthropic", Some("claude-x"))),
            ),
            (
                "openai/gpt-6-sol",
                false,
                Some(("openai-responses", Some("gpt-6-sol"))),
            ),
            ("openai/gpt-4.1", false, Some(("openai", Some("gpt-4.1")))),
            (
                "openai-responses/own",
                false,
                Some(("openai-responses", Some("own"))),
            ),
            (
                "ft:gpt-4.1-mini:org::id",
                false,
                Some(("openai", Some("ft:gpt-4.1-mini:org::id"))),
            ),
            (
                "gemini-3.8-flash",
                false,
                Some(("gemini", Some("gemini-3.8-flash"))),
            ),
            ("deepseek-v4-pro", false, None),
            ("gpt-9", false, None),
            ("meta/llama", false, None),
        ] {
            let split = split_model_name(
                name,
                |name| name == "small",
                takes_names,
                ModelCatalog::built_in(),
            );
            assert_eq!(
                split.as_ref().ok(),
                expected.as_ref(),
                "{name} {takes_names}"
            );
        }
        let refused =
            split_model_name("gpt-9", |_| false, false, ModelCatalog::built_in()).unwrap_err();
        assert!(
            refused.message.contains("gpt-6.1-terra"),
            "{}",
            refused.message
        );
    }
}
