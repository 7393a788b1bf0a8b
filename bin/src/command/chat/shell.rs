//! Commands that the user runs in a chat (`!COMMAND`), with the user's own permissions.
//!
//! Their output is shown as it arrives, and its beginning is kept for the next message.

use std::{
    io::Write,
    path::Path,
    process::Stdio,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::{
    io::{AsyncRead, AsyncReadExt},
    process::Command,
    task::JoinSet,
    time::timeout,
};

use crate::{
    exit::{Exit, Failure},
    print,
};

/// Maximum size of the output that is kept, in bytes.
const MAX_KEPT_BYTES: usize = 32 * 1024;

/// Time after an interrupt in which a command may end by itself.
const GRACE: Duration = Duration::from_secs(1);
/// Time after the end of a command in which its output is still read. Processes in the background
/// may keep it open.
const READ_TIMEOUT: Duration = Duration::from_millis(200);

/// Beginning of an output, and its last byte.
#[derive(Default)]
struct OutputBeginning {
    bytes: Vec<u8>,
    last: Option<u8>,
}

/// Runs a command line in a folder, until it ends or is interrupted. Returns a text about it for
/// the next message.
pub(super) async fn run(
    command: &str,
    folder: &Path,
    interrupted: impl Future<Output = ()>,
) -> Result<String, Failure> {
    let failed = |error: std::io::Error| {
        let what = format!("the command could not be run: {error}");
        Failure::new(
            Exit::Failed,
            what,
            "Check that `sh` is installed and the project folder exists.",
        )
    };
    // A process group of its own, so that an interrupt ends everything that the command has
    // started.
    let mut child = Command::new("sh")
        .args(["-c", command])
        .current_dir(folder)
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(failed)?;
    let group = child
        .id()
        .and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
    let beginning = Arc::new(Mutex::new(OutputBeginning::default()));
    let mut copies = JoinSet::new();
    copies.extend(
        child
            .stdout
            .take()
            .map(|output| copy(output, std::io::stdout(), Arc::clone(&beginning))),
    );
    copies.extend(
        child
            .stderr
            .take()
            .map(|output| copy(output, std::io::stderr(), Arc::clone(&beginning))),
    );
    let ended = tokio::select! {
        status = child.wait() => Some(status),
        () = interrupted => None,
    };
    let status = match ended {
        Some(status) => status,
        None => {
            let signal = |signal| group.map(|group| kill_process_group(group, signal));
            signal(Signal::INT);
            let ended = timeout(GRACE, child.wait()).await;
            signal(Signal::KILL);
            match ended {
                Ok(status) => status,
                Err(_) => child.wait().await,
            }
        }
    };
    let status = status.map_err(failed)?;
    // The tasks that are left end when the set is dropped.
    let _ = timeout(READ_TIMEOUT, async {
        while copies.join_next().await.is_some() {}
    })
    .await;
    let beginning = beginning.lock().unwrap_or_else(PoisonError::into_inner);
    if beginning.last.is_some_and(|last| last != b'\n') {
        print::line("")?;
    }
    if !status.success() {
        print::error_line(&format!("({status})"));
    }
    let how = status.code().map_or_else(
        || "was killed by a signal".to_owned(),
        |code| format!("exited with {code}"),
    );
    let output =
        String::from_utf8_lossy(&beginning.bytes[..beginning.bytes.len().min(MAX_KEPT_BYTES)]);
    let cut = if beginning.bytes.len() > MAX_KEPT_BYTES {
        "\n[the rest is left out]"
    } else {
        ""
    };
    Ok(format!(
        "I ran `{command}`, which {how} and printed:\n```\n{}{cut}\n```",
        output.trim_end()
    ))
}

/// Copies the output of a command to the terminal, and keeps its beginning.
async fn copy(
    mut output: impl AsyncRead + Unpin,
    mut terminal: impl Write,
    beginning: Arc<Mutex<OutputBeginning>>,
) {
    let mut piece = [0; 8 * 1024];
    while let Ok(count @ 1..) = output.read(&mut piece).await {
        // The output is kept even if nobody reads the terminal.
        let _ = terminal
            .write_all(&piece[..count])
            .and_then(|()| terminal.flush());
        let mut beginning = beginning.lock().unwrap_or_else(PoisonError::into_inner);
        beginning.last = piece[..count].last().copied();
        if beginning.bytes.len() <= MAX_KEPT_BYTES {
            beginning.bytes.extend_from_slice(&piece[..count]);
        }
    }
}
