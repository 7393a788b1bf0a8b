//! Moves the head of a conversation: to before one of the user's messages, to any message, or to a
//! copy of the session.

use soong::protocol::{
    Message, SessionId, TraceId,
    api::{
        ForkBody, HeadBody, MessageQuery,
        operation::{ForkSession, ReadMessages, SwitchHead},
    },
};
use soong_tui::{format, text};

use super::{
    conversation::{Conversation, NO_MESSAGES},
    file_changes::ChangesAfter,
};
use crate::{
    command::{
        runtime_session::RuntimeSession,
        sessions::{describe_head, refused},
    },
    exit::Failure,
    input::InputLine,
    print,
};

/// Maximum number of messages that are offered to go back to.
const MAX_LISTED_MESSAGES: usize = 20;
/// Maximum width of a message in that list, in columns.
const MESSAGE_COLUMNS: usize = 70;

/// Parts that go back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scope {
    Conversation,
    Files,
    Both,
}

impl Scope {
    fn parse(answer: &str) -> Option<Self> {
        match answer.trim() {
            "c" | "conversation" => Some(Self::Conversation),
            "f" | "files" => Some(Self::Files),
            "b" | "both" => Some(Self::Both),
            _ => None,
        }
    }
}

impl Conversation<'_> {
    /// Continues from another message of the session.
    pub(super) async fn switch_head(
        &self,
        runtime_session: &RuntimeSession<'_>,
        sequence: u64,
    ) -> Result<(), Failure> {
        let Some(session) = &self.next_request.session_id else {
            return print::line(NO_MESSAGES);
        };
        let head = runtime_session
            .client()
            .call(SwitchHead {
                session_id: SessionId::new(session.as_str()),
                body: HeadBody { sequence },
            })
            .await
            .map_err(|error| refused(session, error))?;
        describe_head("the conversation", &head)
            .iter()
            .try_for_each(|line| print::line(line))
    }

    /// Continues in a copy of the session, up to a message.
    pub(super) async fn fork(
        &mut self,
        runtime_session: &RuntimeSession<'_>,
        at_sequence: Option<u64>,
    ) -> Result<(), Failure> {
        let Some(session) = &self.next_request.session_id else {
            return print::line(NO_MESSAGES);
        };
        let body = ForkBody {
            at_sequence,
            ..ForkBody::default()
        };
        let made = runtime_session
            .client()
            .call(ForkSession {
                session_id: SessionId::new(session.as_str()),
                body,
            })
            .await
            .map_err(|error| refused(session, error))?;
        let before = runtime_session
            .session_name(&SessionId::new(session.as_str()))
            .await;
        let now = made.session.short_name();
        print::line(&text::safe_line(&format!(
            "continuing in session {now}; {before} is unchanged"
        )))?;
        self.next_request.session_id = Some(made.session.session_id.to_string());
        Ok(())
    }

    /// Asks the user for an earlier message, and goes back to before it.
    pub(super) async fn go_back(
        &mut self,
        runtime_session: &RuntimeSession<'_>,
    ) -> Result<(), Failure> {
        let messages = self.messages(runtime_session).await?;
        let own: Vec<&Message> = messages
            .iter()
            .filter(|message| is_users(message))
            .collect();
        if own.is_empty() {
            return print::line(NO_MESSAGES);
        }
        let hidden = own.len().saturating_sub(MAX_LISTED_MESSAGES);
        for message in &own[hidden..] {
            let line = text::safe_line(&message.content.to_string());
            print::line(&format!(
                "{:>5}  {}",
                message.sequence,
                text::cut(&line, MESSAGE_COLUMNS, "...")
            ))?;
        }
        let answer = self
            .input
            .next("number of the message to edit (Enter: none): ", "")
            .await?;
        let InputLine::Line(answer) = answer else {
            return Ok(());
        };
        let answer = answer.trim();
        if answer.is_empty() {
            return Ok(());
        }
        match own
            .iter()
            .find(|message| message.sequence.to_string() == answer)
        {
            Some(message) => {
                self.go_back_before(runtime_session, message, &messages)
                    .await
            }
            None => print::line("enter one of the listed numbers"),
        }
    }

    /// Takes the last message of the user back.
    pub(super) async fn undo(
        &mut self,
        runtime_session: &RuntimeSession<'_>,
    ) -> Result<(), Failure> {
        let messages = self.messages(runtime_session).await?;
        match messages.iter().rfind(|message| is_users(message)) {
            Some(last) => self.go_back_before(runtime_session, last, &messages).await,
            None => print::line(NO_MESSAGES),
        }
    }

    /// Returns the messages that lead to the head of the session.
    async fn messages(
        &self,
        runtime_session: &RuntimeSession<'_>,
    ) -> Result<Vec<Message>, Failure> {
        let Some(session) = &self.next_request.session_id else {
            return Ok(Vec::new());
        };
        let request = ReadMessages {
            trace_id: TraceId::new(session.as_str()),
            query: MessageQuery::default(),
        };
        Ok(runtime_session.client().call(request).await?.messages)
    }

    /// Goes back to before one of the user's messages. If agents have changed files since, the user
    /// chooses what goes back. `messages`: all messages that lead to the head.
    async fn go_back_before(
        &mut self,
        runtime_session: &RuntimeSession<'_>,
        message: &Message,
        messages: &[Message],
    ) -> Result<(), Failure> {
        let Some(session) = self.next_request.session_id.as_deref().map(SessionId::new) else {
            return Ok(());
        };
        // The files of a server are not those of this machine.
        if !self.input.is_terminal() || self.context.remote.is_some() {
            return self.continue_before(runtime_session, message).await;
        }
        let changes =
            ChangesAfter::read(runtime_session.client(), &session, message.sequence).await?;
        let taken_back = messages
            .iter()
            .filter(|later| later.sequence >= message.sequence)
            .count();
        for line in changes.preview(taken_back, self.next_request.project_dir.as_deref()) {
            print::line(&format!("  {line}"))?;
        }
        let scope = if changes.has_files() {
            self.input
                .next(
                    "go back: b(oth), c(onversation), f(iles), or Enter to cancel: ",
                    "",
                )
                .await?
        } else {
            InputLine::Line("conversation".to_owned())
        };
        let InputLine::Line(answer) = scope else {
            return Ok(());
        };
        let Some(scope) = Scope::parse(&answer) else {
            return print::line("nothing was changed");
        };
        if scope != Scope::Files {
            self.continue_before(runtime_session, message).await?;
        }
        if scope != Scope::Conversation {
            self.revert_files(&changes, scope)?;
        }
        Ok(())
    }

    /// Reverts files. If the conversation continues, the next message says so.
    fn revert_files(&mut self, changes: &ChangesAfter, scope: Scope) -> Result<(), Failure> {
        let reverted = changes.revert();
        print::line(&format!(
            "reverted {}",
            format::plural(reverted.files.len(), "file", "files")
        ))?;
        for (path, why) in &reverted.unchanged {
            print::line(&text::safe_line(&format!(
                "left {} alone: {why}",
                path.display()
            )))?;
        }
        if scope == Scope::Files && !reverted.files.is_empty() {
            let names: Vec<String> = reverted
                .files
                .iter()
                .map(|path| path.display().to_string())
                .collect();
            self.additions.texts.push(format!(
                "I have reverted these files to their content before your changes: {}",
                names.join(", ")
            ));
        }
        match reverted.failure {
            Some(failure) => Err(failure),
            None => Ok(()),
        }
    }

    /// Continues from the message before one of the user's, whose text can be edited and sent
    /// again.
    async fn continue_before(
        &mut self,
        runtime_session: &RuntimeSession<'_>,
        message: &Message,
    ) -> Result<(), Failure> {
        self.switch_head(runtime_session, message.parent_sequence.unwrap_or(0))
            .await?;
        let content = message.content.to_string();
        let typed = self
            .sent
            .iter()
            .find(|(sent, _)| *sent == content)
            .map(|(_, typed)| typed.clone());
        let mut messages = self.typed.lock();
        messages.take_back(usize::MAX);
        messages.put_before(typed.unwrap_or(content));
        Ok(())
    }
}

/// Returns whether the user wrote a message.
fn is_users(message: &Message) -> bool {
    message.is_request() && message.context_update.is_none()
}
