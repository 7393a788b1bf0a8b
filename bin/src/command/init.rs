//! `soong init`: writes a config.toml with every setting, its default and its meaning.

use std::{fs::File, io::Write};

use crate::{
    cli, config,
    context::Context,
    exit::{Exit, Failure},
    log::{self, LogTarget},
    print,
};

/// Content of the file: every setting at its default, commented out.
const TEMPLATE: &str = include_str!("../config.template.toml");

pub(super) fn init(context: &Context<'_>, options: &cli::Init) -> Result<Exit, Failure> {
    log::start(context.global.verbose, LogTarget::StandardError);
    let path = match &context.global.config {
        Some(path) => path.clone(),
        None => config::home(&context.global, &context.environment)?.join("config.toml"),
    };
    let failed = |error: std::io::Error| {
        let what = format!("{} cannot be written: {error}", path.display());
        Failure::new(Exit::Failed, what, "Choose another home with --home DIR, or another file with --config FILE.")
    };
    match (&context.global.config, path.parent()) {
        (None, Some(home)) => config::make_home(home).map_err(failed)?,
        (Some(_), Some(folder)) => std::fs::create_dir_all(folder).map_err(failed)?,
        (_, None) => {}
    }
    let mut file = File::options();
    file.write(true);
    let opened = if options.force { file.create(true).truncate(true) } else { file.create_new(true) }.open(&path);
    let mut file = match opened {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
            let what = format!("{} already exists and was not changed", path.display());
            return Err(Failure::new(Exit::Refused, what, "Overwrite it with `soong init --force`."));
        }
        other => other.map_err(failed)?,
    };
    file.write_all(TEMPLATE.as_bytes()).map_err(failed)?;
    if context.global.json {
        print::json(&serde_json::json!({ "path": path.display().to_string() }))?;
    } else {
        print::line(&format!("wrote {}", path.display()))?;
    }
    Ok(Exit::Success)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::Value;
    use soong::Config;

    use super::*;

    /// Uncomments the settings (`#key = value`, no space), and the examples (`#e …`) if `with_examples` is set.
    fn uncommented(with_examples: bool) -> String {
        let bare = |line: &'static str| match line.strip_prefix("#e ") {
            Some(example) if with_examples => example,
            Some(_) => "",
            None => line.strip_prefix('#').filter(|rest| rest.starts_with(char::is_alphabetic)).unwrap_or(line),
        };
        TEMPLATE.lines().map(bare).map(|line| format!("{line}\n")).collect()
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
                let path = if at.is_empty() { key.clone() } else { format!("{at}.{key}") };
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
        let config = Config::parse("config.template.toml", &text).unwrap_or_else(|error| panic!("{error}\n{text}"));
        assert_eq!(config, Config::default());
        assert_eq!(Config::parse("config.template.toml", TEMPLATE).unwrap(), Config::default());
    }

    #[test]
    fn template_lists_every_setting() {
        let found = keys(&uncommented(false));
        let mut wanted = Vec::new();
        paths(&serde_json::to_value(Config::default()).unwrap(), "", &mut wanted);
        // A setting without a default can only be an example.
        wanted.retain(|key| key != "tools.bash.max_memory_mb");
        assert!(wanted.len() > 15, "{wanted:?}");
        for key in wanted {
            assert!(found.contains(&key), "{key} is missing in config.template.toml; there is {found:#?}");
        }
    }

    #[test]
    fn template_examples_are_valid() {
        let text = uncommented(true);
        let config = Config::parse("config.template.toml", &text).unwrap_or_else(|error| panic!("{error}\n{text}"));
        assert!(config.model.base_url.is_some() && config.model.temperature.is_some());
        assert_eq!((config.model_profiles.len(), config.prices.len(), config.presets.len()), (1, 1, 1));
    }

    #[test]
    fn every_setting_has_a_comment() {
        let lines: Vec<&str> = TEMPLATE.lines().collect();
        for (at, line) in lines.iter().enumerate() {
            let is_setting =
                line.starts_with('#') && !line.starts_with("# ") && !line.starts_with("#e ") && line.len() > 1;
            assert!(!is_setting || lines[at - 1].starts_with("# "), "line {} has no comment: {line}", at + 1);
        }
    }
}
