//! Tables of the stable interface: how each command fails, and which keys its JSON contains.
//!
//! A changed row is a change of the interface and needs entries in the README and the changelog.

mod damage;
mod failures;
mod shapes;

use crate::process::{KillOnDrop, TestHome};

/// Starts a command with additional environment variables.
fn begin(world: &TestHome, variables: &[(&str, &str)], args: &[&str]) -> KillOnDrop {
    KillOnDrop {
        child: world
            .command(args)
            .envs(variables.iter().copied())
            .spawn()
            .unwrap(),
    }
}

/// Writes the home's configuration.
fn configure(world: &TestHome, text: &str) {
    std::fs::create_dir_all(world.home()).unwrap();
    std::fs::write(world.home().join("config.toml"), text).unwrap();
}
