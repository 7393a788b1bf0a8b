//! Routes of experiences and skills.

use std::path::PathBuf;

use axum::{
    Json,
    http::{HeaderMap, header},
    response::{IntoResponse, Response},
};
use serde::{Deserialize, Serialize};
use soong::{
    ErrorCode, ErrorInfo,
    protocol::Experience,
    skill::{Skill, SkillOrigin},
};

use super::{caller::Access, error::ApiError};

/// Experiences of the caller's runs.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub(crate) struct Experiences {
    pub experiences: Vec<Experience>,
}

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

/// A skill.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SkillView {
    /// Its name.
    pub name: String,
    /// When the skill is useful.
    pub description: String,
    /// `built in`, `home` or `project`.
    pub origin: String,
    /// File of the skill, unless it is built in.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<PathBuf>,
    /// Text of the skill; omitted in lists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
}

impl SkillView {
    /// Creates the view of a skill, without its text.
    pub fn of(skill: &Skill) -> Self {
        let (origin, file) = match &skill.origin {
            SkillOrigin::BuiltIn => ("built in", None),
            SkillOrigin::Home(file) => ("home", Some(file.clone())),
            SkillOrigin::Project(file) => ("project", Some(file.clone())),
        };
        let name = skill.name.clone();
        let description = skill.description.clone();
        Self {
            name,
            description,
            origin: origin.to_owned(),
            file,
            text: None,
        }
    }
}

/// The skills of the home.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub(crate) struct SkillList {
    pub skills: Vec<SkillView>,
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
            .map(SkillView::of)
            .collect(),
    })
}
