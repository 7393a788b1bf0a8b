//! Digests of settings. Two processes compare them to find out whether their settings are the same.
//!
//! Only digests leave a process, because settings can contain secrets. They go to the user of the
//! home alone, so they do not need to resist guessing. Elsewhere: the comparison
//! (`soong_protocol::api::SettingsDigests`).

use soong_protocol::{Config, Provider, api::SettingsDigests};
use soong_text::Environment;
use soong_tool::sha256;

/// Settings that may differ: they matter only when the home is opened.
const IGNORED: [&str; 1] = ["runtime.recovery"];

/// Returns the digests of a configuration in use, and of the variables of the environment that hold
/// keys or addresses.
pub(super) fn digests_of(config: &Config, environment: &Environment) -> SettingsDigests {
    let mut digests = SettingsDigests::default();
    for setting in config.settings("") {
        if IGNORED.contains(&setting.key.as_str()) {
            continue;
        }
        if let Some(value) = setting.value {
            digests
                .settings
                .insert(setting.key, sha256(value.to_string().as_bytes()));
        }
    }
    let mut names = config.secret_variables();
    names.extend(
        Provider::ALL
            .into_iter()
            .map(|provider| -> &str { provider.base_url_env() }),
    );
    for name in names {
        if let Some(value) = environment.get(name) {
            digests
                .environment
                .insert(name.to_owned(), sha256(value.as_bytes()));
        }
    }
    digests
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digests(text: &str, variables: &[(&str, &str)]) -> SettingsDigests {
        let environment = Environment::of(variables.iter().copied());
        digests_of(&Config::parse("config.toml", text).unwrap(), &environment)
    }

    #[test]
    fn settings_that_differ_are_named() {
        let base = digests("[model]\nname = \"a\"\n", &[]);
        for (text, changed) in [
            (
                "[model]\nname = \"a\"\n[runtime]\nmax_turns = 200\nrecovery = \"fail\"\n",
                vec![],
            ),
            ("[model]\nname = \"b\"\n", vec!["model.name"]),
            (
                "[model]\nname = \"a\"\n[runtime]\nmax_turns = 7\n",
                vec!["runtime.max_turns"],
            ),
            (
                "[model]\nname = \"a\"\neffort = \"low\"\n",
                vec!["model.effort"],
            ),
        ] {
            assert_eq!(
                digests(text, &[]).changed_settings(&base),
                changed,
                "{text}"
            );
            assert_eq!(
                base.changed_settings(&digests(text, &[])),
                changed,
                "{text}"
            );
        }
    }

    #[test]
    fn variables_that_are_set_and_differ_are_named() {
        let owner = digests(
            "",
            &[("OPENAI_API_KEY", "k"), ("OPENAI_BASE_URL", "http://a")],
        );
        for (variables, changed) in [
            (&[][..], vec![]),
            (&[("OPENAI_API_KEY", "k"), ("HOME", "/x")], vec![]),
            (&[("OPENAI_API_KEY", "other")], vec!["OPENAI_API_KEY"]),
            (
                &[("OPENAI_BASE_URL", "http://b"), ("GEMINI_API_KEY", "g")],
                vec!["GEMINI_API_KEY", "OPENAI_BASE_URL"],
            ),
        ] {
            let own = digests("", variables);
            assert_eq!(own.changed_variables(&owner), changed, "{variables:?}");
            assert!(!format!("{own:?}").contains("other"), "{own:?}");
        }
    }
}
