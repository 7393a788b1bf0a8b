//! `soong init`: finds a model, checks it with a short run, and writes a config.toml for it.
//!
//! Modules: `search` (the models that are available), `choice` (asks the user which one).

mod choice;
mod search;

use std::{io::Write, path::Path};

use serde_json::{Value, json};
use soong::protocol::Provider;

use self::search::{Candidate, SearchResult};
use super::{block_on_current_thread, doctor};
use crate::{
    cli,
    config::{self, Settings},
    context::Context,
    exit::{Exit, Failure},
    log::{self, LogTarget},
    print, prompts,
};

/// Content of the file of `--full`: every setting at its default, commented out.
const TEMPLATE: &str = include_str!("../config.template.toml");

/// Printed after a file was written.
const NEXT: &str = "Next: `soong` opens a chat; `soong run \"…\"` runs one prompt.";

pub(super) fn init(context: &Context<'_>, options: &cli::Init) -> Result<Exit, Failure> {
    log::start(context.global.verbose, LogTarget::StandardError);
    let home = config::home(&context.global, &context.environment)?;
    let path = context
        .global
        .config
        .clone()
        .unwrap_or_else(|| home.join("config.toml"));
    if path.exists() && !options.force {
        return Err(exists(&path));
    }
    if options.full {
        write(context, &path, TEMPLATE, options.force)?;
        return print_written(context, &path, None);
    }
    if !context.global.json {
        print::error_line(
            "looking for API keys in the environment, and for servers on this machine",
        );
    }
    let found = block_on_current_thread(async { Ok(search::find(&context.environment).await) })?;
    let asks = !options.yes && !context.global.json && prompts::is_interactive();
    let (model, checks) = choose(context, &home, &path, found, asks)?;
    write(context, &path, &model.config_text(), options.force)?;
    print_written(context, &path, Some((&model, checks)))
}

/// Returns a model that answers and the results of its checks. The user chooses it if `asks`;
/// otherwise it is the first one.
///
/// # Errors
/// No model was found or chosen; without questions, also a model that does not work.
fn choose(
    context: &Context<'_>,
    home: &Path,
    path: &Path,
    found: SearchResult,
    asks: bool,
) -> Result<(Candidate, Value), Failure> {
    found
        .problems
        .iter()
        .for_each(|problem| print::note(problem));
    let Some(first) = found.candidates.first() else {
        let what =
            "no usable model was found, neither by an API key nor on a server of this machine";
        return Err(Failure::usage(
            what,
            config::ways_to_a_model(Provider::Openai.api_key_env()),
        ));
    };
    loop {
        let model = if asks {
            block_on_current_thread(choice::ask(&found.candidates))?
        } else {
            Some(first.clone())
        };
        let Some(model) = model else {
            return Err(Failure::usage(
                "no model was chosen; nothing was written",
                "Start again with `soong init`.",
            ));
        };
        let settings = Settings::parse(path.to_owned(), model.config_text(), home)?;
        let called = doctor::call_model(context, settings)?;
        if !context.global.json {
            called
                .checks
                .iter()
                .try_for_each(|check| check.print(context))?;
        }
        if called.exit == Exit::Success {
            return Ok((
                model,
                serde_json::to_value(&called.checks).unwrap_or_default(),
            ));
        }
        if !asks {
            let broken = called
                .checks
                .iter()
                .find_map(|check| check.failure())
                .unwrap_or_default();
            let what =
                format!("no configuration was written, because the model does not work: {broken}");
            let advice = "Set another key or OPENAI_BASE_URL, or write the file yourself: `soong init --full`.";
            return Err(Failure::new(called.exit, what, advice));
        }
    }
}

/// Writes a configuration file. Its folder is created if necessary.
fn write(context: &Context<'_>, path: &Path, text: &str, overwrite: bool) -> Result<(), Failure> {
    let failed = |error: std::io::Error| {
        let what = format!("{} cannot be written: {error}", path.display());
        Failure::new(
            Exit::Failed,
            what,
            "Choose another home with --home DIR, or another file with --config FILE.",
        )
    };
    match (&context.global.config, path.parent()) {
        (None, Some(home)) => config::make_home(home).map_err(failed)?,
        (Some(_), Some(folder)) => std::fs::create_dir_all(folder).map_err(failed)?,
        (_, None) => {}
    }
    // A file that cannot be written completely does not replace the other one.
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    let mut file = tempfile::NamedTempFile::new_in(folder).map_err(failed)?;
    file.write_all(text.as_bytes()).map_err(failed)?;
    let moved = if overwrite {
        file.persist(path)
    } else {
        file.persist_noclobber(path)
    };
    match moved {
        Err(error) if error.error.kind() == std::io::ErrorKind::AlreadyExists => Err(exists(path)),
        moved => moved.map(drop).map_err(|error| failed(error.error)),
    }
}

fn exists(path: &Path) -> Failure {
    let what = format!("{} already exists and was not changed", path.display());
    Failure::new(
        Exit::Refused,
        what,
        "Overwrite it with `soong init --force`.",
    )
}

/// Prints the path of the file, and the model and its checks if there are any.
fn print_written(
    context: &Context<'_>,
    path: &Path,
    model: Option<(&Candidate, Value)>,
) -> Result<Exit, Failure> {
    let path = path.display().to_string();
    match (context.global.json, model) {
        (true, Some((model, checks))) => {
            print::json(&json!({ "path": path, "model": model.name, "checks": checks }))?;
        }
        (true, None) => print::json(&json!({ "path": path }))?,
        (false, model) => {
            print::line(&format!("wrote {path}"))?;
            if model.is_some() {
                print::line(NEXT)?;
            }
        }
    }
    Ok(Exit::Success)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::Value;
    use soong::Config;

    use super::*;

    /// Uncomments the settings (`#key = value`, no space), and the examples (`#e …`) if
    /// `with_examples` is set.
    fn uncommented(with_examples: bool) -> String {
        let bare = |line: &'static str| match line.strip_prefix("#e ") {
            Some(example) if with_examples => example,
            Some(_) => "",
            None => line
                .strip_prefix('#')
                .filter(|rest| rest.starts_with(char::is_alphabetic))
                .unwrap_or(line),
        };
        TEMPLATE
            .lines()
            .map(bare)
            .map(|line| format!("{line}\n"))
            .collect()
    }

    /// Returns `section.key` of every setting of the text.
    fn keys(text: &str) -> BTreeSet<String> {
        let mut section = String::new();
        let mut keys = BTreeSet::new();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            if let Some(name) = line.strip_prefix('[') {
                section = name.trim_end_matches(']').to_owned();
                keys.insert(section.clone());
            } else if let Some((key, _)) = line.split_once(" = ") {
                keys.insert(format!("{section}.{key}"));
            }
        }
        keys
    }

    fn paths(value: &Value, at: &str, found: &mut Vec<String>) {
        if let Value::Object(fields) = value {
            for (key, value) in fields {
                let path = if at.is_empty() {
                    key.clone()
                } else {
                    format!("{at}.{key}")
                };
                if !value.is_object() {
                    found.push(path.clone());
                }
                paths(value, &path, found);
            }
        }
    }

    #[test]
    fn template_values_are_the_defaults() {
        let text = uncommented(false);
        let config = Config::parse("config.template.toml", &text)
            .unwrap_or_else(|error| panic!("{error}\n{text}"));
        assert_eq!(config, Config::default());
        assert_eq!(
            Config::parse("config.template.toml", TEMPLATE).unwrap(),
            Config::default()
        );
    }

    #[test]
    fn template_lists_every_setting() {
        let found = keys(&uncommented(false));
        let mut wanted = Vec::new();
        paths(
            &serde_json::to_value(Config::default()).unwrap(),
            "",
            &mut wanted,
        );
        // A setting without a default can only be an example.
        wanted.retain(|key| {
            !["runtime.recovery", "tools.bash.max_memory_mb"].contains(&key.as_str())
        });
        assert!(wanted.len() > 15, "{wanted:?}");
        for key in wanted {
            assert!(
                found.contains(&key),
                "{key} is missing in config.template.toml; there is {found:#?}"
            );
        }
    }

    #[test]
    fn template_examples_are_valid() {
        let text = uncommented(true);
        let config = Config::parse("config.template.toml", &text)
            .unwrap_or_else(|error| panic!("{error}\n{text}"));
        assert!(config.model.base_url.is_some() && config.model.temperature.is_some());
        assert_eq!(
            (
                config.model_profiles.len(),
                config.prices.len(),
                config.presets.len()
            ),
            (1, 1, 1)
        );
    }

    #[test]
    fn every_setting_has_a_comment() {
        let lines: Vec<&str> = TEMPLATE.lines().collect();
        for (at, line) in lines.iter().enumerate() {
            let is_setting = line.starts_with('#')
                && !line.starts_with("# ")
                && !line.starts_with("#e ")
                && line.len() > 1;
            assert!(
                !is_setting || lines[at - 1].starts_with("# "),
                "line {} has no comment: {line}",
                at + 1
            );
        }
    }
}
