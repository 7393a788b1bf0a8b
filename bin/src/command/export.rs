//! `soong traces export`: writes a trace and its sub-traces to files, or to one HTML page.

use std::path::Path;

use crate::{
    context::Context,
    exit::{Exit, Failure},
    export,
    interrupt::Interrupt,
    print,
    source::Source,
};

/// Exports a trace and its sub-traces to `dir`.
pub(super) async fn export(
    context: &Context<'_>,
    source: &Source,
    id: &str,
    dir: &Path,
) -> Result<(), Failure> {
    let exported = or_interrupt(export::export(source, id, dir), dir).await?;
    if context.global.json {
        print::json(&exported)
    } else {
        print::line(&exported.summary())
    }
}

/// Exports a trace and its sub-traces to an HTML page.
pub(super) async fn export_page(
    context: &Context<'_>,
    source: &Source,
    id: &str,
    file: &Path,
) -> Result<(), Failure> {
    let exported = or_interrupt(export::export_page(source, id, file), file).await?;
    if context.global.json {
        print::json(&exported)
    } else {
        print::line(&exported.summary())
    }
}

/// Runs an export until it ends or Ctrl-C interrupts it.
async fn or_interrupt<T>(
    export: impl Future<Output = Result<T, Failure>>,
    target: &Path,
) -> Result<T, Failure> {
    let interrupt = Interrupt::listen();
    tokio::select! {
        exported = export => exported,
        () = interrupt.first() => {
            let what = format!("interrupted; nothing was written to {}", target.display());
            Err(Failure::new(Exit::Interrupted, what, "Try again."))
        }
    }
}
