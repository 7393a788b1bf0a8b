//! Converts HTML to Markdown with bounded stack, time and size.
//!
//! `htmd` walks the tree recursively and copies its output at each level, so the tree bounds its
//! work (`tree.rs`). Its table handler is replaced, because it drops the header cells of rows and
//! pads each column to its longest cell.
//!
//! Elsewhere: what is removed from a page (`tree.rs`).

use std::rc::Rc;

use htmd::{
    Element, HtmlToMarkdown,
    element_handler::{HandlerResult, Handlers},
    options::{BulletListMarker, Options},
};
use markup5ever_rcdom::{Node, NodeData};
use reqwest::Url;
use tokio_util::sync::CancellationToken;

use super::tree;

/// Maximum size of the Markdown of a page, in bytes.
const MAX_MARKDOWN_BYTES: usize = 5 * 1024 * 1024;

/// A page as Markdown.
#[derive(Debug)]
pub(crate) struct Markdown {
    /// Title of the page.
    pub(crate) title: Option<String>,
    pub(crate) text: String,
    /// Whether a part is missing because of a limit.
    pub(crate) is_cut: bool,
}

/// Converts a page to Markdown. Links are resolved against `base`. Blocks, for some seconds in the
/// worst case.
pub(crate) fn markdown(html: &str, base: &Url, cancel: &CancellationToken) -> Markdown {
    let tree = tree::parse(html, base, cancel);
    if cancel.is_cancelled() {
        return Markdown {
            title: None,
            text: String::new(),
            is_cut: true,
        };
    }
    let options = Options {
        bullet_list_marker: BulletListMarker::Dash,
        ul_bullet_spacing: 1,
        ol_number_spacing: 1,
        ..Options::default()
    };
    let converter = HtmlToMarkdown::builder()
        .options(options)
        .add_handler(vec!["table"], table)
        .build();
    let mut text = super::strip_invisible(&converter.tree_to_markdown(&tree.document));
    let is_long = text.len() > MAX_MARKDOWN_BYTES;
    if is_long {
        let end = (0..=MAX_MARKDOWN_BYTES)
            .rev()
            .find(|end| text.is_char_boundary(*end))
            .unwrap_or(0);
        text.truncate(end);
    }
    Markdown {
        title: tree.title,
        text: text.trim().to_owned(),
        is_cut: tree.is_truncated || is_long,
    }
}

/// Writes a table as a Markdown table. A table that contains another table is used for layout, so
/// its cells become blocks.
fn table(handlers: &dyn Handlers, element: Element<'_>) -> Option<HandlerResult> {
    let rows = rows(element.node);
    let cells = |row: &Rc<Node>| children(row, &["td", "th"]);
    let mut out = String::from("\n\n");
    let is_layout = rows
        .iter()
        .flat_map(cells)
        .any(|cell| contains_table(&cell));
    for caption in children(element.node, &["caption"]) {
        out.push_str(handlers.walk_children(&caption).content.trim());
        out.push_str("\n\n");
    }
    for (index, row) in rows.iter().enumerate() {
        let cells = cells(row);
        for cell in &cells {
            let content = handlers.walk_children(cell).content;
            if is_layout {
                out.push_str(content.trim());
                out.push_str("\n\n");
            } else {
                out.push_str("| ");
                out.push_str(&cell_text(&content));
                out.push(' ');
            }
        }
        if !is_layout && !cells.is_empty() {
            out.push_str("|\n");
            if index == 0 {
                out.push_str(&"| --- ".repeat(cells.len()));
                out.push_str("|\n");
            }
        }
    }
    out.push('\n');
    Some(out.into())
}

/// Formats the content of a cell as one line.
fn cell_text(content: &str) -> String {
    content
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
        .replace('|', "\\|")
}

/// Returns the rows of a table, without those of nested tables.
fn rows(table: &Node) -> Vec<Rc<Node>> {
    let mut rows = Vec::new();
    for part in children(table, &["thead", "tbody", "tfoot", "tr"]) {
        if has_tag(&part, &["tr"]) {
            rows.push(part)
        } else {
            rows.extend(children(&part, &["tr"]))
        }
    }
    rows
}

fn children(node: &Node, tags: &[&str]) -> Vec<Rc<Node>> {
    node.children
        .borrow()
        .iter()
        .filter(|child| has_tag(child, tags))
        .cloned()
        .collect()
}

fn has_tag(node: &Node, tags: &[&str]) -> bool {
    matches!(&node.data, NodeData::Element { name, .. } if tags.contains(&name.local.as_ref()))
}

fn contains_table(cell: &Rc<Node>) -> bool {
    let mut open = vec![Rc::clone(cell)];
    while let Some(node) = open.pop() {
        if has_tag(&node, &["table"]) {
            return true;
        }
        open.extend(node.children.borrow().iter().cloned());
    }
    false
}
