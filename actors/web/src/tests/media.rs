//! Tests of content types and encodings.

use crate::media::ContentType;

#[test]
fn text_is_recognized_by_content_type() {
    for (header, may_be_text) in [
        ("text/html; charset=utf-8", true),
        ("TEXT/PLAIN", true),
        ("text/csv;header=present", true),
        ("application/json", true),
        ("application/ld+json", true),
        ("application/atom+xml", true),
        ("application/xhtml+xml", true),
        ("image/svg+xml", true),
        ("application/xml", true),
        ("application/x-ndjson", true),
        ("", true),
        ("image/png", false),
        ("application/pdf", false),
        ("application/octet-stream", false),
        ("application/zip", false),
        ("video/mp4", false),
        ("multipart/mixed", false),
        ("json", false),
        ("nonsense", false),
    ] {
        assert_eq!(
            ContentType::parse(Some(header)).may_be_text(),
            may_be_text,
            "{header}"
        );
    }
}

#[test]
fn charset_is_taken_from_bom_header_or_content() {
    let utf_16 = |text: &str| {
        text.encode_utf16()
            .flat_map(u16::to_le_bytes)
            .collect::<Vec<u8>>()
    };
    let marked = [b"\xff\xfe".to_vec(), utf_16("grün")].concat();
    let big = [
        b"\xfe\xff".to_vec(),
        "grün".encode_utf16().flat_map(u16::to_be_bytes).collect(),
    ]
    .concat();
    let rows: [(&str, &[u8], Option<&str>); 17] = [
        ("text/plain", "grün".as_bytes(), Some("grün")),
        ("text/plain; charset=utf-8", "grün".as_bytes(), Some("grün")),
        (
            "text/plain; charset=\"ISO-8859-1\"",
            b"gr\xfcn",
            Some("grün"),
        ),
        ("text/plain; Charset='latin1'", b"gr\xfcn", Some("grün")),
        (
            "text/plain; charset=windows-1251",
            b"\xcf\xf0\xe8\xe2\xe5\xf2",
            Some("Привет"),
        ),
        (
            "text/html; charset=shift_jis",
            b"\x93\xfa\x96{",
            Some("日本"),
        ),
        (
            "text/plain; charset=utf-16le",
            &utf_16("grün"),
            Some("grün"),
        ),
        ("text/plain", &marked, Some("grün")),
        ("text/plain; charset=iso-8859-1", &big, Some("grün")),
        (
            "text/plain; charset=iso-8859-1",
            b"\xef\xbb\xbfa",
            Some("a"),
        ),
        ("text/plain; charset=nonsense", b"gr\xfcn", Some("grün")),
        ("text/plain", b"gr\xfcn", Some("grün")),
        ("text/plain", b"cut \xe6\x97", Some("cut \u{fffd}")),
        (
            "text/html",
            b"<meta charset=\"koi8-r\"><p>\xf0",
            Some("<meta charset=\"koi8-r\"><p>П"),
        ),
        (
            "text/html",
            b"<META content='text/html; charset=utf-16'>a",
            Some("<META content='text/html; charset=utf-16'>a"),
        ),
        ("text/plain", b"abc\0def", None),
        (
            "text/plain; charset=utf-8",
            b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR",
            None,
        ),
    ];
    for (header, body, want) in rows {
        assert_eq!(
            ContentType::parse(Some(header)).decode(body).as_deref(),
            want,
            "{header} {body:?}"
        );
    }
}

#[test]
fn html_is_recognized_by_type_or_first_bytes() {
    for (header, text, is_html) in [
        ("text/html", "plain", true),
        ("application/xhtml+xml", "plain", true),
        ("text/plain", "<html>", false),
        ("application/xml", "<html>", false),
        ("", "\n<!DOCTYPE HTML>", true),
        ("", "<Html lang=en>", true),
        ("", "{\"html\": 1}", false),
        ("", "about <html>", false),
    ] {
        assert_eq!(
            ContentType::parse(Some(header)).is_html(text),
            is_html,
            "{header} {text}"
        );
    }
}
