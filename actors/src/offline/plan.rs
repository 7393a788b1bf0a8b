//! Dividing a project into parts for child runs, and the text of their tasks.
//!
//! A task is written for readers; its last line, `Scope: {…}`, contains the same for the offline
//! child.

use std::cmp::Reverse;

use serde::{Deserialize, Serialize};

use super::listing::Listing;

/// Minimum and maximum number of parts, if the user names no number.
const MIN_PARTS: usize = 4;
const MAX_PARTS: usize = 8;
/// Maximum number of children that a user can request.
const MAX_REQUESTED_PARTS: usize = 200;
/// Maximum size of the answers of all children, in bytes, so that the combined result can be read
/// in one piece.
const MAX_ANSWERS_BYTES: usize = 36_000;
const LONGEST_ANSWER_BYTES: usize = 5_000;
const SHORTEST_ANSWER_BYTES: usize = 200;
const SCOPE_MARK: &str = "Scope: ";

/// Question that a child answers about its part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Question {
    /// Contents of the part, and their purpose.
    #[default]
    Overview,
    /// The largest files.
    Sizes,
    /// Kinds of files.
    Kinds,
    /// Entry points of programs.
    EntryPoints,
    /// Work that is marked as unfinished.
    OpenWork,
}

impl Question {
    const ALL: [Self; 5] = [
        Self::Overview,
        Self::Sizes,
        Self::Kinds,
        Self::EntryPoints,
        Self::OpenWork,
    ];

    /// Returns the question in words.
    pub(super) const fn words(self) -> &'static str {
        match self {
            Self::Overview => "what is there and what it is for",
            Self::Sizes => "which files are the largest",
            Self::Kinds => "which kinds of files there are",
            Self::EntryPoints => "where programs begin",
            Self::OpenWork => "what is marked as unfinished",
        }
    }
}

/// A part of a project, and the question about it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(super) struct Scope {
    /// Heading of its section in the report; unique.
    pub(super) label: String,
    /// Folders, including everything below them.
    #[serde(default)]
    pub(super) folders: Vec<String>,
    /// Folders of which only the direct files belong to the part.
    #[serde(default)]
    pub(super) direct: Vec<String>,
    /// Single files.
    #[serde(default)]
    pub(super) files: Vec<String>,
    /// The question.
    #[serde(default)]
    pub(super) question: Question,
    /// Maximum size of the answer, in bytes.
    #[serde(default)]
    pub(super) max_bytes: usize,
}

impl Scope {
    /// Parses the scope of a task. `None` if this model did not write the task.
    pub(super) fn parse(task: &str) -> Option<Self> {
        let line = task
            .starts_with("Explore ")
            .then(|| task.lines().find_map(|line| line.strip_prefix(SCOPE_MARK)));
        line.flatten().and_then(Self::from_json)
    }

    /// Parses a scope from JSON.
    pub(super) fn from_json(json: &str) -> Option<Self> {
        serde_json::from_str(json.trim()).ok()
    }

    /// Serializes the scope as one line of JSON.
    pub(super) fn to_json(&self) -> String {
        // Cannot fail, since it contains only names and numbers.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Returns whether a file belongs to the part.
    pub(super) fn contains(&self, path: &str) -> bool {
        let folder = path.rfind('/').map_or("./", |end| &path[..=end]);
        self.folders
            .iter()
            .any(|own| path.starts_with(own.as_str()))
            || self.direct.iter().any(|own| own == folder)
            || self.files.iter().any(|own| own == path)
    }

    /// Returns the task for a child.
    pub(super) fn task(&self) -> String {
        let what = match (
            self.folders.as_slice(),
            self.direct.as_slice(),
            self.files.as_slice(),
        ) {
            ([_], [], []) => format!("the folder {}", self.label),
            _ => self.label.clone(),
        };
        format!(
            "Explore {what} of the project: {}.\n\nList it, read the files that tell most, search it once. Answer in \
             Markdown, in at most {} bytes: files with their size in bytes and what they are for. Name nothing that \
             you did not see; put paths, and only paths, in backticks.\n\n{SCOPE_MARK}{}",
            self.question.words(),
            self.max_bytes,
            self.to_json()
        )
    }

    fn named(mut self) -> Self {
        let mut names: Vec<String> = self
            .folders
            .iter()
            .map(|folder| format!("`{folder}`"))
            .collect();
        names.extend(self.direct.iter().map(|folder| match folder.as_str() {
            "./" => "files at the top level".to_owned(),
            folder => format!("files directly in `{folder}`"),
        }));
        names.extend(match self.files.as_slice() {
            [] => None,
            [file] => Some(format!("`{file}`")),
            [first, .., last] => Some(format!(
                "{} files from `{first}` to `{last}`",
                self.files.len()
            )),
        });
        let more = names.len().saturating_sub(4);
        names.truncate(4);
        self.label = names.join(", ");
        if more > 0 {
            self.label.push_str(&format!(" and {more} more"));
        }
        self
    }
}

struct Part {
    scope: Scope,
    files: u64,
    bytes: u64,
}

impl Part {
    fn new(scope: Scope, deep: &Listing) -> Self {
        let own = deep.files.iter().filter(|(path, _)| scope.contains(path));
        let (files, bytes) = own.fold((0, 0), |sum, (_, size)| (sum.0 + 1, sum.1 + size));
        Self {
            scope,
            files,
            bytes,
        }
    }
}

/// Parses the number of children that a message asks for: `with exactly N children`.
pub(super) fn asked_count(message: &str) -> Option<usize> {
    let message = message.to_lowercase();
    let counts = message.split("exactly ").skip(1).filter_map(|rest| {
        let (number, noun) = rest.trim_start().split_once(' ')?;
        let fits = ["child", "sub-agent", "subagent", "explore", "task"]
            .iter()
            .any(|word| noun.starts_with(word));
        number.parse::<usize>().ok().filter(|_| fits)
    });
    counts
        .map(|number| number.clamp(1, MAX_REQUESTED_PARTS))
        .next()
}

/// Divides a project into the requested number of parts, else into four to eight; an empty project
/// has one part.
pub(super) fn parts(top: &Listing, deep: &Listing, part_count: Option<usize>) -> Vec<Scope> {
    let (fewest, most) = part_count.map_or((MIN_PARTS, MAX_PARTS), |number| (number, number));
    let folder = |path: &str| Scope {
        folders: vec![path.to_owned()],
        ..Scope::default()
    };
    let mut all = deep.clone();
    all.files.extend(top.files.clone());
    all.folders.extend(top.folders.clone());
    let mut parts: Vec<Part> = all
        .folders_in("./")
        .map(|path| Part::new(folder(path), &all))
        .collect();
    if all.directly_in("./").next().is_some() || parts.is_empty() {
        parts.push(Part::new(
            Scope {
                direct: vec!["./".to_owned()],
                ..Scope::default()
            },
            &all,
        ));
    }
    let is_empty = all.files.is_empty() && all.folders.is_empty();
    split_until(&mut parts, fewest, &all);
    merge_until(&mut parts, most);
    let mut scopes: Vec<Scope> = parts.into_iter().map(|part| part.scope.named()).collect();
    scopes.sort_by(|a, b| key(a).cmp(&key(b)));
    if part_count.is_some() || !is_empty {
        add_questions(&mut scopes, fewest);
    }
    let share = (MAX_ANSWERS_BYTES / scopes.len().max(1))
        .clamp(SHORTEST_ANSWER_BYTES, LONGEST_ANSWER_BYTES);
    for scope in &mut scopes {
        scope.max_bytes = share;
    }
    scopes
}

/// Sort key: folders first, by path, then other parts.
fn key(scope: &Scope) -> (bool, &str) {
    let first = scope
        .folders
        .first()
        .or(scope.direct.first())
        .or(scope.files.first());
    (scope.folders.is_empty(), first.map_or("", String::as_str))
}

/// Splits the largest part that can be split, until there are enough parts.
fn split_until(parts: &mut Vec<Part>, fewest: usize, all: &Listing) {
    while parts.len() < fewest {
        let mut order: Vec<usize> = (0..parts.len()).collect();
        order.sort_by_key(|index| (Reverse((parts[*index].files, parts[*index].bytes)), *index));
        let Some((index, pieces)) = order
            .into_iter()
            .find_map(|index| Some((index, split(&parts[index].scope, all)?)))
        else {
            return;
        };
        parts.splice(
            index..=index,
            pieces.into_iter().map(|scope| Part::new(scope, all)),
        );
    }
}

fn split(scope: &Scope, all: &Listing) -> Option<Vec<Scope>> {
    let folder_of = |path: &str| Scope {
        folders: vec![path.to_owned()],
        ..Scope::default()
    };
    let halves = |files: Vec<String>| {
        let (first, second) = files.split_at(files.len() / 2);
        let half = |files: &[String]| Scope {
            files: files.to_vec(),
            ..Scope::default()
        };
        (files.len() >= 2).then(|| vec![half(first), half(second)])
    };
    let direct = |folder: &str| {
        all.directly_in(folder)
            .map(|(path, _)| path.to_owned())
            .collect::<Vec<_>>()
    };
    match (
        scope.folders.as_slice(),
        scope.direct.as_slice(),
        scope.files.as_slice(),
    ) {
        ([folder], [], []) => {
            let mut pieces: Vec<Scope> = all.folders_in(folder).map(folder_of).collect();
            let loose = direct(folder);
            if pieces.is_empty() {
                // A truncated listing does not name every file, so the folder is not split.
                return if all.is_truncated {
                    None
                } else {
                    halves(loose)
                };
            }
            if !loose.is_empty() || all.is_truncated {
                pieces.push(Scope {
                    direct: vec![folder.clone()],
                    ..Scope::default()
                });
            }
            // A folder that contains only one folder would be the same part under a longer name.
            (pieces.len() >= 2)
                .then_some(pieces)
                .or_else(|| split(&folder_of(all.folders_in(folder).next()?), all))
        }
        ([], [folder], []) if folder == "./" || !all.is_truncated => halves(direct(folder)),
        ([], [], files) => halves(files.to_vec()),
        _ => None,
    }
}

/// Joins the two smallest parts until there are few enough.
fn merge_until(parts: &mut Vec<Part>, most: usize) {
    while parts.len() > most.max(1) {
        let mut order: Vec<usize> = (0..parts.len()).collect();
        order.sort_by_key(|index| (parts[*index].files, parts[*index].bytes, *index));
        let keep = order[0].min(order[1]);
        let gone = order[0].max(order[1]);
        let gone = parts.remove(gone);
        let merged = &mut parts[keep];
        merged.scope.folders.extend(gone.scope.folders);
        merged.scope.direct.extend(gone.scope.direct);
        merged.scope.files.extend(gone.scope.files);
        merged.files += gone.files;
        merged.bytes += gone.bytes;
    }
}

/// Adds further questions about the same parts, if there are fewer parts than requested children.
fn add_questions(scopes: &mut Vec<Scope>, fewest: usize) {
    let parts = scopes.clone();
    for extra in parts.len()..fewest {
        let round = extra / parts.len();
        let mut scope = parts[extra % parts.len()].clone();
        scope.question = Question::ALL[round % Question::ALL.len()];
        scope.label = format!("{}: {}", scope.label, scope.question.words());
        if round >= Question::ALL.len() {
            scope
                .label
                .push_str(&format!(" (look {})", round / Question::ALL.len() + 1));
        }
        scopes.push(scope);
    }
}
