//! Diagnostics of the library: to standard error, and of commands that own a home to a file in it.
//!
//! The file is `logs/soong.YYYY-MM-DD.log` in the home; the last seven days are kept. Each line is
//! written at once, so that none is lost at the end. It begins with the first line: a command that
//! is refused leaves no folder behind. Where it cannot be made, nothing is kept and nobody is stopped.
//! Not here: reports of panics (`panic.rs`).

use std::{
    io::Write,
    path::{Path, PathBuf},
    sync::OnceLock,
};

use tracing_appender::rolling::{RollingFileAppender, Rotation};
use tracing_subscriber::{EnvFilter, Layer, Registry, fmt::MakeWriter, layer::SubscriberExt, util::SubscriberInitExt};

use crate::{panic, secret::Redacted};

/// How many days' files are kept.
const FILES: usize = 7;

/// Where a collector of traces is, for a build that exports them.
#[cfg(not(feature = "otlp"))]
const OTLP_ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";

/// Where a command's diagnostics go.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Place<'a> {
    /// Nowhere: a picture is drawn on standard error, and the home is another one's.
    Nowhere,
    /// To standard error: a command that owns no home.
    StandardError,
    /// Also to the home's file; while a picture is drawn on standard error, only there.
    Home { home: &'a Path, has_picture: bool },
    /// The same for a command that shows a run: its progress tells what fails of MCP servers.
    Run { home: &'a Path, has_picture: bool },
}

/// Starts logging. To standard error: warnings, with `-v` the ordinary course, with `-vv` everything
/// of ours. To the file: the ordinary course, with `-vv` everything of ours.
pub(crate) fn start(verbosity: u8, place: Place<'_>) {
    let (home, has_picture) = match place {
        Place::Nowhere => (None, true),
        Place::StandardError => (None, false),
        Place::Home { home, has_picture } | Place::Run { home, has_picture } => (Some(home), has_picture),
    };
    let mut layers = Vec::new();
    if !has_picture {
        let shows_run = matches!(place, Place::Run { .. }) && verbosity == 0;
        let quiet = if shows_run { ",soong::mcp=off" } else { "" };
        layers.push(layer(|| Redacted(std::io::stderr()), ["warn", "info", "debug"], verbosity, quiet));
    }
    if let Some(home) = home {
        panic::report_to(home);
        let file = LogFile { folder: panic::log_folder(home), file: OnceLock::new() };
        layers.push(layer(file, ["info", "info", "debug"], verbosity, ""));
    }
    #[cfg(feature = "otlp")]
    layers.extend(crate::telemetry::layer());
    #[cfg(not(feature = "otlp"))]
    if home.is_some() && std::env::var_os(OTLP_ENDPOINT).is_some_and(|value| !value.is_empty()) {
        crate::print::error_line(&format!(
            "warning: {OTLP_ENDPOINT} is set, but this soong was built without OTLP (--features otlp): no traces are exported"
        ));
    }
    // A second start (a test, a command within a command) leaves the first in place.
    let _ = tracing_subscriber::registry().with(layers).try_init();
}

/// Makes a layer: our own crates at the level that fits, others at warnings; `more` are further directives.
fn layer<W>(writer: W, levels: [&str; 3], verbosity: u8, more: &str) -> Box<dyn Layer<Registry> + Send + Sync>
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let level = levels[usize::from(verbosity).min(2)];
    // What the MCP library reports comes as our own warnings.
    let rmcp = if verbosity < 2 { "off" } else { "warn" };
    let filter =
        EnvFilter::new(format!("warn,rmcp={rmcp},soong={level},soong_storage={level},soong_protocol={level}{more}"));
    let lines = tracing_subscriber::fmt::layer().with_ansi(false).log_internal_errors(false);
    lines.with_writer(writer).with_filter(filter).boxed()
}

/// The file, opened by its first line.
struct LogFile {
    folder: PathBuf,
    /// `None` within: it cannot be made.
    file: OnceLock<Option<RollingFileAppender>>,
}

impl LogFile {
    fn open(folder: &Path) -> Option<RollingFileAppender> {
        std::fs::create_dir_all(folder).ok()?;
        let daily = RollingFileAppender::builder().rotation(Rotation::DAILY).max_log_files(FILES);
        daily.filename_prefix("soong").filename_suffix("log").build(folder).ok()
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
