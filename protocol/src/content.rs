//! Content of a message: text, or a list of parts with images and files.
//!
//! The bytes of images and files are artifacts of the session. A part describes the artifact well
//! enough to stand in for it when the artifact was deleted or a model does not take its kind.

mod json;

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{SeqAccess, Visitor},
};

use crate::ArtifactId;

/// Kind of content that a model may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InputKind {
    /// Text. Every model takes it.
    Text,
    /// PNG, JPEG, GIF or WebP images.
    Image,
    /// PDF documents.
    Pdf,
    /// Audio: WAV or MP3.
    Audio,
}

impl InputKind {
    /// Returns the kind of a content type, without its parameters. `None` if no model takes it.
    pub fn of_content_type(content_type: &str) -> Option<Self> {
        let essence = content_type.split(';').next().unwrap_or_default().trim();
        match essence.to_ascii_lowercase().as_str() {
            "image/png" | "image/jpeg" | "image/jpg" | "image/gif" | "image/webp" => {
                Some(Self::Image)
            }
            "application/pdf" => Some(Self::Pdf),
            "audio/wav" | "audio/x-wav" | "audio/mpeg" | "audio/mp3" => Some(Self::Audio),
            _ => None,
        }
    }

    /// Returns the name of the kind in settings.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Image => "image",
            Self::Pdf => "pdf",
            Self::Audio => "audio",
        }
    }
}

/// Returns the content type of an image, PDF document or audio file by its first bytes.
pub fn media_type(head: &[u8]) -> Option<&'static str> {
    let riff = head.strip_prefix(b"RIFF").and_then(|rest| rest.get(4..8));
    match head {
        _ if riff == Some(b"WEBP") => Some("image/webp"),
        _ if riff == Some(b"WAVE") => Some("audio/wav"),
        [b'\x89', b'P', b'N', b'G', ..] => Some("image/png"),
        [0xff, 0xd8, 0xff, ..] => Some("image/jpeg"),
        _ if head.starts_with(b"GIF87a") || head.starts_with(b"GIF89a") => Some("image/gif"),
        [b'%', b'P', b'D', b'F', b'-', ..] => Some("application/pdf"),
        [b'I', b'D', b'3', ..] if head.contains(&0) => Some("audio/mpeg"),
        _ => None,
    }
}

impl std::fmt::Display for InputKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A part of the content of a message. Its JSON forms are in the submodule `json`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ContentPart {
    /// Text.
    Text {
        /// The text.
        text: String,
    },
    /// An image.
    Image(PartFile),
    /// A PDF document or audio.
    File(PartFile),
    /// An image or file that is not stored yet. Only requests contain it: the runtime stores the
    /// bytes as an artifact before it accepts the request.
    Inline(InlineFile),
}

/// The stored bytes of a part. A request needs to contain only `artifact_id`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartFile {
    /// Artifact of the session with the bytes. In a message, it has no name and one version.
    pub artifact_id: ArtifactId,
    /// MIME type of the bytes.
    #[serde(default)]
    pub content_type: String,
    /// Number of bytes.
    #[serde(default)]
    pub size: u64,
    /// Name of the file that was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filename: Option<String>,
    /// Width of an image, in pixels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub width: Option<u32>,
    /// Height of an image, in pixels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub height: Option<u32>,
    /// Width and height of the image before it was scaled down for the model. Absent if it was not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scaled_from: Option<(u32, u32)>,
}

/// Bytes that a caller gives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InlineFile {
    /// MIME type of the bytes.
    pub content_type: String,
    /// Name of the file.
    pub filename: Option<String>,
    /// The bytes.
    pub bytes: Vec<u8>,
}

impl ContentPart {
    /// Makes a part of bytes.
    pub fn inline(
        content_type: impl Into<String>,
        filename: Option<String>,
        bytes: impl Into<Vec<u8>>,
    ) -> Self {
        Self::Inline(InlineFile {
            content_type: content_type.into(),
            filename,
            bytes: bytes.into(),
        })
    }

    /// Makes a text part.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text { text: text.into() }
    }

    /// Makes the part of a file: an image if its content type is one, else a file.
    pub fn of_file(file: PartFile) -> Self {
        match file.kind() {
            Some(InputKind::Image) => Self::Image(file),
            _ => Self::File(file),
        }
    }

    /// Describes the part in one line. For a text, returns the text.
    pub fn description(&self) -> String {
        match self {
            Self::Text { text } => text.clone(),
            Self::Image(file) | Self::File(file) => file.description(),
            Self::Inline(InlineFile {
                content_type,
                filename,
                bytes,
            }) => {
                let name = filename
                    .as_deref()
                    .map(|name| format!("{name}, "))
                    .unwrap_or_default();
                format!("{name}{content_type}, {} bytes", bytes.len())
            }
        }
    }

    /// Returns the stored file of an image or file part.
    pub fn file(&self) -> Option<&PartFile> {
        match self {
            Self::Text { .. } | Self::Inline(_) => None,
            Self::Image(file) | Self::File(file) => Some(file),
        }
    }
}

impl PartFile {
    /// Returns the kind of the content. `None` if no model takes it.
    pub fn kind(&self) -> Option<InputKind> {
        InputKind::of_content_type(&self.content_type)
    }

    /// Describes the file in one line, such as `image plan.png, image/png, 800x600, 12345 bytes`.
    pub fn description(&self) -> String {
        let kind = match self.kind() {
            Some(InputKind::Image) => "image",
            Some(InputKind::Audio) => "audio",
            _ => "file",
        };
        let name = self
            .filename
            .as_deref()
            .map(|name| format!(" {name}"))
            .unwrap_or_default();
        let pixels = self
            .width
            .zip(self.height)
            .map(|(width, height)| format!(", {width}x{height}"));
        let scaled = self
            .scaled_from
            .map(|(width, height)| format!(" (scaled from {width}x{height})"));
        let pixels = pixels.unwrap_or_default();
        let scaled = scaled.unwrap_or_default();
        format!(
            "{kind}{name}, {}{pixels}{scaled}, {} bytes",
            self.content_type, self.size
        )
    }
}

/// Content of a message. Dereferences to its text.
///
/// The JSON form is a string if the content is only text, else a list of parts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MessageContent {
    /// Texts of all parts, joined by line feeds.
    text: String,
    /// All parts in order, text included. Empty if the content is only text.
    parts: Vec<ContentPart>,
}

impl MessageContent {
    /// Makes content of parts.
    pub fn from_parts(parts: Vec<ContentPart>) -> Self {
        let texts = parts.iter().filter_map(|part| match part {
            ContentPart::Text { text } => Some(text.as_str()),
            ContentPart::Image(_) | ContentPart::File(_) | ContentPart::Inline(_) => None,
        });
        let text = texts.collect::<Vec<_>>().join("\n");
        let has_files = parts
            .iter()
            .any(|part| !matches!(part, ContentPart::Text { .. }));
        Self {
            text,
            parts: if has_files { parts } else { Vec::new() },
        }
    }

    /// Adds a part at the end.
    pub fn push(&mut self, part: ContentPart) {
        if self.parts.is_empty() && !self.text.is_empty() {
            self.parts
                .push(ContentPart::text(std::mem::take(&mut self.text)));
        }
        self.parts.push(part);
        *self = Self::from_parts(std::mem::take(&mut self.parts));
    }

    /// Returns the content with descriptions in place of images and files.
    #[must_use]
    pub fn without_files(self) -> Self {
        if self.parts.is_empty() {
            return self;
        }
        let described = |part: ContentPart| match part {
            ContentPart::Text { .. } => part,
            _ => ContentPart::text(format!("[{}; not shown]", part.description())),
        };
        Self::from_parts(self.parts.into_iter().map(described).collect())
    }

    /// Returns the parts in order, text included; none for plain text.
    pub fn parts(&self) -> &[ContentPart] {
        &self.parts
    }

    /// Returns the images and files.
    pub fn files(&self) -> impl Iterator<Item = &PartFile> {
        self.parts.iter().filter_map(ContentPart::file)
    }

    /// Returns the parts in order, text included; none for plain text.
    pub fn into_parts(self) -> Vec<ContentPart> {
        self.parts
    }

    /// Returns whether there is neither text nor an image or file.
    pub fn is_blank(&self) -> bool {
        self.parts.is_empty() && self.text.trim().is_empty()
    }

    /// Returns the text, without images and files.
    pub fn into_text(self) -> String {
        self.text
    }

    /// Returns the text.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Inserts text at the beginning.
    pub fn prepend(&mut self, text: &str) {
        self.text.insert_str(0, text);
        match self.parts.first_mut() {
            Some(ContentPart::Text { text: first }) => first.insert_str(0, text),
            Some(_) => {
                self.parts.insert(0, ContentPart::text(text));
                *self = Self::from_parts(std::mem::take(&mut self.parts));
            }
            None => {}
        }
    }

    /// Appends text.
    pub fn push_str(&mut self, text: &str) {
        self.text.push_str(text);
        match self.parts.last_mut() {
            Some(ContentPart::Text { text: last }) => last.push_str(text),
            Some(_) => {
                self.parts.push(ContentPart::text(text));
                *self = Self::from_parts(std::mem::take(&mut self.parts));
            }
            None => {}
        }
    }

    /// Calls `change` for the text of each part and for each file name.
    pub fn change_texts(&mut self, mut change: impl FnMut(&mut String)) {
        if self.parts.is_empty() {
            return change(&mut self.text);
        }
        for part in &mut self.parts {
            match part {
                ContentPart::Text { text } => change(text),
                ContentPart::Image(PartFile { filename, .. })
                | ContentPart::File(PartFile { filename, .. })
                | ContentPart::Inline(InlineFile { filename, .. }) => {
                    filename.iter_mut().for_each(&mut change)
                }
            }
        }
        *self = Self::from_parts(std::mem::take(&mut self.parts));
    }
}

impl std::ops::Deref for MessageContent {
    type Target = str;

    fn deref(&self) -> &str {
        &self.text
    }
}

impl std::fmt::Display for MessageContent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

impl From<String> for MessageContent {
    fn from(text: String) -> Self {
        Self {
            text,
            parts: Vec::new(),
        }
    }
}

impl From<&String> for MessageContent {
    fn from(text: &String) -> Self {
        text.as_str().into()
    }
}

impl From<&str> for MessageContent {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}

impl PartialEq<str> for MessageContent {
    fn eq(&self, text: &str) -> bool {
        self.parts.is_empty() && self.text == text
    }
}

impl PartialEq<&str> for MessageContent {
    fn eq(&self, text: &&str) -> bool {
        self == *text
    }
}

impl PartialEq<String> for MessageContent {
    fn eq(&self, text: &String) -> bool {
        self == text.as_str()
    }
}

impl Serialize for MessageContent {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.parts.is_empty() {
            self.text.serialize(serializer)
        } else {
            self.parts.serialize(serializer)
        }
    }
}

impl<'de> Deserialize<'de> for MessageContent {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextOrParts;
        impl<'de> Visitor<'de> for TextOrParts {
            type Value = MessageContent;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a string or a list of parts")
            }

            fn visit_str<E>(self, text: &str) -> Result<MessageContent, E> {
                Ok(text.into())
            }

            fn visit_string<E>(self, text: String) -> Result<MessageContent, E> {
                Ok(text.into())
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<MessageContent, A::Error> {
                let mut parts = Vec::new();
                while let Some(part) = list.next_element()? {
                    parts.push(part);
                }
                Ok(MessageContent::from_parts(parts))
            }
        }
        deserializer.deserialize_any(TextOrParts)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn image() -> PartFile {
        PartFile {
            artifact_id: ArtifactId::new("a1"),
            content_type: "image/png".to_owned(),
            size: 12,
            filename: Some("plan.png".to_owned()),
            width: Some(8),
            height: Some(6),
            scaled_from: None,
        }
    }

    #[test]
    fn content_is_a_string_or_a_list() {
        let parts = vec![
            ContentPart::text("See"),
            ContentPart::of_file(image()),
            ContentPart::text("this."),
        ];
        let content = MessageContent::from_parts(parts);
        let json = json!([
            {"type": "text", "text": "See"},
            {"type": "image", "artifact_id": "a1", "content_type": "image/png", "size": 12, "filename": "plan.png",
             "width": 8, "height": 6},
            {"type": "text", "text": "this."},
        ]);
        assert_eq!(serde_json::to_value(&content).unwrap(), json);
        assert_eq!(
            serde_json::from_value::<MessageContent>(json).unwrap(),
            content
        );
        assert_eq!(content.as_str(), "See\nthis.");
        let text: MessageContent =
            serde_json::from_value(json!([{"type": "text", "text": "a"}])).unwrap();
        assert_eq!(text, "a");
        assert_eq!(serde_json::to_value(text).unwrap(), json!("a"));
    }

    #[test]
    fn changed_texts_stay_the_same_in_both_forms() {
        for parts in [
            vec![],
            vec![ContentPart::of_file(image())],
            vec![ContentPart::text("a"), ContentPart::of_file(image())],
            vec![ContentPart::of_file(image()), ContentPart::text("a")],
            vec![
                ContentPart::text("a"),
                ContentPart::of_file(image()),
                ContentPart::text("b"),
            ],
        ] {
            let mut content = MessageContent::from_parts(parts);
            content.prepend("<");
            content.push_str(">");
            content.change_texts(|text| *text = text.replace('a', "b"));
            if !content.parts().is_empty() {
                assert_eq!(
                    content,
                    MessageContent::from_parts(content.parts().to_vec())
                );
            }
            assert!(
                content.starts_with('<') && content.ends_with('>') && !content.contains('a'),
                "{content:?}"
            );
        }
    }

    #[test]
    fn description_names_the_file_and_its_size() {
        assert_eq!(
            image().description(),
            "image plan.png, image/png, 8x6, 12 bytes"
        );
        let scaled = PartFile {
            scaled_from: Some((80, 60)),
            ..image()
        };
        assert_eq!(
            scaled.description(),
            "image plan.png, image/png, 8x6 (scaled from 80x60), 12 bytes"
        );
        let pdf = PartFile {
            content_type: "application/pdf".to_owned(),
            width: None,
            filename: None,
            ..image()
        };
        assert_eq!(pdf.description(), "file, application/pdf, 12 bytes");
    }
}
