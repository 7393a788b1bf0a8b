//! The file: its parts, their relationships, and the archive.
//!
//! Invariant: the bytes depend only on the content. docx-rs orders links randomly and takes its ids
//! from counters of the process, so links and footnotes are written here.

use std::io::{Cursor, Write};

use docx_rs::{BuildXML, DocumentRels, Footnotes};
use zip::{CompressionMethod, DateTime, ZipWriter, result::ZipResult, write::SimpleFileOptions};

use super::{converter::DocumentParts, styles::empty_document, text::escape};

/// Builds the bytes of a document.
pub(super) fn pack(title: &str, content: DocumentParts) -> ZipResult<Vec<u8>> {
    let DocumentParts {
        body,
        notes,
        links,
        numberings,
    } = content;
    let xml = empty_document(numberings);
    let hyperlinks: Vec<_> = links
        .iter()
        .map(|(rid, target)| (rid.clone(), escape(target), "External".to_owned()))
        .collect();
    let rels = DocumentRels {
        has_numberings: true,
        has_footnotes: true,
        hyperlinks,
        ..DocumentRels::new()
    };
    let properties = format!("<dc:title>{}</dc:title></cp:coreProperties>", escape(title));
    let parts = [
        ("[Content_Types].xml", xml.content_type),
        ("_rels/.rels", xml.rels),
        ("docProps/app.xml", xml.doc_props.app),
        (
            "docProps/core.xml",
            replace_last(xml.doc_props.core, "</cp:coreProperties>", &properties),
        ),
        ("docProps/custom.xml", xml.doc_props.custom),
        ("word/_rels/document.xml.rels", rels.build()),
        (
            "word/document.xml",
            replace_last(xml.document, "<w:sectPr", &format!("{body}<w:sectPr")),
        ),
        (
            "word/styles.xml",
            replace_last(
                xml.styles,
                "w:styleId=\"Normal\"",
                "w:default=\"1\" w:styleId=\"Normal\"",
            ),
        ),
        ("word/settings.xml", xml.settings),
        ("word/fontTable.xml", xml.font_table),
        ("word/comments.xml", xml.comments),
        ("word/commentsExtended.xml", xml.comments_extended),
        ("word/numbering.xml", xml.numberings),
        (
            "word/footnotes.xml",
            replace_last(
                Footnotes::new().build(),
                "\" />",
                &format!("\">{notes}</w:footnotes>"),
            ),
        ),
        (
            "word/_rels/footnotes.xml.rels",
            footnote_relationships(&links).into_bytes(),
        ),
    ];
    let options = SimpleFileOptions::default()
        .compression_method(CompressionMethod::Deflated)
        .last_modified_time(DateTime::default());
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    for (path, bytes) in parts {
        zip.start_file(path, options)?;
        zip.write_all(&bytes)?;
    }
    Ok(zip.finish()?.into_inner())
}

/// Replaces the last `old` by `new`, for XML that docx-rs cannot express.
fn replace_last(part: Vec<u8>, old: &str, new: &str) -> Vec<u8> {
    let part = String::from_utf8_lossy(&part);
    match part.rsplit_once(old) {
        Some((before, after)) => format!("{before}{new}{after}").into_bytes(),
        None => part.into_owned().into_bytes(),
    }
}

/// Returns the link targets of the footnotes; docx-rs only writes those of the text.
fn footnote_relationships(links: &[(String, String)]) -> String {
    let links: String = links
        .iter()
        .map(|(rid, target)| {
            let target = escape(target);
            format!(
                "<Relationship Id=\"{rid}\" \
                 Type=\"http://schemas.openxmlformats.org/officeDocument/2006/relationships/hyperlink\" \
                 Target=\"{target}\" TargetMode=\"External\"/>"
            )
        })
        .collect();
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\" standalone=\"yes\"?>\
         <Relationships xmlns=\"http://schemas.openxmlformats.org/package/2006/relationships\">{links}</Relationships>"
    )
}
