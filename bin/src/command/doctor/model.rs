//! Checks of the model profiles: whether each is configured completely, and how a server of this
//! network runs its model. No model is called.

use soong::{
    Environment,
    model::{ServerFacts, create_model, server_address, server_facts},
    preset::KnownPreset,
    protocol::{ModelConfig, Provider},
};

use soong_tui::format;

use super::Check;
use crate::{
    command::block_on_current_thread,
    config::{BaseUrlOrigin, Endpoint, Settings},
    secret,
};

/// Checks the default profile first, then the others. A faulty profile that a preset uses is
/// broken, since no run can start then; a profile that no preset uses gives a warning.
pub(super) fn checks(
    settings: &Settings,
    presets: &[KnownPreset],
    environment: &Environment,
) -> Vec<Check> {
    let config = &settings.config;
    let mut checks = vec![one("default", settings, environment)];
    let presets = presets.iter().map(|known| &known.preset);
    let by_preset = |name: &str| {
        presets
            .clone()
            .find(|preset| preset.model.as_deref() == Some(name))
    };
    for name in config
        .model_profiles
        .keys()
        .filter(|name| *name != "offline")
    {
        let check = one(name, settings, environment);
        checks.push(match (by_preset(name), check.advice) {
            (_, None) => Check::ok("model", check.finding),
            (Some(preset), Some(advice)) => Check::broken(
                "model",
                format!("used by preset \"{}\": {}", preset.name, check.finding),
                advice,
            ),
            (None, Some(advice)) => Check::warning("model", check.finding, advice),
        });
    }
    checks
}

fn one(name: &str, settings: &Settings, environment: &Environment) -> Check {
    if let Err(failure) = settings.check_model(Some(name), environment) {
        return Check::refused("model", failure);
    }
    let models = settings.models(environment);
    let profile = models
        .config
        .profile(name)
        .unwrap_or_else(|| models.config.model.clone());
    if profile.provider() == Provider::Offline {
        return Check::ok(
            "model",
            format!("{name}: built-in rules, no language model"),
        );
    }
    // Checks whether address, key and headers are valid; sends nothing.
    if let Err(error) = create_model(&profile, environment) {
        return Check::broken(
            "model",
            format!("{name}: {}", error.message),
            "Correct it; see `soong config show`.",
        );
    }
    let finding = format!(
        "{name}: {}",
        describe_profile(&profile, &Endpoint::of(&profile, environment))
    );
    let model = profile.model_name();
    let is_known = models.catalog.find(model).is_some();
    if server_address(&profile, environment, is_known).is_none() {
        return Check::ok("model", finding);
    }
    let facts =
        block_on_current_thread(async { Ok(server_facts(&profile, environment, model).await) });
    of_server(finding, &profile, facts.unwrap_or_default())
}

/// Returns the check of a profile whose configuration is complete, with what its server states.
fn of_server(finding: String, profile: &ModelConfig, facts: ServerFacts) -> Check {
    let window = facts
        .context_window
        .map(|tokens| format!("a window of {tokens} tokens"));
    let slots = facts
        .slots
        .map(|slots| format::plural(slots, "slot", "slots"));
    let stated: Vec<String> = window.into_iter().chain(slots).collect();
    let finding = if stated.is_empty() {
        finding
    } else {
        format!("{finding}; the server states {}", stated.join(" and "))
    };
    if let (Some(configured), Some(stated)) = (profile.context_window, facts.context_window)
        && configured > stated
    {
        let advice = "Remove `context_window`, or start the server with a larger window (llama.cpp: `-c`, which its slots \
                      share; Ollama: `num_ctx`).";
        return Check::warning(
            "model",
            format!("{finding}, less than context_window = {configured}"),
            advice,
        );
    }
    if facts.takes_tools == Some(false) {
        let advice = "Use another model, or a prompt template with tools (llama.cpp: `--jinja`, `--chat-template-file`).";
        return Check::warning(
            "model",
            format!("{finding}; its prompt template drops tools"),
            advice,
        );
    }
    Check::ok("model", finding)
}

fn describe_profile(profile: &ModelConfig, reach: &Endpoint) -> String {
    let origin = match reach.origin {
        BaseUrlOrigin::Config => "",
        BaseUrlOrigin::Environment => &format!(" (from {})", profile.provider().base_url_env()),
        BaseUrlOrigin::Default => "",
    };
    let key = if reach.has_key {
        "is set"
    } else {
        "is not set (your own server may not need it)"
    };
    let base_url = secret::hide_in_address(&reach.base_url);
    format!(
        "{} at {base_url}{origin}; {} {key}",
        profile.model_name(),
        profile.api_key_env()
    )
}

#[cfg(test)]
mod tests {
    use soong::preset::{PresetFiles, presets};

    use super::{super::Status, *};

    #[test]
    fn server_with_a_smaller_window_or_without_tools_is_a_warning() {
        let facts = |context_window, takes_tools| ServerFacts {
            context_window,
            takes_tools,
            ..ServerFacts::default()
        };
        let own = ModelConfig {
            context_window: Some(8_192),
            ..ModelConfig::default()
        };
        for (profile, facts, status, part) in [
            (
                ModelConfig::default(),
                facts(None, None),
                Status::Ok,
                "found",
            ),
            (
                ModelConfig::default(),
                facts(Some(4_096), Some(true)),
                Status::Ok,
                "a window of 4096 tokens",
            ),
            (own.clone(), facts(Some(8_192), None), Status::Ok, "8192"),
            (
                own.clone(),
                facts(Some(4_096), None),
                Status::Warning,
                "less than context_window = 8192",
            ),
            (
                own,
                facts(None, Some(false)),
                Status::Warning,
                "drops tools",
            ),
        ] {
            let check = of_server("found".to_owned(), &profile, facts);
            assert!(
                check.status == status && check.finding.contains(part),
                "{check:?}"
            );
        }
    }

    #[test]
    fn unusable_profile_is_broken_if_used_and_else_a_warning() {
        let key = [("OPENAI_API_KEY", "k")];
        let small = "[model_profiles.small]\napi_key_env = \"SMALL\"\n";
        let used =
            "[model_profiles.small]\napi_key_env = \"SMALL\"\n[presets.p]\nmodel = \"small\"\n";
        for (text, variables, want) in [
            (
                "",
                &[][..],
                &[(Status::Broken, "OPENAI_API_KEY is not set")][..],
            ),
            (
                "",
                &key,
                &[(
                    Status::Ok,
                    "gpt-6-luna at https://api.openai.com/v1; OPENAI_API_KEY is set",
                )],
            ),
            (
                "",
                &[("OPENAI_BASE_URL", "http://l/v1")],
                &[(Status::Ok, "from OPENAI_BASE_URL")],
            ),
            (
                "",
                &[("OPENAI_API_KEY", "k\nk")],
                &[(Status::Broken, "invalid characters")],
            ),
            (
                "[model]\nbase_url = \"ftp://x\"\n",
                &[],
                &[(Status::Broken, "http or https URL")],
            ),
            (
                "[model]\nprovider = \"offline\"\n",
                &[],
                &[(Status::Ok, "rules")],
            ),
            (
                small,
                &key,
                &[
                    (Status::Ok, "default"),
                    (Status::Warning, "SMALL (set at c:2) is not set"),
                ],
            ),
            (
                used,
                &key,
                &[
                    (Status::Ok, "default"),
                    (Status::Broken, "used by preset \"p\""),
                ],
            ),
        ] {
            let settings = Settings::of("c", text);
            let presets = presets(&PresetFiles::default(), &settings.config, &[]);
            let checks = checks(
                &settings,
                &presets,
                &Environment::of(variables.iter().copied()),
            );
            assert_eq!(
                checks.len(),
                want.len(),
                "{text:?} {variables:?}: {checks:?}"
            );
            for (check, (status, part)) in checks.iter().zip(want) {
                assert!(
                    check.status == *status && check.finding.contains(part),
                    "{text:?} {variables:?}: {check:?}"
                );
            }
        }
    }
}
