//! A conversation in a chat: reads what the user types, and starts a run for each message.
//!
//! Elsewhere: parsing of the input (`chat_input.rs`), commands that start no run (`commands.rs`,
//! `going_back.rs`).

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use soong::{
    ErrorCode,
    protocol::{Effort, PermissionMode, SessionId, Setting, api::StartBody},
};
use soong_client::Client;
use soong_tui::{
    attention::Title, terminal::TextStyle, text, transcript::Step, typed_messages::SharedMessages,
};

use super::{
    chat_input::{ChatInput, HeadMove, LocalCommand},
    custom_commands::CustomCommands,
    editor,
    mentions::Mentions,
};
use crate::{
    command::{
        attach::Attachments,
        continued,
        pasted_files::pasted_files,
        run::attach,
        runtime_session::{RunReport, RuntimeSession},
    },
    config::Settings,
    context::{Context, RunDisplay},
    exit::{Exit, Failure},
    input::{self, ChatKey, Input, InputLine},
    interrupt::DUPLICATE_WINDOW,
    print, report,
};

/// Printed if a session has no messages.
pub(super) const NO_MESSAGES: &str = "no messages yet";

/// Message that starts the execution of a plan.
const EXECUTE: &str = "Execute the plan.";
/// Printed below a plan.
const PLAN_HINT: &str =
    "type 1 to execute this plan in mode ask, 2 in mode edits, or a message to continue planning";
/// Answers that start the execution of a plan, with the permission mode of the run.
const EXECUTIONS: [(&str, PermissionMode); 2] =
    [("1", PermissionMode::Ask), ("2", PermissionMode::Edits)];

/// Printed after the first Ctrl-C.
const QUIT_HINT: &str = "press Ctrl-C again to quit, or use /quit or Ctrl-D";
/// Maximum time between two presses of Ctrl-C that end the chat.
const QUIT_WINDOW: Duration = Duration::from_secs(2);

/// A conversation: its input and the request body of the next run.
pub(super) struct Conversation<'a> {
    pub(super) context: &'a Context<'a>,
    pub(super) input: Input,
    /// The title of the terminal, if the chat has one.
    pub(super) title: Option<Title>,
    /// Commands of the user's home.
    pub(super) custom_commands: CustomCommands,
    pub(super) next_request: StartBody,
    /// Reasoning effort of the next runs, if the user has set it.
    pub(super) effort: Option<Effort>,
    pub(super) settings: &'a Settings,
    pub(super) additions: Additions,
    /// Messages and text that the user has typed and not sent yet.
    pub(super) typed: SharedMessages,
    /// The queued message that is being sent.
    pub(super) sending: Option<String>,
    /// Messages of this chat as they were sent, with their text as it was typed.
    pub(super) sent: Vec<(String, String)>,
    /// Whether the last answer is a plan that can be executed.
    pub(super) has_plan: bool,
    pub(super) last_results: LastResults,
    /// Whether the chat ends and its active run continues in another process.
    pub(super) in_background: bool,
    /// Time of the last Ctrl-C, if nothing was typed since.
    pub(super) interrupted_at: Option<Instant>,
}

/// Parts of the next message besides its text.
#[derive(Default)]
pub(super) struct Additions {
    /// Texts that follow it: outputs of the user's last commands, and what has changed since the
    /// last message.
    pub(super) texts: Vec<String>,
    /// Files that are attached.
    pub(super) files: Vec<PathBuf>,
}

/// Results of the session's runs. For each, the last run that had one counts.
#[derive(Default)]
pub(super) struct LastResults {
    /// The last answer.
    pub(super) answer: Option<String>,
    /// Size of the last prompt in tokens, as estimated.
    pub(super) prompt_tokens: Option<u64>,
    /// The last step of the transcript of which not all rows were shown.
    pub(super) folded_step: Option<Step>,
}

/// Continuation after an input.
enum Next {
    /// Read the next input.
    Continue,
    Quit,
}

impl Conversation<'_> {
    /// Runs the conversation until the user quits. If input is piped in, the first failure ends the
    /// conversation and determines the exit code.
    pub(super) async fn run(
        &mut self,
        runtime_session: &mut RuntimeSession<'_>,
    ) -> Result<Exit, Failure> {
        let mut handled = self.resume_interrupted(runtime_session).await;
        loop {
            match handled {
                Ok(Next::Continue) => {}
                Ok(Next::Quit) => return Ok(Exit::Success),
                // A failure ends the conversation if input is piped in or if nothing reads the
                // output any more.
                Err(failure) if !self.input.is_terminal() || failure.is_output_closed() => {
                    return Err(failure);
                }
                Err(failure) => {
                    let sending = self.sending.take();
                    let mut typed = self.typed.lock();
                    typed.take_back(usize::MAX);
                    sending
                        .into_iter()
                        .for_each(|message| typed.put_before(message));
                    let _ = print::failure(&failure, self.context.terminal);
                }
            }
            let Some(line) = self.next_input(runtime_session).await? else {
                return Ok(Exit::Interrupted);
            };
            handled = self.handle_line(runtime_session, line).await;
        }
    }

    /// Resumes the run of the session that an earlier process has left, if the user is at a
    /// terminal.
    async fn resume_interrupted(
        &mut self,
        runtime_session: &mut RuntimeSession<'_>,
    ) -> Result<Next, Failure> {
        let session = self.next_request.session_id.as_deref().map(SessionId::new);
        let is_shown = self.input.is_terminal() && !self.context.global.json;
        if !is_shown
            || !session.is_some_and(|session| runtime_session.has_interrupted_run(&session))
        {
            return Ok(Next::Continue);
        }
        self.print_dim("the last run was interrupted; it resumes now with the settings that it was started with")?;
        let next = self.run_message(runtime_session, None).await;
        runtime_session.reset_interrupt();
        next
    }

    /// Returns the first queued message, or the next line that the user types.
    async fn next_line(&mut self) -> Result<InputLine, Failure> {
        let prompt = self.prompt();
        let (queued, text) = self.typed.lock().take_next();
        let Some(message) = queued else {
            return self.input.next(&prompt, &text::safe_block(&text)).await;
        };
        print::line(&format!("{prompt}{}", text::safe_block(&message)))?;
        self.sending = Some(message.clone());
        Ok(InputLine::Line(message))
    }

    /// Returns the next input, or `None` if the process was asked to end. A Ctrl-C that is a
    /// signal, because no editor reads keys, counts like one at the prompt; in a pipe it ends the
    /// chat.
    async fn next_input(
        &mut self,
        runtime_session: &RuntimeSession<'_>,
    ) -> Result<Option<InputLine>, Failure> {
        let is_pipe = !self.input.is_terminal();
        let reads_keys = self.context.terminal.can_redraw;
        let mut interrupted_at = self.interrupted_at;
        let mut last_signal: Option<Instant> = None;
        let input = {
            let mut line = std::pin::pin!(self.next_line());
            loop {
                tokio::select! {
                    biased;
                    () = runtime_session.wait_for_end_signal() => return Ok(None),
                    () = runtime_session.interrupted() => {
                        runtime_session.reset_interrupt();
                        // A wrapper process may forward a signal that the terminal has also sent.
                        let before = last_signal.replace(Instant::now());
                        let is_duplicate = before.is_some_and(|before| before.elapsed() < DUPLICATE_WINDOW);
                        if is_pipe {
                            return Ok(None);
                        }
                        if !is_duplicate && is_second_interrupt(&mut interrupted_at) {
                            return Ok(Some(InputLine::Closed));
                        }
                        if !is_duplicate && !reads_keys {
                            print::line(QUIT_HINT)?;
                        }
                    }
                    line = &mut line => break line?,
                }
            }
        };
        self.interrupted_at = interrupted_at;
        Ok(Some(input))
    }

    async fn handle_line(
        &mut self,
        runtime_session: &mut RuntimeSession<'_>,
        line: InputLine,
    ) -> Result<Next, Failure> {
        match line {
            InputLine::Line(line) => {
                self.interrupted_at = None;
                let input = self.parse(&line);
                let next = self.handle_input(runtime_session, input).await;
                runtime_session.reset_interrupt();
                let next = next?;
                self.sending = None;
                Ok(next)
            }
            InputLine::Key(key, text) => {
                let done = self.handle_key(runtime_session, key, text).await;
                runtime_session.reset_interrupt();
                done.map(|()| Next::Continue)
            }
            InputLine::Discarded => {
                if is_second_interrupt(&mut self.interrupted_at) {
                    return Ok(Next::Quit);
                }
                print::line(QUIT_HINT).map(|()| Next::Continue)
            }
            InputLine::Closed => Ok(Next::Quit),
        }
    }

    async fn handle_input(
        &mut self,
        runtime_session: &mut RuntimeSession<'_>,
        input: ChatInput,
    ) -> Result<Next, Failure> {
        self.has_plan &= input.keeps_plan();
        match input {
            ChatInput::Quit => return Ok(Next::Quit),
            ChatInput::Message(text) => return self.run_message(runtime_session, Some(text)).await,
            ChatInput::Retry => return self.run_message(runtime_session, None).await,
            ChatInput::Move(HeadMove::Rewind(Some(sequence))) => {
                self.switch_head(runtime_session, sequence).await?
            }
            ChatInput::Move(HeadMove::Rewind(None)) => self.go_back(runtime_session).await?,
            ChatInput::Move(HeadMove::Undo) => self.undo(runtime_session).await?,
            ChatInput::Move(HeadMove::Fork(at_sequence)) => {
                self.fork(runtime_session, at_sequence).await?
            }
            ChatInput::Permissions(mode) => {
                self.next_request.permission_mode = mode.or(self.next_request.permission_mode);
                print::line(&format!("permissions: {}", self.permission_mode().as_str()))?;
            }
            ChatInput::Query(words) => self.query(words).await?,
            ChatInput::Resume(session) => self.resume(runtime_session, &session).await?,
            ChatInput::Shell(command) => self.run_shell(runtime_session, &command).await?,
            ChatInput::Attach(path) => self.attach(&path)?,
            ChatInput::Local(LocalCommand::Monitor) => runtime_session.show_monitor(None).await?,
            ChatInput::Local(LocalCommand::Copy) => self.copy_answer()?,
            ChatInput::Local(LocalCommand::Help) => self.print_help()?,
            ChatInput::Local(LocalCommand::Context) => self.print_context()?,
            ChatInput::Local(LocalCommand::Diff) => self.print_diff(runtime_session).await?,
            ChatInput::Local(LocalCommand::Background) => {
                print::line(
                    "no run is active; type /background while one is, or /quit to end the chat",
                )?;
            }
            ChatInput::Local(LocalCommand::Clear) if !self.context.terminal.can_redraw => {}
            ChatInput::Local(LocalCommand::Clear) => print::line("\u{1b}[2J\u{1b}[3J\u{1b}[H")?,
            ChatInput::Set(setting) => self.set(setting)?,
            ChatInput::Compact => self.compact()?,
            ChatInput::New => {
                self.select_session(None);
                print::line("your next message starts a new session")?;
            }
            ChatInput::Invalid(what) => print::line(&what)?,
            ChatInput::Blank => {}
        }
        Ok(Next::Continue)
    }

    async fn handle_key(
        &mut self,
        runtime_session: &RuntimeSession<'_>,
        key: ChatKey,
        text: String,
    ) -> Result<(), Failure> {
        self.typed.lock().text.clone_from(&text);
        match key {
            ChatKey::NextPermissionMode => {
                self.next_request.permission_mode =
                    Some(input::next_permission_mode(self.permission_mode()));
            }
            ChatKey::OpenEditor => {
                self.typed.lock().text = editor::edit(&text, &self.context.environment).await?;
            }
            ChatKey::GoBack => {
                self.has_plan = false;
                self.go_back(runtime_session).await?;
            }
            ChatKey::Unfold => self.unfold()?,
        }
        Ok(())
    }

    /// Parses what the user typed.
    fn parse(&mut self, line: &str) -> ChatInput {
        if let Some((_, mode)) = EXECUTIONS
            .iter()
            .find(|(key, _)| self.has_plan && line.trim() == *key)
        {
            self.next_request.permission_mode = Some(*mode);
            return ChatInput::Message(EXECUTE.to_owned());
        }
        match ChatInput::of(line, &self.custom_commands) {
            // Text from a pipe may not be the user's own, so it runs no command.
            ChatInput::Shell(_) if !self.input.is_terminal() => ChatInput::Message(line.to_owned()),
            ChatInput::Attach(_) if !self.input.is_terminal() => {
                ChatInput::Invalid("files can be attached at a terminal only".to_owned())
            }
            input => input,
        }
    }

    /// Continues in another session. `None`: the next message starts one.
    pub(super) fn select_session(&mut self, session: Option<SessionId>) {
        self.next_request.session_id = session.map(|session| session.to_string());
        self.next_request.compact = false;
        self.last_results = LastResults::default();
    }

    /// Returns the permission mode of the next run.
    pub(super) fn permission_mode(&self) -> PermissionMode {
        self.next_request
            .permission_mode
            .unwrap_or(self.settings.config.permissions.mode)
    }

    /// Returns the prompt, which names each permission mode except `ask`.
    fn prompt(&self) -> String {
        let mark = if self.context.terminal.unicode {
            "›"
        } else {
            ">"
        };
        match self.permission_mode() {
            PermissionMode::Ask => format!("{mark} "),
            mode => format!("{} {mark} ", mode.as_str()),
        }
    }

    /// Runs a message, or resumes the conversation without one. Fails if the run fails. At a
    /// terminal, a run that the user has cancelled is no failure: its output already says so.
    async fn run_message(
        &mut self,
        runtime_session: &mut RuntimeSession<'_>,
        prompt: Option<String>,
    ) -> Result<Next, Failure> {
        let has_message = prompt.is_some();
        let done = self.send(runtime_session, prompt).await?;
        self.next_request.session_id = Some(done.session.to_string());
        self.next_request.compact = false;
        if has_message {
            self.additions = Additions::default();
        }
        if !self.context.global.json {
            report::print_denied_calls(&done.denied);
            let advice = report::allow_advice(&done.denied);
            if !advice.is_empty() {
                print::error_line(&advice);
            }
        }
        if done
            .typed
            .permission_mode
            .is_some_and(|mode| mode != self.permission_mode())
        {
            self.next_request.permission_mode = done.typed.permission_mode;
        }
        self.last_results = LastResults {
            answer: done.answer.or(self.last_results.answer.take()),
            prompt_tokens: done.context_tokens.or(self.last_results.prompt_tokens),
            folded_step: done.folded_step,
        };
        match done.exit {
            Err(failure) if self.input.is_terminal() && failure.exit == Exit::Interrupted => {
                self.interrupted_at = (!done.typed.cancelled_by_key).then(Instant::now);
                self.typed.lock().take_back(usize::MAX);
                if done.typed.goes_back {
                    self.go_back(runtime_session).await?;
                }
            }
            Err(failure) => return Err(failure),
            Ok(_) if done.typed.in_background => {
                self.in_background = true;
                return self.print_unsent_messages().map(|()| Next::Quit);
            }
            Ok(_) => self.offer_execution()?,
        }
        Ok(Next::Continue)
    }

    /// Prints the messages that the user has typed and that no run will receive.
    fn print_unsent_messages(&self) -> Result<(), Failure> {
        let mut typed = self.typed.lock();
        typed.take_back(usize::MAX);
        match typed.text.trim() {
            "" => Ok(()),
            text => print::line(&format!("not sent:\n{}", text::safe_block(text))),
        }
    }

    /// Offers to execute the plan if the last run has made one.
    fn offer_execution(&mut self) -> Result<(), Failure> {
        self.has_plan = self.input.is_terminal() && self.permission_mode() == PermissionMode::Plan;
        if self.has_plan {
            self.print_dim(PLAN_HINT)
        } else {
            Ok(())
        }
    }

    /// Starts the run of a message and follows it to its end.
    async fn send(
        &mut self,
        runtime_session: &mut RuntimeSession<'_>,
        prompt: Option<String>,
    ) -> Result<RunReport, Failure> {
        let mut files = match &prompt {
            Some(text) if self.input.is_terminal() => {
                pasted_files(text, self.context.environment.user_home().as_deref())
            }
            _ => Vec::new(),
        };
        let mentions = match (&prompt, &self.next_request.project_dir) {
            (Some(text), Some(project))
                if self.input.is_terminal() && self.context.remote.is_none() =>
            {
                Mentions::of(text, project)
            }
            _ => Mentions::default(),
        };
        files.extend(mentions.media);
        files.extend(
            self.additions
                .files
                .iter()
                .filter(|_| prompt.is_some())
                .cloned(),
        );
        // A file that has disappeared would fail each further message.
        let attached = Attachments::check(files, &self.settings.config.artifacts)
            .inspect_err(|_| self.additions.files.clear())?;
        let llm_params = match self.effort {
            Some(effort) => {
                let request = &self.next_request;
                let params = async |client: &Client| {
                    continued::params_with_effort(client, request, effort).await
                };
                Setting::Set(runtime_session.request(params).await?)
            }
            None => self.next_request.llm_params.clone(),
        };
        let prompt = prompt.map(|typed| {
            let sent = [
                vec![typed.clone()],
                self.additions.texts.clone(),
                mentions.texts,
            ]
            .concat()
            .join("\n\n");
            self.sent.push((sent.clone(), typed));
            sent
        });
        let plain = StartBody {
            prompt,
            llm_params,
            ..self.next_request.clone()
        };
        let request = attach(self.context, runtime_session, attached, plain.clone()).await?;
        let session_id = request.session_id.clone();
        let has_parts = request.prompt != plain.prompt;
        let display = || RunDisplay::Chat {
            mode: self.permission_mode(),
            typed: self.typed.clone(),
        };
        match runtime_session.run(request, display()).await {
            // The user may have named a file only for the tools.
            Err(failure) if has_parts && is_unsupported(&failure) => {
                print::note(&format!(
                    "{}; the message is sent without the attachments",
                    text::safe_line(&failure.what)
                ));
                runtime_session
                    .run(
                        StartBody {
                            session_id,
                            ..plain
                        },
                        display(),
                    )
                    .await
            }
            done => done,
        }
    }

    pub(super) fn print_dim(&self, line: &str) -> Result<(), Failure> {
        print::text_or_stderr(self.context.terminal, TextStyle::Dim, line)
    }
}

/// Records a Ctrl-C. Returns whether it follows another one so closely that it ends the chat.
fn is_second_interrupt(interrupted_at: &mut Option<Instant>) -> bool {
    interrupted_at
        .replace(Instant::now())
        .is_some_and(|before| before.elapsed() < QUIT_WINDOW)
}

/// Returns whether a run was rejected because its model does not take what was attached.
fn is_unsupported(failure: &Failure) -> bool {
    failure
        .what
        .ends_with(&format!("({})", ErrorCode::UnsupportedCapability))
}
