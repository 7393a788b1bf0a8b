//! Logging: to standard error and, for commands that own a home, also to a file in it.
//!
//! The file is `logs/soong.YYYY-MM-DD.log` in the home; the files of the last seven days are kept.
//! Each line is written immediately, so that none is lost at the end. The file is created with its
//! first line, so a rejected command creates no folder. If the file cannot be created, logging to
//! it is silently disabled.
//!
//! Elsewhere: panic reports (`panic.rs`).

use std::{
    io::Write,
    path::{Path, PathBuf},
    sync::OnceLock,
};

use tracing_appender::rolling::{RollingFileAppender, Rotation};
use tracing_subscriber::{
    EnvFilter, Layer, Registry, fmt::MakeWriter, layer::SubscriberExt, util::SubscriberInitExt,
};

use crate::{panic, secret::Redacted};

/// Number of daily log files that are kept.
const MAX_LOG_FILES: usize = 7;

/// Environment variable with the endpoint of a trace collector. This build cannot export traces,
/// and warns if it is set.
#[cfg(not(feature = "otlp"))]
const OTLP_ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";

/// Log destination of a command.
#[derive(Debug, Clone, Copy)]
pub(crate) enum LogTarget<'a> {
    /// Nowhere: standard error shows a live display, and another process owns the home.
    Nowhere,
    /// Standard error, for a command that owns no home.
    StandardError,
    /// The log file of the home, and standard error unless it shows a live display.
    Home { home: &'a Path, has_picture: bool },
    /// Like `Home`, for a command that shows a run. Failures of MCP servers are not logged to
    /// standard error, since the progress output reports them.
    Run { home: &'a Path, has_picture: bool },
}

/// Starts logging. To standard error: warnings; with `-v` level info; with `-vv` level debug. To
/// the file: level info; with `-vv` level debug. Other crates are always logged at level warn.
pub(crate) fn start(verbosity: u8, target: LogTarget<'_>) {
    let (home, has_picture) = match target {
        LogTarget::Nowhere => (None, true),
        LogTarget::StandardError => (None, false),
        LogTarget::Home { home, has_picture } | LogTarget::Run { home, has_picture } => {
            (Some(home), has_picture)
        }
    };
    let mut layers = Vec::new();
    if !has_picture {
        let shows_run = matches!(target, LogTarget::Run { .. }) && verbosity == 0;
        let quiet = if shows_run { ",soong::mcp=off" } else { "" };
        layers.push(layer(
            || Redacted(std::io::stderr()),
            ["warn", "info", "debug"],
            verbosity,
            quiet,
        ));
    }
    if let Some(home) = home {
        panic::set_home(home);
        let file = LogFile {
            folder: panic::log_folder(home),
            file: OnceLock::new(),
        };
        layers.push(layer(file, ["info", "info", "debug"], verbosity, ""));
    }
    #[cfg(feature = "otlp")]
    layers.extend(crate::telemetry::layer());
    #[cfg(not(feature = "otlp"))]
    if home.is_some() && std::env::var_os(OTLP_ENDPOINT).is_some_and(|value| !value.is_empty()) {
        crate::print::error_line(&format!(
            "warning: {OTLP_ENDPOINT} is set, but this build has no OTLP support (--features otlp): no traces are exported"
        ));
    }
    // If logging was already started (by a test, or a command within a command), the first setup is
    // kept.
    let _ = tracing_subscriber::registry().with(layers).try_init();
}

/// Returns a layer that logs this project's crates at the selected level and other crates at level
/// warn. `more` contains further directives.
fn layer<W>(
    writer: W,
    levels: [&str; 3],
    verbosity: u8,
    more: &str,
) -> Box<dyn Layer<Registry> + Send + Sync>
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let level = levels[usize::from(verbosity).min(2)];
    // Failures of the MCP library are logged again by this project's crates.
    let rmcp = if verbosity < 2 { "off" } else { "warn" };
    let filter = EnvFilter::new(format!(
        "warn,rmcp={rmcp},soong={level},soong_storage={level},soong_protocol={level}{more}"
    ));
    let lines = tracing_subscriber::fmt::layer()
        .with_ansi(false)
        .log_internal_errors(false);
    lines.with_writer(writer).with_filter(filter).boxed()
}

/// Log file that is opened when its first line is written.
struct LogFile {
    folder: PathBuf,
    /// `Some(None)` if the file cannot be created.
    file: OnceLock<Option<RollingFileAppender>>,
}

impl LogFile {
    fn open(folder: &Path) -> Option<RollingFileAppender> {
        std::fs::create_dir_all(folder).ok()?;
        let daily = RollingFileAppender::builder()
            .rotation(Rotation::DAILY)
            .max_log_files(MAX_LOG_FILES);
        daily
            .filename_prefix("soong")
            .filename_suffix("log")
            .build(folder)
            .ok()
    }
}

impl<'a> MakeWriter<'a> for LogFile {
    type Writer = Box<dyn Write + 'a>;

    fn make_writer(&'a self) -> Self::Writer {
        match self.file.get_or_init(|| Self::open(&self.folder)) {
            Some(file) => Box::new(Redacted(file.make_writer())),
            None => Box::new(std::io::sink()),
        }
    }
}
