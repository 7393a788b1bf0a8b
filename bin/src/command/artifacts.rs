//! `soong artifacts`: reads and changes the artifacts that agents, tools and users have stored.
//!
//! Elsewhere: the output about artifacts (`artifacts/show.rs`), the comparison of versions
//! (`artifacts/diff.rs`).

mod diff;
mod session_artifacts;
mod show;

pub(super) use show::{DIRTY_NOTE, version_label};

use std::{cell::Cell, io::Write, path::Path};

use futures::{StreamExt, TryStreamExt};
use serde_json::json;
use soong::{
    ErrorCode, ErrorInfo,
    artifact::{ArtifactOwner, Cleanup, is_text},
    protocol::{
        Artifact, ArtifactVersion, Session, SessionId, USER_PREFIX,
        api::{
            EditBody, Stored,
            operation::{
                CleanUpArtifacts, DeleteArtifact, EditArtifact, ListArtifacts, ListVersions,
                PutArtifact,
            },
        },
    },
};
use soong_client::{Download, Upload};
use soong_server::http::LOCAL;
use soong_tui::{terminal::TextStyle, text};

use session_artifacts::SessionArtifacts;

use super::{continued, host::builder, run::folder, runtime_session::RuntimeSession};
use crate::{
    cli,
    config::{self, Settings},
    context::Context,
    exit::{Exit, Failure},
    file,
    interrupt::Interrupt,
    print,
    source::Source,
};

/// Executes the subcommands that only read.
pub(super) async fn read_command(
    context: &Context<'_>,
    options: &cli::Artifacts,
) -> Result<Exit, Failure> {
    use cli::Artifacts as A;
    match options {
        A::List { of, .. } if of.session.is_none() && context.print_if_unused(&[(); 0])? => {}
        A::List { of, columns } => {
            let artifacts = open(context, of, None).await?;
            show::list(context, &artifacts, &columns.columns).await?;
        }
        A::Show { name, of } => {
            let artifacts = open(context, of, Some(name)).await?;
            show::show(context, &artifacts, name).await?;
        }
        A::Versions { name, of } => {
            let artifacts = open(context, of, Some(name)).await?;
            show::versions(context, &artifacts, name).await?;
        }
        A::Diff { name, from, to, of } => {
            let artifacts = open(context, of, Some(name)).await?;
            diff::diff(context, &artifacts, name, *from, *to).await?;
        }
        A::Get {
            name,
            version,
            output,
            of,
        } => {
            if context.global.json && output.is_none() {
                return Err(Failure::usage(
                    "--json requires -o FILE",
                    "The content is not JSON. Write it to a file with -o FILE.",
                ));
            }
            let content = open(context, of, Some(name))
                .await?
                .content(name, *version)
                .await?;
            match output {
                Some(path) => save(context, name, path, content).await?,
                None => write_to_stdout(context, name, content).await?,
            }
        }
        A::Export { name, output, of } => {
            let is_docx = output
                .extension()
                .is_some_and(|ending| ending.eq_ignore_ascii_case("docx"));
            if !is_docx {
                let what = format!(
                    "{} does not end in .docx, the only supported format",
                    output.display()
                );
                let advice = format!(
                    "To write the unchanged bytes: soong artifacts get {} -o FILE",
                    text::safe_line(name)
                );
                return Err(Failure::usage(what, advice));
            }
            let content = open(context, of, Some(name)).await?.docx(name).await?;
            save(context, name, output, content).await?;
        }
        A::Cleanup { .. } => {
            let (settings, source) = open_source(context).await?;
            let session = cleanup_session(&source, options).await?;
            let request = cleanup_request(options, session);
            // Deletes nothing: `dry_run` is set.
            let home =
                source.client_with_artifacts(&settings.config.artifacts, &context.environment)?;
            let report = home.call(request).await?;
            show::cleaned(context, &report)?;
        }
        A::Put { .. } | A::Edit { .. } | A::Delete { .. } => unreachable!("these change something"),
    }
    Ok(Exit::Success)
}

/// Executes the subcommands that change artifacts, at the owner of the home or as a temporary
/// owner.
pub(super) async fn write_command(
    context: &Context<'_>,
    options: &cli::Artifacts,
) -> Result<Exit, Failure> {
    use cli::Artifacts as A;
    let settings = config::read(&context.global, &context.home()?)?;
    let source = context.source_to_change().await?;
    let session = match options {
        A::Put { name, of, .. } | A::Edit { name, of, .. } | A::Delete { name, of, .. } => {
            if let Some(session) = &of.session {
                source.exact_session(session).await?;
            }
            Some(select_session(&source, of, Some(name)).await?.session_id)
        }
        _ => cleanup_session(&source, options).await?,
    };
    if let A::Put { file, .. } = options
        && file != Path::new("-")
    {
        file::open(file)?;
    }
    drop(source);
    let home = context.home()?;
    let mut owner =
        RuntimeSession::connect_quiet(context, &home, || builder(context, &home, &settings))
            .await?;
    let done = execute_change(context, &mut owner, options, session).await;
    owner.close().await;
    done
}

async fn execute_change(
    context: &Context<'_>,
    runtime_session: &mut RuntimeSession<'_>,
    options: &cli::Artifacts,
    session: Option<SessionId>,
) -> Result<Exit, Failure> {
    use cli::Artifacts as A;
    let json = context.global.json;
    match (options, session) {
        (
            A::Put {
                name,
                file,
                content_type,
                ..
            },
            Some(session),
        ) => {
            let stored = put(
                runtime_session,
                &session,
                name,
                file,
                content_type.as_deref(),
            )
            .await?;
            if json {
                print::json(&stored)?
            } else {
                show::stored(&stored)?
            }
        }
        (A::Edit { name, old, new, .. }, Some(session)) => {
            let request = EditArtifact {
                session_id: session.clone(),
                name: name.clone(),
                body: EditBody {
                    old: old.clone(),
                    new: new.clone(),
                },
            };
            let edited = runtime_session
                .request(async |client| client.call(request.clone()).await)
                .await?;
            if json {
                print::json(&edited)?
            } else {
                show::edited(name, &edited)?
            }
        }
        (A::Delete { name, .. }, Some(session)) => {
            let (artifact, versions) = delete(runtime_session, &session, name).await?;
            show::deleted(context, name, artifact.as_ref(), &versions)?;
        }
        (A::Cleanup { .. }, session) => {
            let request = cleanup_request(options, session);
            let report = runtime_session
                .request(async |client| client.call(request.clone()).await)
                .await?;
            show::cleaned(context, &report)?;
            if !report.failed.is_empty() {
                let what = format!("could not delete {} of the artifacts", report.failed.len());
                return Err(Failure::new(
                    Exit::Failed,
                    what,
                    "The list shows the reasons. Try again.",
                ));
            }
        }
        _ => unreachable!("all others only read, or have a session"),
    }
    Ok(Exit::Success)
}

/// Stores a file or standard input (`-`) as an artifact. A content type that is not given is
/// guessed.
async fn put(
    runtime_session: &mut RuntimeSession<'_>,
    session: &SessionId,
    name: &str,
    file: &Path,
    content_type: Option<&str>,
) -> Result<Stored, Failure> {
    let guessed = || {
        file::content_type(file)
            .or_else(|| file::content_type(name))
            .unwrap_or_else(|| file::detect_content_type(file))
    };
    let content_type = content_type.unwrap_or_else(guessed);
    let input = Cell::new(Some(tokio::io::stdin()));
    runtime_session
        .request(async |client| {
            let bytes = match (file == Path::new("-"), input.take()) {
                (true, Some(input)) => file::read_chunks(input),
                // The first attempt has consumed standard input, so the upload cannot be repeated.
                (true, None) => {
                    return Err(ErrorInfo::new(
                        ErrorCode::Closing,
                        "the owner process of the home has exited",
                    ));
                }
                (false, _) => {
                    let file = tokio::fs::File::open(file)
                        .await
                        .map_err(|error| unreadable_file(file, &error))?;
                    file::read_chunks(file)
                }
            };
            let request = PutArtifact {
                session_id: session.clone(),
                name: name.to_owned(),
            };
            let upload = Upload {
                content_type: content_type.to_owned(),
                bytes,
            };
            client.put_artifact(request, upload).await
        })
        .await
}

/// Deletes an artifact. Returns its record, if it is listed, and its versions.
async fn delete(
    runtime_session: &mut RuntimeSession<'_>,
    session: &SessionId,
    name: &str,
) -> Result<(Option<Artifact>, Vec<ArtifactVersion>), Failure> {
    let list = ListArtifacts {
        session_id: session.clone(),
    };
    let versions = ListVersions {
        session_id: session.clone(),
        name: name.to_owned(),
    };
    let deletion = DeleteArtifact {
        session_id: session.clone(),
        name: name.to_owned(),
    };
    runtime_session
        .request(async |client| {
            // The text is not read: it may be the part that is missing.
            let versions = client.call(versions.clone()).await?;
            let all = client.call(list.clone()).await?;
            client.call(deletion.clone()).await?;
            let is_it = |one: &Artifact| one.key() == name || one.artifact_id.as_str() == name;
            Ok((all.artifacts.into_iter().find(is_it), versions.versions))
        })
        .await
}

fn unreadable_file(path: &Path, error: &std::io::Error) -> ErrorInfo {
    let message = format!("{} cannot be read: {error}", path.display());
    ErrorInfo::new(ErrorCode::FileNotFound, message)
}

/// Reads the configuration, which says where artifact bytes are stored, and opens the source of the
/// records.
async fn open_source(context: &Context<'_>) -> Result<(Settings, Source), Failure> {
    let settings = config::read(&context.global, &context.home()?)?;
    Ok((settings, context.source().await?))
}

/// Opens the artifacts of the selected session. Prints which session it is if neither a session nor
/// an artifact was named.
async fn open(
    context: &Context<'_>,
    of: &cli::SessionArg,
    name: Option<&str>,
) -> Result<SessionArtifacts, Failure> {
    let (settings, source) = open_source(context).await?;
    let owner = select_session(&source, of, name).await?;
    if of.session.is_none() && name.is_none() && !context.global.json {
        let line = match owner.session_id.as_str() {
            ArtifactOwner::NO_SESSION => "no sessions: only artifacts of the user".to_owned(),
            session => format!("session {session} (last session of this project)"),
        };
        print::line_or_stderr(context.terminal, TextStyle::Dim, &line)?;
    }
    let client = source.client_with_artifacts(&settings.config.artifacts, &context.environment)?;
    Ok(SessionArtifacts {
        client,
        session_id: owner.session_id,
    })
}

/// Selects the session: the named one, else the last one of the project. For an artifact of the
/// user, any session will do, and none is needed if there are no sessions.
async fn select_session(
    source: &Source,
    of: &cli::SessionArg,
    name: Option<&str>,
) -> Result<ArtifactOwner, Failure> {
    let of_session = |session: Session| ArtifactOwner {
        session_id: session.session_id,
        uid: session.uid,
    };
    if let Some(id) = &of.session {
        return source.session(id).await.map(of_session);
    }
    let project = folder(None)?;
    let sessions = source.client().sessions(false).await?;
    let is_users = name.is_some_and(|name| name.starts_with(USER_PREFIX));
    if sessions.is_empty() && (is_users || name.is_none()) {
        return Ok(ArtifactOwner::of_user(LOCAL));
    }
    let any = sessions
        .iter()
        .filter(|_| is_users)
        .max_by_key(|session| session.updated_at)
        .cloned();
    continued::last_session_of(sessions, &project)
        .or(any)
        .map(of_session)
        .ok_or_else(|| {
            let what = format!(
                "this home has no session of the project {}",
                project.display()
            );
            Failure::new(
                Exit::NotFound,
                what,
                "Give one with --session ID; see `soong sessions list`.",
            )
        })
}

/// Returns the session that a cleanup is limited to.
async fn cleanup_session(
    source: &Source,
    options: &cli::Artifacts,
) -> Result<Option<SessionId>, Failure> {
    match options {
        cli::Artifacts::Cleanup {
            session: Some(session),
            ..
        } => Ok(Some(source.exact_session(session).await?.session_id)),
        _ => Ok(None),
    }
}

/// Builds the cleanup request from the options.
fn cleanup_request(options: &cli::Artifacts, session_id: Option<SessionId>) -> CleanUpArtifacts {
    let cli::Artifacts::Cleanup {
        yes,
        all,
        older_than,
        max_bytes,
        ..
    } = options
    else {
        unreachable!("called for a cleanup");
    };
    let cleanup = Cleanup {
        session_id,
        uid: None,
        dry_run: !yes,
        include_all: *all,
        older_than_ms: older_than.map(|age| u64::try_from(age.as_millis()).unwrap_or(u64::MAX)),
        max_bytes: *max_bytes,
    };
    CleanUpArtifacts {
        body: cleanup.into(),
    }
}

/// Writes bytes to a file and reports it.
async fn save(
    context: &Context<'_>,
    name: &str,
    path: &Path,
    content: Download,
) -> Result<(), Failure> {
    let interrupt = Interrupt::listen();
    let size = tokio::select! {
        size = file::write(path, content.body) => size?,
        () = interrupt.first() => {
            let what = format!("interrupted; {} is unchanged", path.display());
            return Err(Failure::new(Exit::Interrupted, what, "Try again."));
        }
    };
    if context.global.json {
        return print::json(&json!({ "name": name, "path": path, "size": size }));
    }
    show::written(context, name, path, size)
}

/// Writes bytes to standard output: unchanged to a pipe or file, and only text to a terminal.
async fn write_to_stdout(
    context: &Context<'_>,
    name: &str,
    mut content: Download,
) -> Result<(), Failure> {
    if context.terminal.has_stdout {
        if !is_text(&content.content_type) {
            let what = format!(
                "{name} is {}, not text, and is not printed on a terminal",
                content.content_type
            );
            return Err(Failure::usage(what, "Use -o FILE, or redirect the output."));
        }
        let pieces: Vec<bytes::Bytes> = content.body.try_collect().await?;
        return print::line(
            text::safe_block(&String::from_utf8_lossy(&pieces.concat())).trim_end_matches('\n'),
        );
    }
    let mut out = std::io::stdout();
    while let Some(piece) = content.body.next().await {
        out.write_all(&piece?)
            .map_err(|error| print::stdout_failure(&error))?;
    }
    out.flush().map_err(|error| print::stdout_failure(&error))
}
