//! Edits a message in the user's editor: `$VISUAL`, else `$EDITOR`, else `vi`.

use soong::Environment;
use soong_tui::keyboard;
use tokio::process::Command;

use crate::exit::{Exit, Failure};

/// Runs the editor on a text, and returns the edited text without trailing white space.
///
/// # Errors
/// The editor cannot be started or fails.
pub(super) async fn edit(text: &str, environment: &Environment) -> Result<String, Failure> {
    let editor = ["VISUAL", "EDITOR"]
        .into_iter()
        .find_map(|name| environment.get(name))
        .unwrap_or("vi");
    let failed = |what: String| {
        Failure::new(
            Exit::Failed,
            what,
            "Set VISUAL or EDITOR to a terminal editor.",
        )
    };
    let unwritable = |error: std::io::Error| {
        failed(format!(
            "the temporary file of the message cannot be used: {error}"
        ))
    };
    let file = tempfile::Builder::new()
        .prefix("soong-message-")
        .suffix(".md")
        .tempfile()
        .map_err(unwritable)?;
    std::fs::write(file.path(), text).map_err(unwritable)?;
    keyboard::restore_mode();
    // The setting may contain options, so a shell splits it.
    let status = Command::new("sh")
        .args(["-c", &format!("{editor} \"$1\""), "sh"])
        .arg(file.path())
        .status()
        .await;
    keyboard::reapply_echo_off();
    match status {
        Ok(status) if status.success() => Ok(std::fs::read_to_string(file.path())
            .map_err(unwritable)?
            .trim_end()
            .to_owned()),
        Ok(status) => Err(failed(format!("the editor {editor} failed: {status}"))),
        Err(error) => Err(failed(format!(
            "the editor {editor} cannot be started: {error}"
        ))),
    }
}
