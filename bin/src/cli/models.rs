//! Options of `soong models`.

use std::path::PathBuf;

use clap::Subcommand;

pub(super) const HELP: &str = "\
The known models come from a built-in table. A model name is a profile, a name of the default profile if
model.provider or model.base_url is set, PROVIDER/NAME (openai, openai-responses, anthropic, gemini), or a
known name.

Examples:
  soong models list
  soong models list --known --json
  soong models update models.json";

/// `soong models`
#[derive(Debug, Subcommand)]
pub(crate) enum Models {
    /// List the model profiles, then the known models with price, context window and inputs
    #[command(after_help = "Examples:\n  soong models list --known --json")]
    List {
        /// List the known models only
        #[arg(long)]
        known: bool,
    },
    /// Use a newer table of known models: prices, context windows and inputs
    #[command(after_help = "Examples:\n  soong models update models.json")]
    Update {
        /// JSON file in the form of `catalog/models.json` of Soong's sources
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
}
