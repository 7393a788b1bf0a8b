//! `hooks.json`: which commands are called for which events.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, Read},
    path::Path,
};

use serde::Deserialize;
use soong_protocol::{ErrorCode, ErrorInfo};

use super::HookPoint;

/// Maximum size of the file, in bytes.
const MAX_BYTES: u64 = 1024 * 1024;
/// Oldest and newest version of the file format. Since version 2, exit code 2 denies.
const OLDEST_VERSION: u64 = 1;
const NEWEST_VERSION: u64 = 2;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct HookFile {
    version: u64,
    #[serde(default)]
    hooks: BTreeMap<HookPoint, Vec<Group>>,
}

/// Commands, and the condition under which they are called.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Group {
    #[serde(default)]
    pub(super) matcher: Matcher,
    pub(super) hooks: Vec<Hook>,
}

/// Condition on an event. An absent field fits every event.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Matcher {
    pub(super) tool: Option<String>,
    pub(super) tag: Option<String>,
    /// Prefix of the argument `path` or of the file that it resolves to; relative to the project.
    pub(super) path_prefix: Option<String>,
}

/// A command to call.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Hook {
    #[serde(rename = "type")]
    #[expect(
        dead_code,
        reason = "there is one kind; another one is refused when it is read"
    )]
    kind: Kind,
    pub(super) command: String,
    pub(super) timeout_ms: Option<u64>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Kind {
    Command,
}

/// The hooks of a file.
#[derive(Debug, Default)]
pub(super) struct HookTable {
    pub(super) points: BTreeMap<HookPoint, Vec<Group>>,
    /// Whether exit code 2 denies an event that can be denied.
    pub(super) exit_code_denies: bool,
}

/// Reads the file; a missing file means no hooks.
pub(super) fn read(path: &Path) -> Result<HookTable, ErrorInfo> {
    let refuse =
        |why: String| ErrorInfo::new(ErrorCode::ConfigError, format!("{}: {why}", path.display()));
    let text = match read_file(path) {
        Ok(Some(text)) => text,
        Ok(None) => return Ok(HookTable::default()),
        Err(error) => return Err(refuse(format!("cannot be read: {error}"))),
    };
    let file: HookFile = serde_json::from_str(text.trim_start_matches('\u{feff}'))
        .map_err(|error| refuse(error.to_string()))?;
    if !(OLDEST_VERSION..=NEWEST_VERSION).contains(&file.version) {
        return Err(refuse(format!(
            "unknown version {}: use \"version\": {NEWEST_VERSION}",
            file.version
        )));
    }
    let all = file.hooks.values().flatten().flat_map(|group| &group.hooks);
    if all.clone().any(|hook| hook.command.trim().is_empty()) {
        return Err(refuse("a hook's command is empty".to_owned()));
    }
    if all.clone().any(|hook| hook.timeout_ms == Some(0)) {
        return Err(refuse("timeout_ms must be at least 1".to_owned()));
    }
    let points = file
        .hooks
        .into_iter()
        .filter(|(_, groups)| !groups.is_empty())
        .collect();
    Ok(HookTable {
        points,
        exit_code_denies: file.version >= 2,
    })
}

fn read_file(path: &Path) -> io::Result<Option<String>> {
    let metadata = match fs::metadata(path) {
        // The code that opens the home reports a home that is not a directory.
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
            ) =>
        {
            return Ok(None);
        }
        known => known?,
    };
    if !metadata.is_file() || metadata.len() > MAX_BYTES {
        return Err(io::Error::other(format!(
            "not a regular file of at most {MAX_BYTES} bytes"
        )));
    }
    // Everyone who can write the file can run commands as this user.
    #[cfg(unix)]
    if std::os::unix::fs::PermissionsExt::mode(&metadata.permissions()) & 0o002 != 0 {
        return Err(io::Error::other("every user can write it: run chmod o-w"));
    }
    let mut text = String::new();
    File::open(path)?
        .take(MAX_BYTES)
        .read_to_string(&mut text)?;
    Ok(Some(text))
}
