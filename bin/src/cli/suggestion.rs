//! Suggests the closest command for a misspelled one if the parser suggests none.

use clap::{
    CommandFactory, Error,
    error::{ContextKind, ContextValue},
};

use super::Cli;

/// Maximum edit distance between an unknown command and a suggested one.
const MAX_DISTANCE: usize = 2;

/// Adds the closest command to the error of an unknown command.
pub(crate) fn with_suggestion(mut error: Error) -> Error {
    let has_suggestion = error.get(ContextKind::SuggestedSubcommand).is_some();
    if let Some(ContextValue::String(name)) = error.get(ContextKind::InvalidSubcommand)
        && !has_suggestion
        && let Some(nearest) = nearest(name)
    {
        error.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(vec![nearest]));
    }
    error
}

fn nearest(name: &str) -> Option<String> {
    let command = Cli::command();
    let names = command.get_subcommands().filter(|command| !command.is_hide_set()).map(clap::Command::get_name);
    nearest_of(name, names).map(str::to_owned)
}

/// Returns the name that a misspelled one is likely to mean.
pub(crate) fn nearest_of<'a>(name: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let near = names.map(|known| (strsim::damerau_levenshtein(name, known), known)).min()?;
    (near.0 <= MAX_DISTANCE && near.0 < name.chars().count()).then_some(near.1)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[test]
    fn unknown_command_suggests_the_nearest_one() {
        for (name, want) in [("rn", Some("run")), ("chta", Some("chat")), ("tre", Some("tree")), ("qqqq", None)] {
            let error = with_suggestion(Cli::try_parse_from(["soong", name]).unwrap_err());
            let said = error.to_string();
            match want {
                Some(want) => assert!(said.contains(&format!("'{want}'")), "{said}"),
                None => assert!(!said.contains("similar"), "{said}"),
            }
        }
    }
}
