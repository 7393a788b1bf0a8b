//! Commands of a chat that start no run.
//!
//! Elsewhere: going back (`going_back.rs`).

use std::path::PathBuf;

use soong::protocol::{Session, Setting};
use soong_tui::{attention, format, markdown::PageFormat, text};

use super::{
    chat_input::{ChatSetting, SESSION, help},
    conversation::{Conversation, NO_MESSAGES},
    header::terminal_title,
    shell,
};
use crate::{
    command::{
        attach::Attachments, pasted_files::words, run_query, runtime_session::RuntimeSession,
    },
    config,
    exit::Failure,
    print,
};

/// Maximum number of outputs of the user's commands that a message includes.
const MAX_COMMAND_OUTPUTS: usize = 8;

impl Conversation<'_> {
    /// Prints what a command of `soong` prints.
    pub(super) async fn query(&self, words: Vec<String>) -> Result<(), Failure> {
        let mut resolved = Vec::with_capacity(words.len());
        for word in words {
            resolved.push(match (&self.next_request.session_id, word.as_str()) {
                (Some(session), SESSION) => session.clone(),
                (None, SESSION) => return print::line(NO_MESSAGES),
                _ => word,
            });
        }
        run_query(self.context, &resolved).await.map(drop)
    }

    /// Continues another session.
    pub(super) async fn resume(
        &mut self,
        runtime_session: &RuntimeSession<'_>,
        reference: &str,
    ) -> Result<(), Failure> {
        let found = self.context.source().await?.session(reference).await?;
        self.select_session(Some(found.session_id.clone()));
        if self.has_header() {
            return self.begin(runtime_session, None).await;
        }
        self.use_project_of(&found);
        if self.context.global.json {
            return Ok(());
        }
        print::line(&format!(
            "continuing session {}",
            text::safe_line(found.short_name())
        ))
    }

    /// Uses the project of a session that this chat continues, for completion, mentions of files
    /// and commands.
    pub(super) fn use_project_of(&mut self, session: &Session) {
        if self.context.remote.is_some() {
            return;
        }
        let project = PathBuf::from(&session.project_dir);
        self.input.set_project(&project);
        if let Some(title) = &self.title {
            title.change(&terminal_title(Some(&project)));
        }
        self.next_request.project_dir = Some(project);
    }

    /// Runs a command of the user; the next message includes its output.
    pub(super) async fn run_shell(
        &mut self,
        runtime_session: &RuntimeSession<'_>,
        command: &str,
    ) -> Result<(), Failure> {
        if command.is_empty() {
            return print::line("give a command: !ls");
        }
        let Some(folder) = self
            .next_request
            .project_dir
            .as_ref()
            .filter(|_| self.context.remote.is_none())
        else {
            let what = "commands are not run in a chat with a server";
            return Err(Failure::usage(what, "Run the command in another terminal."));
        };
        let output = shell::run(command, folder, runtime_session.interrupted()).await?;
        let texts = &mut self.additions.texts;
        texts.push(output);
        texts.drain(..texts.len().saturating_sub(MAX_COMMAND_OUTPUTS));
        Ok(())
    }

    /// Prints the changes in the project that are not committed.
    pub(super) async fn print_diff(
        &self,
        runtime_session: &RuntimeSession<'_>,
    ) -> Result<(), Failure> {
        match self
            .next_request
            .project_dir
            .as_ref()
            .filter(|_| self.context.remote.is_none())
        {
            Some(folder) => shell::run(
                "git --no-pager diff HEAD",
                folder,
                runtime_session.interrupted(),
            )
            .await
            .map(drop),
            None => print::line("there is no project on this machine"),
        }
    }

    /// Prints the size of the last prompt, and the share of the model's context window if it is
    /// known here.
    pub(super) fn print_context(&self) -> Result<(), Failure> {
        let Some(tokens) = self.last_results.prompt_tokens else {
            return print::line(NO_MESSAGES);
        };
        if self.context.remote.is_some() {
            return print::line(&format!(
                "the last prompt had about {} tokens",
                format::count(tokens)
            ));
        }
        let home = self.context.home()?;
        let settings = config::read(&self.context.global, &home)?;
        let models = settings.models(&self.context.environment);
        let selected = self.next_request.model.as_set();
        let name = selected.map_or("default", String::as_str);
        let (_, profile) = models.profile(name)?;
        let window = models
            .limits(&profile, &home, &self.context.environment)
            .context_window;
        let used = format::count_and_share(tokens, window);
        let model = text::safe_line(profile.model_name());
        let window = format::count(window);
        print::line(&format!(
            "the last prompt had about {used} of the {window} tokens that {model} can take"
        ))
    }

    /// Requests a summary of the conversation before the next message is answered.
    pub(super) fn compact(&mut self) -> Result<(), Failure> {
        if self.next_request.session_id.is_none() {
            return print::line(NO_MESSAGES);
        }
        self.next_request.compact = true;
        print::line("the conversation is summarized before your next message is answered")
    }

    /// Attaches a file to the next message.
    pub(super) fn attach(&mut self, path: &str) -> Result<(), Failure> {
        if path == "-" {
            return print::line("give a file: /attach FILE");
        }
        let path = words(path).join(" ");
        let path = self
            .context
            .environment
            .expand_home(&path)
            .unwrap_or_else(|| PathBuf::from(&path));
        let path = match &self.next_request.project_dir {
            Some(project) if self.context.remote.is_none() => project.join(path),
            _ => path,
        };
        Attachments::check(vec![path.clone()], &self.settings.config.artifacts)?;
        print::line(&format!(
            "your next message attaches {}",
            text::safe_line(&path.display().to_string())
        ))?;
        self.additions.files.push(path);
        Ok(())
    }

    /// Copies the last answer to the clipboard of the terminal.
    pub(super) fn copy_answer(&self) -> Result<(), Failure> {
        match &self.last_results.answer {
            None => print::line("there is no answer yet"),
            Some(_) if !self.context.terminal.can_redraw => {
                print::line("this terminal has no clipboard")
            }
            Some(answer) => {
                let part = if attention::copy_to_clipboard(answer) {
                    ""
                } else {
                    "the beginning of "
                };
                print::line(&format!(
                    "copied {part}the last answer, if the terminal allows it (OSC 52)"
                ))
            }
        }
    }

    /// Prints the last output of a tool completely, if it was shown in part.
    pub(super) fn unfold(&mut self) -> Result<(), Failure> {
        let Some(step) = self.last_results.folded_step.take() else {
            return print::line("no output is folded");
        };
        let terminal = self.context.terminal;
        let PageFormat { width, unicode } = PageFormat::of(terminal);
        let lines = step.all_lines(width, unicode);
        lines
            .iter()
            .try_for_each(|line| print::line(&line.to_ansi(terminal.stdout)))
    }

    /// Changes a setting of the next runs.
    pub(super) fn set(&mut self, setting: ChatSetting) -> Result<(), Failure> {
        let next = &mut self.next_request;
        match setting {
            ChatSetting::Effort(effort) => {
                self.effort = Some(effort);
                print::line(&format!("effort set to {}", effort.as_str()))
            }
            ChatSetting::Mode(mode) => {
                next.mode = Setting::Set(mode);
                print::line(&format!("mode set to {}", mode.as_str()))
            }
            ChatSetting::Model(model) => {
                print::line(&format!("model set to {}", text::safe_line(&model)))?;
                next.model = Setting::Set(model);
                Ok(())
            }
        }
    }

    pub(super) fn print_help(&self) -> Result<(), Failure> {
        help(&self.custom_commands)
            .iter()
            .try_for_each(|line| print::line(line))
    }
}
