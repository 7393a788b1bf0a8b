//! Suggests commands for an unknown one.

use clap::{
    CommandFactory, Error,
    error::{ContextKind, ContextValue},
};

use super::Cli;

/// Maximum edit distance between an unknown command and a suggested one.
const MAX_DISTANCE: usize = 2;
/// Maximum number of suggested commands.
const MAX_SUGGESTIONS: usize = 3;

/// Adds suggestions to the error of an unknown command. If groups have a command of that name, adds
/// these, such as `traces export` for `export`, but none if there are more than
/// [`MAX_SUGGESTIONS`]. Otherwise adds the closest command.
pub(crate) fn with_suggestion(mut error: Error) -> Error {
    let Some(ContextValue::String(name)) = error.get(ContextKind::InvalidSubcommand) else {
        return error;
    };
    let command = Cli::command();
    let shown = || {
        command
            .get_subcommands()
            .filter(|command| !command.is_hide_set())
    };
    let of_groups = shown().filter(|group| {
        group
            .get_subcommands()
            .any(|command| command.get_name() == name)
    });
    let mut likely: Vec<String> = of_groups
        .map(|group| format!("{} {name}", group.get_name()))
        .collect();
    if likely.is_empty() && error.get(ContextKind::SuggestedSubcommand).is_none() {
        likely.extend(nearest_of(name, shown().map(clap::Command::get_name)).map(str::to_owned));
    }
    if (1..=MAX_SUGGESTIONS).contains(&likely.len()) {
        error.insert(
            ContextKind::SuggestedSubcommand,
            ContextValue::Strings(likely),
        );
    }
    error
}

/// Returns the name that a misspelled one is likely to mean.
pub(crate) fn nearest_of<'a>(name: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let nearest = names
        .map(|known| (strsim::damerau_levenshtein(name, known), known))
        .min()?;
    (nearest.0 <= MAX_DISTANCE && nearest.0 < name.chars().count()).then_some(nearest.1)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[test]
    fn unknown_command_suggests_the_nearest_one() {
        for (name, want) in [
            ("rn", Some("run")),
            ("chta", Some("chat")),
            ("tre", Some("tree")),
            ("export", Some("traces export")),
            ("list", None),
            ("qqqq", None),
        ] {
            let error = with_suggestion(Cli::try_parse_from(["soong", name]).unwrap_err());
            let message = error.to_string();
            match want {
                Some(want) => assert!(message.contains(&format!("'{want}'")), "{message}"),
                None => assert!(!message.contains("similar"), "{message}"),
            }
        }
    }
}
