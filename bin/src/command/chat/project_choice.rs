//! Asks for the project folder if a chat is started in the user's home folder or above it.

use std::path::Path;

use soong_tui::{markdown::PageFormat, text};

use crate::{
    cli::ProjectArgs,
    command::run::folder,
    context::Context,
    exit::Failure,
    input::{Input, InputLine},
    print, prompts,
};

/// Answer that uses the current folder.
const HERE: &str = "here";

/// Asks for the project folder if it would be the user's home folder or one above it. Changes
/// nothing if no user can be asked, if the folder was allowed or if it is another one.
pub(super) async fn choose_project(
    context: &Context<'_>,
    project: &mut ProjectArgs,
) -> Result<(), Failure> {
    let home = context
        .environment
        .user_home()
        .and_then(|home| home.canonicalize().ok());
    let is_above_home = |folder: &Path| {
        folder.parent().is_none() || home.as_ref().is_some_and(|home| home.starts_with(folder))
    };
    let current = folder(project.path.as_deref())?;
    if project.here || context.global.json || !prompts::is_interactive() || !is_above_home(&current)
    {
        return Ok(());
    }
    let why = format!(
        "{} is your home folder or above it. An agent that may write or run commands there can change what your other \
         programs execute.",
        text::safe_line(&current.display().to_string())
    );
    text::wrap(&why, PageFormat::of(context.terminal).width)
        .iter()
        .try_for_each(|line| print::line(line))?;
    let mut input = Input::of_person()?;
    loop {
        let answer = match input
            .next(
                &format!("project folder, or `{HERE}` to use this one: "),
                "",
            )
            .await?
        {
            InputLine::Line(answer) => answer.trim().to_owned(),
            InputLine::Key(..) => continue,
            InputLine::Discarded | InputLine::Closed => {
                return Err(Failure::usage(
                    "no project folder was chosen",
                    "Change to a project folder, or use --path DIR.",
                ));
            }
        };
        match answer.as_str() {
            "" => {}
            HERE => {
                project.here = true;
                return Ok(());
            }
            path => match folder(context.environment.expand_home(path).as_deref()) {
                Ok(chosen) if is_above_home(&chosen) => {
                    print::line("this is also your home folder or above it")?
                }
                Ok(chosen) => {
                    project.path = Some(chosen);
                    return Ok(());
                }
                Err(failure) => print::line(&text::safe_line(&failure.what))?,
            },
        }
    }
}
