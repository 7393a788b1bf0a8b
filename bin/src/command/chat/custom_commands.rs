//! Chat commands that the user defines: each file `commands/NAME.md` of the home is a message that `/NAME` sends.

use std::path::Path;

use crate::file;

/// Folder of the home with the commands.
const FOLDER: &str = "commands";
/// Replaced in the text of a command by what follows its name.
const ARGUMENTS: &str = "$ARGUMENTS";
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
    /// First line of the text.
    pub(super) description: String,
    text: String,
}

impl CustomCommands {
    /// Reads the commands of a home. Also returns a line for each file that cannot be used.
    pub(super) fn read(home: &Path) -> (Self, Vec<String>) {
        let Ok(entries) = std::fs::read_dir(home.join(FOLDER)) else { return Default::default() };
        let (mut commands, mut errors) = (Vec::new(), Vec::new());
        let paths = entries.filter_map(Result::ok).map(|entry| entry.path());
        let mut paths: Vec<_> =
            paths.filter(|path| path.extension().is_some_and(|extension| extension == "md")).collect();
        paths.sort();
        for path in paths.into_iter().take(MAX_COMMANDS) {
            let Some(name) = path.file_stem().and_then(|name| name.to_str()).filter(|name| is_name(name)) else {
                errors.push(format!("{}: a command name may contain only a-z, 0-9, - and _", path.display()));
                continue;
            };
            match soong_server::text_file::read_text(&path, file::MAX_TEXT_BYTES) {
                Ok(text) => commands.push(CustomCommand::of(name, &text)),
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
        if command.text.contains(ARGUMENTS) || arguments.is_empty() {
            return Some(command.text.replace(ARGUMENTS, arguments));
        }
        Some(format!("{}\n\n{arguments}", command.text))
    }
}

impl CustomCommand {
    fn of(name: &str, text: &str) -> Self {
        let text = text.trim();
        let first = text.lines().next().unwrap_or_default().trim_start_matches('#').trim();
        Self {
            name: name.to_owned(),
            description: first.chars().take(MAX_DESCRIPTION).collect(),
            text: text.to_owned(),
        }
    }
}

fn is_name(name: &str) -> bool {
    !name.is_empty()
        && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_".contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_the_home_are_commands() {
        let home = tempfile::tempdir().unwrap();
        assert_eq!(CustomCommands::read(home.path()), (CustomCommands::default(), Vec::new()));
        let folder = home.path().join(FOLDER);
        std::fs::create_dir(&folder).unwrap();
        for (name, text) in [
            ("review.md", "# Review a file\nReview $ARGUMENTS, and name each finding.\n"),
            ("explain.md", "Explain this."),
            ("Bad name.md", "x"),
            ("notes.txt", "not a command"),
        ] {
            std::fs::write(folder.join(name), text).unwrap();
        }
        std::fs::write(folder.join("bytes.md"), [0xff, 0xfe, 0]).unwrap();
        let (commands, errors) = CustomCommands::read(home.path());
        let described: Vec<_> = commands.iter().map(|command| (&command.name[..], &command.description[..])).collect();
        assert_eq!(described, [("explain", "Explain this."), ("review", "Review a file")]);
        assert_eq!(errors.len(), 2, "{errors:?}");
        for (name, arguments, message) in [
            ("review", "src/a.rs", Some("# Review a file\nReview src/a.rs, and name each finding.")),
            ("explain", "", Some("Explain this.")),
            ("explain", "briefly", Some("Explain this.\n\nbriefly")),
            ("missing", "", None),
        ] {
            assert_eq!(commands.message(name, arguments).as_deref(), message, "{name} {arguments}");
        }
    }
}
