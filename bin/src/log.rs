//! Diagnostics of the library: to standard error, or to a file while a picture is drawn there.

use std::{fs::File, path::Path, sync::Mutex};

use tracing_subscriber::EnvFilter;

/// Starts logging: warnings, with `-v` the ordinary course, with `-vv` everything of ours.
///
/// With `file` nothing goes to standard error; where it cannot be made, nothing is logged.
pub(crate) fn start(verbosity: u8, file: Option<&Path>) {
    let level = match verbosity {
        0 => "warn",
        1 => "info",
        _ => "debug",
    };
    let filter = EnvFilter::new(format!("warn,soong={level},soong_storage={level},soong_protocol={level}"));
    let logging = tracing_subscriber::fmt().with_env_filter(filter).with_ansi(false);
    // A second start (a test, a command within a command) leaves the first in place.
    let _ = match file {
        None => logging.with_writer(std::io::stderr).try_init(),
        Some(path) => match open(path) {
            Ok(file) => logging.with_writer(Mutex::new(file)).try_init(),
            Err(_) => return,
        },
    };
}

fn open(path: &Path) -> std::io::Result<File> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    File::options().create(true).append(true).open(path)
}
