//! Parses an HTML page into a tree of bounded size, as input of the Markdown converter.
//!
//! A page may be malicious, and both parsing and walking a tree can take far more time and memory than
//! the size of the page suggests: elements that are never closed nest without limit and are repeated at each
//! paragraph. Therefore the page is parsed in slices. Parsing stops if the tree has too many nodes,
//! if it takes too long, or if the call is cancelled. Nodes that are nested too deeply are attached
//! to an ancestor instead. Content that is invisible to a reader is removed.
//!
//! Elsewhere: Markdown (`page.rs`).

use std::{
    borrow::Cow,
    cell::Cell,
    rc::Rc,
    time::{Duration, Instant},
};

use html5ever::{
    Attribute, ParseOpts, QualName,
    interface::{ElementFlags, NodeOrText, QuirksMode, TreeSink},
    parse_document,
    tendril::{StrTendril, TendrilSink},
};
use markup5ever_rcdom::{Handle, Node, NodeData, RcDom};
use reqwest::Url;
use tokio_util::sync::CancellationToken;

/// Maximum number of elements and texts in a tree.
const MAX_NODES: usize = 300_000;
/// Maximum nesting depth. Deeper nodes are attached to an ancestor at this depth.
const MAX_DEPTH: usize = 200;
/// Maximum number of nodes that are nested too deeply before parsing stops. Each costs time
/// proportional to its depth.
const MAX_REATTACHED_NODES: usize = 3_000;
/// Maximum nesting of elements that indent their lines. Each level makes every line longer.
const MAX_INDENTS: usize = 16;
/// Number of bytes parsed between two checks of the limits.
const SLICE_BYTES: usize = 1024;
/// Maximum duration of parsing.
const MAX_PARSE: Duration = Duration::from_secs(3);
/// Maximum length of the URL of a link, in bytes.
const MAX_LINK_BYTES: usize = 2 * 1024;
/// Maximum total size of all URLs and other attributes, in bytes. The other limits allow 300 000
/// nodes with links of 2 KiB each.
const MAX_ATTRIBUTE_BYTES: usize = 2 * 1024 * 1024;
/// Number of children above which adjacent elements are separated. The converter joins adjacent
/// elements that are similar, and each time moves all later children.
const SEPARATE_ABOVE_CHILDREN: usize = 256;

/// Elements that are invisible to a reader or have no readable text.
const INVISIBLE_TAGS: [&str; 21] = [
    "script", "style", "noscript", "template", "svg", "math", "iframe", "object", "embed",
    "canvas", "audio", "video", "head", "title", "link", "meta", "input", "select", "button",
    "textarea", "dialog",
];

/// A parsed page.
pub(super) struct HtmlTree {
    pub(super) document: Rc<Node>,
    pub(super) title: Option<String>,
    /// Whether a part of the page is missing because of a limit.
    pub(super) is_truncated: bool,
}

/// Parses a page. Links are resolved against `base`.
pub(super) fn parse(html: &str, base: &Url, cancel: &CancellationToken) -> HtmlTree {
    let sink = BoundedSink {
        dom: RcDom::default(),
        nodes: Cell::new(0),
        too_deep: Cell::new(0),
    };
    let mut parser = parse_document(sink, ParseOpts::default());
    let start = Instant::now();
    let mut rest = html;
    while !rest.is_empty() {
        let mut end = SLICE_BYTES.min(rest.len());
        while !rest.is_char_boundary(end) {
            end += 1;
        }
        let (slice, remaining) = rest.split_at(end);
        parser.process(StrTendril::from_slice(slice));
        rest = remaining;
        if parser.tokenizer.sink.sink.is_full()
            || start.elapsed() > MAX_PARSE
            || cancel.is_cancelled()
        {
            break;
        }
    }
    let document = parser.finish().document;
    let mut pruning = Pruner {
        base,
        title: None,
        is_cut: !rest.is_empty(),
        attribute_bytes: 0,
    };
    pruning.prune(&document);
    HtmlTree {
        title: pruning.title,
        is_truncated: pruning.is_cut,
        document,
    }
}

/// Removes unwanted nodes, without recursion.
struct Pruner<'a> {
    base: &'a Url,
    title: Option<String>,
    is_cut: bool,
    attribute_bytes: usize,
}

impl Pruner<'_> {
    fn prune(&mut self, document: &Rc<Node>) {
        // Each node with its depth and the number of indenting elements around it.
        let mut open = vec![(Rc::clone(document), 0, 0)];
        while let Some((node, depth, indents)) = open.pop() {
            let mut children = node.children.take();
            children.retain(|child| self.is_wanted(child));
            if depth >= MAX_DEPTH + 8 || indents > MAX_INDENTS {
                self.is_cut |= !children.is_empty();
                children.clear();
            }
            for child in &children {
                let indents = indents + usize::from(indents_lines(child));
                open.push((Rc::clone(child), depth + 1, indents));
            }
            *node.children.borrow_mut() = if children.len() > SEPARATE_ABOVE_CHILDREN {
                separate_elements(children)
            } else {
                children
            };
        }
    }

    fn is_wanted(&mut self, node: &Node) -> bool {
        match &node.data {
            NodeData::Document | NodeData::Text { .. } => true,
            NodeData::Element { name, attrs, .. } => {
                let tag = name.local.as_ref();
                if tag == "head" && self.title.is_none() {
                    self.title = title_in(node);
                }
                let mut attributes = attrs.borrow_mut();
                let is_seen = !INVISIBLE_TAGS.contains(&tag) && !is_hidden(&attributes);
                if is_seen {
                    attributes.retain_mut(|attribute| self.keep_attribute(tag, attribute));
                }
                is_seen && (tag != "img" || has_alt_and_src(&attributes))
            }
            NodeData::Doctype { .. }
            | NodeData::Comment { .. }
            | NodeData::ProcessingInstruction { .. } => false,
        }
    }

    fn keep_attribute(&mut self, tag: &str, attribute: &mut Attribute) -> bool {
        match (tag, attribute.name.local.as_ref()) {
            ("a", "href") | ("img", "src") => match self.link(&attribute.value) {
                Some(link) => attribute.value = StrTendril::from_slice(&link),
                None => return false,
            },
            ("img", "alt") | ("ol", "start") | ("code" | "pre", "class") => {}
            _ => return false,
        }
        self.attribute_bytes += attribute.value.len();
        let fits =
            attribute.value.len() <= MAX_LINK_BYTES && self.attribute_bytes <= MAX_ATTRIBUTE_BYTES;
        self.is_cut |= !fits;
        fits
    }

    /// Returns an absolute link; `None` for scripts, data and fragments of the same page.
    fn link(&self, value: &str) -> Option<String> {
        let value = value.trim();
        if value.is_empty() || value.starts_with('#') || value.len() > MAX_LINK_BYTES {
            return None;
        }
        let url = self.base.join(value).ok()?;
        matches!(url.scheme(), "http" | "https" | "mailto").then(|| url.to_string())
    }
}

/// Inserts an empty comment between adjacent elements, so that the converter does not join them.
fn separate_elements(children: Vec<Handle>) -> Vec<Handle> {
    let between = || {
        Node::new(NodeData::Comment {
            contents: StrTendril::new(),
        })
    };
    let mut apart = Vec::with_capacity(2 * children.len());
    for child in children {
        let is_element = |node: &Handle| matches!(node.data, NodeData::Element { .. });
        if is_element(&child) && apart.last().is_some_and(is_element) {
            apart.push(between());
        }
        apart.push(child);
    }
    apart
}

fn title_in(head: &Node) -> Option<String> {
    let children = head.children.borrow();
    let is_title = |node: &&Handle| matches!(&node.data, NodeData::Element { name, .. } if &*name.local == "title");
    let title = children.iter().find(is_title)?;
    let texts = title.children.borrow();
    let text: String = texts.iter().filter_map(|node| text_of(node)).collect();
    let text = super::single_line(&text, 200);
    (!text.is_empty()).then_some(text)
}

fn text_of(node: &Node) -> Option<String> {
    match &node.data {
        NodeData::Text { contents } => Some(contents.borrow().to_string()),
        _ => None,
    }
}

fn indents_lines(node: &Node) -> bool {
    let indents = |tag: &str| matches!(tag, "blockquote" | "ul" | "ol" | "table" | "dd");
    matches!(&node.data, NodeData::Element { name, .. } if indents(&name.local))
}

fn is_hidden(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let value = attribute.value.as_ref();
        match attribute.name.local.as_ref() {
            "hidden" => true,
            "aria-hidden" => value.trim().eq_ignore_ascii_case("true"),
            "style" => {
                let style: String = value
                    .chars()
                    .take(MAX_LINK_BYTES)
                    .filter(|c| !c.is_whitespace())
                    .collect();
                let style = style.to_ascii_lowercase();
                style.contains("display:none") || style.contains("visibility:hidden")
            }
            _ => false,
        }
    })
}

/// Returns whether an image has a description and a source.
fn has_alt_and_src(attributes: &[Attribute]) -> bool {
    let has = |name: &str| {
        attributes
            .iter()
            .any(|a| &*a.name.local == name && !a.value.trim().is_empty())
    };
    has("alt") && has("src")
}

/// Builds the tree and counts its nodes.
struct BoundedSink {
    dom: RcDom,
    nodes: Cell<usize>,
    too_deep: Cell<usize>,
}

impl BoundedSink {
    fn is_full(&self) -> bool {
        self.nodes.get() > MAX_NODES || self.too_deep.get() > MAX_REATTACHED_NODES
    }

    /// Returns the node to which a child of `parent` is attached: `parent` itself, or an ancestor
    /// if the child would be nested too deeply.
    fn bounded_parent(&self, parent: &Handle) -> Handle {
        let mut ancestors = vec![Rc::clone(parent)];
        while let Some(above) = ancestors.last().and_then(|node| parent_of(node)) {
            ancestors.push(above);
        }
        // The chain from `parent` to the root is as long as the depth of `parent`.
        if ancestors.len() <= MAX_DEPTH {
            return Rc::clone(parent);
        }
        self.too_deep.set(self.too_deep.get() + 1);
        ancestors.swap_remove(ancestors.len() - MAX_DEPTH)
    }

    fn count(&self) {
        self.nodes.set(self.nodes.get() + 1);
    }

    /// Counts a text. Elements are counted when they are created.
    fn count_text(&self, child: &NodeOrText<Handle>) {
        if matches!(child, NodeOrText::AppendText(_)) {
            self.count();
        }
    }
}

fn parent_of(node: &Node) -> Option<Handle> {
    let parent = node.parent.take();
    let above = parent.as_ref().and_then(std::rc::Weak::upgrade);
    node.parent.set(parent);
    above
}

impl TreeSink for BoundedSink {
    type Handle = Handle;
    type Output = RcDom;
    type ElemName<'a> = <RcDom as TreeSink>::ElemName<'a>;

    fn finish(self) -> RcDom {
        self.dom
    }

    fn parse_error(&self, _: Cow<'static, str>) {}

    fn get_document(&self) -> Handle {
        self.dom.get_document()
    }

    fn elem_name<'a>(&'a self, target: &'a Handle) -> Self::ElemName<'a> {
        self.dom.elem_name(target)
    }

    fn create_element(&self, name: QualName, attrs: Vec<Attribute>, flags: ElementFlags) -> Handle {
        self.count();
        self.dom.create_element(name, attrs, flags)
    }

    fn create_comment(&self, _: StrTendril) -> Handle {
        self.count();
        self.dom.create_comment(StrTendril::new())
    }

    fn create_pi(&self, target: StrTendril, data: StrTendril) -> Handle {
        self.count();
        self.dom.create_pi(target, data)
    }

    fn append(&self, parent: &Handle, child: NodeOrText<Handle>) {
        self.count_text(&child);
        self.dom.append(&self.bounded_parent(parent), child);
    }

    fn append_based_on_parent_node(
        &self,
        element: &Handle,
        previous: &Handle,
        child: NodeOrText<Handle>,
    ) {
        match parent_of(element) {
            Some(_) => self.append_before_sibling(element, child),
            None => self.append(previous, child),
        }
    }

    fn append_doctype_to_document(&self, _: StrTendril, _: StrTendril, _: StrTendril) {}

    fn get_template_contents(&self, target: &Handle) -> Handle {
        self.dom.get_template_contents(target)
    }

    fn same_node(&self, x: &Handle, y: &Handle) -> bool {
        self.dom.same_node(x, y)
    }

    fn set_quirks_mode(&self, mode: QuirksMode) {
        self.dom.set_quirks_mode(mode);
    }

    fn append_before_sibling(&self, sibling: &Handle, child: NodeOrText<Handle>) {
        self.count_text(&child);
        self.dom.append_before_sibling(sibling, child);
    }

    fn add_attrs_if_missing(&self, target: &Handle, attrs: Vec<Attribute>) {
        self.dom.add_attrs_if_missing(target, attrs);
    }

    fn remove_from_parent(&self, target: &Handle) {
        self.dom.remove_from_parent(target);
    }

    fn reparent_children(&self, node: &Handle, new_parent: &Handle) {
        self.dom.reparent_children(node, new_parent);
    }

    fn is_mathml_annotation_xml_integration_point(&self, handle: &Handle) -> bool {
        self.dom.is_mathml_annotation_xml_integration_point(handle)
    }
}
