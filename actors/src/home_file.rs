//! Reads the presets and skills that users store in folders of the home, one item per file.
//!
//! A missing folder is treated as empty. Every file `*.md` is read, and for skills also every
//! `NAME/SKILL.md`. Files and folders whose name begins with a dot are skipped. A problem in one
//! file does not prevent other files from being read. Nothing is read from a project (SAFE-1).
//!
//! Elsewhere: the content of the files (`preset.rs`, `skill.rs`), the syntax of front matter
//! (`front_matter.rs`).

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, Read},
    path::{Path, PathBuf},
};

use soong_protocol::{ErrorCode, ErrorInfo};

use crate::front_matter::{FrontMatter, FrontMatterFault};

/// Maximum size of a file, in bytes. The size is limited because the text is added to prompts.
pub(crate) const MAX_BYTES: u64 = 65_536;
/// Maximum number of files read from a folder. If there are more, the whole folder is rejected.
pub(crate) const MAX_FILES: usize = 256;
/// Maximum length of an item's name, in bytes.
const MAX_NAME: usize = 64;

/// Problem in a file of the home, and how to fix it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}{}: {}{message}", file.display(), line.map(|n| format!(":{n}")).unwrap_or_default(),
        key.as_ref().map(|key| format!("`{key}` ")).unwrap_or_default())]
pub struct HomeFileError {
    /// The file; the folder if the problem concerns the folder as a whole.
    pub file: PathBuf,
    /// Line number, starting at 1, if the problem has a position.
    pub line: Option<usize>,
    /// Key in the front matter, if the problem concerns one.
    pub key: Option<String>,
    /// The problem and how to fix it. If `key` is set, it is printed before the message as the
    /// subject of the sentence.
    pub message: String,
}

impl HomeFileError {
    fn whole(file: &Path, message: impl Into<String>) -> Self {
        Self {
            file: file.to_owned(),
            line: None,
            key: None,
            message: message.into(),
        }
    }

    fn of(file: &Path, FrontMatterFault { line, key, message }: FrontMatterFault) -> Self {
        Self {
            file: file.to_owned(),
            line: Some(line),
            key,
            message,
        }
    }
}

impl From<&HomeFileError> for ErrorInfo {
    fn from(error: &HomeFileError) -> Self {
        Self::new(ErrorCode::ConfigError, error.to_string())
    }
}

/// Result of loading a folder: its items, by name and each with its file, and the problems found.
pub(crate) struct LoadedFolder<T> {
    pub(crate) by_name: BTreeMap<String, (T, PathBuf)>,
    pub(crate) faults: Vec<HomeFileError>,
    /// Names that cannot be used because of a problem in their file.
    pub(crate) unusable: BTreeMap<String, HomeFileError>,
    /// Problem of the whole folder, of which no item is known then.
    pub(crate) folder_fault: Option<HomeFileError>,
    /// Keys that were ignored, in files that could be parsed.
    pub(crate) warnings: Vec<HomeFileError>,
}

/// Format of the files in a folder.
#[derive(Clone, Copy)]
pub(crate) struct FolderFormat {
    /// Front matter keys that other programs define. They are ignored with a warning.
    pub(crate) foreign: &'static [&'static str],
    /// If set, the only keys that are read; all others are ignored with a warning. `None`: an
    /// unknown key is an error.
    pub(crate) ignored_except: Option<&'static [&'static str]>,
    /// Name of the file to read in each subfolder, as in `NAME/SKILL.md`. `None`: subfolders are
    /// not searched.
    pub(crate) in_folders: Option<&'static str>,
}

/// Loads all items of a folder. `read` creates an item from its name, which is already validated,
/// and its front matter.
pub(crate) fn load<T>(
    folder: &Path,
    format: FolderFormat,
    read: impl Fn(&str, &FrontMatter<'_>) -> Result<T, FrontMatterFault>,
) -> LoadedFolder<T> {
    let mut found = LoadedFolder {
        by_name: BTreeMap::new(),
        faults: Vec::new(),
        unusable: BTreeMap::new(),
        folder_fault: None,
        warnings: Vec::new(),
    };
    let files = match list(folder, format.in_folders) {
        Ok(files) => files,
        Err(fault) => {
            found.faults.push(fault.clone());
            found.folder_fault = Some(fault);
            return found;
        }
    };
    for file in files {
        let mut name = None;
        if let Err(fault) = add(&mut found, &file, format, &read, &mut name) {
            tracing::warn!(%fault, "a file of the home cannot be used");
            // If its front matter cannot be read, it may mean either name.
            let names = match name {
                Some(name) => vec![name],
                None => [name_of_file(&file, format.in_folders)]
                    .into_iter()
                    .chain(written_name(&file))
                    .collect(),
            };
            found
                .unusable
                .extend(names.into_iter().map(|name| (name, fault.clone())));
            found.faults.push(fault);
        }
    }
    let unusable = &found.unusable;
    found.by_name.retain(|name, _| !unusable.contains_key(name));
    found
}

/// Returns the name that an item has by its file, as long as the name in the file is not known.
fn name_of_file(file: &Path, in_folders: Option<&str>) -> String {
    let is_inner = file
        .file_name()
        .is_some_and(|name| in_folders.is_some_and(|inner| name == inner));
    let named = if is_inner {
        file.parent().and_then(Path::file_name)
    } else {
        file.file_stem()
    };
    named.unwrap_or_default().to_string_lossy().into_owned()
}

/// Returns the name in a line `name: …` of a file whose front matter cannot be read.
fn written_name(file: &Path) -> Option<String> {
    let bytes = fs::read(file)
        .ok()
        .filter(|bytes| bytes.len() as u64 <= MAX_BYTES)?;
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let name = text.lines().find_map(|line| line.strip_prefix("name:"))?;
    let name = name
        .split('#')
        .next()
        .unwrap_or_default()
        .trim()
        .trim_matches(['"', '\'']);
    check_name(name).is_ok().then(|| name.to_owned())
}

fn add<T>(
    found: &mut LoadedFolder<T>,
    file: &Path,
    format: FolderFormat,
    read: impl Fn(&str, &FrontMatter<'_>) -> Result<T, FrontMatterFault>,
    known_name: &mut Option<String>,
) -> Result<(), HomeFileError> {
    let text = text(file)?;
    let at = |fault| HomeFileError::of(file, fault);
    let mut parsed = FrontMatter::read(&text, format.foreign).map_err(at)?;
    if let Some(known) = format.ignored_except {
        parsed.ignore_unknown_keys(known);
    }
    let name = parsed.required("name").map_err(at)?;
    check_name(name).map_err(|message| at(parsed.fault("name", message)))?;
    *known_name = Some(name.to_owned());
    if let Some((_, other)) = found.by_name.get(name) {
        let message = format!(
            "{name:?} is also used by {}: rename one of the two",
            other.display()
        );
        return Err(at(parsed.fault("name", message)));
    }
    let one = read(name, &parsed).map_err(at)?;
    if let Some((_, line)) = parsed.foreign().first() {
        let keys: Vec<String> = parsed
            .foreign()
            .iter()
            .map(|(key, _)| format!("`{key}`"))
            .collect();
        let message = format!("ignored keys of another program: {}", keys.join(", "));
        found.warnings.push(HomeFileError {
            file: file.to_owned(),
            line: Some(*line),
            key: None,
            message,
        });
    }
    found
        .by_name
        .insert(name.to_owned(), (one, file.to_owned()));
    Ok(())
}

/// Lists the files to read, sorted by path.
fn list(folder: &Path, in_folders: Option<&str>) -> Result<Vec<PathBuf>, HomeFileError> {
    let unreadable = |error: io::Error| {
        HomeFileError::whole(
            folder,
            format!("the folder cannot be read ({error}): repair it, or move it away"),
        )
    };
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        // Either the folder does not exist, or the home is not accessible; opening the home reports
        // the second case.
        Err(_) if folder.symlink_metadata().is_err() => return Ok(Vec::new()),
        Err(error) => return Err(unreadable(error)),
    };
    let mut files = Vec::new();
    for entry in entries {
        let name = entry.map_err(unreadable)?.file_name();
        let bytes = name.as_encoded_bytes();
        if bytes.starts_with(b".") {
            continue;
        }
        let inner = in_folders
            .map(|file| folder.join(&name).join(file))
            .filter(|inner| inner.is_file());
        if let Some(inner) = inner {
            files.push(inner);
        } else if bytes.ends_with(b".md") {
            files.push(folder.join(name));
        }
        if files.len() > MAX_FILES {
            let message =
                format!("the folder contains more than {MAX_FILES} *.md files: remove some");
            return Err(HomeFileError::whole(folder, message));
        }
    }
    files.sort();
    Ok(files)
}

/// Reads a regular file as UTF-8. Other kinds, such as pipes, are rejected, because reading them
/// might never end.
fn text(file: &Path) -> Result<String, HomeFileError> {
    let fault = |message: String| HomeFileError::whole(file, message);
    let unreadable = |error: io::Error| {
        fault(format!(
            "cannot be read ({error}): repair it, or move it away"
        ))
    };
    if !file.metadata().map_err(unreadable)?.is_file() {
        return Err(fault(
            "is not a regular file: move it away, or rename it so that it does not end in .md"
                .to_owned(),
        ));
    }
    let mut bytes = Vec::new();
    File::open(file)
        .and_then(|open| open.take(MAX_BYTES + 1).read_to_end(&mut bytes))
        .map_err(unreadable)?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(fault(format!(
            "is larger than {MAX_BYTES} bytes: shorten it"
        )));
    }
    String::from_utf8(bytes).map_err(|error| {
        let before = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
        let message = "this is not UTF-8: save the file as UTF-8".to_owned();
        HomeFileError {
            file: file.to_owned(),
            line: Some(line),
            key: None,
            message,
        }
    })
}

pub(crate) fn check_name(name: &str) -> Result<(), String> {
    let is_good = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    if !name.is_empty() && name.len() <= MAX_NAME && name.bytes().all(is_good) {
        Ok(())
    } else {
        Err(format!(
            "must be 1 to {MAX_NAME} letters (a-z), digits, - or _, not {name:?}"
        ))
    }
}
