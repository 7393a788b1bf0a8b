//! `soong chat`: a conversation in one session, one run per message.
//!
//! Elsewhere: the conversation itself (`chat/conversation.rs`).

mod chat_input;
mod commands;
mod conversation;
mod custom_commands;
mod editor;
mod file_changes;
mod going_back;
mod header;
mod mentions;
mod project_choice;
mod shell;

use std::path::{Path, PathBuf};

use soong::protocol::{RunMode, RunSetting, SessionId, api::StartBody};
use soong_client::{Client, Discovery};
use soong_tui::{attention::Title, text, typed_messages::SharedMessages};

use self::{
    chat_input::completions,
    conversation::{Additions, Conversation, LastResults},
    custom_commands::CustomCommands,
    header::terminal_title,
    project_choice::choose_project,
};
use super::{
    continued,
    host::builder,
    run::{last_model, project, reset},
    runtime_session::RuntimeSession,
};
use crate::{
    cli,
    config::{self, Settings},
    context::Context,
    exit::{Exit, Failure},
    input::{Completions, Input},
    print, prompts, report,
};

pub(super) async fn chat(context: &Context<'_>, mut options: cli::Chat) -> Result<Exit, Failure> {
    let home = context.home()?;
    let settings = config::read(&context.global, &home)?;
    if let Some(session) = &mut options.session {
        *session = continued::session(context, session).await?;
    }
    continued::existing(context, &mut options.continued, &mut options.session).await?;
    if context.remote.is_none() && !continues(&options) {
        choose_project(context, &mut options.project).await?;
    }
    let project = project(context, options.project.path.as_deref())?;
    let model = check_model(context, &home, &settings, &options, project.as_deref()).await?;
    let custom_commands = custom_commands(&home);
    let input = Input::of_chat(Completions {
        commands: completions(&custom_commands),
        project: project.clone().filter(|_| context.remote.is_none()),
    })?;
    let title = input
        .is_terminal()
        .then(|| Title::set(&terminal_title(project.as_deref())));
    let mut runtime_session =
        RuntimeSession::connect(context, &home, || builder(context, &home, &settings)).await?;
    let result = match session(&runtime_session, &options, project.as_deref()).await {
        Ok(session_id) => {
            let effort = options.agent.effort;
            let mut conversation = Conversation {
                context,
                input,
                title,
                custom_commands,
                next_request: first_request(context, options, session_id, project),
                effort,
                settings: &settings,
                additions: Additions::default(),
                typed: SharedMessages::default(),
                sending: None,
                sent: Vec::new(),
                has_plan: false,
                last_results: LastResults::default(),
                in_background: false,
                interrupted_at: None,
            };
            let ended = match conversation.begin(&runtime_session, model.as_deref()).await {
                Ok(()) => conversation.run(&mut runtime_session).await,
                Err(failure) => Err(failure),
            };
            let ended = conversation
                .print_resume_hint(&runtime_session)
                .await
                .and(ended);
            if let (true, Some(session)) = (
                conversation.in_background,
                &conversation.next_request.session_id,
            ) {
                let session = SessionId::new(session.as_str());
                if runtime_session.hand_over(&session).await? {
                    let soong = report::command(
                        context.global.home.as_deref(),
                        context.global.url.as_deref(),
                    );
                    print::line(&format!(
                        "the run continues in the background; `{soong} monitor` shows it"
                    ))?;
                }
                return ended;
            }
            ended
        }
        Err(failure) => Err(failure),
    };
    runtime_session.close().await;
    result
}

/// Returns whether the chat continues a session, which has its own project.
fn continues(options: &cli::Chat) -> bool {
    options.continued.is_some() || options.session.is_some()
}

/// Fails if the credentials of the model are missing and this process will call it. Returns the
/// model, if it is known.
async fn check_model(
    context: &Context<'_>,
    home: &Path,
    settings: &Settings,
    options: &cli::Chat,
    project: Option<&Path>,
) -> Result<Option<String>, Failure> {
    let session = options.session.as_deref();
    let is_last = options.continued.is_some();
    let is_reset = options.agent.preset.is_some() || options.reset.contains(&RunSetting::Model);
    let last = || {
        if is_reset {
            None
        } else {
            last_model(home, session, None, is_last, project)
        }
    };
    let model = options.agent.model.clone().or_else(last);
    // The header names the model of the default profile.
    let named = model.clone().filter(|model| model != "default");
    if !matches!(Client::find(&context.address(home)).await, Discovery::None) {
        return Ok(named);
    }
    settings.check_model(model.as_deref(), &context.environment)?;
    let selected = || settings.model_selected_by_key(&context.environment);
    let default = || {
        settings
            .models(&context.environment)
            .config
            .model
            .model_name()
            .to_owned()
    };
    Ok(Some(named.or_else(selected).unwrap_or_else(default)))
}

/// Reads the commands of the user's home. Prints a line for each that cannot be used.
fn custom_commands(home: &Path) -> CustomCommands {
    let (commands, errors) = CustomCommands::read(home);
    for error in errors {
        print::error_line(&format!("warning: {}", text::safe_line(&error)));
    }
    commands
}

/// Returns the session that the chat continues. `None`: the first message starts one.
async fn session(
    runtime_session: &RuntimeSession<'_>,
    options: &cli::Chat,
    project: Option<&Path>,
) -> Result<Option<String>, Failure> {
    match (&options.session, &options.continued) {
        (None, Some(reference)) => {
            let found =
                continued::fetch_continued(runtime_session.client(), reference.as_deref(), project)
                    .await?;
            Ok(Some(found.session_id.to_string()))
        }
        (session, _) => Ok(session.clone()),
    }
}

/// Returns the request of the first run, without its prompt.
fn first_request(
    context: &Context<'_>,
    options: cli::Chat,
    session_id: Option<String>,
    project: Option<PathBuf>,
) -> StartBody {
    let mut request = StartBody {
        session_id,
        mode: options.mode.map(RunMode::from).into(),
        model: options.agent.model.into(),
        preset: options.agent.preset.into(),
        project_dir: project,
        allow_home_project: options.project.here,
        permission_mode: options.permissions.permission_mode,
        unattended: context.global.json || !prompts::is_interactive(),
        ..StartBody::default()
    };
    reset(&mut request, &options.reset);
    request
}
