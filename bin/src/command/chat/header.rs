//! The lines at the start of a chat.

use std::path::Path;

use soong::protocol::{PermissionMode, RunMode};
use soong_tui::text;

/// Facts in the first line of a chat. Absent parts are not known before the first run.
#[derive(Debug, Clone, Copy)]
pub(super) struct Header<'a> {
    /// The model, and why it is used if the user did not choose it.
    pub(super) model: Option<&'a str>,
    pub(super) mode: Option<RunMode>,
    pub(super) permissions: PermissionMode,
    pub(super) project: Option<&'a Path>,
    /// The user's home folder.
    pub(super) home: Option<&'a Path>,
    /// Checked-out Git branch of the project.
    pub(super) branch: Option<&'a str>,
}

impl Header<'_> {
    /// Returns the line, at most `width` columns wide.
    pub(super) fn line(&self, width: usize, unicode: bool) -> String {
        let (separator, ellipsis) = if unicode { (" · ", "…") } else { (" | ", "...") };
        let parts = [
            Some(concat!("soong ", env!("CARGO_PKG_VERSION")).to_owned()),
            self.model.map(text::safe_line),
            self.mode.map(|mode| mode.as_str().to_owned()),
            Some(format!("permissions {}", self.permissions.as_str())),
            self.project.map(|project| text::safe_line(&from_home(project, self.home))),
            self.branch.map(text::safe_line),
        ];
        let line = parts.into_iter().flatten().collect::<Vec<_>>().join(separator);
        text::cut(&line, width, ellipsis)
    }
}

/// Returns a path, with `~` for the user's home folder.
fn from_home(path: &Path, home: Option<&Path>) -> String {
    match home.and_then(|home| path.strip_prefix(home).ok()) {
        Some(rest) if rest.as_os_str().is_empty() => "~".to_owned(),
        Some(rest) => format!("~/{}", rest.display()),
        None => path.display().to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_names_what_is_known() {
        let header = Header {
            model: Some("gpt-5.6"),
            mode: Some(RunMode::Normal),
            permissions: PermissionMode::Ask,
            project: Some(Path::new("/home/ada/code/app")),
            home: Some(Path::new("/home/ada")),
            branch: Some("main"),
        };
        let version = env!("CARGO_PKG_VERSION");
        assert_eq!(
            header.line(100, true),
            format!("soong {version} · gpt-5.6 · normal · permissions ask · ~/code/app · main")
        );
        let little = Header { model: None, mode: None, project: Some(Path::new("/srv")), branch: None, ..header };
        assert_eq!(little.line(100, false), format!("soong {version} | permissions ask | /srv"));
        assert_eq!(little.line(20, true), "soong 0.1.0 · permi…");
        assert_eq!(
            Header { project: header.home, ..little }.line(100, true),
            format!("soong {version} · permissions ask · ~")
        );
    }
}
