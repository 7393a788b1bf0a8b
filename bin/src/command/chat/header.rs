//! The lines at the start and at the end of a chat.

use std::path::Path;

use soong::protocol::{
    PermissionMode, RunMode, SessionId, Setting, TraceId,
    api::operation::{ReadSession, ReadTrace},
};
use soong_tui::{markdown::PageFormat, terminal::TextStyle, text};

use super::conversation::Conversation;
use crate::{command::runtime_session::RuntimeSession, exit::Failure, print, report};

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
        let (separator, ellipsis) = if unicode {
            (" · ", "…")
        } else {
            (" | ", "...")
        };
        let parts = [
            Some(concat!("soong ", env!("CARGO_PKG_VERSION")).to_owned()),
            self.model.map(text::safe_line),
            self.mode.map(|mode| mode.as_str().to_owned()),
            Some(format!("permissions {}", self.permissions.as_str())),
            self.project
                .map(|project| text::safe_line(&from_home(project, self.home))),
            self.branch.map(text::safe_line),
        ];
        let line = parts
            .into_iter()
            .flatten()
            .collect::<Vec<_>>()
            .join(separator);
        text::cut(&line, width, ellipsis)
    }
}

/// Returns the title of the terminal for a chat in this project.
pub(super) fn terminal_title(project: Option<&Path>) -> String {
    let name = project
        .and_then(Path::file_name)
        .map(|name| name.to_string_lossy().into_owned());
    name.map_or_else(|| "soong".to_owned(), |name| format!("soong: {name}"))
}

impl Conversation<'_> {
    /// Returns whether this chat prints headers.
    pub(super) fn has_header(&self) -> bool {
        self.input.is_terminal() && !self.context.global.json
    }

    /// Begins or continues a session at a terminal: uses its project, and prints a header. `model`:
    /// the model of the next run; `None`: the one that the user has set, or that of the session's
    /// last run.
    pub(super) async fn begin(
        &mut self,
        runtime_session: &RuntimeSession<'_>,
        model: Option<&str>,
    ) -> Result<(), Failure> {
        if !self.has_header() {
            return Ok(());
        }
        // A session that does not exist yet begins with the first message.
        let (continued, last) = match &self.next_request.session_id {
            Some(session) => (
                runtime_session
                    .client()
                    .call(ReadSession {
                        session_id: SessionId::new(session.as_str()),
                    })
                    .await
                    .ok(),
                runtime_session
                    .client()
                    .call(ReadTrace {
                        trace_id: TraceId::new(session.as_str()),
                    })
                    .await
                    .ok(),
            ),
            None => (None, None),
        };
        if let Some(view) = &continued {
            self.use_project_of(&view.session);
        }
        let request = &self.next_request;
        let terminal = self.context.terminal;
        let last_mode = last.as_ref().map(|view| view.trace.run_mode);
        let last_model = last.as_ref().map(|view| view.trace.model.as_str());
        let model = model.map(str::to_owned).or_else(|| self.model(last_model));
        let project = match (&self.context.remote, &continued) {
            (Some(_), Some(view)) => Some(Path::new(&view.session.project_dir)),
            _ => request.project_dir.as_deref(),
        };
        let local_project = project.filter(|_| self.context.remote.is_none());
        let branch = local_project.and_then(soong::git_branch);
        let home = self.context.environment.user_home();
        let header = Header {
            model: model.as_deref(),
            mode: Some(request.mode.resolve(last_mode).unwrap_or(RunMode::Normal)),
            permissions: self.permission_mode(),
            project,
            home: home.as_deref(),
            branch: branch.as_deref(),
        };
        self.print_dim(&header.line(PageFormat::of(terminal).width, terminal.unicode))?;
        if let Some(notes) = local_project.and_then(soong::repository_notes) {
            let notes = text::safe_line(&from_home(&notes, home.as_deref()));
            self.print_dim(&format!("the rules of its repository apply: {notes}"))?;
        }
        let session = match (&continued, &request.session_id) {
            (Some(view), _) => format!(
                "continuing session {}",
                text::safe_line(view.session.short_name())
            ),
            (None, Some(name)) => format!("session {}", text::safe_line(name)),
            (None, None) => "new session".to_owned(),
        };
        self.print_dim(&format!("{session}; /help lists the commands"))
    }

    /// Returns the model of the next run, if it is known. `last`: that of the session's last run,
    /// which a new agent type or model replaces.
    fn model(&self, last: Option<&str>) -> Option<String> {
        let request = &self.next_request;
        let last = last.filter(|_| request.preset.is_inherited());
        let selected = match &request.model {
            Setting::Inherit => last,
            Setting::Reset => None,
            Setting::Set(model) => Some(model.as_str()),
        };
        match selected {
            Some(model) if model != "default" => Some(model.to_owned()),
            // A server may have another default.
            _ if self.context.remote.is_some() => None,
            _ => Some(
                self.settings
                    .models(&self.context.environment)
                    .config
                    .model
                    .model_name()
                    .to_owned(),
            ),
        }
    }

    /// Prints how to continue the session later.
    pub(super) async fn print_resume_hint(
        &self,
        runtime_session: &RuntimeSession<'_>,
    ) -> Result<(), Failure> {
        match &self.next_request.session_id {
            Some(session) if self.input.is_terminal() => {
                let soong = report::command(
                    self.context.global.home.as_deref(),
                    self.context.global.url.as_deref(),
                );
                let session = runtime_session
                    .session_name(&SessionId::new(session.as_str()))
                    .await;
                let session = text::safe_line(&session);
                let line = format!("continue this session with `{soong} chat --session {session}`");
                print::line_or_stderr(self.context.terminal, TextStyle::Dim, &line)
            }
            _ => Ok(()),
        }
    }
}

/// Returns a path, with `~` for the user's home folder.
pub(super) fn from_home(path: &Path, home: Option<&Path>) -> String {
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
        let little = Header {
            model: None,
            mode: None,
            project: Some(Path::new("/srv")),
            branch: None,
            ..header
        };
        assert_eq!(
            little.line(100, false),
            format!("soong {version} | permissions ask | /srv")
        );
        assert_eq!(little.line(20, true), "soong 0.1.0 · permi…");
        assert_eq!(
            Header {
                project: header.home,
                ..little
            }
            .line(100, true),
            format!("soong {version} · permissions ask · ~")
        );
    }
}
