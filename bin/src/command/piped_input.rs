//! Data on standard input beside a prompt, as in `make 2>&1 | soong run "Why does it fail?"`: it is
//! attached, never dropped without a word.
//!
//! A pipe that sends nothing within a second does not delay the run, and a terminal, a device or a
//! closed descriptor is not read. With `--stdin`, the run waits for the end.

use std::time::{Duration, Instant};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::{FileType, fstat},
    stdio::stdin,
};
use soong_text::fence_around;
use soong_tui::format;
use tempfile::TempDir;

use crate::{
    cli,
    exit::{Exit, Failure},
    file, print,
};

/// Maximum time for the first byte of a pipe.
const FIRST_BYTE_LIMIT: Duration = Duration::from_secs(1);
/// Maximum time between two pieces of a pipe.
const SILENCE_LIMIT: Duration = Duration::from_secs(60);
/// Maximum size of a text that becomes part of the message, in bytes. Larger data is attached as a
/// file.
const MAX_MESSAGE_BYTES: usize = 32 * 1_024;
/// Advice for scripts that keep their input.
const WAY_OUT: &str = "`< /dev/null` leaves it out";

/// Data from standard input.
struct PipedInput {
    bytes: Vec<u8>,
    /// Why it is not complete; `None` if it is.
    cut: Option<String>,
}

/// Reads the data that is piped in beside the prompt, and adds it to the prompt or to the
/// attachments. Returns the folder of an attachment, which must be kept until it is uploaded.
pub(super) fn add_piped_input(
    options: &mut cli::Run,
    prompt: &mut Option<String>,
    max_bytes: u64,
) -> Result<Option<TempDir>, Failure> {
    let is_used =
        options.prompt.as_deref() == Some("-") || options.prompt.is_none() && prompt.is_some();
    let is_attached = options.attach.iter().any(|path| path.as_os_str() == "-");
    if is_used || is_attached {
        if options.stdin {
            let advice = "Remove --stdin, or give the prompt as an argument.";
            return Err(Failure::usage(
                "standard input is the prompt or an attachment already",
                advice,
            ));
        }
        return Ok(None);
    }
    let Some(text) = prompt else { return Ok(None) };
    let Some(input) = read(options.stdin, max_bytes)? else {
        return Ok(None);
    };
    let size = format::bytes(input.bytes.len() as u64);
    let cut = input.cut.map(|why| format!(", {why}")).unwrap_or_default();
    let inline = String::from_utf8(input.bytes);
    let folder = match inline {
        Ok(data) if data.len() <= MAX_MESSAGE_BYTES && !data.contains('\0') => {
            let data = data.trim_start_matches('\u{feff}');
            let fence = fence_around(data);
            let end = if data.ends_with('\n') { "" } else { "\n" };
            text.push_str(&format!(
                "\n\nStandard input{cut}:\n{fence}\n{data}{end}{fence}"
            ));
            None
        }
        other => {
            let bytes = other.map_or_else(|error| error.into_bytes(), String::into_bytes);
            let (folder, path) = store(&bytes)?;
            options.attach.push(path);
            Some(folder)
        }
    };
    print::note(&format!(
        "attached {size} from standard input{cut} ({WAY_OUT})"
    ));
    Ok(folder)
}

/// Reads a pipe or a file on standard input. `None` if there is neither, or if it is empty.
fn read(waits: bool, max_bytes: u64) -> Result<Option<PipedInput>, Failure> {
    let Ok(stat) = fstat(stdin()) else {
        return Ok(None);
    };
    let kind = FileType::from_raw_mode(stat.st_mode);
    let is_pipe = matches!(kind, FileType::Fifo | FileType::Socket);
    if !is_pipe && kind != FileType::RegularFile {
        return Ok(None);
    }
    // A loop of a script reads the file line by line, and needs the rest of it.
    if !is_pipe && !waits && rustix::fs::tell(stdin()).is_ok_and(|position| position > 0) {
        print::note(
            "standard input is a file that another program reads: it is not attached (--stdin attaches the rest)",
        );
        return Ok(None);
    }
    let max_bytes = usize::try_from(max_bytes).unwrap_or(usize::MAX);
    let mut input = PipedInput {
        bytes: Vec::new(),
        cut: None,
    };
    let mut buffer = vec![0; 64 * 1_024];
    loop {
        let limit = if input.bytes.is_empty() {
            FIRST_BYTE_LIMIT
        } else {
            SILENCE_LIMIT
        };
        if is_pipe && !waits && !wait_for_bytes(limit)? {
            if input.bytes.is_empty() {
                print::note(
                    "standard input is a pipe that sends nothing: it is not read (--stdin waits for its end)",
                );
                return Ok(None);
            }
            input.cut = Some(format!(
                "cut: nothing more came within {} s",
                SILENCE_LIMIT.as_secs()
            ));
            break;
        }
        let count = match rustix::io::read(stdin(), &mut buffer) {
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {
                wait_for_bytes(SILENCE_LIMIT)?;
                continue;
            }
            count => count.map_err(|error| unreadable(&error))?,
        };
        if count == 0 {
            break;
        }
        input.bytes.extend_from_slice(&buffer[..count]);
        if input.bytes.len() > max_bytes {
            input.bytes.truncate(max_bytes);
            input.cut = Some(format!(
                "cut at {} (artifacts.max_text_bytes)",
                format::bytes(max_bytes as u64)
            ));
            break;
        }
    }
    Ok(Some(input).filter(|input| !input.bytes.is_empty()))
}

/// Waits until standard input has bytes or has ended. Returns `false` if neither happens within the
/// limit.
fn wait_for_bytes(limit: Duration) -> Result<bool, Failure> {
    let deadline = Instant::now() + limit;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = Timespec {
            tv_sec: left.as_secs().cast_signed(),
            tv_nsec: left.subsec_nanos().into(),
        };
        let input = stdin();
        let mut descriptors = [PollFd::new(&input, PollFlags::IN)];
        match poll(&mut descriptors, Some(&timeout)) {
            Ok(count) => return Ok(count > 0),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(unreadable(&error)),
        }
    }
}

/// Stores data in a file whose name fits its content.
fn store(bytes: &[u8]) -> Result<(TempDir, std::path::PathBuf), Failure> {
    let folder = tempfile::tempdir().map_err(|error| unreadable(&error))?;
    let path = folder.path().join("stdin");
    std::fs::write(&path, bytes).map_err(|error| unreadable(&error))?;
    let named = path.with_extension(file::extension(file::detect_content_type(&path)));
    std::fs::rename(&path, &named).map_err(|error| unreadable(&error))?;
    Ok((folder, named))
}

fn unreadable(error: &dyn std::fmt::Display) -> Failure {
    let what = format!("standard input cannot be read: {error}");
    Failure::new(
        Exit::Failed,
        what,
        "Give the data as a file: --attach FILE.",
    )
}
