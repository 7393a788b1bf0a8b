//! Images and files of a request: checked against the model of the run, then stored in the session of the run.

use soong_protocol::{
    ContentPart, ErrorCode, ErrorInfo, MessageContent, Provenance, RunId, SessionWrite, TraceId, Write,
};
use soong_tool::artifact::ArtifactOwner;

use super::MAX_NAME_CHARS;
use crate::{
    message_files::MessageFiles,
    run::ChildSpec,
    runtime::{RunRequest, Runtime, SessionSpec, not_found, services::Services},
};

impl Runtime {
    /// Stores the images and files of a request. The session is created if it does not exist. Afterwards, the request
    /// refers to stored files only.
    ///
    /// The request is checked first, so that nothing is stored for a request that cannot run.
    pub(super) async fn store_input_files(&self, start: &mut RunRequest) -> Result<(), ErrorInfo> {
        if contents(start).all(|content| content.parts().is_empty()) {
            return Ok(());
        }
        let services = &self.inner.services;
        let (request, _) = self.prepare(start.clone()).await?;
        let limits = services.resolver.resolve(&request.run, &request.project_dir)?.model.input;
        contents(start).try_for_each(|content| limits.check_content(content))?;
        let session_id = request.run.session_id.clone();
        if matches!(request.rows.first(), Some(Write::Session(SessionWrite::Create(_)))) {
            let name = start.session.name.clone();
            let name =
                name.or_else(|| Some(soong_text::shorten(&crate::run::one_line(&request.run.task), MAX_NAME_CHARS)));
            let session = SessionSpec { session_id: Some(session_id.to_string()), name, ..start.session.clone() };
            self.sessions().create(session).await?;
        }
        start.session.session_id = Some(session_id.to_string());
        let provenance = Provenance { trace_id: Some(TraceId::root(&session_id)), ..Provenance::default() };
        let owner = ArtifactOwner { session_id, uid: request.run.uid };
        let artifacts = services.artifact_handle();
        let files = MessageFiles { artifacts: &artifacts, owner };
        if let Some(content) = &mut start.message {
            files.store_content(content, &limits, &provenance).await?;
        }
        for message in &mut start.options.messages {
            files.store_content(&mut message.content, &limits, &provenance).await?;
        }
        Ok(())
    }
}

impl Services {
    /// Stores the images and files of the messages of a new child of a run.
    pub(in crate::runtime) async fn store_child_files(
        &self,
        parent: &RunId,
        spec: &mut ChildSpec,
    ) -> Result<(), ErrorInfo> {
        if spec.options.messages.iter().all(|message| message.content.parts().is_empty()) {
            return Ok(());
        }
        let wanted = parent.clone();
        let Some(run) = self.reader.read(move |reader| reader.run(&wanted)).await? else {
            return Err(not_found(ErrorCode::RunNotFound, "run", parent.as_str()));
        };
        let models = &self.resolver.models;
        let (profile, model) = models.split_model(spec.model.as_deref().unwrap_or(&run.settings.model));
        let limits = models.input_limits(profile, &models.model_name(profile, model));
        let provenance = Provenance { trace_id: Some(run.trace_id), ..Provenance::default() };
        let artifacts = self.artifact_handle();
        let owner = ArtifactOwner { session_id: run.session_id, uid: run.uid };
        let files = MessageFiles { artifacts: &artifacts, owner };
        for message in &mut spec.options.messages {
            limits.check_content(&message.content)?;
            files.store_content(&mut message.content, &limits, &provenance).await?;
        }
        Ok(())
    }
}

fn contents(start: &RunRequest) -> impl Iterator<Item = &MessageContent> {
    start.message.iter().chain(start.options.messages.iter().map(|message| &message.content))
}

/// Returns the text of a task: that of its message, or the description of its first file.
pub(super) fn task_text(content: &MessageContent) -> String {
    match content.parts().iter().find(|part| !matches!(part, ContentPart::Text { .. })) {
        Some(part) if content.trim().is_empty() => part.description(),
        _ => content.to_string(),
    }
}
