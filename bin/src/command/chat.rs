//! `soong chat`: a conversation in one session, one run per message.
//!
//! Elsewhere: parsing what users type (`chat/chat_input.rs`).

mod chat_input;
mod mentions;
mod shell;

use std::path::PathBuf;

use soong::{
    ErrorCode,
    protocol::{
        ArtifactsConfig, PermissionMode,
        api::{ForkBody, StartBody},
    },
};
use soong_client::{Client, Discovery};
use soong_tui::{terminal::TextStyle, text};

use self::{
    chat_input::{ChatInput, SESSION, Setting, completions, help},
    mentions::Mentions,
};
use super::{
    attach::Attachments,
    host::builder,
    pasted_files::pasted_files,
    run::{attach, last_model, project, reset},
    run_query,
    runtime_session::{RuntimeSession, fetch_last_session},
    sessions::{describe_head, refused},
};
use crate::{
    cli, config,
    context::{Context, RunDisplay},
    exit::{Exit, Failure},
    input::{Completions, Input, InputLine},
    print, prompts, report,
};

/// Maximum number of outputs of the user's commands that a message includes.
const MAX_COMMAND_OUTPUTS: usize = 8;

/// Message that starts the execution of a plan.
const EXECUTE: &str = "Execute the plan.";
/// Printed below a plan.
const PLAN_HINT: &str = "1 executes this plan in the mode ask, 2 in the mode edits; or continue planning";
/// Answers that start the execution of a plan, with the permission mode of the run.
const EXECUTIONS: [(&str, PermissionMode); 2] = [("1", PermissionMode::Ask), ("2", PermissionMode::Edits)];

pub(super) async fn chat(context: &Context<'_>, options: cli::Chat) -> Result<Exit, Failure> {
    let home = context.home()?;
    let settings = config::read(&context.global, &home)?;
    let project = project(context, options.project.path.as_deref())?;
    let mut about_model = None;
    if matches!(Client::find(&context.address(&home)).await, Discovery::None) {
        let session = (options.session.as_deref(), None, options.resume);
        let kept = || last_model(&home, session, project.as_deref());
        let is_reset = options.agent.agent_type.is_some() || options.reset.contains(&cli::Setting::Model);
        let model = options.agent.model.clone().or_else(|| if is_reset { None } else { kept() });
        settings.check_model(model.as_deref(), &context.environment)?;
        about_model = settings.model_selected_by_key(&context.environment).filter(|_| model.is_none());
    }
    let input = Input::of_chat(Completions {
        commands: completions(),
        project: project.clone().filter(|_| context.remote.is_none()),
    })?;
    let mut place = RuntimeSession::connect(context, &home, || builder(context, &home, &settings)).await?;
    let session_id = match options.session {
        None if options.resume => {
            fetch_last_session(place.client(), project.as_deref()).await.map(|found| Some(found.session_id.to_string()))
        }
        session => Ok(session),
    };
    let result = match session_id {
        Ok(session_id) => {
            let mut next = StartBody {
                session_id,
                mode: options.mode.map(|mode| Some(mode.into())),
                llm_params: options.agent.llm_params().map(Some),
                model: options.agent.model.map(Some),
                agent_type: options.agent.agent_type.map(Some),
                project_dir: project,
                allow_home_project: options.project.here,
                permission_mode: options.permissions.permission_mode,
                unattended: context.global.json || !prompts::is_interactive(),
                ..StartBody::default()
            };
            reset(&mut next, &options.reset);
            let limits = settings.config.artifacts.clone();
            let configured_mode = settings.config.permissions.mode;
            let mut talk = Conversation {
                context,
                input,
                about_model,
                next_request: next,
                configured_mode,
                limits,
                command_outputs: Vec::new(),
            };
            let talked = talk.run(&mut place).await;
            talk.print_resume_hint().and(talked)
        }
        Err(failure) => Err(failure),
    };
    place.close().await;
    result
}

/// A conversation: its input and the request body of the next run.
struct Conversation<'a> {
    context: &'a Context<'a>,
    input: Input,
    /// The default model, if a key selects it.
    about_model: Option<String>,
    next_request: StartBody,
    /// Permission mode of the configuration.
    configured_mode: PermissionMode,
    limits: ArtifactsConfig,
    /// Outputs of the user's last commands, for the next message.
    command_outputs: Vec<String>,
}

impl Conversation<'_> {
    /// Runs the conversation until the user quits. If input is piped in, the first failure ends the conversation and
    /// determines the exit code.
    async fn run(&mut self, place: &mut RuntimeSession<'_>) -> Result<Exit, Failure> {
        let is_person = self.input.is_terminal();
        if is_person {
            self.print_header()?;
        }
        // Whether the last answer is a plan that can be executed.
        let mut has_plan = false;
        let mut typed = String::new();
        loop {
            place.reset_interrupt();
            let (prompt, text) = (self.prompt(), std::mem::take(&mut typed));
            let said = tokio::select! {
                said = self.input.next(&prompt, &text) => said?,
                () = place.wait_for_end_signal() => return Ok(Exit::Interrupted),
            };
            if let InputLine::ShiftTab(text) = said {
                self.next_request.permission_mode = Some(next_mode(self.permission_mode()));
                typed = text;
                continue;
            }
            let request = self.parse(said, has_plan);
            let keeps_plan = matches!(request, ChatInput::Query(_) | ChatInput::Shell(_));
            let done = match request {
                ChatInput::Message(text) => self.run_message(place, Some(text)).await,
                ChatInput::Retry => self.run_message(place, None).await,
                ChatInput::Quit => return Ok(Exit::Success),
                ChatInput::Rewind(_) | ChatInput::Fork(_) => self.move_head(place, &request).await.map(|()| false),
                ChatInput::Permissions(mode) => {
                    self.next_request.permission_mode = mode.or(self.next_request.permission_mode);
                    print::line(&format!("permissions: {}", self.permission_mode().as_str()))?;
                    continue;
                }
                ChatInput::Query(words) => self.query(words).await.map(|()| false),
                ChatInput::Resume(session) => self.resume(place.client(), &session).await.map(|()| false),
                ChatInput::Shell(command) => self.run_shell(place, &command).await.map(|()| false),
                other => {
                    has_plan &= !matches!(other, ChatInput::New);
                    apply(&mut self.next_request, other)?;
                    continue;
                }
            };
            let had_plan = std::mem::take(&mut has_plan);
            match done {
                // A failure ends the conversation if input is piped in or if nothing reads the output any more.
                Err(failure) if !is_person || failure.is_output_closed() => return Err(failure),
                Err(failure) => drop(print::failure(&failure, self.context.terminal)),
                Ok(_) if keeps_plan => has_plan = had_plan,
                Ok(is_answered) => {
                    has_plan = is_answered && is_person && self.permission_mode() == PermissionMode::Plan;
                    if has_plan {
                        self.print_dim(PLAN_HINT)?;
                    }
                }
            }
        }
    }

    /// Prints the session, the model if a key selects it, and the permission mode.
    fn print_header(&self) -> Result<(), Failure> {
        let about = match &self.next_request.session_id {
            Some(session) => format!("continuing session {session}"),
            None => "new session".to_owned(),
        };
        let model = self.about_model.as_deref().map(|model| format!(", {model}")).unwrap_or_default();
        let mode = self.permission_mode().as_str();
        self.print_dim(&format!("soong chat: {about}{model}, permissions {mode}; /help lists the commands"))
    }

    /// Parses what the user typed. `has_plan`: whether the number of a way to execute the last plan is an answer.
    fn parse(&mut self, said: InputLine, has_plan: bool) -> ChatInput {
        match said {
            InputLine::Line(line) => {
                let execution = EXECUTIONS.iter().find(|(key, _)| has_plan && line.trim() == *key);
                let Some((_, mode)) = execution else {
                    return match ChatInput::of(&line) {
                        // Text from a pipe may not be the user's own, so it runs no command.
                        ChatInput::Shell(_) if !self.input.is_terminal() => ChatInput::Message(line),
                        input => input,
                    };
                };
                self.next_request.permission_mode = Some(*mode);
                ChatInput::Message(EXECUTE.to_owned())
            }
            InputLine::ShiftTab(_) => ChatInput::Blank,
            InputLine::Discarded => ChatInput::Invalid("use /quit or Ctrl-D to quit".to_owned()),
            InputLine::Closed => ChatInput::Quit,
        }
    }

    /// Returns the permission mode of the next run.
    fn permission_mode(&self) -> PermissionMode {
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
    /// user has cancelled is no failure: its output already says so. Returns whether the run has completed.
    async fn run_message(&mut self, place: &mut RuntimeSession<'_>, prompt: Option<String>) -> Result<bool, Failure> {
        let mut files = match &prompt {
            Some(text) if self.input.is_terminal() => pasted_files(text, self.context.environment.home().as_deref()),
            _ => Vec::new(),
        };
        let mentions = match (&prompt, &self.next_request.project_dir) {
            (Some(text), Some(project)) if self.input.is_terminal() && self.context.remote.is_none() => {
                Mentions::of(text, project)
            }
            _ => Mentions::default(),
        };
        files.extend(mentions.media);
        let attached = Attachments::check(files, &self.limits)?;
        let prompt =
            prompt.map(|text| [vec![text], self.command_outputs.clone(), mentions.texts].concat().join("\n\n"));
        let plain = StartBody { prompt, ..self.next_request.clone() };
        let request = attach(self.context, place, attached, plain.clone()).await?;
        let session_id = request.session_id.clone();
        let has_parts = request.prompt != plain.prompt;
        let done = match place.run(request, RunDisplay::Chat).await {
            // The user may have named a file only for the tools.
            Err(failure) if has_parts && is_unsupported(&failure) => {
                print::error_line(&format!(
                    "note: {}; the message is sent without them",
                    text::safe_line(&failure.what)
                ));
                place.run(StartBody { session_id, ..plain }, RunDisplay::Chat).await?
            }
            done => done?,
        };
        self.next_request.session_id = Some(done.session.to_string());
        self.command_outputs.clear();
        if !self.context.global.json {
            report::print_denied_calls(&done.denied);
            let advice = report::allow_advice(&done.denied);
            if !advice.is_empty() {
                print::error_line(&advice);
            }
        }
        match done.exit {
            Err(failure) if self.input.is_terminal() && failure.exit == Exit::Interrupted => Ok(false),
            ended => ended.map(|_| true),
        }
    }

    /// Prints what a command of `soong` prints.
    async fn query(&self, words: Vec<String>) -> Result<(), Failure> {
        let mut resolved = Vec::with_capacity(words.len());
        for word in words {
            resolved.push(match (&self.next_request.session_id, word.as_str()) {
                (Some(session), SESSION) => session.clone(),
                (None, SESSION) => return print::line("no messages yet"),
                _ => word,
            });
        }
        run_query(self.context, &resolved).await.map(drop)
    }

    /// Continues another session.
    async fn resume(&mut self, client: &Client, session: &str) -> Result<(), Failure> {
        let found = client.session(session).await?.session;
        print::line(&format!("continuing session {}", text::safe_line(found.session_id.as_str())))?;
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

    /// Moves the conversation to another message of the session (`/rewind`) or to a copy of the session (`/fork`).
    async fn move_head(&mut self, place: &RuntimeSession<'_>, request: &ChatInput) -> Result<(), Failure> {
        let Some(session) = self.next_request.session_id.clone() else {
            return print::line("no messages yet");
        };
        if let ChatInput::Rewind(sequence) = request {
            let head =
                place.client().switch_head(&session, *sequence).await.map_err(|error| refused(&session, error))?;
            return describe_head(&session, &head).iter().try_for_each(|line| print::line(line));
        }
        let at_sequence = if let ChatInput::Fork(at) = request { *at } else { None };
        let body = ForkBody { at_sequence, ..ForkBody::default() };
        let made = place.client().fork_session(&session, &body).await.map_err(|error| refused(&session, error))?;
        print::line(&format!("continuing in session {}; {session} is unchanged", made.session.session_id))?;
        self.next_request.session_id = Some(made.session.session_id.to_string());
        Ok(())
    }

    /// Prints how to continue the session later.
    fn print_resume_hint(&self) -> Result<(), Failure> {
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

/// Returns the permission mode that follows when the user presses Shift-Tab. `all` must be named.
const fn next_mode(mode: PermissionMode) -> PermissionMode {
    match mode {
        PermissionMode::Ask => PermissionMode::Edits,
        PermissionMode::Edits => PermissionMode::Plan,
        PermissionMode::Plan | PermissionMode::All => PermissionMode::Ask,
    }
}

/// Returns whether a run was rejected because its model does not take what was attached.
fn is_unsupported(failure: &Failure) -> bool {
    failure.what.ends_with(&format!("({})", ErrorCode::UnsupportedCapability))
}

/// Applies a command that only changes the next request or prints text. Other input is ignored.
fn apply(next: &mut StartBody, request: ChatInput) -> Result<(), Failure> {
    match request {
        ChatInput::Help => help().iter().try_for_each(|line| print::line(line)),
        ChatInput::Clear => print::line("\u{1b}[2J\u{1b}[3J\u{1b}[H"),
        ChatInput::Set(Setting::Effort(effort)) => {
            let params = next.llm_params.get_or_insert(None).get_or_insert_default();
            params.insert("effort".to_owned(), effort.as_str().into());
            print::line(&format!("effort set to {}", effort.as_str()))
        }
        ChatInput::New => {
            next.session_id = None;
            print::line("your next message starts a new session")
        }
        ChatInput::Set(Setting::Mode(mode)) => {
            next.mode = Some(Some(mode));
            print::line(&format!("mode set to {}", mode.as_str()))
        }
        ChatInput::Set(Setting::Model(model)) => {
            print::line(&format!("model set to {}", text::safe_line(&model)))?;
            next.model = Some(Some(model));
            Ok(())
        }
        ChatInput::Invalid(what) => print::line(&what),
        ChatInput::Blank
        | ChatInput::Message(_)
        | ChatInput::Retry
        | ChatInput::Rewind(_)
        | ChatInput::Fork(_)
        | ChatInput::Permissions(_)
        | ChatInput::Query(_)
        | ChatInput::Resume(_)
        | ChatInput::Shell(_)
        | ChatInput::Quit => Ok(()),
    }
}
