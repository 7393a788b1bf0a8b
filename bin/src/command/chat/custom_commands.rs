//! Chat commands that the user defines: each file `commands/NAME.md` of the home is a message that
//! `/NAME` sends, and each file `commands/FOLDER/NAME.md` one that `/FOLDER:NAME` sends.
//!
//! Front matter, as other programs have it in such files, is not sent; its `description` describes
//! the command.

use std::path::{Path, PathBuf};

use crate::file;

/// Folder of the home with the commands.
const FOLDER: &str = "commands";
/// Replaced in the text of a command by what follows its name.
const ARGUMENTS: &str = "$ARGUMENTS";
/// Maximum depth of folders with commands.
const MAX_DEPTH: usize = 4;
/// Maximum number of commands.
const MAX_COMMANDS: usize = 200;
/// Maximum length of the description of a command, in characters.
const MAX_DESCRIPTION: usize = 60;

/// The commands of a home, sorted by name.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct CustomCommands(Vec<CustomCommand>);

/// A command that sends a message.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct CustomCommand {
    pub(super) name: String,
    /// From the front matter, else the first line of the text.
    pub(super) description: String,
    text: String,
}

impl CustomCommands {
    /// Reads the commands of a home. Also returns a line for each file that cannot be used.
    pub(super) fn read(home: &Path) -> (Self, Vec<String>) {
        let folder = home.join(FOLDER);
        let mut commands = Vec::new();
        let mut errors = Vec::new();
        let mut paths = Vec::new();
        add_files(&folder, MAX_DEPTH, &mut paths);
        paths.sort();
        for path in paths.into_iter().take(MAX_COMMANDS) {
            let Some(name) = name_of(&folder, &path) else {
                errors.push(format!(
                    "{}: a command name may contain only a-z, 0-9, - and _",
                    path.display()
                ));
                continue;
            };
            match soong_server::text_file::read_text(&path, file::MAX_TEXT_BYTES) {
                Ok(text) => commands.push(CustomCommand::of(&name, &text)),
                Err(error) => errors.push(format!("{}: {error}", path.display())),
            }
        }
        (Self(commands), errors)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &CustomCommand> {
        self.0.iter()
    }

    /// Returns the message of a command.
    pub(super) fn message(&self, name: &str, arguments: &str) -> Option<String> {
        let command = self.0.iter().find(|command| command.name == name)?;
        let (text, is_used) = with_arguments(&command.text, arguments);
        if is_used || arguments.is_empty() {
            return Some(text);
        }
        Some(format!("{text}\n\n{arguments}"))
    }
}

impl CustomCommand {
    fn of(name: &str, text: &str) -> Self {
        let (description, text) = without_front_matter(text.trim());
        let first = text
            .lines()
            .next()
            .unwrap_or_default()
            .trim_start_matches('#')
            .trim();
        let description = description.unwrap_or(first);
        Self {
            name: name.to_owned(),
            description: description.chars().take(MAX_DESCRIPTION).collect(),
            text: text.to_owned(),
        }
    }
}

/// Adds the files `*.md` of a folder and of the folders in it.
fn add_files(folder: &Path, depth: usize, files: &mut Vec<PathBuf>) {
    let entries = std::fs::read_dir(folder)
        .into_iter()
        .flatten()
        .filter_map(Result::ok);
    for entry in entries {
        let path = entry.path();
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        if is_folder && depth > 1 {
            add_files(&path, depth - 1, files);
        } else if !is_folder && path.extension().is_some_and(|extension| extension == "md") {
            files.push(path);
        }
    }
}

/// Returns the name of the command in a file, such as `git:review` for `git/review.md`.
fn name_of(folder: &Path, file: &Path) -> Option<String> {
    let below = file.strip_prefix(folder).ok()?.with_extension("");
    let parts: Vec<&str> = below
        .iter()
        .map(|part| part.to_str().filter(|part| is_name(part)))
        .collect::<Option<_>>()?;
    Some(parts.join(":"))
}

/// Returns the description in the front matter of a text, and the text below it.
fn without_front_matter(text: &str) -> (Option<&str>, &str) {
    let is_fence = |line: &str| line.trim_end() == "---";
    let Some((first, rest)) = text.split_once('\n').filter(|(first, _)| is_fence(first)) else {
        return (None, text);
    };
    let mut length = first.len() + 1;
    let mut description = None;
    for line in rest.split_inclusive('\n') {
        length += line.len();
        if is_fence(line) {
            return (description, text[length..].trim());
        }
        if let Some(value) = line.strip_prefix("description:") {
            description =
                Some(value.trim().trim_matches(['"', '\''])).filter(|value| !value.is_empty());
        }
    }
    // It is not closed, so it is a rule above the text.
    (None, text)
}

/// Replaces `$ARGUMENTS` by all arguments, and `$1` to `$9` by single ones. Returns whether there
/// was anything to replace. An argument in quotes may contain spaces.
fn with_arguments(text: &str, arguments: &str) -> (String, bool) {
    let words = words(arguments);
    let mut replaced = String::with_capacity(text.len());
    let mut is_used = false;
    let mut rest = text;
    while let Some(start) = rest.find('$') {
        replaced.push_str(&rest[..start]);
        rest = &rest[start..];
        if let Some(after) = rest.strip_prefix(ARGUMENTS) {
            replaced.push_str(arguments);
            is_used = true;
            rest = after;
            continue;
        }
        let mut following = rest[1..].chars();
        let number = following
            .next()
            .and_then(|digit| digit.to_digit(10))
            .filter(|number| *number > 0);
        // `$10` and `$1.50` are amounts of money rather than arguments.
        let after = following.as_str().trim_start_matches(['.', ',']);
        let is_longer = after.starts_with(|next: char| next.is_ascii_digit());
        match number.filter(|_| !is_longer) {
            Some(number) => {
                replaced.push_str(words.get(number as usize - 1).map_or("", String::as_str));
                is_used = true;
                rest = &rest[2..];
            }
            None => {
                replaced.push('$');
                rest = &rest[1..];
            }
        }
    }
    replaced.push_str(rest);
    (replaced, is_used)
}

/// Splits arguments at spaces outside of quotes.
fn words(arguments: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    for character in arguments.chars() {
        match quote {
            Some(mark) if character == mark => quote = None,
            None if matches!(character, '"' | '\'')
                && word.as_deref().is_none_or(str::is_empty) =>
            {
                quote = Some(character);
                word.get_or_insert_default();
            }
            None if character.is_whitespace() => words.extend(word.take()),
            _ => word.get_or_insert_default().push(character),
        }
    }
    words.extend(word);
    words
}

fn is_name(name: &str) -> bool {
    !name.is_empty()
        && name
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_".contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_the_home_are_commands() {
        let home = tempfile::tempdir().unwrap();
        assert_eq!(
            CustomCommands::read(home.path()),
            (CustomCommands::default(), Vec::new())
        );
        let folder = home.path().join(FOLDER);
        std::fs::create_dir(&folder).unwrap();
        for (name, text) in [
            (
                "review.md",
                "# Review a file\nReview $ARGUMENTS, and name each finding.\n",
            ),
            ("explain.md", "Explain this."),
            (
                "fix.md",
                "---\ndescription: \"Fix an issue\"\nallowed-tools: Bash\n---\nFix issue $1 for $2; it costs $10.\n",
            ),
            ("git/push.md", "Push to $1."),
            ("Bad name.md", "x"),
            ("notes.txt", "not a command"),
        ] {
            std::fs::create_dir_all(folder.join(name).parent().unwrap()).unwrap();
            std::fs::write(folder.join(name), text).unwrap();
        }
        std::fs::write(folder.join("bytes.md"), [0xff, 0xfe, 0]).unwrap();
        let (commands, errors) = CustomCommands::read(home.path());
        let described: Vec<_> = commands
            .iter()
            .map(|command| (&command.name[..], &command.description[..]))
            .collect();
        let expected = [
            ("explain", "Explain this."),
            ("fix", "Fix an issue"),
            ("git:push", "Push to $1."),
            ("review", "Review a file"),
        ];
        assert_eq!(described, expected);
        assert_eq!(errors.len(), 2, "{errors:?}");
        for (name, arguments, message) in [
            (
                "review",
                "src/a.rs",
                Some("# Review a file\nReview src/a.rs, and name each finding."),
            ),
            ("explain", "", Some("Explain this.")),
            ("explain", "briefly", Some("Explain this.\n\nbriefly")),
            (
                "fix",
                "12 \"Ann B\" more",
                Some("Fix issue 12 for Ann B; it costs $10."),
            ),
            ("fix", "12", Some("Fix issue 12 for ; it costs $10.")),
            ("git:push", "it's main", Some("Push to it's.")),
            ("missing", "", None),
        ] {
            assert_eq!(
                commands.message(name, arguments).as_deref(),
                message,
                "{name} {arguments}"
            );
        }
    }
}
