//! Artifacts: list, read, write, edit, delete, upload, export, clean up.
//!
//! Bytes pass in pieces, both ways. Not here: which sizes are too large, what may be a name, and how a
//! text is found that an edit means; the library says so. Multipart bodies are in `upload.rs`.

use axum::{
    Json,
    body::{Body, Bytes},
    extract::{
        Path, Query, Request, State,
        rejection::{BytesRejection, PathRejection, QueryRejection},
    },
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::{Deserialize, Serialize};
use soong::{
    ErrorCode, ErrorInfo,
    artifact::{Cleanup, CleanupReport, Loaded, Place, is_text},
    protocol::{Artifact, ArtifactId, ArtifactVersion, MatchLayer, SessionId},
};

use super::{
    Api,
    error::{ApiError, body, refuse},
    upload::{self, arriving},
};

/// MIME type of what nobody said the type of.
const OCTETS: &str = "application/octet-stream";
/// Whose artifacts are those of whom nobody asks.
pub(crate) const LOCAL: &str = "local";
/// MIME type of `.docx` files.
const DOCX: &str = "application/vnd.openxmlformats-officedocument.wordprocessingml.document";
/// What stands for itself in an extended parameter of a header (RFC 5987).
const ATTRIBUTE: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// Artifacts by name.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Artifacts {
    pub(crate) artifacts: Vec<Artifact>,
}

/// An artifact with what it holds.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ArtifactView {
    pub(crate) artifact: Artifact,
    /// What it holds now; absent where that is no text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) content: Option<String>,
    pub(crate) versions: Vec<ArtifactVersion>,
}

impl ArtifactView {
    pub(crate) async fn of(loaded: Loaded, versions: Vec<ArtifactVersion>) -> Result<Self, ErrorInfo> {
        let artifact = loaded.artifact.clone();
        let content = match is_text(&loaded.content_type) {
            true => match loaded.text().await {
                Ok(text) => Some(text),
                Err(error) if error.code == ErrorCode::UnsupportedMedia => None,
                Err(error) => return Err(error),
            },
            false => None,
        };
        Ok(Self { artifact, content, versions })
    }
}

/// The stored versions of an artifact.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Versions {
    pub(crate) versions: Vec<ArtifactVersion>,
}

/// A version that was stored.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Stored {
    pub(crate) name: String,
    pub(crate) artifact_id: ArtifactId,
    pub(crate) version: u64,
    pub(crate) size: u64,
    pub(crate) content_type: String,
}

impl From<Artifact> for Stored {
    fn from(artifact: Artifact) -> Self {
        Self {
            name: artifact.key(),
            artifact_id: artifact.artifact_id,
            version: artifact.current_version,
            size: artifact.size,
            content_type: artifact.content_type,
        }
    }
}

/// What an edit replaces by what.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct EditBody {
    pub(crate) old: String,
    pub(crate) new: String,
}

/// What an edit did.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct EditView {
    pub(crate) version: u64,
    pub(crate) layer: Option<MatchLayer>,
    pub(crate) similarity: Option<f64>,
    pub(crate) replaced: Option<String>,
}

/// Which version's bytes.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct VersionQuery {
    version: Option<u64>,
}

/// As what an artifact is exported.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ExportQuery {
    format: String,
}

/// The session and the name of an artifact, as a path has them.
type Named = Result<Path<(SessionId, String)>, PathRejection>;

/// Finds whose names are meant; `-` in the place of a session: the user's alone, also where there is no session.
async fn place_of(api: &Api, session: &SessionId) -> Result<Place, ErrorInfo> {
    match session.as_str() {
        Place::NO_SESSION => Ok(Place::of_user(LOCAL)),
        _ => api.runtime.artifact_place(session).await,
    }
}

async fn find(api: &Api, named: Named) -> Result<(Place, String), ApiError> {
    let Path((session, name)) = named?;
    Ok((place_of(api, &session).await?, name))
}

/// GET `/api/sessions/{id}/artifacts`
pub(super) async fn list(State(api): State<Api>, Path(id): Path<SessionId>) -> Result<Json<Artifacts>, ApiError> {
    let artifacts = api.runtime.artifacts(&place_of(&api, &id).await?).await?;
    Ok(Json(Artifacts { artifacts }))
}

/// GET `…/{name}`: the record, what it holds if that is text, and its stored versions.
pub(super) async fn show(State(api): State<Api>, named: Named) -> Result<Json<ArtifactView>, ApiError> {
    let (place, name) = find(&api, named).await?;
    let loaded = api.runtime.artifact(&place, &name, None).await?;
    let versions = api.runtime.artifact_versions(&place, &name).await?;
    Ok(Json(ArtifactView::of(loaded, versions).await?))
}

/// GET `…/{name}/content`: the bytes, as it holds them now or in a stored version.
pub(super) async fn content(
    State(api): State<Api>,
    named: Named,
    query: Result<Query<VersionQuery>, QueryRejection>,
) -> Result<Response, ApiError> {
    let Query(query) = query?;
    let (place, name) = find(&api, named).await?;
    let loaded = api.runtime.artifact(&place, &name, query.version).await?;
    let (content_type, size) = (loaded.content_type, loaded.size);
    let headers = file_headers(&content_type, size, &loaded.artifact.filename);
    Ok((headers, Body::from_stream(loaded.body)).into_response())
}

/// GET `…/{name}/versions`
pub(super) async fn versions(State(api): State<Api>, named: Named) -> Result<Json<Versions>, ApiError> {
    let (place, name) = find(&api, named).await?;
    Ok(Json(Versions { versions: api.runtime.artifact_versions(&place, &name).await? }))
}

/// GET `…/{name}/versions/{n}`
pub(super) async fn version(
    State(api): State<Api>,
    path: Result<Path<(SessionId, String, String)>, PathRejection>,
) -> Result<Json<ArtifactVersion>, ApiError> {
    let Path((session, name, number)) = path?;
    let number: u64 = number.parse().map_err(|_| refuse(format!("{number:?} is no number of a version")))?;
    let place = place_of(&api, &session).await?;
    Ok(Json(api.runtime.artifact_version(&place, &name, number).await?))
}

/// PUT `…/{name}`: the body becomes the next version.
pub(super) async fn put(State(api): State<Api>, named: Named, request: Request) -> Result<Response, ApiError> {
    let _passing = api.enter()?;
    let content_type = match request.headers().get(header::CONTENT_TYPE) {
        None => OCTETS.to_owned(),
        Some(declared) => declared.to_str().map_err(|_| refuse("the Content-Type is no text"))?.to_owned(),
    };
    let (content, _waiting) = arriving(request.into_body());
    let (place, name) = find(&api, named).await?;
    let artifact = api.runtime.put_artifact(&place, &name, &content_type, content).await?;
    let status = if artifact.current_version == 1 { StatusCode::CREATED } else { StatusCode::OK };
    Ok((status, Json(Stored::from(artifact))).into_response())
}

/// PATCH `…/{name}`: replaces a part of the text, found as ART-7 says.
pub(super) async fn edit(
    State(api): State<Api>,
    named: Named,
    bytes: Result<Bytes, BytesRejection>,
) -> Result<Json<EditView>, ApiError> {
    let _passing = api.enter()?;
    let EditBody { old, new } = body(bytes)?;
    let (place, name) = find(&api, named).await?;
    let edited = api.runtime.edit_artifact(&place, &name, &old, &new).await?;
    let version = edited.artifact.current_version;
    Ok(Json(EditView { version, layer: edited.layer, similarity: edited.similarity, replaced: edited.replaced }))
}

/// DELETE `…/{name}`: with all its versions.
pub(super) async fn delete(State(api): State<Api>, named: Named) -> Result<StatusCode, ApiError> {
    let _passing = api.enter()?;
    let (place, name) = find(&api, named).await?;
    api.runtime.delete_artifact(&place, &name).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// POST `…/upload`. An artifact may be called `upload` all the same: nothing else is posted there.
pub(super) async fn post(State(api): State<Api>, named: Named, request: Request) -> Result<Response, ApiError> {
    let (method, uri) = (request.method().clone(), request.uri().clone());
    let Path((session, name)) = named?;
    if name != "upload" {
        return Err(super::no_route(method, uri).await);
    }
    let _passing = api.enter()?;
    let place = place_of(&api, &session).await;
    let stored = upload::take(&api, place, request).await?;
    Ok((StatusCode::CREATED, Json(stored)).into_response())
}

/// GET `…/{name}/export?format=docx`
pub(super) async fn export(
    State(api): State<Api>,
    named: Named,
    query: Result<Query<ExportQuery>, QueryRejection>,
) -> Result<Response, ApiError> {
    let Query(query) = query?;
    if query.format != "docx" {
        return Err(refuse(format!("format {:?} is not known: docx is; the bytes are at …/content", query.format)));
    }
    let (place, name) = find(&api, named).await?;
    let bytes = api.runtime.export_docx(&place, &name).await?;
    let stem = name.strip_prefix("user:").unwrap_or(&name);
    let stem = stem.rsplit_once('.').map_or(stem, |(stem, _)| stem);
    let headers = file_headers(DOCX, bytes.len() as u64, &format!("{stem}.docx"));
    Ok((headers, bytes).into_response())
}

/// POST `/api/cleanup/artifacts`
pub(super) async fn clean_up(
    State(api): State<Api>,
    bytes: Result<Bytes, BytesRejection>,
) -> Result<Json<CleanupReport>, ApiError> {
    let _passing = api.enter()?;
    let wish: Cleanup = body(bytes)?;
    if let Some(session) = &wish.session_id {
        api.runtime.session(session).await?;
    }
    Ok(Json(api.runtime.cleanup_artifacts(wish).await?))
}

/// The headers of a file: what it is, how much, and what to call it. A browser is to save it, not to show it.
fn file_headers(content_type: &str, size: u64, filename: &str) -> HeaderMap {
    let value = |text: &str| HeaderValue::from_str(text).ok();
    let plain: String = filename
        .chars()
        .map(|c| if c.is_ascii_graphic() && !"\"\\%".contains(c) || c == ' ' { c } else { '_' })
        .collect();
    let encoded = utf8_percent_encode(filename, ATTRIBUTE);
    let disposition = format!("attachment; filename=\"{plain}\"; filename*=UTF-8''{encoded}");
    HeaderMap::from_iter([
        (header::CONTENT_TYPE, value(content_type).unwrap_or(HeaderValue::from_static(OCTETS))),
        (header::CONTENT_LENGTH, HeaderValue::from(size)),
        (header::CONTENT_DISPOSITION, value(&disposition).unwrap_or(HeaderValue::from_static("attachment"))),
        (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_keeps_its_name_whatever_it_is() {
        for (filename, want) in [
            ("plan.md", r#"attachment; filename="plan.md"; filename*=UTF-8''plan.md"#),
            ("a b.txt", r#"attachment; filename="a b.txt"; filename*=UTF-8''a%20b.txt"#),
            ("\"x\"\r\n", r#"attachment; filename="_x___"; filename*=UTF-8''%22x%22%0D%0A"#),
            ("好.md", r#"attachment; filename="_.md"; filename*=UTF-8''%E5%A5%BD.md"#),
        ] {
            let headers = file_headers("text/plain", 3, filename);
            assert_eq!(headers[header::CONTENT_DISPOSITION], want);
        }
        assert_eq!(file_headers("a\nb", 3, "x")[header::CONTENT_TYPE], OCTETS);
    }
}
