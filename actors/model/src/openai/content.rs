//! Content of messages in the form of chat completions: text, or a list of parts.
//!
//! Only user messages may contain images and files. Those of tool results follow the results in a user message of their
//! own. A file whose bytes are not part of the request is described in text.
//!
//! Elsewhere: which files are loaded (`soong`, by what the model takes).

use std::{borrow::Cow, fmt};

use serde::{Serialize, Serializer};
use soong_protocol::{ContentPart, InputKind, Message, PartFile, Role};

use crate::ModelRequest;

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
    Text { text: Cow<'a, str> },
    ImageUrl { image_url: Url<'a> },
    File { file: FileData<'a> },
    InputAudio { input_audio: Audio<'a> },
}

#[derive(Serialize)]
pub(super) struct Url<'a> {
    url: DataUrl<'a>,
}

/// A `data:` URL, which is written without a copy of the data.
pub(super) struct DataUrl<'a> {
    content_type: &'a str,
    data: &'a str,
}

impl fmt::Display for DataUrl<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "data:{};base64,{}", self.content_type, self.data)
    }
}

impl Serialize for DataUrl<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
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
            return Self::Parts(parts.iter().flat_map(|part| Part::of(part, request)).collect());
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

    /// Returns the content of a user message with the files of tool results. `None` if there are none.
    pub(super) fn of_tool_files(files: &[&'a PartFile], request: &'a ModelRequest) -> Option<Self> {
        let files = files.iter().filter(|file| request.files.contains_key(&file.artifact_id));
        let mut parts: Vec<Part<'a>> = files.flat_map(|file| Part::of_file(file, request)).collect();
        if parts.is_empty() {
            return None;
        }
        parts.insert(0, Part::Text { text: TOOL_FILES.into() });
        Some(Self::Parts(parts))
    }
}

impl<'a> Part<'a> {
    fn of(part: &'a ContentPart, request: &'a ModelRequest) -> Vec<Self> {
        match part {
            ContentPart::Text { text } => vec![Self::Text { text: text.as_str().into() }],
            ContentPart::Image(file) | ContentPart::File(file) => Self::of_file(file, request),
            // Requests of runs contain stored files only.
            ContentPart::Inline(_) => vec![Self::Text { text: format!("[{}; not shown]", part.description()).into() }],
        }
    }

    /// Returns the part of a file, and a text if the model must know that it was scaled.
    fn of_file(file: &'a PartFile, request: &'a ModelRequest) -> Vec<Self> {
        let Some(data) = request.files.get(&file.artifact_id) else {
            return vec![Self::Text { text: placeholder(file).into() }];
        };
        let note = file.scaled_from.map(|_| Self::Text { text: format!("[{}]", file.description()).into() });
        [Self::of_data(file, data)].into_iter().chain(note).collect()
    }

    fn of_data(file: &'a PartFile, data: &'a str) -> Self {
        let url = DataUrl { content_type: &file.content_type, data };
        match file.kind() {
            Some(InputKind::Image) => Self::ImageUrl { image_url: Url { url } },
            Some(InputKind::Audio) => {
                let format = if file.content_type.contains("wav") { "wav" } else { "mp3" };
                Self::InputAudio { input_audio: Audio { data, format } }
            }
            _ => {
                let filename = file.filename.as_deref().unwrap_or("file.pdf");
                Self::File { file: FileData { filename, file_data: url } }
            }
        }
    }
}

/// Returns the text that replaces a file that the model does not receive.
fn placeholder(file: &PartFile) -> String {
    format!("[{}; not shown]", file.description())
}
