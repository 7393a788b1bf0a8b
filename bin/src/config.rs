//! Location of the home and the configuration file, the settings, and the endpoints of the models.
//!
//! Elsewhere: printing the settings (`command/settings.rs`).

use std::{
    borrow::Cow,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
};

use soong::{
    Config, Environment, ErrorInfo, HomeFileError,
    model::{
        ModelCatalog,
        catalog::ModelLimits,
        known_server_facts,
        selection::{complete_default_model, split_model_name},
    },
    preset::{KnownPreset, PresetFiles, presets},
    protocol::{ModelConfig, Provider, ToolSpec},
    skill::Skills,
};

use soong_storage::blob::BlobLocation;

use crate::{
    cli::{Global, nearest_of},
    exit::Failure,
    file, secret,
};

/// Advice for an error in a line of the configuration file.
const CORRECT_LINE: &str =
    "Correct that line; `soong init --full` writes a file with every setting explained.";

/// Returns the home: `--home`, else `SOONG_AGENT_HOME`, else `~/.soong-agent`.
pub(crate) fn home(global: &Global, environment: &Environment) -> Result<PathBuf, Failure> {
    global
        .home
        .clone()
        .or_else(|| environment.home())
        .ok_or_else(|| {
            Failure::usage(
                "there is no home directory: neither HOME nor SOONG_AGENT_HOME is set",
                "Give one with --home DIR.",
            )
        })
}

/// Returns the origin of the home's path.
pub(crate) fn home_origin(global: &Global, environment: &Environment) -> &'static str {
    match (&global.home, environment.get("SOONG_AGENT_HOME")) {
        (Some(_), _) => "--home",
        (None, Some(_)) => "environment SOONG_AGENT_HOME",
        (None, None) => "default",
    }
}

/// Origin of a profile's base URL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BaseUrlOrigin {
    /// The profile, or the `[model]` table that it inherits from.
    Config,
    /// An environment variable, such as `OPENAI_BASE_URL`.
    Environment,
    /// The vendor's own service.
    Default,
}

/// Endpoint of a model profile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Endpoint {
    pub(crate) base_url: String,
    pub(crate) origin: BaseUrlOrigin,
    /// Environment variable with the base URL for profiles that set none.
    pub(crate) base_url_env: &'static str,
    /// Whether the variable of the key is set.
    pub(crate) has_key: bool,
    needs_key: bool,
}

impl Endpoint {
    /// Returns the endpoint of a profile. Its own base URL takes precedence over the environment.
    pub(crate) fn of(profile: &ModelConfig, environment: &Environment) -> Self {
        let (base_url, origin) = match (
            &profile.base_url,
            environment.get(profile.provider().base_url_env()),
        ) {
            (Some(url), _) => (url.as_str(), BaseUrlOrigin::Config),
            (None, Some(url)) => (url, BaseUrlOrigin::Environment),
            (None, None) => (profile.provider().base_url(), BaseUrlOrigin::Default),
        };
        Self {
            base_url: base_url.to_owned(),
            origin,
            base_url_env: profile.provider().base_url_env(),
            has_key: environment.get(profile.api_key_env()).is_some(),
            needs_key: profile.provider() != Provider::Offline,
        }
    }

    /// Returns whether a run can start: only the vendor's own service requires a key.
    pub(crate) fn is_usable(&self) -> bool {
        !self.needs_key || self.has_key || self.origin != BaseUrlOrigin::Default
    }
}

/// Creates the home if it does not exist, readable only by its user, since it contains
/// conversations.
pub(crate) fn make_home(home: &Path) -> std::io::Result<()> {
    if let Some(above) = home.parent() {
        std::fs::create_dir_all(above)?;
    }
    match std::fs::DirBuilder::new().mode(0o700).create(home) {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
        made => made,
    }
}

/// The configuration and the file it was read from.
#[derive(Debug, Default)]
pub(crate) struct Settings {
    pub(crate) config: Config,
    /// The built-in table of models, with the entries of the home.
    catalog: Option<Cow<'static, ModelCatalog>>,
    /// Path and text of the file. `None`: all settings have their defaults.
    file: Option<(PathBuf, String)>,
}

/// Reads the file given with `--config`, else the home's `config.toml` if it exists.
pub(crate) fn read(global: &Global, home: &Path) -> Result<Settings, Failure> {
    let own = home.join("config.toml");
    let path = match &global.config {
        Some(path) => path.clone(),
        None if own.exists() => own,
        None => {
            return Ok(Settings {
                catalog: Some(catalog(home)?),
                ..Settings::default()
            });
        }
    };
    let text =
        soong_server::text_file::read_text(&path, file::MAX_TEXT_BYTES).map_err(|error| {
            Failure::usage(
                format!(
                    "the configuration {} cannot be read: {error}",
                    path.display()
                ),
                "Give a file that exists, or write one with `soong init`.",
            )
        })?;
    Settings::parse(path, text, home)
}

/// Returns the table of models of a home.
fn catalog(home: &Path) -> Result<Cow<'static, ModelCatalog>, Failure> {
    ModelCatalog::of_home(home).map_err(|error| {
        Failure::usage(
            error,
            "Replace it with `soong models update FILE`, or delete it.",
        )
    })
}

/// The model profiles as runs use them, with the default model completed.
pub(crate) struct Models<'a> {
    pub(crate) config: Config,
    pub(crate) catalog: &'a ModelCatalog,
    /// Whether model names belong to the default profile.
    default_takes_names: bool,
}

impl Models<'_> {
    /// Returns the name and the settings of the profile that serves a model.
    pub(crate) fn profile<'n>(&self, model: &'n str) -> Result<(&'n str, ModelConfig), ErrorInfo> {
        let is_profile = |name: &str| self.config.model_profiles.contains_key(name);
        let (name, own_name) =
            split_model_name(model, is_profile, self.default_takes_names, self.catalog)?;
        let mut profile = self
            .config
            .profile(name)
            .unwrap_or_else(|| self.config.model.clone());
        if own_name.is_some() {
            profile.name = own_name.map(str::to_owned);
        }
        Ok((name, profile))
    }

    /// Returns the limits of the model of a profile, with what its server has last stated.
    pub(crate) fn limits(
        &self,
        profile: &ModelConfig,
        home: &Path,
        environment: &Environment,
    ) -> ModelLimits {
        let name = profile.model_name();
        let limits = self.catalog.limits(profile, name);
        match known_server_facts(home, profile, environment, name) {
            Some(facts) => limits.at_server(profile, &facts),
            None => limits,
        }
    }
}

/// The usable presets and skills of a home, and the errors in the other files.
pub(crate) struct HomeFiles {
    pub(crate) presets: Vec<KnownPreset>,
    pub(crate) skills: Skills,
    pub(crate) faults: Vec<HomeFileError>,
    /// Keys that are ignored in usable files.
    pub(crate) warnings: Vec<HomeFileError>,
}

impl HomeFiles {
    /// Reads the files of a home. `tools` are the tools that presets may name.
    pub(crate) fn look(home: &Path, config: &Config, tools: &[ToolSpec]) -> Self {
        let tools: Vec<&str> = tools.iter().map(|tool| tool.name.as_str()).collect();
        let files = PresetFiles::read(home, &tools, config);
        let (skills, of_skills) = Skills::load_usable(home);
        let presets = presets(&files, config, &[]);
        let warnings = [&files.warnings[..], skills.warnings()].concat();
        Self {
            presets,
            skills,
            faults: [files.faults, of_skills].concat(),
            warnings,
        }
    }
}

impl Settings {
    /// Returns the settings of a file with this text.
    #[cfg(test)]
    pub(crate) fn of(file: &str, text: &str) -> Self {
        Self {
            config: Config::parse(file, text).unwrap(),
            file: Some((file.into(), text.to_owned())),
            catalog: None,
        }
    }

    /// Parses the text of a configuration file for a home.
    pub(crate) fn parse(path: PathBuf, text: String, home: &Path) -> Result<Self, Failure> {
        let config = Config::parse(&path.display().to_string(), &text).map_err(|error| {
            Failure::usage(
                with_similar_field(&error.to_string()),
                format!("{}\n{CORRECT_LINE}", error.excerpt),
            )
        })?;
        secret::set_known(&Environment::from_process(), &config);
        if let Err(error) = BlobLocation::parse(&config.artifacts.store) {
            let line = Config::line(&text, &["artifacts", "store"]).unwrap_or(1);
            let what = format!("{}:{line}: `artifacts.store`: {error}", path.display());
            return Err(Failure::usage(what, CORRECT_LINE));
        }
        Ok(Self {
            config,
            catalog: Some(catalog(home)?),
            file: Some((path, text)),
        })
    }

    /// Returns the model profiles as runs use them.
    pub(crate) fn models(&self, environment: &Environment) -> Models<'_> {
        let mut config = self.config.clone();
        let catalog = self
            .catalog
            .as_deref()
            .unwrap_or_else(|| ModelCatalog::built_in());
        let default_takes_names = complete_default_model(&mut config, catalog, environment);
        Models {
            config,
            catalog,
            default_takes_names,
        }
    }

    /// Describes the default model if a key selects it, because none is configured.
    pub(crate) fn model_selected_by_key(&self, environment: &Environment) -> Option<String> {
        let models = self.models(environment);
        let model = &models.config.model;
        let is_selected = self.config.model.name.is_none()
            && !models.default_takes_names
            && model.provider.is_some();
        is_selected.then(|| {
            format!(
                "model {} ({} is set)",
                model.model_name(),
                model.api_key_env()
            )
        })
    }

    /// Fails with advice if the endpoint or API key that the model needs is missing.
    pub(crate) fn check_model(
        &self,
        model: Option<&str>,
        environment: &Environment,
    ) -> Result<(), Failure> {
        let name = model.unwrap_or("default");
        if name == "offline" {
            return Ok(());
        }
        let models = self.models(environment);
        let (name, profile) = models.profile(name)?;
        if Endpoint::of(&profile, environment).is_usable() {
            return Ok(());
        }
        let own = self.key_location(&["model_profiles", name, "api_key_env"]);
        let location = own.or_else(|| self.key_location(&["model", "api_key_env"]));
        let described = if Provider::ALL
            .into_iter()
            .any(|provider| provider.as_str() == name)
        {
            format!("provider \"{name}\" (model {})", profile.model_name())
        } else {
            format!("model profile \"{name}\"")
        };
        let wanted = location.map_or_else(String::new, |location| format!(" (set at {location})"));
        Err(Failure::usage(
            format!(
                "no usable model: {}{wanted} is not set, and {described} has no base_url",
                profile.api_key_env()
            ),
            format!(
                "{}\n`soong init` looks for keys and local servers, and checks the model.",
                ways_to_a_model(profile.api_key_env())
            ),
        ))
    }

    /// Returns the path and text of the file, or `None` if all settings have their defaults.
    pub(crate) fn file(&self) -> Option<(&Path, &str)> {
        self.file
            .as_ref()
            .map(|(path, text)| (path.as_path(), text.as_str()))
    }

    /// Returns the file and line in which a key is set.
    fn key_location(&self, key: &[&str]) -> Option<String> {
        let (path, text) = self.file()?;
        Config::line(text, key).map(|line| format!("{}:{line}", path.display()))
    }
}

/// Replaces the list of all fields in an error about an unknown field by the most similar one.
/// Returns other errors, and those without a similar field, unchanged.
fn with_similar_field(error: &str) -> String {
    let similar = || {
        let (start, expected) = error.split_once(", expected one of ")?;
        let (_, unknown) = start.rsplit_once("unknown field `")?;
        let unknown = unknown.strip_suffix('`')?;
        let nearest = nearest_of(
            unknown,
            expected.split(", ").map(|field| field.trim_matches('`')),
        )?;
        Some(format!("{start}; did you mean `{nearest}`?"))
    };
    similar().unwrap_or_else(|| error.to_owned())
}

/// Returns advice for a user without a model. `key`: environment variable of the key that is
/// missing.
pub(crate) fn ways_to_a_model(key: &str) -> String {
    let vendors =
        [Provider::Openai, Provider::Anthropic, Provider::Gemini].map(Provider::api_key_env);
    let others: Vec<&str> = vendors.into_iter().filter(|name| *name != key).collect();
    format!(
        "Choose one of:\n\
         1. an API key:       export {key}=…   (or {})\n\
         2. a local server:   export OPENAI_BASE_URL=http://127.0.0.1:11434/v1   (or model.base_url in config.toml)\n\
         3. no model:         `soong demo`, or `--model offline` (rules instead of a language model)",
        others.join(", or ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn model_that_a_key_selects_is_described() {
        let key = Environment::of([("GEMINI_API_KEY", "k")]);
        let shown = |text: &str, environment: &Environment| {
            Settings::of("c", text).model_selected_by_key(environment)
        };
        assert_eq!(
            shown("", &key).as_deref(),
            Some("model gemini-3.8-flash (GEMINI_API_KEY is set)")
        );
        assert_eq!(shown("", &Environment::default()), None);
        assert_eq!(shown("[model]\nname = \"gemini-3.6-flash\"\n", &key), None);
    }

    #[test]
    fn unknown_field_is_answered_with_the_similar_one() {
        let error =
            |text: &str| with_similar_field(&Config::parse("c", text).unwrap_err().to_string());
        assert_eq!(
            error("[model]\ntemperatur = 1\n"),
            "c:2: `model.temperatur`: unknown field `temperatur`; did you mean `temperature`?"
        );
        assert!(error("[model]\nzzzzzz = 1\n").contains("expected one of `provider`"));
        assert!(!error("[model]\nname = 1\n").contains("did you mean"));
    }

    #[test]
    fn run_requires_api_key_base_url_or_offline_model() {
        let parse = |text: &str| Settings::of("c", text);
        let none: Vec<(&str, &str)> = vec![];
        for (text, model, variables, ok) in [
            ("", None, none.clone(), false),
            ("", Some("offline"), none.clone(), true),
            ("", Some("gpt-4.1"), none.clone(), false),
            ("", None, vec![("OPENAI_API_KEY", "k")], true),
            ("", None, vec![("OPENAI_BASE_URL", "http://x/v1")], true),
            (
                "[model]\nbase_url = \"http://x/v1\"\n",
                None,
                none.clone(),
                true,
            ),
            (
                "[model]\nprovider = \"offline\"\n",
                None,
                none.clone(),
                true,
            ),
            (
                "[model]\napi_key_env = \"MINE\"\n",
                None,
                vec![("OPENAI_API_KEY", "k")],
                false,
            ),
            (
                "[model_profiles.small]\nbase_url = \"http://x/v1\"\n",
                Some("small"),
                none.clone(),
                true,
            ),
        ] {
            let checked = parse(text).check_model(model, &Environment::of(variables.clone()));
            assert_eq!(checked.is_ok(), ok, "{text:?} {model:?} {variables:?}");
        }
        let text =
            "[model]\napi_key_env = \"MINE\"\n[model_profiles.small]\napi_key_env = \"OTHER\"\n";
        for (model, want) in [
            (None, "MINE (set at c:2)"),
            (Some("small"), "OTHER (set at c:4)"),
        ] {
            let refused = parse(text)
                .check_model(model, &Environment::default())
                .unwrap_err();
            assert!(refused.what.contains(want), "{}", refused.what);
        }
    }
}
