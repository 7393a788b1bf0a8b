//! JSON forms of parts.
//!
//! Written are `text`, `image` and `file`, whose bytes are an artifact. Read are also the forms in
//! which clients of OpenAI's APIs send bytes: `image_url`, `file` with `file_data` and
//! `input_audio` of chat completions; `input_text`, `input_image` and `input_file` of Responses. An
//! address other than a `data:` URL is rejected, because the runtime does not load what a request
//! names.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

use super::{ContentPart, InlineFile, InputKind, PartFile};
use crate::ArtifactId;

impl Serialize for ContentPart {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        #[serde(rename_all = "snake_case", tag = "type")]
        enum Form<'a> {
            Text {
                text: &'a str,
            },
            Image(&'a PartFile),
            File(&'a PartFile),
            #[serde(rename = "file")]
            Inline {
                file: InlineForm<'a>,
            },
        }
        #[derive(Serialize)]
        struct InlineForm<'a> {
            file_data: String,
            #[serde(skip_serializing_if = "Option::is_none")]
            filename: Option<&'a str>,
        }
        match self {
            Self::Text { text } => Form::Text { text },
            Self::Image(file) => Form::Image(file),
            Self::File(file) => Form::File(file),
            Self::Inline(file) => Form::Inline {
                file: InlineForm {
                    file_data: file.data_url(),
                    filename: file.filename.as_deref(),
                },
            },
        }
        .serialize(serializer)
    }
}

impl InlineFile {
    fn data_url(&self) -> String {
        format!(
            "data:{};base64,{}",
            self.content_type,
            BASE64_STANDARD.encode(&self.bytes)
        )
    }
}

/// All forms of a part.
#[derive(Deserialize)]
#[serde(expecting = "a part: an object with `type`")]
struct AnyForm {
    r#type: String,
    text: Option<String>,
    artifact_id: Option<ArtifactId>,
    #[serde(default)]
    content_type: String,
    #[serde(default)]
    size: u64,
    filename: Option<String>,
    width: Option<u32>,
    height: Option<u32>,
    scaled_from: Option<(u32, u32)>,
    image_url: Option<ImageUrl>,
    file: Option<FileData>,
    file_data: Option<String>,
    input_audio: Option<AudioData>,
}

/// The address of an image: an object in chat completions, a string in Responses.
#[derive(Deserialize)]
#[serde(
    untagged,
    expecting = "image_url: expected {\"url\": \"data:…\"} or a string"
)]
enum ImageUrl {
    Object { url: String },
    Text(String),
}

#[derive(Deserialize)]
struct FileData {
    file_data: Option<String>,
    filename: Option<String>,
}

#[derive(Deserialize)]
struct AudioData {
    data: String,
    format: String,
}

impl<'de> Deserialize<'de> for ContentPart {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        AnyForm::deserialize(deserializer)?
            .part()
            .map_err(D::Error::custom)
    }
}

impl AnyForm {
    fn part(self) -> Result<ContentPart, String> {
        let kind = self.r#type.as_str();
        match kind {
            "text" | "input_text" | "output_text" => {
                return self
                    .text
                    .map(ContentPart::text)
                    .ok_or_else(|| format!("a part of type {kind} has no `text`"));
            }
            "image" | "image_url" | "input_image" | "file" | "input_file" | "input_audio"
            | "audio" => {}
            other => {
                let known = "text, image, file, image_url, input_audio, input_text, input_image, input_file";
                return Err(format!("unknown type of part {other:?}; known: {known}"));
            }
        }
        if let Some(artifact_id) = self.artifact_id {
            let file = PartFile {
                artifact_id,
                content_type: self.content_type,
                size: self.size,
                filename: self.filename,
                width: self.width,
                height: self.height,
                scaled_from: self.scaled_from,
            };
            return Ok(if kind == "image" {
                ContentPart::Image(file)
            } else {
                ContentPart::of_file(file)
            });
        }
        if let Some(url) = self.image_url {
            let (ImageUrl::Object { url } | ImageUrl::Text(url)) = url;
            return inline("image_url", &url, self.filename);
        }
        if let Some(AudioData { data, format }) = self.input_audio {
            let content_type = if format == "mp3" {
                "audio/mpeg".to_owned()
            } else {
                format!("audio/{format}")
            };
            return Ok(ContentPart::Inline(InlineFile {
                content_type,
                filename: self.filename,
                bytes: decode("input_audio.data", &data)?,
            }));
        }
        let (data, filename) = match self.file {
            Some(file) => (file.file_data, file.filename),
            None => (self.file_data, self.filename),
        };
        match data {
            Some(url) => inline("file_data", &url, filename),
            None => Err(format!(
                "a part of type {kind} needs `artifact_id`, or the bytes as a data: URL"
            )),
        }
    }
}

/// Makes the part of a `data:` URL.
fn inline(field: &str, url: &str, filename: Option<String>) -> Result<ContentPart, String> {
    let Some((content_type, data)) = url
        .strip_prefix("data:")
        .and_then(|rest| rest.split_once(";base64,"))
    else {
        return Err(format!(
            "{field}: only `data:TYPE;base64,…` is accepted; load the file and send its bytes, or upload it as an artifact"
        ));
    };
    if InputKind::of_content_type(content_type).is_none() {
        return Err(format!(
            "{field}: no model takes the content type {content_type:?}; upload it as an artifact"
        ));
    }
    Ok(ContentPart::Inline(InlineFile {
        content_type: content_type.to_owned(),
        filename,
        bytes: decode(field, data)?,
    }))
}

fn decode(field: &str, data: &str) -> Result<Vec<u8>, String> {
    BASE64_STANDARD
        .decode(data.trim_ascii())
        .map_err(|error| format!("{field}: not valid base64: {error}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn forms_of_openai_are_read() {
        let png = "data:image/png;base64,AAEC";
        for (form, content_type, filename) in [
            (
                json!({"type": "image_url", "image_url": {"url": png, "detail": "low"}}),
                "image/png",
                None,
            ),
            (
                json!({"type": "input_image", "image_url": png, "detail": "auto"}),
                "image/png",
                None,
            ),
            (
                json!({"type": "file", "file": {"file_data": png, "filename": "a.png"}}),
                "image/png",
                Some("a.png"),
            ),
            (
                json!({"type": "input_file", "file_data": png, "filename": "a.png"}),
                "image/png",
                Some("a.png"),
            ),
            (
                json!({"type": "input_audio", "input_audio": {"data": "AAEC", "format": "mp3"}}),
                "audio/mpeg",
                None,
            ),
            (
                json!({"type": "input_audio", "input_audio": {"data": "AAEC", "format": "wav"}}),
                "audio/wav",
                None,
            ),
        ] {
            let part: ContentPart = serde_json::from_value(form.clone()).unwrap();
            let expected =
                ContentPart::inline(content_type, filename.map(str::to_owned), [0, 1, 2]);
            assert_eq!(part, expected, "{form}");
            let parsed: ContentPart =
                serde_json::from_value(serde_json::to_value(&part).unwrap()).unwrap();
            assert_eq!(parsed, part);
        }
        let text: ContentPart =
            serde_json::from_value(json!({"type": "input_text", "text": "a"})).unwrap();
        assert_eq!(text, ContentPart::text("a"));
    }

    #[test]
    fn invalid_parts_say_what_is_wrong() {
        for (form, expected) in [
            (
                json!({"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}),
                "only `data:TYPE;base64,",
            ),
            (
                json!({"type": "image_url", "image_url": {"url": "data:image/svg+xml;base64,AA=="}}),
                "image/svg+xml",
            ),
            (
                json!({"type": "input_audio", "input_audio": {"data": "?", "format": "wav"}}),
                "not valid base64",
            ),
            (
                json!({"type": "file", "file": {"file_id": "f"}}),
                "needs `artifact_id`",
            ),
            (json!({"type": "text"}), "no `text`"),
            (
                json!({"type": "video", "url": "x"}),
                "unknown type of part \"video\"",
            ),
            (json!("text"), "a part: an object with `type`"),
        ] {
            let error = serde_json::from_value::<ContentPart>(form.clone())
                .unwrap_err()
                .to_string();
            assert!(error.contains(expected), "{form}: {error}");
        }
    }
}
