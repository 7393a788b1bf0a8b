//! Properties of the terminal: whether there is one, its colors, its character set.

use std::io::IsTerminal;

use clap::ValueEnum;
use soong_text::Environment;

use crate::keyboard;

/// When to use color.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum Color {
    /// On a terminal, unless NO_COLOR is set.
    #[default]
    Auto,
    /// Also in files and pipes.
    Always,
    /// Never.
    Never,
}

/// Style of a piece of text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TextStyle {
    /// No style.
    Plain,
    /// Bold.
    Bold,
    /// Dim.
    Dim,
    /// Italic.
    Italic,
    /// Struck through.
    Strikethrough,
    /// Red.
    Red,
    /// Green.
    Green,
    /// Yellow.
    Yellow,
    /// Blue.
    Blue,
    /// Cyan.
    Cyan,
}

impl TextStyle {
    /// All styles.
    pub(crate) const ALL: [Self; 10] = [
        Self::Plain,
        Self::Bold,
        Self::Dim,
        Self::Italic,
        Self::Strikethrough,
        Self::Red,
        Self::Green,
        Self::Yellow,
        Self::Blue,
        Self::Cyan,
    ];

    const fn code(self) -> &'static str {
        match self {
            Self::Plain => "0",
            Self::Bold => "1",
            Self::Dim => "2",
            Self::Italic => "3",
            Self::Strikethrough => "9",
            Self::Red => "31",
            Self::Green => "32",
            // Colors of the 256-color palette, since the standard yellow and blue are hard to read
            // on white or black.
            Self::Yellow => "38;5;172",
            Self::Blue => "38;5;33",
            Self::Cyan => "36",
        }
    }
}

/// Applies styles to text if enabled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Paint {
    /// Whether styles are applied.
    pub on: bool,
}

impl Paint {
    /// Returns the text with the escape sequences of a style.
    pub fn paint(self, style: TextStyle, text: &str) -> String {
        if self.on && style != TextStyle::Plain && !text.is_empty() {
            format!("\u{1b}[{}m{text}\u{1b}[0m", style.code())
        } else {
            text.to_owned()
        }
    }
}

/// Properties of the output streams.
#[derive(Debug, Clone, Copy)]
pub struct Terminal {
    /// Styles on standard output.
    pub stdout: Paint,
    /// Styles on standard error.
    pub stderr: Paint,
    /// Whether standard output is a terminal.
    pub has_stdout: bool,
    /// Whether a live display can be redrawn in place on standard error.
    pub can_redraw: bool,
    /// Whether characters beyond ASCII can be shown.
    pub unicode: bool,
}

impl Terminal {
    /// Detects the properties from the process's streams and environment.
    pub fn detect(environment: &Environment, color: Color) -> Self {
        let is_dumb = environment.get("TERM").is_none_or(|term| term == "dumb");
        let paint = |is_terminal: bool| Paint {
            on: match color {
                Color::Always => true,
                Color::Never => false,
                Color::Auto => is_terminal && !is_dumb && environment.get("NO_COLOR").is_none(),
            },
        };
        let stdout = std::io::stdout().is_terminal();
        let stderr = std::io::stderr().is_terminal();
        Self {
            stdout: paint(stdout),
            stderr: paint(stderr),
            has_stdout: stdout,
            can_redraw: stderr && !is_dumb && keyboard::is_foreground(),
            unicode: is_utf8(environment),
        }
    }

    /// Returns the mark for text that was cut off.
    pub const fn ellipsis(&self) -> &'static str {
        if self.unicode { "…" } else { "..." }
    }
}

/// Returns whether the locale uses UTF-8. The first locale variable that is set decides.
fn is_utf8(environment: &Environment) -> bool {
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"]
        .into_iter()
        .find_map(|name| environment.get(name));
    locale.is_some_and(|locale| {
        let locale = locale.to_ascii_lowercase();
        locale.contains("utf-8") || locale.contains("utf8")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_nonempty_locale_variable_decides() {
        for (variables, want) in [
            (vec![("LANG", "de_DE.UTF-8")], true),
            (vec![("LANG", "de_DE.utf8")], true),
            (vec![("LC_ALL", "C"), ("LANG", "en_US.UTF-8")], false),
            (vec![("LC_ALL", ""), ("LC_CTYPE", "C.UTF-8")], true),
            (vec![], false),
        ] {
            assert_eq!(
                is_utf8(&Environment::of(variables.clone())),
                want,
                "{variables:?}"
            );
        }
    }

    #[test]
    fn text_is_colored_only_if_enabled() {
        assert_eq!(Paint { on: false }.paint(TextStyle::Red, "x"), "x");
        assert_eq!(
            Paint { on: true }.paint(TextStyle::Red, "x"),
            "\u{1b}[31mx\u{1b}[0m"
        );
    }
}
