//! Routes of artifacts: list, read, write, edit, delete, upload, export, clean up.
//!
//! The bytes of requests and responses are streamed, except exports. Elsewhere: multipart bodies
//! (`upload.rs`); size limits, allowed names, and finding the passage that an edit replaces (the
//! library).

use axum::{
    Json,
    body::Body,
    extract::Request,
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use soong::{
    ErrorCode, ErrorInfo,
    artifact::{ChangeCondition, CleanupReport, Content, Loaded, is_text},
    protocol::{
        ArtifactVersion, SessionId,
        api::{
            ArtifactView, Artifacts, EditBody, EditView, ExportQuery, Format, Stored, UPLOAD_NAME,
            VersionQuery, Versions,
            operation::{
                CleanUpArtifacts, DeleteArtifact, EditArtifact, ExportArtifact, ListArtifacts,
                ListVersions, PutArtifact, ReadArtifact, ReadContent, ReadVersion,
            },
        },
    },
};
use soong_client::UploadTarget;

use super::{
    caller::Access,
    cleanup::artifact_cleanup,
    error::{ApiError, validation_error},
    etag::{change_condition, client_has_version, etag},
    request::{self, Path, Query},
    upload::{self, limited_body, upload_content},
};

/// MIME type of a request body without a `Content-Type`.
const OCTET_STREAM: &str = "application/octet-stream";
/// MIME type of `.docx` files.
pub const DOCX: &str = "application/vnd.openxmlformats-officedocument.wordprocessingml.document";
/// Characters that are percent-encoded in an extended header parameter (RFC 5987).
const ATTRIBUTE: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'~');

/// Builds the view of a loaded artifact. The content is read only if it is text.
///
/// # Errors
/// `storage_error`.
pub async fn artifact_view(
    loaded: Loaded,
    versions: Vec<ArtifactVersion>,
) -> Result<ArtifactView, ErrorInfo> {
    let artifact = loaded.artifact.clone();
    let content = if is_text(&loaded.content_type) {
        match loaded.text().await {
            Ok(text) => Some(text),
            Err(error) if error.code == ErrorCode::UnsupportedMedia => None,
            Err(error) => return Err(error),
        }
    } else {
        None
    };
    Ok(ArtifactView {
        artifact,
        content,
        versions,
    })
}

/// Path parameters: the session and the name of an artifact.
type ArtifactPath = Path<(SessionId, String)>;

pub(super) async fn list(access: &Access, request: ListArtifacts) -> Result<Artifacts, ApiError> {
    let ListArtifacts { session_id: id } = request;
    let artifacts = access
        .runtime()
        .artifacts()
        .list(&access.artifact_owner(&id).await?)
        .await?;
    Ok(Artifacts { artifacts })
}

/// Answers [`ReadArtifact`] with the ETag of the current version.
pub(super) async fn show_with_etag(
    access: Access,
    Path((session_id, name)): ArtifactPath,
) -> Result<Response, ApiError> {
    let view = show(&access, ReadArtifact { session_id, name }).await?;
    Ok((etag(view.artifact.current_version), Json(view)).into_response())
}

pub(super) async fn show(access: &Access, request: ReadArtifact) -> Result<ArtifactView, ApiError> {
    let ReadArtifact { session_id, name } = request;
    let owner = access.artifact_owner(&session_id).await?;
    let artifacts = access.runtime().artifacts();
    let loaded = artifacts.load(&owner, &name, None).await?;
    let versions = artifacts.versions(&owner, &name).await?;
    Ok(artifact_view(loaded, versions).await?)
}

/// Reads the current content of an artifact, or that of a stored version, as bytes.
#[cfg_attr(feature = "openapi", utoipa::path(get, path = "/api/sessions/{session_id}/artifacts/{name}/content", tag = "artifacts",
    params(("session_id" = String, Path), ("name" = String, Path), VersionQuery,
           ("If-None-Match" = Option<String>, Header, description = "ETags of the versions that the client has. Ignored if it is not a list of ETags.")),
    responses((status = OK, content_type = "*/*", body = [u8]), (status = NOT_MODIFIED))))]
pub(super) async fn content(
    access: Access,
    Path((session_id, name)): ArtifactPath,
    Query(query): Query<VersionQuery>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let request = ReadContent {
        session_id,
        name,
        query,
    };
    let loaded = load(&access, &request).await?;
    let version = request
        .query
        .version
        .unwrap_or(loaded.artifact.current_version);
    if client_has_version(&headers, version) {
        return Ok((StatusCode::NOT_MODIFIED, etag(version)).into_response());
    }
    let headers = file_headers(&loaded.content_type, loaded.size, &loaded.artifact.filename);
    Ok((headers, etag(version), Body::from_stream(loaded.body)).into_response())
}

/// Opens the current content of an artifact, or that of a stored version.
pub(super) async fn load(access: &Access, request: &ReadContent) -> Result<Loaded, ApiError> {
    let owner = access.artifact_owner(&request.session_id).await?;
    let artifacts = access.runtime().artifacts();
    let version = request.query.version;
    Ok(artifacts.load(&owner, &request.name, version).await?)
}

pub(super) async fn versions(access: &Access, request: ListVersions) -> Result<Versions, ApiError> {
    let ListVersions {
        session_id: session,
        name,
    } = request;
    let owner = access.artifact_owner(&session).await?;
    Ok(Versions {
        versions: access.runtime().artifacts().versions(&owner, &name).await?,
    })
}

pub(super) async fn version(
    access: &Access,
    request: ReadVersion,
) -> Result<ArtifactVersion, ApiError> {
    let ReadVersion {
        session_id: session,
        name,
        version,
    } = request;
    let owner = access.artifact_owner(&session).await?;
    Ok(access
        .runtime()
        .artifacts()
        .version(&owner, &name, version)
        .await?)
}

/// Stores the request body and its `Content-Type` as the next version of an artifact. Creates the
/// artifact if it does not exist.
#[cfg_attr(feature = "openapi", utoipa::path(put, path = "/api/sessions/{session_id}/artifacts/{name}", tag = "artifacts", params(("session_id" = String, Path), ("name" = String, Path)),
    request_body(content = [u8], content_type = "application/octet-stream"),
    responses((status = OK, body = Stored), (status = CREATED, body = Stored))))]
pub(super) async fn put(
    access: Access,
    Path((session_id, name)): ArtifactPath,
    request: Request,
) -> Result<Response, ApiError> {
    let content_type = match request.headers().get(header::CONTENT_TYPE) {
        None => OCTET_STREAM.to_owned(),
        Some(declared) => declared
            .to_str()
            .map_err(|_| validation_error("the Content-Type header is not valid text"))?
            .to_owned(),
    };
    let condition = change_condition(request.headers())?;
    let body = limited_body(request.into_body(), access.api().limits.upload_bytes);
    let (content, guard) = upload_content(body);
    let request = PutArtifact { session_id, name };
    let stored = store(&access, &request, &content_type, &condition, content)
        .await
        .map_err(|error| guard.map_error(error))?;
    let status = if stored.version == 1 {
        StatusCode::CREATED
    } else {
        StatusCode::OK
    };
    Ok((status, etag(stored.version), Json(stored)).into_response())
}

/// Stores content as the next version of an artifact.
pub(super) async fn store(
    access: &Access,
    request: &PutArtifact,
    content_type: &str,
    condition: &ChangeCondition,
    content: Content,
) -> Result<Stored, ApiError> {
    let _guard = access.begin_change()?;
    let owner = access.artifact_owner(&request.session_id).await?;
    let artifacts = access.runtime().artifacts().only_if(condition);
    let artifact = artifacts
        .put(&owner, &request.name, content_type, content)
        .await?;
    Ok(Stored::from(artifact))
}

/// Stores a file as a new artifact of a session.
pub(super) async fn store_file(
    access: &Access,
    request: &UploadTarget,
    content_type: &str,
    content: Content,
) -> Result<Stored, ApiError> {
    let _guard = access.begin_change()?;
    let owner = access.artifact_owner(&request.session_id).await?;
    let artifacts = access.runtime().artifacts();
    let artifact = artifacts
        .upload(&owner, &request.filename, content_type, content)
        .await?;
    Ok(Stored::from(artifact))
}

/// Answers [`EditArtifact`] if the version of the artifact is one that the headers allow.
pub(super) async fn edit_if_matching(
    access: Access,
    Path((session_id, name)): ArtifactPath,
    headers: HeaderMap,
    request::Json(body): request::Json<EditBody>,
) -> Result<Response, ApiError> {
    let condition = change_condition(&headers)?;
    let request = EditArtifact {
        session_id,
        name,
        body,
    };
    let view = edit_if(&access, request, &condition).await?;
    Ok((etag(view.version), Json(view)).into_response())
}

pub(super) async fn edit(access: &Access, request: EditArtifact) -> Result<EditView, ApiError> {
    edit_if(access, request, &ChangeCondition::default()).await
}

async fn edit_if(
    access: &Access,
    request: EditArtifact,
    condition: &ChangeCondition,
) -> Result<EditView, ApiError> {
    let EditArtifact {
        session_id,
        name,
        body: EditBody { old, new },
    } = request;
    let _guard = access.begin_change()?;
    let owner = access.artifact_owner(&session_id).await?;
    let edited = access
        .runtime()
        .artifacts()
        .only_if(condition)
        .edit(&owner, &name, &old, &new)
        .await?;
    Ok(EditView {
        version: edited.artifact.current_version,
        layer: edited.layer,
        similarity: edited.similarity,
        replaced: edited.replaced,
    })
}

/// Answers [`DeleteArtifact`] if the version of the artifact is one that the headers allow.
pub(super) async fn delete_if_matching(
    access: Access,
    Path((session_id, name)): ArtifactPath,
    headers: HeaderMap,
) -> Result<StatusCode, ApiError> {
    let condition = change_condition(&headers)?;
    delete_if(&access, DeleteArtifact { session_id, name }, &condition).await?;
    Ok(StatusCode::NO_CONTENT)
}

pub(super) async fn delete(access: &Access, request: DeleteArtifact) -> Result<(), ApiError> {
    delete_if(access, request, &ChangeCondition::default()).await
}

async fn delete_if(
    access: &Access,
    request: DeleteArtifact,
    condition: &ChangeCondition,
) -> Result<(), ApiError> {
    let _guard = access.begin_change()?;
    let owner = access.artifact_owner(&request.session_id).await?;
    access
        .runtime()
        .artifacts()
        .only_if(condition)
        .delete(&owner, &request.name)
        .await?;
    Ok(())
}

/// Stores the files of a multipart form as artifacts, named after their file names. Each file is
/// sent in a field `file`.
///
/// `{name}` must be `upload`; the method is not allowed for other names. An artifact may be named
/// `upload` too, because its own routes do not use POST.
#[cfg_attr(feature = "openapi", utoipa::path(post, path = "/api/sessions/{session_id}/artifacts/{name}", tag = "artifacts",
    params(("session_id" = String, Path)),
    request_body(content = UploadForm, content_type = "multipart/form-data"),
    responses((status = CREATED, body = soong::protocol::api::Uploaded))))]
pub(super) async fn upload(
    access: Access,
    Path((session, name)): ArtifactPath,
    request: Request,
) -> Result<Response, ApiError> {
    if name != UPLOAD_NAME {
        let refused = super::wrong_method(request.method().clone(), request.uri().clone()).await;
        return Ok(([(header::ALLOW, "GET,HEAD,PUT,PATCH,DELETE")], refused).into_response());
    }
    if change_condition(request.headers())? != ChangeCondition::default() {
        let message = "If-Match, If-None-Match: an upload always creates an artifact with a name that is not in use; use \
                       PUT to set the name";
        return Err(validation_error(message));
    }
    let _passing = access.begin_change()?;
    let owner = access.artifact_owner(&session).await;
    Ok((
        StatusCode::CREATED,
        Json(upload::store_multipart(&access, owner, request).await?),
    )
        .into_response())
}

/// Multipart form of an upload.
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[expect(
    dead_code,
    reason = "it says what a form looks like; it is read piece by piece"
)]
pub(super) struct UploadForm {
    /// Content of a file, sent with a file name. Repeat the field to upload several files.
    #[cfg_attr(feature = "openapi", schema(value_type = serde_json::Value))]
    file: Vec<Vec<u8>>,
}

/// Converts a text to the bytes of a `.docx` file (ART-12).
///
/// # Errors
/// `unsupported_media` if it is not text, `storage_error` if it cannot be read.
pub async fn docx(loaded: Loaded) -> Result<Vec<u8>, ErrorInfo> {
    let title = loaded.artifact.title.clone();
    let content_type = loaded.content_type.clone();
    let text = loaded.text().await?;
    let written =
        tokio::task::spawn_blocking(move || soong_docx::export(&title, &content_type, &text)).await;
    written.map_err(|error| {
        ErrorInfo::new(
            ErrorCode::InternalError,
            format!("the export failed: {error}"),
        )
    })?
}

/// Exports the last stored version of a text artifact in another format.
#[cfg_attr(feature = "openapi", utoipa::path(get, path = "/api/sessions/{session_id}/artifacts/{name}/export", tag = "artifacts",
    params(("session_id" = String, Path), ("name" = String, Path), ExportQuery),
    responses((status = OK, content_type = "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
        body = [u8]))))]
pub(super) async fn export(
    access: Access,
    Path((session_id, name)): ArtifactPath,
    Query(query): Query<ExportQuery>,
) -> Result<Response, ApiError> {
    let request = ExportArtifact {
        session_id,
        name,
        query,
    };
    let bytes = export_docx(&access, &request).await?;
    let name = &request.name;
    let stem = name.strip_prefix("user:").unwrap_or(name);
    let stem = stem.rsplit_once('.').map_or(stem, |(stem, _)| stem);
    let headers = file_headers(DOCX, bytes.len() as u64, &format!("{stem}.docx"));
    Ok((headers, bytes).into_response())
}

/// Exports the last stored version of a text artifact as `.docx`, the only format.
pub(super) async fn export_docx(
    access: &Access,
    request: &ExportArtifact,
) -> Result<Vec<u8>, ApiError> {
    let Format::Docx = request.query.format;
    let owner = access.artifact_owner(&request.session_id).await?;
    let artifacts = access.runtime().artifacts();
    let loaded = artifacts.last_version(&owner, &request.name).await?;
    Ok(docx(loaded).await?)
}

pub(super) async fn clean_up(
    access: &Access,
    request: CleanUpArtifacts,
) -> Result<CleanupReport, ApiError> {
    let mut cleanup = artifact_cleanup(request.body)?;
    let _guard = access.begin_change()?;
    if let Some(session) = &cleanup.session_id {
        access.session(session).await?;
    }
    if let Some(uid) = access.caller.visible_uid() {
        access.uid(cleanup.uid.as_deref())?;
        cleanup.uid = Some(uid);
    }
    Ok(access.runtime().artifacts().clean_up(cleanup).await?)
}

/// Returns the response headers of a file download: type, length and file name. They make browsers
/// save the file instead of displaying it.
fn file_headers(content_type: &str, size: u64, filename: &str) -> HeaderMap {
    let value = |text: &str| HeaderValue::from_str(text).ok();
    let plain: String = filename
        .chars()
        .map(|c| {
            if c.is_ascii_graphic() && !"\"\\%".contains(c) || c == ' ' {
                c
            } else {
                '_'
            }
        })
        .collect();
    let encoded = utf8_percent_encode(filename, ATTRIBUTE);
    let disposition = format!("attachment; filename=\"{plain}\"; filename*=UTF-8''{encoded}");
    HeaderMap::from_iter([
        (
            header::CONTENT_TYPE,
            value(content_type).unwrap_or(HeaderValue::from_static(OCTET_STREAM)),
        ),
        (header::CONTENT_LENGTH, HeaderValue::from(size)),
        (
            header::CONTENT_DISPOSITION,
            value(&disposition).unwrap_or(HeaderValue::from_static("attachment")),
        ),
        (
            header::X_CONTENT_TYPE_OPTIONS,
            HeaderValue::from_static("nosniff"),
        ),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_disposition_keeps_any_file_name() {
        for (filename, want) in [
            (
                "plan.md",
                r#"attachment; filename="plan.md"; filename*=UTF-8''plan.md"#,
            ),
            (
                "a b.txt",
                r#"attachment; filename="a b.txt"; filename*=UTF-8''a%20b.txt"#,
            ),
            (
                "\"x\"\r\n",
                r#"attachment; filename="_x___"; filename*=UTF-8''%22x%22%0D%0A"#,
            ),
            (
                "好.md",
                r#"attachment; filename="_.md"; filename*=UTF-8''%E5%A5%BD.md"#,
            ),
        ] {
            let headers = file_headers("text/plain", 3, filename);
            assert_eq!(headers[header::CONTENT_DISPOSITION], want);
        }
        assert_eq!(
            file_headers("a\nb", 3, "x")[header::CONTENT_TYPE],
            OCTET_STREAM
        );
    }
}
