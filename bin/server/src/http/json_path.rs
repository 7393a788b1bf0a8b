//! The path of a position in JSON text, for error messages.
//!
//! serde_json reports the line and column of an error, but not the field. Tracking the path while parsing, as
//! `serde_path_to_error` does, doubles the code that is generated for each type of request.

/// Container that surrounds a position, with the place in it.
enum Segment {
    /// An object. The key is `None` before the first key and after each comma.
    Key(Option<String>),
    /// An array.
    Index(usize),
}

/// Returns the path of the value or key at a position that serde_json has reported, such as `tools[0].name`. Empty at the
/// top level. `line` counts from 1; `column` is the number of bytes of the line that were read.
pub(super) fn path_at(json: &[u8], line: usize, column: usize) -> String {
    let begin: usize = json.split_inclusive(|byte| *byte == b'\n').take(line.saturating_sub(1)).map(<[u8]>::len).sum();
    let last = (begin + column).saturating_sub(1);
    let mut segments: Vec<Segment> = Vec::new();
    let mut at = 0;
    while at <= last && at < json.len() {
        match json[at] {
            b'"' => {
                let length = string_length(&json[at..]);
                if let Some(Segment::Key(key @ None)) = segments.last_mut() {
                    *key = serde_json::from_slice(&json[at..at + length]).ok();
                }
                at += length - 1;
            }
            b'{' => segments.push(Segment::Key(None)),
            b'[' => segments.push(Segment::Index(0)),
            b'}' | b']' => drop(segments.pop()),
            b',' => match segments.last_mut() {
                Some(Segment::Key(key)) => *key = None,
                Some(Segment::Index(index)) => *index += 1,
                None => {}
            },
            _ => {}
        }
        at += 1;
    }
    let mut path = String::new();
    for segment in segments {
        match segment {
            Segment::Key(None) => {}
            Segment::Key(Some(key)) => {
                path.push_str(if path.is_empty() { "" } else { "." });
                path.push_str(&key);
            }
            Segment::Index(index) => path.push_str(&format!("[{index}]")),
        }
    }
    path
}

/// Returns the length of the string at the beginning, including its quotes, in bytes.
fn string_length(json: &[u8]) -> usize {
    let mut is_escaped = false;
    let end = json.iter().skip(1).position(|byte| {
        let ends = *byte == b'"' && !is_escaped;
        is_escaped = *byte == b'\\' && !is_escaped;
        ends
    });
    end.map_or(json.len(), |end| end + 2)
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "only parsed")]
    struct Outer {
        #[serde(default)]
        count: u32,
        #[serde(default)]
        flags: Vec<bool>,
        #[serde(default)]
        inner: Vec<Inner>,
        #[serde(default)]
        one: Option<Box<Outer>>,
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "only parsed")]
    struct Inner {
        name: String,
    }

    #[test]
    fn error_has_the_path_of_its_field() {
        for (json, path) in [
            (r#"{"count": "x"}"#, "count"),
            (r#"{"count": -1, "flags": []}"#, "count"),
            (r#"{"count": 1, "flags": [true, 2]}"#, "flags[1]"),
            (r#"{"flags": {}}"#, "flags"),
            ("{\n  \"inner\": [\n    {\"name\": \"a, \\\"b\\\" }\"},\n    {\"name\": null}\n  ]\n}", "inner[1].name"),
            (r#"{"inner": [{}]}"#, "inner[0]"),
            (r#"{"one": {"cuont": 1}}"#, "one.cuont"),
            (r#"{"one": {"one": {"inner": 5}}}"#, "one.one.inner"),
            (r#"{"é\"": 1}"#, "é\""),
            ("{", ""),
            (r#"{"count": 1,}"#, ""),
            (r#"{"count": 1"#, "count"),
        ] {
            let error = serde_json::from_str::<Outer>(json).unwrap_err();
            assert_eq!(path_at(json.as_bytes(), error.line(), error.column()), path, "{json}: {error}");
        }
    }

    #[test]
    fn any_text_and_position_is_accepted() {
        let text = b"]}\"\\\"[{,:\n\"";
        for line in 0..4 {
            for column in 0..12 {
                let _ = path_at(text, line, column);
            }
        }
        assert_eq!(path_at(b"", 1, 0), "");
    }
}
