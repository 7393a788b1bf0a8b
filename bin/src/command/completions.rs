//! `soong completions`: a script that completes the command line in a shell.

use clap::CommandFactory;

use crate::{
    cli,
    exit::{Exit, Failure},
    print,
};

pub(super) fn completions(options: &cli::Completions) -> Result<Exit, Failure> {
    // Written at once: the generator knows no reader that leaves.
    let mut script = Vec::new();
    clap_complete::generate(options.shell, &mut cli::Cli::command(), "soong", &mut script);
    print::line(String::from_utf8_lossy(&script).trim_end())?;
    Ok(Exit::Done)
}
