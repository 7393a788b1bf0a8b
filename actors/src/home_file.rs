//! Files that people write into folders of the home, one thing a file: presets, skills.
//!
//! A folder that is not there holds nothing. In one that is, every file `*.md` counts whose name does not begin with
//! a dot, and of skills every `NAME/SKILL.md`; what is wrong with one does not hide what is wrong with another. Nothing is read from a project (SAFE-1).
//! Not here: what the files mean (`preset.rs`, `skill.rs`), and how their heads are written (`front_matter.rs`).

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, Read},
    path::{Path, PathBuf},
};

use soong_protocol::{ErrorCode, ErrorInfo};

use crate::front_matter::{Fault, FrontMatter};

/// Largest file, in bytes: it goes into prompts.
pub(crate) const MAX_BYTES: u64 = 65_536;
/// Most files of a folder.
pub(crate) const MAX_FILES: usize = 256;
/// Longest name, in bytes.
const MAX_NAME: usize = 64;

/// A file of the home that cannot be used: what is wrong with it, and what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}{}: {}{message}", file.display(), line.map(|n| format!(":{n}")).unwrap_or_default(),
        key.as_ref().map(|key| format!("`{key}` ")).unwrap_or_default())]
pub struct HomeFileError {
    /// The file, or its folder.
    pub file: PathBuf,
    /// Its line, from 1, where there is one to look at.
    pub line: Option<usize>,
    /// The key in its front matter.
    pub key: Option<String>,
    /// What is wrong, and what to do; behind a key the end of a sentence.
    pub message: String,
}

impl HomeFileError {
    fn whole(file: &Path, message: impl Into<String>) -> Self {
        Self { file: file.to_owned(), line: None, key: None, message: message.into() }
    }

    fn of(file: &Path, Fault { line, key, message }: Fault) -> Self {
        Self { file: file.to_owned(), line: Some(line), key, message }
    }
}

/// Makes one error of all that is wrong: the first is told, the others counted.
pub(crate) fn refuse(faults: &[HomeFileError]) -> Result<(), ErrorInfo> {
    let Some((first, others)) = faults.split_first() else { return Ok(()) };
    let more = match others.len() {
        0 => String::new(),
        1 => " (and 1 other file)".to_owned(),
        n => format!(" (and {n} other files)"),
    };
    Err(ErrorInfo::new(ErrorCode::ConfigError, format!("{first}{more}")))
}

/// What the files of a folder hold, by name, with where each stands.
pub(crate) struct Found<T> {
    pub(crate) by_name: BTreeMap<String, (T, PathBuf)>,
    pub(crate) faults: Vec<HomeFileError>,
    /// What is ignored of files that can be used.
    pub(crate) warnings: Vec<HomeFileError>,
}

/// What the files of a folder look like.
#[derive(Clone, Copy)]
pub(crate) struct Format {
    /// Keys of other programs, which are ignored with a warning.
    pub(crate) foreign: &'static [&'static str],
    /// The file that a folder stands for, `NAME/FILE`, where folders count.
    pub(crate) in_folders: Option<&'static str>,
}

/// Reads the files of a folder; `read` gets a name that fits and the whole file.
pub(crate) fn load<T>(
    folder: &Path,
    format: Format,
    read: impl Fn(&str, &FrontMatter<'_>) -> Result<T, Fault>,
) -> Found<T> {
    let mut found = Found { by_name: BTreeMap::new(), faults: Vec::new(), warnings: Vec::new() };
    let files = match list(folder, format.in_folders) {
        Ok(files) => files,
        Err(fault) => {
            found.faults.push(fault);
            return found;
        }
    };
    for file in files {
        if let Err(fault) = add(&mut found, &file, format.foreign, &read) {
            found.faults.push(fault);
        }
    }
    found
}

fn add<T>(
    found: &mut Found<T>,
    file: &Path,
    foreign: &[&str],
    read: impl Fn(&str, &FrontMatter<'_>) -> Result<T, Fault>,
) -> Result<(), HomeFileError> {
    let text = text(file)?;
    let at = |fault| HomeFileError::of(file, fault);
    let parsed = FrontMatter::read(&text, foreign).map_err(at)?;
    let name = parsed.required("name").map_err(at)?;
    check_name(name).map_err(|message| at(parsed.fault("name", message)))?;
    if let Some((_, other)) = found.by_name.get(name) {
        let message = format!("{name:?} is that of {} too: give one of the two another name", other.display());
        return Err(at(parsed.fault("name", message)));
    }
    let one = read(name, &parsed).map_err(at)?;
    if let Some((_, line)) = parsed.foreign().first() {
        let keys: Vec<String> = parsed.foreign().iter().map(|(key, _)| format!("`{key}`")).collect();
        let message = format!("keys of another program are ignored: {}", keys.join(", "));
        found.warnings.push(HomeFileError { file: file.to_owned(), line: Some(*line), key: None, message });
    }
    found.by_name.insert(name.to_owned(), (one, file.to_owned()));
    Ok(())
}

/// Lists the files that count, by name.
fn list(folder: &Path, in_folders: Option<&str>) -> Result<Vec<PathBuf>, HomeFileError> {
    let unreadable = |error: io::Error| {
        HomeFileError::whole(folder, format!("the folder cannot be read ({error}): mend it, or move it away"))
    };
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        // Not there, or not to be reached: then the home itself cannot be used, and that is told where it is opened.
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
        let inner = in_folders.map(|file| folder.join(&name).join(file)).filter(|inner| inner.is_file());
        if let Some(inner) = inner {
            files.push(inner);
        } else if bytes.ends_with(b".md") {
            files.push(folder.join(name));
        }
        if files.len() > MAX_FILES {
            let message = format!("the folder holds more than {MAX_FILES} files *.md: take some out");
            return Err(HomeFileError::whole(folder, message));
        }
    }
    files.sort();
    Ok(files)
}

/// Reads a file that is none of the kinds that never end.
fn text(file: &Path) -> Result<String, HomeFileError> {
    let fault = |message: String| HomeFileError::whole(file, message);
    let unreadable = |error: io::Error| fault(format!("cannot be read ({error}): mend it, or move it away"));
    if !file.metadata().map_err(unreadable)?.is_file() {
        return Err(fault("is no file: move it away, or let its name not end in .md".to_owned()));
    }
    let mut bytes = Vec::new();
    File::open(file).and_then(|open| open.take(MAX_BYTES + 1).read_to_end(&mut bytes)).map_err(unreadable)?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(fault(format!("is larger than {MAX_BYTES} bytes: shorten it")));
    }
    String::from_utf8(bytes).map_err(|error| {
        let before = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
        let message = "this is no UTF-8: save the file in that encoding".to_owned();
        HomeFileError { file: file.to_owned(), line: Some(line), key: None, message }
    })
}

pub(crate) fn check_name(name: &str) -> Result<(), String> {
    let is_good = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    match !name.is_empty() && name.len() <= MAX_NAME && name.bytes().all(is_good) {
        true => Ok(()),
        false => Err(format!("must be 1 to {MAX_NAME} letters (a-z), digits, - or _, not {name:?}")),
    }
}
