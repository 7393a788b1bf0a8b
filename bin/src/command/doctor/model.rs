//! Checks of the model profiles: whether each is configured completely. Sends no request.

use soong::{
    Environment,
    model::create_model,
    preset::KnownPreset,
    protocol::{ModelConfig, Provider},
};

use super::Check;
use crate::{
    config::{BaseUrlOrigin, Endpoint, Settings},
    secret,
};

/// Checks the default profile first, then the others. A faulty profile that a preset uses is broken, since no run can
/// start then; a profile that no preset uses gives a warning.
pub(super) fn checks(settings: &Settings, presets: &[KnownPreset], environment: &Environment) -> Vec<Check> {
    let config = &settings.config;
    let mut checks = vec![one("default", settings, environment)];
    let presets = presets.iter().map(|known| &known.preset);
    let by_preset = |name: &str| presets.clone().find(|preset| preset.model.as_deref() == Some(name));
    for name in config.model_profiles.keys().filter(|name| *name != "offline") {
        let check = one(name, settings, environment);
        checks.push(match (by_preset(name), check.advice) {
            (_, None) => Check::ok("model", check.finding),
            (Some(preset), Some(advice)) => {
                Check::broken("model", format!("used by preset \"{}\": {}", preset.name, check.finding), advice)
            }
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
    let profile = models.config.profile(name).unwrap_or_else(|| models.config.model.clone());
    if profile.provider() == Provider::Offline {
        return Check::ok("model", format!("{name}: built-in rules, no language model"));
    }
    // Checks whether address, key and headers are valid; sends nothing.
    if let Err(error) = create_model(&profile, environment) {
        return Check::broken("model", format!("{name}: {}", error.message), "Correct it; see `soong config show`.");
    }
    Check::ok("model", format!("{name}: {}", said(&profile, &Endpoint::of(&profile, environment))))
}

fn said(profile: &ModelConfig, reach: &Endpoint) -> String {
    let origin = match reach.origin {
        BaseUrlOrigin::Config => "",
        BaseUrlOrigin::Environment => &format!(" (from {})", profile.provider().base_url_env()),
        BaseUrlOrigin::Default => "",
    };
    let key = if reach.has_key { "is set" } else { "is not set (your own server may not need it)" };
    let base_url = secret::hide_in_address(&reach.base_url);
    format!("{} at {base_url}{origin}; {} {key}", profile.model_name(), profile.api_key_env())
}

#[cfg(test)]
mod tests {
    use soong::preset::{PresetFiles, presets};

    use super::{super::Status, *};

    #[test]
    fn unusable_profile_is_broken_if_used_and_else_a_warning() {
        let key = [("OPENAI_API_KEY", "k")];
        let small = "[model_profiles.small]\napi_key_env = \"SMALL\"\n";
        let used = "[model_profiles.small]\napi_key_env = \"SMALL\"\n[presets.p]\nmodel = \"small\"\n";
        for (text, variables, want) in [
            ("", &[][..], &[(Status::Broken, "OPENAI_API_KEY is not set")][..]),
            ("", &key, &[(Status::Ok, "gpt-6-luna at https://api.openai.com/v1; OPENAI_API_KEY is set")]),
            ("", &[("OPENAI_BASE_URL", "http://l/v1")], &[(Status::Ok, "from OPENAI_BASE_URL")]),
            ("", &[("OPENAI_API_KEY", "k\nk")], &[(Status::Broken, "invalid characters")]),
            ("[model]\nbase_url = \"ftp://x\"\n", &[], &[(Status::Broken, "http or https URL")]),
            ("[model]\nprovider = \"offline\"\n", &[], &[(Status::Ok, "rules")]),
            (small, &key, &[(Status::Ok, "default"), (Status::Warning, "SMALL (set at c:2) is not set")]),
            (used, &key, &[(Status::Ok, "default"), (Status::Broken, "used by preset \"p\"")]),
        ] {
            let settings = Settings::of("c", text);
            let presets = presets(&PresetFiles::default(), &settings.config, &[]);
            let checks = checks(&settings, &presets, &Environment::of(variables.iter().copied()));
            assert_eq!(checks.len(), want.len(), "{text:?} {variables:?}: {checks:?}");
            for (check, (status, part)) in checks.iter().zip(want) {
                assert!(check.status == *status && check.finding.contains(part), "{text:?} {variables:?}: {check:?}");
            }
        }
    }
}
