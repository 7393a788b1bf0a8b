//! Texts and files of a message, as a model receives them.
//!
//! A file whose bytes are not part of the request is described in text. A scaled image is followed
//! by a note.
//!
//! Elsewhere: loading the files that the model takes (`actors/src/message_files.rs`).

use std::{borrow::Cow, fmt};

use serde::{Serialize, Serializer};
use soong_protocol::{ContentPart, Message, PartFile};

use crate::ModelRequest;

/// A part of a message. The bytes of a file are in base64.
pub(crate) enum InputPart<'a> {
    Text(Cow<'a, str>),
    File { file: &'a PartFile, data: &'a str },
}

impl<'a> InputPart<'a> {
    /// Returns the parts of a message, in order. One text if it has no files.
    pub(crate) fn of_message(message: &'a Message, request: &'a ModelRequest) -> Vec<Self> {
        match message.content.parts() {
            [] => vec![Self::Text(message.content.as_str().into())],
            parts => parts
                .iter()
                .flat_map(|part| Self::of(part, request))
                .collect(),
        }
    }

    fn of(part: &'a ContentPart, request: &'a ModelRequest) -> Vec<Self> {
        match part {
            ContentPart::Text { text } => vec![Self::Text(text.as_str().into())],
            ContentPart::Image(file) | ContentPart::File(file) => Self::of_file(file, request),
            // Requests of runs contain stored files only.
            ContentPart::Inline(_) => vec![Self::Text(
                format!("[{}; not shown]", part.description()).into(),
            )],
        }
    }

    /// Returns the part of a file, and a text if the model must know that it was scaled.
    pub(crate) fn of_file(file: &'a PartFile, request: &'a ModelRequest) -> Vec<Self> {
        let Some(data) = request.files.get(&file.artifact_id) else {
            return vec![Self::Text(placeholder(file).into())];
        };
        let note = file
            .scaled_from
            .map(|_| Self::Text(format!("[{}]", file.description()).into()));
        [Self::File { file, data }]
            .into_iter()
            .chain(note)
            .collect()
    }
}

/// Returns the text that replaces a file that the model does not receive.
pub(crate) fn placeholder(file: &PartFile) -> String {
    format!("[{}; not shown]", file.description())
}

/// A `data:` URL, which is written without a copy of the data.
pub(crate) struct DataUrl<'a> {
    pub(crate) content_type: &'a str,
    pub(crate) data: &'a str,
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
