//! `soong traces export`: writes a trace and its sub-traces to files.

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
pub(super) async fn export(context: &Context<'_>, source: &Source, id: &str, dir: &Path) -> Result<(), Failure> {
    let interrupt = Interrupt::listen();
    let exported = tokio::select! {
        exported = export::export(source, id, dir) => exported?,
        () = interrupt.first() => {
            let what = format!("interrupted; nothing was written to {}", dir.display());
            return Err(Failure::new(Exit::Interrupted, what, "Try again."));
        }
    };
    if context.global.json { print::json(&exported) } else { print::line(&exported.summary()) }
}
