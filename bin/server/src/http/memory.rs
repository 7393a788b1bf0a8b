//! Routes of experiences and skills.

use axum::{
    Json,
    http::{HeaderMap, header},
    response::{IntoResponse, Response},
};
use soong::{
    ErrorCode, ErrorInfo,
    protocol::api::{Experiences, SkillList, SkillView},
    skill::{Skill, SkillOrigin},
};

use super::{caller::Access, error::ApiError};

/// Reads the experiences of the caller's runs: the Markdown file, or JSON records if `Accept`
/// requests that.
#[cfg_attr(feature = "openapi", utoipa::path(get, path = "/api/experiences", tag = "home",
    responses((status = OK, content((String = "text/markdown"), (Experiences = "application/json"))))))]
pub(super) async fn experiences(access: Access, headers: HeaderMap) -> Result<Response, ApiError> {
    let memory = access.runtime().memory().file(access.caller.uid());
    let lost =
        |error: tokio::task::JoinError| ErrorInfo::new(ErrorCode::InternalError, error.to_string());
    let experience_file = tokio::task::spawn_blocking(move || memory.read())
        .await
        .map_err(lost)??;
    let accepts = headers
        .get(header::ACCEPT)
        .and_then(|accept| accept.to_str().ok())
        .unwrap_or_default();
    Ok(if accepts.contains("json") {
        Json(Experiences {
            experiences: experience_file.experiences().to_vec(),
        })
        .into_response()
    } else {
        (
            [(header::CONTENT_TYPE, "text/markdown; charset=utf-8")],
            experience_file.bytes().to_vec(),
        )
            .into_response()
    })
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

/// Lists the available skills, except those of projects.
#[cfg_attr(feature = "openapi", utoipa::path(get, path = "/api/skills", tag = "home", responses((status = OK, body = SkillList))))]
pub(super) async fn skills(access: Access) -> Json<SkillList> {
    Json(SkillList {
        skills: access
            .runtime()
            .info()
            .skills()
            .list()
            .map(skill_view)
            .collect(),
    })
}
