//! Commands that the user runs in a chat (`!COMMAND`), with the user's own permissions.
//!
//! Their output is shown as it arrives, and its beginning is kept for the next message.

use std::{
    io::Write,
    path::Path,
    process::Stdio,
    sync::{Arc, Mutex, PoisonError},
};

use tokio::{
    io::{AsyncRead, AsyncReadExt},
    process::Command,
};

use crate::{
    exit::{Exit, Failure},
    print,
};

/// Maximum size of the output that is kept, in bytes.
const MAX_KEPT_BYTES: usize = 32 * 1024;

/// Runs a command line in a folder. Returns a text about it for the next message.
pub(super) async fn run(command: &str, folder: &Path) -> Result<String, Failure> {
    let failed = |error: std::io::Error| {
        let what = format!("the command could not be run: {error}");
        Failure::new(Exit::Failed, what, "Check that `sh` is installed and the project folder exists.")
    };
    let mut child = Command::new("sh")
        .args(["-c", command])
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(failed)?;
    let kept = Arc::new(Mutex::new(Vec::new()));
    let copies = [
        child.stdout.take().map(|output| tokio::spawn(copy(output, std::io::stdout(), Arc::clone(&kept)))),
        child.stderr.take().map(|output| tokio::spawn(copy(output, std::io::stderr(), Arc::clone(&kept)))),
    ];
    let status = child.wait().await.map_err(failed)?;
    for copy in copies.into_iter().flatten() {
        // A task that panicked has printed nothing more.
        let _ = copy.await;
    }
    let kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
    let output = String::from_utf8_lossy(&kept[..kept.len().min(MAX_KEPT_BYTES)]);
    let cut = if kept.len() > MAX_KEPT_BYTES { "\n[the rest is left out]" } else { "" };
    if !status.success() {
        print::error_line(&format!("({status})"));
    }
    let how = status.code().map_or_else(|| "was killed by a signal".to_owned(), |code| format!("exited with {code}"));
    Ok(format!("I ran `{command}`, which {how} and printed:\n```\n{}{cut}\n```", output.trim_end()))
}

/// Copies the output of a command to the terminal, and keeps its beginning.
async fn copy(mut output: impl AsyncRead + Unpin, mut terminal: impl Write, kept: Arc<Mutex<Vec<u8>>>) {
    let mut piece = [0; 8 * 1024];
    while let Ok(count @ 1..) = output.read(&mut piece).await {
        // The output is kept even if nobody reads the terminal.
        let _ = terminal.write_all(&piece[..count]).and_then(|()| terminal.flush());
        let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() <= MAX_KEPT_BYTES {
            kept.extend_from_slice(&piece[..count]);
        }
    }
}
