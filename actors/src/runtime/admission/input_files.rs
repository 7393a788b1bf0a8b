//! Images and files of a request: checked against the model of the run, then stored in the session
//! of the run.

use soong_protocol::{
    ArtifactId, ArtifactSource, ContentPart, ErrorInfo, MessageContent, Provenance, SessionWrite,
    TraceId, Write,
};
use soong_tool::artifact::ArtifactOwner;

use super::MAX_NAME_CHARS;
use crate::{
    message_files::MessageFiles,
    runtime::{RunRequest, Runtime, SessionSpec},
};

/// Files that were stored for a request.
#[derive(Default)]
pub(super) struct StoredInput {
    owner: Option<ArtifactOwner>,
    artifacts: Vec<ArtifactId>,
}

impl Runtime {
    /// Stores the images and files of a request. The session is created if it does not exist.
    /// Afterwards, the request refers to stored files only.
    ///
    /// The request and its files are checked first, so that nothing is stored for a request that
    /// cannot run. If the session rejects the run,
    /// [`discard_input_files`](Self::discard_input_files) deletes them.
    pub(super) async fn store_input_files(
        &self,
        start: &mut RunRequest,
    ) -> Result<StoredInput, ErrorInfo> {
        if contents(start).all(|content| content.parts().is_empty()) {
            return Ok(StoredInput::default());
        }
        let services = &self.inner.services;
        let (request, _) = self.prepare(start.clone()).await?;
        self.ensure_gateways(&request.run).await?;
        let limits = services
            .resolver
            .resolve(&request.run, &request.project_dir)?
            .model
            .input;
        contents(start).try_for_each(|content| limits.check_content(content))?;
        let session_id = request.run.session_id.clone();
        let artifacts = services.core.artifacts.clone();
        let owner = ArtifactOwner {
            session_id: session_id.clone(),
            uid: request.run.uid.clone(),
        };
        let files = MessageFiles {
            artifacts: &artifacts,
            owner: owner.clone(),
        };
        let message = match start.message.take() {
            Some(content) => Some(files.fit(content, &limits).await?),
            None => None,
        };
        let mut given = Vec::with_capacity(start.messages.len());
        for message in &mut start.messages {
            given.push(
                files
                    .fit(std::mem::take(&mut message.content), &limits)
                    .await?,
            );
        }
        if matches!(
            request.rows.first(),
            Some(Write::Session(SessionWrite::Create(_)))
        ) {
            let task = crate::run::one_line(&request.run.task);
            let name = start
                .session
                .name
                .clone()
                .or_else(|| Some(soong_text::shorten(&task, MAX_NAME_CHARS)));
            let session = SessionSpec {
                session_id: Some(session_id.to_string()),
                name,
                ..start.session.clone()
            };
            self.sessions().create(session).await?;
        }
        start.session.session_id = Some(session_id.to_string());
        let provenance = Provenance {
            trace_id: Some(TraceId::root(&session_id)),
            ..Provenance::default()
        };
        let mut stored = StoredInput {
            owner: Some(owner),
            artifacts: Vec::new(),
        };
        let source = ArtifactSource::UserUpload;
        let ids = &mut stored.artifacts;
        if let Some(content) = message {
            start.message = Some(files.save(content, source, &provenance, ids).await?);
        }
        for (message, content) in start.messages.iter_mut().zip(given) {
            message.content = files.save(content, source, &provenance, ids).await?;
        }
        Ok(stored)
    }

    /// Deletes the files of a request that was rejected after they were stored.
    pub(super) async fn discard_input_files(&self, stored: StoredInput) {
        let Some(owner) = stored.owner else { return };
        let artifacts = self.inner.services.core.artifacts.clone();
        MessageFiles {
            artifacts: &artifacts,
            owner,
        }
        .discard(&stored.artifacts)
        .await;
    }
}

fn contents(start: &RunRequest) -> impl Iterator<Item = &MessageContent> {
    let messages = start.messages.iter().map(|message| &message.content);
    start.message.iter().chain(messages)
}

/// Returns the text of a task: that of its message, or the description of its first file.
pub(super) fn task_text(content: &MessageContent) -> String {
    match content
        .parts()
        .iter()
        .find(|part| !matches!(part, ContentPart::Text { .. }))
    {
        Some(part) if content.trim().is_empty() => part.description(),
        _ => content.to_string(),
    }
}
