//! Content of messages in the form of chat completions: text, or a list of parts.
//!
//! Only user messages may contain images and files. Those of tool results follow the results in a
//! user message of their own.

use std::borrow::Cow;

use serde::Serialize;
use soong_protocol::{ContentPart, InputKind, Message, PartFile, Role};

use crate::{
    ModelRequest,
    service::{
        cache_breakpoint::CacheBreakpoint,
        parts::{DataUrl, InputPart, placeholder},
    },
};

/// Text before the files of tool results.
const TOOL_FILES: &str = "Files of the tool results above:";

/// Content of a message.
#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum Content<'a> {
    Text(Cow<'a, str>),
    Parts(Vec<Part<'a>>),
}

/// Part of a user message.
#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum Part<'a> {
    Text {
        text: Cow<'a, str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        prompt_cache_breakpoint: Option<CacheBreakpoint>,
    },
    ImageUrl {
        image_url: Url<'a>,
    },
    File {
        file: FileData<'a>,
    },
    InputAudio {
        input_audio: Audio<'a>,
    },
}

#[derive(Serialize)]
pub(super) struct Url<'a> {
    url: DataUrl<'a>,
}

#[derive(Serialize)]
pub(super) struct FileData<'a> {
    filename: &'a str,
    file_data: DataUrl<'a>,
}

#[derive(Serialize)]
pub(super) struct Audio<'a> {
    data: &'a str,
    format: &'static str,
}

impl<'a> Content<'a> {
    /// Returns the content of a message.
    pub(super) fn of(message: &'a Message, request: &'a ModelRequest) -> Self {
        let parts = message.content.parts();
        if parts.is_empty() {
            return Self::Text(message.content.as_str().into());
        }
        if message.role == Role::User {
            return Self::Parts(
                InputPart::of_message(message, request)
                    .into_iter()
                    .map(Part::of)
                    .collect(),
            );
        }
        let lines = parts.iter().filter_map(|part| match part {
            ContentPart::Text { text } => Some(Cow::Borrowed(text.as_str())),
            ContentPart::Image(file) | ContentPart::File(file)
                if message.role == Role::Tool && request.files.contains_key(&file.artifact_id) =>
            {
                Some(format!("[{}; see below]", file.description()).into())
            }
            ContentPart::Image(file) | ContentPart::File(file) => Some(placeholder(file).into()),
            ContentPart::Inline(_) => None,
        });
        Self::Text(lines.collect::<Vec<_>>().join("\n").into())
    }

    /// Returns this content with context of the run after it.
    pub(super) fn with_context(self, context: Option<&'a str>) -> Self {
        match context {
            Some(context) => self.followed_by(Self::Text(context.into())),
            None => self,
        }
    }

    /// Returns this content with other content after it.
    pub(super) fn followed_by(self, next: Self) -> Self {
        match (self, next) {
            (Self::Text(text), Self::Text(next)) => Self::Text(format!("{text}\n\n{next}").into()),
            (content, next) => Self::Parts(
                content
                    .into_parts()
                    .into_iter()
                    .chain(next.into_parts())
                    .collect(),
            ),
        }
    }

    /// Returns this content as a list of parts, unless it is empty. Only parts can carry a
    /// breakpoint.
    pub(super) fn into_list(self) -> Self {
        match self {
            Self::Text(text) if text.is_empty() => Self::Text(text),
            content => Self::Parts(content.into_parts()),
        }
    }

    /// Marks the end of a list as the end of a part that is cached, if a text is at the end.
    pub(super) fn with_breakpoint(mut self) -> Self {
        if let Self::Parts(parts) = &mut self
            && let Some(Part::Text {
                prompt_cache_breakpoint,
                ..
            }) = parts.last_mut()
        {
            *prompt_cache_breakpoint = Some(CacheBreakpoint::EXPLICIT);
        }
        self
    }

    fn into_parts(self) -> Vec<Part<'a>> {
        match self {
            Self::Text(text) => vec![Part::text(text)],
            Self::Parts(parts) => parts,
        }
    }

    /// Returns the content of a user message with the files of tool results. `None` if there are
    /// none.
    pub(super) fn of_tool_files(files: &[&'a PartFile], request: &'a ModelRequest) -> Option<Self> {
        let files = files
            .iter()
            .filter(|file| request.files.contains_key(&file.artifact_id));
        let mut parts: Vec<Part<'a>> = files
            .flat_map(|file| InputPart::of_file(file, request))
            .map(Part::of)
            .collect();
        if parts.is_empty() {
            return None;
        }
        parts.insert(0, Part::text(TOOL_FILES));
        Some(Self::Parts(parts))
    }
}

impl<'a> Part<'a> {
    pub(super) fn text(text: impl Into<Cow<'a, str>>) -> Self {
        Self::Text {
            text: text.into(),
            prompt_cache_breakpoint: None,
        }
    }

    fn of(part: InputPart<'a>) -> Self {
        match part {
            InputPart::Text(text) => Self::text(text),
            InputPart::File { file, data } => Self::of_data(file, data),
        }
    }

    fn of_data(file: &'a PartFile, data: &'a str) -> Self {
        let url = DataUrl {
            content_type: &file.content_type,
            data,
        };
        match file.kind() {
            Some(InputKind::Image) => Self::ImageUrl {
                image_url: Url { url },
            },
            Some(InputKind::Audio) => {
                let format = if file.content_type.contains("wav") {
                    "wav"
                } else {
                    "mp3"
                };
                Self::InputAudio {
                    input_audio: Audio { data, format },
                }
            }
            _ => {
                let filename = file.filename.as_deref().unwrap_or("file.pdf");
                Self::File {
                    file: FileData {
                        filename,
                        file_data: url,
                    },
                }
            }
        }
    }
}
