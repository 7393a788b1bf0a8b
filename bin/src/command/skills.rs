//! `soong skills`: lists and prints the skills of agents.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use soong::protocol::api::SkillView;
use soong::{skill::Skills, tool::ToolEnvironment};
use soong_server::http::skill_view;
use soong_tui::{table::Column, text};

use crate::{
    cli,
    context::Context,
    exit::{Exit, Failure},
    print,
};

pub(super) fn skills(context: &Context<'_>, options: &cli::Skills) -> Result<Exit, Failure> {
    match options {
        cli::Skills::List { path } => list(context, path.as_deref()),
        cli::Skills::Show { name, path } => show(context, name, path.as_deref()),
    }
}

fn list(context: &Context<'_>, path: Option<&Path>) -> Result<Exit, Failure> {
    let (skills, faults) = look(context, path)?;
    let views: Vec<SkillView> = skills.list().map(skill_view).collect();
    if context.global.json {
        print::json(&views)?;
    } else {
        let row = |skill: &SkillView| {
            vec![
                text::safe_line(&skill.name),
                skill.origin.clone(),
                text::safe_line(&skill.description),
            ]
        };
        print::table(
            context.terminal,
            &[
                Column::whole("SKILL"),
                Column::text("ORIGIN", 8).drops(1),
                Column::text("DESCRIPTION", 16),
            ],
            &views.iter().map(row).collect::<Vec<_>>(),
        )?;
    }
    for warning in skills.warnings() {
        print::error_line(&format!(
            "warning: {}",
            text::safe_line(&warning.to_string())
        ));
    }
    for fault in faults {
        print::error_line(&format!("skipped: {}", text::safe_line(&fault)));
    }
    Ok(Exit::Success)
}

fn show(context: &Context<'_>, name: &str, path: Option<&Path>) -> Result<Exit, Failure> {
    let (skills, _) = look(context, path)?;
    let skill = skills.get(name).ok_or_else(|| {
        let known: Vec<String> = skills
            .list()
            .map(|skill| text::safe_line(&skill.name))
            .collect();
        let what = format!("no skill {name:?}; available: {}", known.join(", "));
        Failure::new(Exit::NotFound, what, "See `soong skills list`.")
    })?;
    if context.global.json {
        print::json(&SkillView {
            text: Some(skill.text.clone()),
            ..skill_view(skill)
        })?
    } else {
        print::line(&text::safe_block(&skill.text))?
    }
    Ok(Exit::Success)
}

/// Reads the skills that are available in a project, and returns the errors of project files that
/// are ignored.
fn look(context: &Context<'_>, path: Option<&Path>) -> Result<(Arc<Skills>, Vec<String>), Failure> {
    let settings = context.settings()?;
    let home = context.home()?;
    let skills = Skills::load(&home).map_err(|error| {
        Failure::usage(
            error.message,
            "Correct that file; `soong doctor` lists all invalid files.",
        )
    })?;
    let project: PathBuf = path
        .unwrap_or(Path::new("."))
        .canonicalize()
        .map_err(|error| {
            let path = path.unwrap_or(Path::new(".")).display();
            Failure::usage(
                format!("the project {path} cannot be used: {error}"),
                "Give a folder that exists: --path DIR.",
            )
        })?;
    let tool_environment = ToolEnvironment {
        tools: settings.config.tools,
        environment: context.environment.clone(),
        home: Some(home),
        ..ToolEnvironment::default()
    };
    Ok(Arc::new(skills).with_project_files(&tool_environment, &project))
}
