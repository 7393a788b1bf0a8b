//! Options of `completions` and `man`.

use std::path::PathBuf;

use clap::Args;

/// Options of `completions`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples, to install once:
  bash   d=~/.local/share/bash-completion/completions
         mkdir -p $d && soong completions bash > $d/soong
         (requires the package bash-completion; without it, add
         `source <(soong completions bash)` to ~/.bashrc)
  zsh    d=~/.zfunc; mkdir -p $d && soong completions zsh > $d/_soong
         (requires `fpath=(~/.zfunc $fpath); autoload -U compinit && compinit` in ~/.zshrc)
  fish   d=~/.config/fish/completions; mkdir -p $d && soong completions fish > $d/soong.fish

Then start a new shell.")]
pub(crate) struct Completions {
    /// Shell for which the script is printed
    pub(crate) shell: clap_complete::Shell,
}

/// Options of `man`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  soong man ~/.local/share/man/man1")]
pub(crate) struct Man {
    /// Folder for the pages; created if it does not exist
    pub(crate) dir: PathBuf,
}
