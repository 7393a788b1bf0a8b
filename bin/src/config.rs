//! Where home and configuration lie, and what the configuration says.

use std::path::{Path, PathBuf};

use soong::{Config, Environment, protocol::Provider};

use crate::{cli::Global, exit::Failure};

/// Returns the home: `--home`, else `SOONG_AGENT_HOME`, else `~/.soong-agent`.
pub(crate) fn home(global: &Global, environment: &Environment) -> Result<PathBuf, Failure> {
    global.home.clone().or_else(|| environment.home()).ok_or_else(|| {
        Failure::usage(
            "there is no home directory: neither HOME nor SOONG_AGENT_HOME is set",
            "Give one with --home DIR.",
        )
    })
}

/// The configuration with where it came from.
#[derive(Debug, Default)]
pub(crate) struct Settings {
    pub(crate) config: Config,
    /// The file with its text; absent = defaults.
    file: Option<(PathBuf, String)>,
}

/// Reads the file of `--config`, else the home's `config.toml` if there is one.
pub(crate) fn read(global: &Global, home: &Path) -> Result<Settings, Failure> {
    let own = home.join("config.toml");
    let path = match &global.config {
        Some(path) => path.clone(),
        None if own.exists() => own,
        None => return Ok(Settings::default()),
    };
    let text = std::fs::read_to_string(&path).map_err(|error| {
        Failure::usage(
            format!("the configuration {} cannot be read: {error}", path.display()),
            "Give a file that exists, or write one with `soong init`.",
        )
    })?;
    let config = Config::parse(&path.display().to_string(), &text).map_err(|error| {
        Failure::usage(error.to_string(), "Correct that line; `soong init` writes a file with every setting explained.")
    })?;
    Ok(Settings { config, file: Some((path, text)) })
}

impl Settings {
    /// Refuses to begin without what the model needs, and says the ways out.
    pub(crate) fn check_model(&self, model: Option<&str>, environment: &Environment) -> Result<(), Failure> {
        let name = model.unwrap_or("default");
        if name == "offline" {
            return Ok(());
        }
        // A name that is no profile is a model of the default profile.
        let profile = self.config.profile(name).unwrap_or_else(|| self.config.model.clone());
        let has_key = environment.get(&profile.api_key_env).is_some();
        let has_server = profile.base_url.is_some() || environment.get("OPENAI_BASE_URL").is_some();
        if profile.provider != Provider::Openai || has_key || has_server {
            return Ok(());
        }
        let wanted = self.place("api_key_env").map_or_else(String::new, |place| format!(" (set at {place})"));
        Err(Failure::usage(
            format!(
                "no model can be reached: {}{wanted} is not set, and model profile \"{name}\" has no base_url",
                profile.api_key_env
            ),
            format!(
                "There are three ways out:\n\
                 1. a key:            export {}=…\n\
                 2. a local server:   export OPENAI_BASE_URL=http://127.0.0.1:11434/v1   (or model.base_url in config.toml)\n\
                 3. without a model:  `soong demo`, or `--model offline` (rules instead of a language model)",
                profile.api_key_env
            ),
        ))
    }

    /// Returns file and line where a key is set.
    fn place(&self, key: &str) -> Option<String> {
        let (path, text) = self.file.as_ref()?;
        let line = text.lines().position(|line| line.trim_start().starts_with(key))?;
        Some(format!("{}:{}", path.display(), line + 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_begins_only_with_a_key_a_server_or_the_offline_model() {
        let parse =
            |text: &str| Settings { config: Config::parse("c", text).unwrap(), file: Some(("c".into(), text.into())) };
        let none: Vec<(&str, &str)> = vec![];
        for (text, model, variables, ok) in [
            ("", None, none.clone(), false),
            ("", Some("offline"), none.clone(), true),
            ("", Some("gpt-4.1"), none.clone(), false),
            ("", None, vec![("OPENAI_API_KEY", "k")], true),
            ("", None, vec![("OPENAI_BASE_URL", "http://x/v1")], true),
            ("[model]\nbase_url = \"http://x/v1\"\n", None, none.clone(), true),
            ("[model]\nprovider = \"offline\"\n", None, none.clone(), true),
            ("[model]\napi_key_env = \"MINE\"\n", None, vec![("OPENAI_API_KEY", "k")], false),
            ("[model_profiles.small]\nbase_url = \"http://x/v1\"\n", Some("small"), none.clone(), true),
        ] {
            let checked = parse(text).check_model(model, &Environment::of(variables.clone()));
            assert_eq!(checked.is_ok(), ok, "{text:?} {model:?} {variables:?}");
        }
        let refused =
            parse("[model]\napi_key_env = \"MINE\"\n").check_model(None, &Environment::default()).unwrap_err();
        assert!(refused.what.contains("MINE (set at c:2)"), "{}", refused.what);
    }
}
