//! A conversation in a chat: reads what the user types, and starts a run for each message.
//!
//! Elsewhere: parsing of the input (`chat_input.rs`).

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use soong::{
    ErrorCode,
    protocol::{ArtifactsConfig, PermissionMode, RunMode, api::StartBody},
};
use soong_tui::{attention, markdown::PageFormat, terminal::TextStyle, text, typed_messages::TypedMessages};

use super::{
    chat_input::{ChatInput, HeadMove, Printed, SESSION, Setting, help},
    custom_commands::CustomCommands,
    editor,
    header::Header,
    mentions::Mentions,
    shell,
};
use crate::{
    command::{
        attach::Attachments,
        pasted_files::pasted_files,
        run::attach,
        run_query,
        runtime_session::{RunReport, RuntimeSession},
    },
    context::{Context, RunDisplay},
    exit::{Exit, Failure},
    input::{ChatKey, Input, InputLine},
    print, reference, report,
    watch::next_permission_mode,
};

/// Maximum number of outputs of the user's commands that a message includes.
const MAX_COMMAND_OUTPUTS: usize = 8;

/// Printed if a session has no messages.
pub(super) const NO_MESSAGES: &str = "no messages yet";

/// Message that starts the execution of a plan.
const EXECUTE: &str = "Execute the plan.";
/// Printed below a plan.
const PLAN_HINT: &str = "1 executes this plan in the mode ask, 2 in the mode edits; or continue planning";
/// Answers that start the execution of a plan, with the permission mode of the run.
const EXECUTIONS: [(&str, PermissionMode); 2] = [("1", PermissionMode::Ask), ("2", PermissionMode::Edits)];

/// Maximum time between two presses of Ctrl-C that end the chat.
const QUIT_WINDOW: Duration = Duration::from_secs(2);

/// A conversation: its input and the request body of the next run.
pub(super) struct Conversation<'a> {
    pub(super) context: &'a Context<'a>,
    pub(super) input: Input,
    /// Commands of the user's home.
    pub(super) custom_commands: CustomCommands,
    pub(super) next_request: StartBody,
    /// Permission mode of the configuration.
    pub(super) configured_mode: PermissionMode,
    pub(super) limits: ArtifactsConfig,
    /// Outputs of the user's last commands, for the next message.
    pub(super) command_outputs: Vec<String>,
    /// Files that the next message attaches.
    pub(super) attachments: Vec<PathBuf>,
    /// Messages and text that the user has typed and not sent yet.
    pub(super) typed: TypedMessages,
    /// Whether the last answer is a plan that can be executed.
    pub(super) has_plan: bool,
    /// The last answer.
    pub(super) last_answer: Option<String>,
    /// Time of the last Ctrl-C.
    pub(super) interrupted_at: Option<Instant>,
}

/// Continuation after an input.
enum Next {
    /// Read the next input.
    Continue,
    Quit,
}

impl Conversation<'_> {
    /// Runs the conversation until the user quits. If input is piped in, the first failure ends the conversation and
    /// determines the exit code.
    pub(super) async fn run(&mut self, place: &mut RuntimeSession<'_>) -> Result<Exit, Failure> {
        loop {
            place.reset_interrupt();
            let line = tokio::select! {
                // First: a prompt that is abandoned while it starts would change the terminal afterwards.
                biased;
                () = place.wait_for_end_signal() => return Ok(Exit::Interrupted),
                line = self.next_line() => line?,
            };
            match self.handle_line(place, line).await {
                Ok(Next::Continue) => {}
                Ok(Next::Quit) => return Ok(Exit::Success),
                // A failure ends the conversation if input is piped in or if nothing reads the output any more.
                Err(failure) if !self.input.is_terminal() || failure.is_output_closed() => return Err(failure),
                Err(failure) => {
                    self.typed.take_back(usize::MAX);
                    let _ = print::failure(&failure, self.context.terminal);
                }
            }
        }
    }

    /// Prints, at a terminal, where and how the conversation starts. `model`: the model, if it is known.
    pub(super) fn print_header(&self, model: Option<&str>) -> Result<(), Failure> {
        if !self.input.is_terminal() {
            return Ok(());
        }
        let request = &self.next_request;
        let terminal = self.context.terminal;
        let project = request.project_dir.as_deref();
        let local_project = project.filter(|_| self.context.remote.is_none());
        let branch = local_project.and_then(soong::git_branch);
        let home = self.context.environment.user_home();
        let header = Header {
            model,
            mode: request.mode.flatten().or((request.session_id.is_none()).then_some(RunMode::Normal)),
            permissions: self.permission_mode(),
            project,
            home: home.as_deref(),
            branch: branch.as_deref(),
        };
        self.print_dim(&header.line(PageFormat::of(terminal).width, terminal.unicode))?;
        let session = match &request.session_id {
            Some(session) => format!("continuing session {session}"),
            None => "new session".to_owned(),
        };
        self.print_dim(&format!("{session}; /help lists the commands"))
    }

    /// Returns the first queued message, or the next line that the user types.
    async fn next_line(&mut self) -> Result<InputLine, Failure> {
        let prompt = self.prompt();
        if self.typed.queued.is_empty() {
            let text = std::mem::take(&mut self.typed.text);
            return self.input.next(&prompt, &text).await;
        }
        let message = self.typed.queued.remove(0);
        print::line(&format!("{prompt}{}", text::safe_block(&message)))?;
        Ok(InputLine::Line(message))
    }

    async fn handle_line(&mut self, place: &mut RuntimeSession<'_>, line: InputLine) -> Result<Next, Failure> {
        match line {
            InputLine::Line(line) => {
                self.interrupted_at = None;
                let input = self.parse(&line);
                self.handle_input(place, input).await
            }
            InputLine::Key(key, text) => self.handle_key(place, key, text).await.map(|()| Next::Continue),
            InputLine::Discarded => {
                let before = self.interrupted_at.replace(Instant::now());
                if before.is_some_and(|before| before.elapsed() < QUIT_WINDOW) {
                    return Ok(Next::Quit);
                }
                print::line("press Ctrl-C again to quit, or use /quit or Ctrl-D").map(|()| Next::Continue)
            }
            InputLine::Closed => Ok(Next::Quit),
        }
    }

    async fn handle_input(&mut self, place: &mut RuntimeSession<'_>, input: ChatInput) -> Result<Next, Failure> {
        self.has_plan &= input.keeps_plan();
        match input {
            ChatInput::Quit => return Ok(Next::Quit),
            ChatInput::Message(text) => self.run_message(place, Some(text)).await?,
            ChatInput::Retry => self.run_message(place, None).await?,
            ChatInput::Move(HeadMove::Rewind(Some(sequence))) => self.switch_head(place, sequence).await?,
            ChatInput::Move(HeadMove::Rewind(None)) => self.go_back(place).await?,
            ChatInput::Move(HeadMove::Undo) => self.undo(place).await?,
            ChatInput::Move(HeadMove::Fork(at_sequence)) => self.fork(place, at_sequence).await?,
            ChatInput::Permissions(mode) => {
                self.next_request.permission_mode = mode.or(self.next_request.permission_mode);
                print::line(&format!("permissions: {}", self.permission_mode().as_str()))?;
            }
            ChatInput::Query(words) => self.query(words).await?,
            ChatInput::Resume(session) => self.resume(&session).await?,
            ChatInput::Shell(command) => self.run_shell(place, &command).await?,
            ChatInput::Attach(path) => self.attach(&path)?,
            ChatInput::Monitor => place.show_monitor(None).await?,
            ChatInput::Print(Printed::Copy) => self.copy_answer()?,
            ChatInput::Print(Printed::Help) => self.print_help()?,
            ChatInput::Print(Printed::Clear) => print::line("\u{1b}[2J\u{1b}[3J\u{1b}[H")?,
            ChatInput::Set(setting) => self.set(setting)?,
            ChatInput::New => {
                self.next_request.session_id = None;
                print::line("your next message starts a new session")?;
            }
            ChatInput::Invalid(what) => print::line(&what)?,
            ChatInput::Blank => {}
        }
        Ok(Next::Continue)
    }

    async fn handle_key(&mut self, place: &RuntimeSession<'_>, key: ChatKey, text: String) -> Result<(), Failure> {
        match key {
            ChatKey::NextPermissionMode => {
                self.next_request.permission_mode = Some(next_permission_mode(self.permission_mode()));
                self.typed.text = text;
            }
            ChatKey::OpenEditor => {
                let edited = editor::edit(&text, &self.context.environment).await;
                place.reset_interrupt();
                self.typed.text = text;
                self.typed.text = edited?;
            }
            ChatKey::GoBack => {
                self.typed.text = text;
                self.go_back(place).await?;
            }
        }
        Ok(())
    }

    /// Parses what the user typed.
    fn parse(&mut self, line: &str) -> ChatInput {
        if let Some((_, mode)) = EXECUTIONS.iter().find(|(key, _)| self.has_plan && line.trim() == *key) {
            self.next_request.permission_mode = Some(*mode);
            return ChatInput::Message(EXECUTE.to_owned());
        }
        match ChatInput::of(line, &self.custom_commands) {
            // Text from a pipe may not be the user's own, so it runs no command.
            ChatInput::Shell(_) if !self.input.is_terminal() => ChatInput::Message(line.to_owned()),
            input => input,
        }
    }

    /// Returns the permission mode of the next run.
    pub(super) fn permission_mode(&self) -> PermissionMode {
        self.next_request.permission_mode.unwrap_or(self.configured_mode)
    }

    /// Returns the prompt, which names each permission mode except `ask`.
    fn prompt(&self) -> String {
        let mark = if self.context.terminal.unicode { "›" } else { ">" };
        match self.permission_mode() {
            PermissionMode::Ask => format!("{mark} "),
            mode => format!("{} {mark} ", mode.as_str()),
        }
    }

    /// Runs a message, or resumes the conversation without one. Fails if the run fails. At a terminal, a run that the
    /// user has cancelled is no failure: its output already says so.
    async fn run_message(&mut self, place: &mut RuntimeSession<'_>, prompt: Option<String>) -> Result<(), Failure> {
        let done = self.send(place, prompt).await?;
        self.next_request.session_id = Some(done.session.to_string());
        self.command_outputs.clear();
        self.attachments.clear();
        if !self.context.global.json {
            report::print_denied_calls(&done.denied);
            let advice = report::allow_advice(&done.denied);
            if !advice.is_empty() {
                print::error_line(&advice);
            }
        }
        self.typed = done.typed.messages;
        if done.typed.permission_mode.is_some_and(|mode| mode != self.permission_mode()) {
            self.next_request.permission_mode = done.typed.permission_mode;
        }
        self.last_answer = done.answer.or(self.last_answer.take());
        match done.exit {
            Err(failure) if self.input.is_terminal() && failure.exit == Exit::Interrupted => {
                self.interrupted_at = Some(Instant::now());
                self.typed.take_back(usize::MAX);
                if done.typed.goes_back { self.go_back(place).await } else { Ok(()) }
            }
            Err(failure) => Err(failure),
            Ok(_) => self.offer_execution(),
        }
    }

    /// Offers to execute the plan if the last run has made one.
    fn offer_execution(&mut self) -> Result<(), Failure> {
        self.has_plan = self.input.is_terminal() && self.permission_mode() == PermissionMode::Plan;
        if self.has_plan { self.print_dim(PLAN_HINT) } else { Ok(()) }
    }

    /// Starts the run of a message and follows it to its end.
    async fn send(&mut self, place: &mut RuntimeSession<'_>, prompt: Option<String>) -> Result<RunReport, Failure> {
        let mut files = match &prompt {
            Some(text) if self.input.is_terminal() => {
                pasted_files(text, self.context.environment.user_home().as_deref())
            }
            _ => Vec::new(),
        };
        let mentions = match (&prompt, &self.next_request.project_dir) {
            (Some(text), Some(project)) if self.input.is_terminal() && self.context.remote.is_none() => {
                Mentions::of(text, project)
            }
            _ => Mentions::default(),
        };
        files.extend(mentions.media);
        files.extend(self.attachments.iter().cloned());
        let attached = Attachments::check(files, &self.limits)?;
        let prompt =
            prompt.map(|text| [vec![text], self.command_outputs.clone(), mentions.texts].concat().join("\n\n"));
        let plain = StartBody { prompt, ..self.next_request.clone() };
        let request = attach(self.context, place, attached, plain.clone()).await?;
        let session_id = request.session_id.clone();
        let has_parts = request.prompt != plain.prompt;
        let display = || RunDisplay::Chat { mode: self.permission_mode(), typed: self.typed.clone() };
        match place.run(request, display()).await {
            // The user may have named a file only for the tools.
            Err(failure) if has_parts && is_unsupported(&failure) => {
                print::error_line(&format!(
                    "note: {}; the message is sent without them",
                    text::safe_line(&failure.what)
                ));
                place.run(StartBody { session_id, ..plain }, display()).await
            }
            done => done,
        }
    }

    /// Prints what a command of `soong` prints.
    async fn query(&self, words: Vec<String>) -> Result<(), Failure> {
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
    async fn resume(&mut self, reference: &str) -> Result<(), Failure> {
        let found = self.context.source().await?.session(reference).await?;
        print::line(&format!("continuing session {}", text::safe_line(reference::short_name(&found))))?;
        if self.context.remote.is_none() {
            self.next_request.project_dir = Some(PathBuf::from(&found.project_dir));
        }
        self.next_request.session_id = Some(found.session_id.to_string());
        Ok(())
    }

    /// Runs a command of the user; the next message includes its output.
    async fn run_shell(&mut self, place: &RuntimeSession<'_>, command: &str) -> Result<(), Failure> {
        if command.is_empty() {
            return print::line("give a command: !ls");
        }
        let Some(folder) = self.next_request.project_dir.as_ref().filter(|_| self.context.remote.is_none()) else {
            let what = "commands are not run in a chat with a server";
            return Err(Failure::usage(what, "Run the command in another terminal."));
        };
        let output = shell::run(command, folder, place.interrupted()).await?;
        if self.command_outputs.len() == MAX_COMMAND_OUTPUTS {
            self.command_outputs.remove(0);
        }
        self.command_outputs.push(output);
        Ok(())
    }

    /// Attaches a file to the next message.
    fn attach(&mut self, path: &str) -> Result<(), Failure> {
        let path = self.context.environment.expand_home(path).unwrap_or_else(|| PathBuf::from(path));
        Attachments::check(vec![path.clone()], &self.limits)?;
        print::line(&format!("your next message attaches {}", text::safe_line(&path.display().to_string())))?;
        self.attachments.push(path);
        Ok(())
    }

    /// Copies the last answer to the clipboard of the terminal.
    fn copy_answer(&self) -> Result<(), Failure> {
        match &self.last_answer {
            None => print::line("there is no answer yet"),
            Some(_) if !self.context.terminal.can_redraw => print::line("this terminal has no clipboard"),
            Some(answer) => {
                attention::copy_to_clipboard(answer);
                print::line("copied the last answer, if the terminal allows it (OSC 52)")
            }
        }
    }

    /// Changes a setting of the next runs.
    fn set(&mut self, setting: Setting) -> Result<(), Failure> {
        let next = &mut self.next_request;
        match setting {
            Setting::Effort(effort) => {
                let params = next.llm_params.get_or_insert(None).get_or_insert_default();
                params.insert("effort".to_owned(), effort.as_str().into());
                print::line(&format!("effort set to {}", effort.as_str()))
            }
            Setting::Mode(mode) => {
                next.mode = Some(Some(mode));
                print::line(&format!("mode set to {}", mode.as_str()))
            }
            Setting::Model(model) => {
                print::line(&format!("model set to {}", text::safe_line(&model)))?;
                next.model = Some(Some(model));
                Ok(())
            }
        }
    }

    fn print_help(&self) -> Result<(), Failure> {
        help(&self.custom_commands).iter().try_for_each(|line| print::line(line))
    }

    /// Prints how to continue the session later.
    pub(super) fn print_resume_hint(&self) -> Result<(), Failure> {
        match &self.next_request.session_id {
            Some(session) if self.input.is_terminal() => {
                self.print_dim(&format!("session {session}; continue it with `soong chat --continue`"))
            }
            _ => Ok(()),
        }
    }

    fn print_dim(&self, line: &str) -> Result<(), Failure> {
        print::line(&self.context.terminal.stdout.paint(TextStyle::Dim, line))
    }
}

/// Returns whether a run was rejected because its model does not take what was attached.
fn is_unsupported(failure: &Failure) -> bool {
    failure.what.ends_with(&format!("({})", ErrorCode::UnsupportedCapability))
}
