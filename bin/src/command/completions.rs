//! `soong completions` and `soong man`: generated shell completions and man pages.

use clap::CommandFactory;
use clap_complete::{Shell, env::Shells};

use crate::{
    cli, complete,
    exit::{Exit, Failure},
    print,
};

pub(super) fn completions(options: &cli::Completions) -> Result<Exit, Failure> {
    let name = options.shell.to_string();
    let shells = Shells::builtins();
    // Buffered, since the generator does not handle a closed output.
    let mut script = Vec::new();
    if let Some(shell) = shells.completer(&name) {
        let written =
            shell.write_registration(complete::VARIABLE, "soong", "soong", "soong", &mut script);
        written.map_err(|error| {
            Failure::new(
                Exit::Failed,
                format!("cannot generate the completion script for {name}: {error}"),
                "",
            )
        })?;
    }
    if options.shell == Shell::Zsh {
        // As a file in `fpath` the script is the body of a function, whose first call must complete
        // as well.
        script.extend_from_slice(
            b"\n[[ $funcstack[1] == _soong ]] && _clap_dynamic_completer_soong\n",
        );
    }
    print::line(String::from_utf8_lossy(&script).trim_end())?;
    Ok(Exit::Success)
}

/// Writes a page for the program and one for each command.
pub(super) fn man(options: &cli::Man) -> Result<Exit, Failure> {
    let dir = &options.dir;
    let written = std::fs::create_dir_all(dir)
        .and_then(|()| clap_mangen::generate_to(cli::Cli::command(), dir));
    written.map_err(|error| {
        Failure::new(
            Exit::Failed,
            format!("cannot write man pages to {}: {error}", dir.display()),
            "",
        )
    })?;
    Ok(Exit::Success)
}
