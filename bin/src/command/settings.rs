//! `soong config show`: prints every setting with its value and its origin.
//!
//! A setting that names the variable of a key is shown with whether the variable is set, never with
//! its value. Errors in the home's preset and skill files are printed below the settings.

use std::path::Path;

use serde::Serialize;
use serde_json::{Value, json};
use soong::{Environment, model::known_server_facts, protocol::ConfigSetting};
use soong_tui::{terminal::TextStyle, text};

use crate::{
    builtin_tools, cli,
    config::{self, BaseUrlOrigin, Endpoint, HomeFiles, Settings},
    context::Context,
    exit::{Exit, Failure},
    log::{self, LogTarget},
    print, secret,
};

/// Maximum width of `key = value` in columns.
const COLUMNS: usize = 100;

/// Printed form of a setting.
#[derive(Debug, Serialize)]
struct SettingRow {
    key: String,
    value: Option<Value>,
    /// `default`, `file`, `server` (what it has last stated), `table of models`, or `environment`
    /// with the name of the variable.
    origin: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<usize>,
    /// For a setting that names an environment variable: whether the variable is set.
    #[serde(skip_serializing_if = "Option::is_none")]
    is_set: Option<bool>,
}

pub(super) fn settings(context: &Context<'_>, options: &cli::Config) -> Result<Exit, Failure> {
    log::start(context.global.verbose, LogTarget::StandardError);
    match options {
        cli::Config::Show => show(context)?,
    }
    Ok(Exit::Success)
}

fn show(context: &Context<'_>) -> Result<(), Failure> {
    let home = context.home()?;
    let home_origin = config::home_origin(&context.global, &context.environment);
    let settings = config::read(&context.global, &home)?;
    let file = settings.file().map(|(path, _)| path);
    let file_origin = if context.global.config.is_some() {
        "--config"
    } else {
        "home"
    };
    let shown = shown(&settings, &home, &context.environment);
    let texts = HomeFiles::look(&home, &settings.config, &builtin_tools::builtins()?);
    let faults: Vec<String> = texts.faults.iter().map(ToString::to_string).collect();
    if context.global.json {
        return print::json(&json!({
            "home": { "value": home, "origin": home_origin },
            "file": file.map(|path| json!({ "value": path, "origin": file_origin })),
            "settings": shown,
            "faults": faults,
        }));
    }
    let paint = context.terminal.stdout;
    let head = |name: &str, value: &str, origin: &str| {
        print::line(&format!(
            "{}  {}  {}",
            paint.paint(TextStyle::Bold, name),
            text::safe_line_keep_spaces(value),
            paint.paint(TextStyle::Dim, origin)
        ))
    };
    head("home", &home.display().to_string(), home_origin)?;
    match file {
        Some(path) => head("file", &path.display().to_string(), file_origin)?,
        None => head(
            "file",
            "none (all settings have their defaults)",
            "create it with `soong init`",
        )?,
    }
    print::line("")?;
    lines(&shown, file, context)?;
    if !faults.is_empty() {
        print::line("")?;
    }
    let fault = |fault: &String| {
        print::line(&format!(
            "{}  {}",
            paint.paint(TextStyle::Red, "broken"),
            text::safe_line(fault)
        ))
    };
    faults.iter().try_for_each(fault)
}

/// Lists the settings with their effective values, including values from the environment.
fn shown(settings: &Settings, home: &Path, environment: &Environment) -> Vec<SettingRow> {
    let text = settings.file().map_or("", |(_, text)| text);
    let models = settings.models(environment);
    let model = &models.config.model;
    let reach = Endpoint::of(model, environment);
    let facts =
        known_server_facts(home, model, environment, model.model_name()).unwrap_or_default();
    let table_window = models
        .catalog
        .find(model.model_name())
        .map(|entry| entry.context_window);
    let to_row = |setting: ConfigSetting| {
        if setting.value.is_none() {
            let (value, origin) = match setting.key.as_str() {
                "model.context_window" if facts.context_window.is_some() => {
                    (facts.context_window, "server")
                }
                "model.context_window" if table_window.is_some() => {
                    (table_window, "table of models")
                }
                "model.max_concurrency" => (
                    facts.default_concurrency().map(|calls| calls as u64),
                    "server",
                ),
                _ => (None, ""),
            };
            if let Some(value) = value {
                let row = one(setting, &reach, environment);
                return SettingRow {
                    value: Some(value.into()),
                    origin: origin.to_owned(),
                    ..row
                };
            }
        }
        // These values follow from other settings and the environment.
        let value = match setting.key.as_str() {
            "model.provider" => Value::from(model.provider().as_str()),
            "model.name" => Value::from(model.model_name()),
            "model.api_key_env" => Value::from(model.api_key_env()),
            "model.max_concurrency" => Value::from(model.max_concurrency()),
            _ => return one(setting, &reach, environment),
        };
        one(
            ConfigSetting {
                value: Some(setting.value.unwrap_or(value)),
                ..setting
            },
            &reach,
            environment,
        )
    };
    settings
        .config
        .settings(text)
        .into_iter()
        .map(to_row)
        .collect()
}

fn one(setting: ConfigSetting, reach: &Endpoint, environment: &Environment) -> SettingRow {
    let ConfigSetting {
        key,
        mut value,
        line,
    } = setting;
    let mut origin = if line.is_some() {
        "file".to_owned()
    } else {
        "default".to_owned()
    };
    if key == "model.base_url" {
        value = Some(Value::from(reach.base_url.as_str()));
        if reach.origin == BaseUrlOrigin::Environment {
            origin = format!("environment {}", reach.base_url_env);
        }
    }
    if key.ends_with(".base_url") {
        value =
            value.map(|url| Value::from(secret::hide_in_address(url.as_str().unwrap_or_default())));
    }
    let variable = value
        .as_ref()
        .and_then(Value::as_str)
        .filter(|_| key.ends_with(".api_key_env"));
    let is_set = variable.map(|variable| environment.get(variable).is_some());
    SettingRow {
        key,
        value,
        origin,
        line,
        is_set,
    }
}

fn lines(shown: &[SettingRow], file: Option<&Path>, context: &Context<'_>) -> Result<(), Failure> {
    let paint = context.terminal.stdout;
    let rows: Vec<(String, String)> = shown
        .iter()
        .map(|setting| {
            let value = setting
                .value
                .as_ref()
                .map_or_else(|| "(not set)".to_owned(), toml);
            let note = match setting.is_set {
                Some(true) => " (set)",
                Some(false) => " (not set)",
                None => "",
            };
            let room = COLUMNS.saturating_sub(text::width(note));
            let left = text::safe_line_keep_spaces(&format!("{} = {value}", setting.key));
            let left = text::cut(&left, room, context.terminal.ellipsis()) + note;
            let origin = match (setting.line, file) {
                (Some(line), Some(file)) => {
                    text::safe_line_keep_spaces(&format!("{}:{line}", file.display()))
                }
                _ => setting.origin.clone(),
            };
            (left, origin)
        })
        .collect();
    let width = rows
        .iter()
        .map(|(left, _)| text::width(left))
        .max()
        .unwrap_or(0);
    for (left, origin) in &rows {
        let style = if origin == "default" {
            TextStyle::Dim
        } else {
            TextStyle::Plain
        };
        print::line(&format!(
            "{}  {}",
            text::pad(left, width),
            paint.paint(style, origin)
        ))?;
    }
    Ok(())
}

/// Formats a value as TOML. Strings, numbers and lists of them look the same in JSON.
fn toml(value: &Value) -> String {
    match value {
        Value::Array(items) => format!(
            "[{}]",
            items.iter().map(toml).collect::<Vec<_>>().join(", ")
        ),
        value => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_show_their_origin_and_no_secret() {
        let check = |text: &str, key: &str, variables: &[(&str, &str)]| {
            let settings = Settings::of("c.toml", text);
            let environment = Environment::of(variables.iter().copied());
            let all = shown(&settings, Path::new("no-home"), &environment);
            assert!(
                !serde_json::to_string(&all).unwrap().contains("s3cret"),
                "{all:?}"
            );
            let found = all.into_iter().find(|setting| setting.key == key).unwrap();
            let value = found.value.as_ref().map(toml).unwrap_or_default();
            format!(
                "{value} {} {:?} {:?}",
                found.origin, found.line, found.is_set
            )
        };
        let url = "[model]\nbase_url = \"http://me:s3cret@a/v1\"\n";
        let of_environment = [
            ("OPENAI_BASE_URL", "http://b/v1?key=s3cret"),
            ("OPENAI_API_KEY", "s3cret"),
        ];
        for (text, key, variables, want) in [
            (
                "",
                "model.base_url",
                &[][..],
                "\"https://api.openai.com/v1\" default None None",
            ),
            (
                "",
                "model.base_url",
                &of_environment,
                "\"http://b/v1?[hidden]\" environment OPENAI_BASE_URL None None",
            ),
            (
                url,
                "model.base_url",
                &of_environment,
                "\"http://[hidden]@a/v1\" file Some(2) None",
            ),
            (
                "",
                "model.api_key_env",
                &of_environment,
                "\"OPENAI_API_KEY\" default None Some(true)",
            ),
            (
                "",
                "model.api_key_env",
                &[],
                "\"OPENAI_API_KEY\" default None Some(false)",
            ),
            ("", "model.temperature", &[], " default None None"),
            (
                "tools.disabled = [\"grep\", \"glob\"]\n",
                "tools.disabled",
                &[],
                "[\"grep\", \"glob\"] file Some(1) None",
            ),
        ] {
            assert_eq!(check(text, key, variables), want, "{key} {variables:?}");
        }
    }
}
