//! Routes of experiences and skills.

use std::sync::Arc;

use axum::{
    Json,
    http::{HeaderMap, header},
    response::{IntoResponse, Response},
};
use soong::{
    ErrorCode, ErrorInfo,
    memory::ExperienceText,
    protocol::api::{
        Experiences, SkillList, SkillView,
        operation::{ListExperiences, ListSkills},
    },
    skill::{Skill, SkillOrigin},
};

use super::{caller::Access, error::ApiError};

/// Answers [`ListExperiences`] in the format that `Accept` requests.
pub(super) async fn experiences_in_format(
    access: Access,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let accepts = headers
        .get(header::ACCEPT)
        .and_then(|accept| accept.to_str().ok())
        .unwrap_or_default();
    if accepts.contains("json") {
        let experiences = experiences(&access, ListExperiences {}).await?;
        return Ok(Json(experiences).into_response());
    }
    let experience_file = read_experiences(&access).await?;
    let headers = [(header::CONTENT_TYPE, "text/markdown; charset=utf-8")];
    Ok((headers, experience_file.bytes().to_vec()).into_response())
}

/// Reads the experiences of the caller's runs.
pub(super) async fn experiences(
    access: &Access,
    _: ListExperiences,
) -> Result<Experiences, ApiError> {
    let experience_file = read_experiences(access).await?;
    Ok(Experiences {
        experiences: experience_file.experiences().to_vec(),
    })
}

async fn read_experiences(access: &Access) -> Result<Arc<ExperienceText>, ErrorInfo> {
    let memory = access.runtime().memory().file(access.caller.uid());
    let lost =
        |error: tokio::task::JoinError| ErrorInfo::new(ErrorCode::InternalError, error.to_string());
    tokio::task::spawn_blocking(move || memory.read())
        .await
        .map_err(lost)?
}

/// Creates the view of a skill, without its text.
pub fn skill_view(skill: &Skill) -> SkillView {
    let (origin, file) = match &skill.origin {
        SkillOrigin::BuiltIn => ("built in", None),
        SkillOrigin::Home(file) => ("home", Some(file.clone())),
        SkillOrigin::Project(file) => ("project", Some(file.clone())),
    };
    let name = skill.name.clone();
    let description = skill.description.clone();
    SkillView {
        name,
        description,
        origin: origin.to_owned(),
        file,
        text: None,
    }
}

pub(super) async fn skills(access: &Access, _: ListSkills) -> Result<SkillList, ApiError> {
    Ok(SkillList {
        skills: access
            .runtime()
            .info()
            .skills()
            .list()
            .map(skill_view)
            .collect(),
    })
}
