//! Sizes: lines of files and functions, fields of structs, variants of enums, parameters.

use std::collections::BTreeSet;

use syn::{ImplItem, Item, TraitItem, spanned::Spanned};

use super::{assert_none, crate_files, is_test_file, production};

/// Maximum length of a production file, in lines.
pub(super) const MAX_FILE_LINES: usize = 450;
/// Maximum length of a function, in lines from its signature to its last brace.
const MAX_FUNCTION_LINES: usize = 60;
/// Maximum number of fields of a struct, and of variants of an enum.
const MAX_MEMBERS: usize = 15;
/// Maximum number of parameters, with `self`.
const MAX_PARAMETERS: usize = 7;

/// Items that are larger: file, name and reason. At most 12.
const EXCEPTIONS: [(&str, &str, &str); 12] = [
    ("protocol/src/trace.rs", "Trace", "a stored record: one field for each column, and flat JSON that clients read"),
    ("protocol/src/run.rs", "Run", "a stored record: one field for each column, and flat JSON that clients read"),
    (
        "protocol/src/run.rs",
        "RunSettings",
        "flat JSON in a column, which SQL reads by name; the options of all runs are a flattened group",
    ),
    (
        "protocol/src/message.rs",
        "Message",
        "a stored record: one field for each column, and flat JSON that clients read",
    ),
    ("protocol/src/openapi.rs", "MessageForm", "the schema of a message in the OpenAPI document, which is flat"),
    (
        "protocol/src/artifact.rs",
        "Artifact",
        "a stored record: one field for each column, and flat JSON that clients read",
    ),
    (
        "protocol/src/permission.rs",
        "Permission",
        "a stored record: one field for each column, and flat JSON that clients read",
    ),
    ("protocol/src/tree.rs", "ActorView", "flat JSON that clients read; flattened groups would change its schema"),
    (
        "protocol/src/api/run.rs",
        "StartBody",
        "flat JSON that clients send; it refuses unknown fields, which excludes flattened groups",
    ),
    ("protocol/src/config.rs", "Config", "one field for each section of the configuration file"),
    (
        "protocol/src/config/model.rs",
        "ModelConfig",
        "one field for each setting of a model profile; unknown settings are refused by name",
    ),
    (
        "protocol/src/config/model.rs",
        "ModelOverride",
        "one field for each setting of a model profile; unknown settings are refused by name",
    ),
];

/// A size above its limit: name of the item, and a description.
type Finding = (String, String);

/// Returns the items of a file that are too large.
fn too_large(path: &str, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let lines = production(text).len();
    if lines > MAX_FILE_LINES {
        findings.push((path.to_owned(), format!("{path} has {lines} lines, more than {MAX_FILE_LINES}")));
    }
    for item in syn::parse_file(text).unwrap().items {
        sizes_of(&item, path, &mut findings);
    }
    findings
}

fn sizes_of(item: &Item, path: &str, findings: &mut Vec<Finding>) {
    let mut members = |name: &syn::Ident, count: usize| {
        if count > MAX_MEMBERS {
            findings.push((name.to_string(), format!("{path}: {name} has {count} members, more than {MAX_MEMBERS}")));
        }
    };
    match item {
        Item::Struct(of) => members(&of.ident, of.fields.len()),
        Item::Enum(of) => members(&of.ident, of.variants.len()),
        Item::Fn(of) if !is_test(&of.attrs) => function(&of.sig, of.block.span(), path, findings),
        Item::Impl(of) => of.items.iter().for_each(|item| {
            if let ImplItem::Fn(of) = item {
                function(&of.sig, of.block.span(), path, findings);
            }
        }),
        Item::Trait(of) => of.items.iter().for_each(|item| {
            if let TraitItem::Fn(of) = item
                && let Some(block) = &of.default
            {
                function(&of.sig, block.span(), path, findings);
            }
        }),
        Item::Mod(of) if !is_test(&of.attrs) => {
            of.content.iter().flat_map(|(_, items)| items).for_each(|item| sizes_of(item, path, findings));
        }
        _ => {}
    }
}

fn is_test(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        syn::Meta::List(list) => list.path.is_ident("cfg") && list.tokens.to_string().contains("test"),
        meta => meta.path().segments.last().is_some_and(|last| last.ident == "test"),
    })
}

fn function(signature: &syn::Signature, body: proc_macro2::Span, path: &str, findings: &mut Vec<Finding>) {
    let name = signature.ident.to_string();
    let lines = body.end().line - signature.span().start().line + 1;
    if lines > MAX_FUNCTION_LINES {
        findings.push((name.clone(), format!("{path}: {name} has {lines} lines, more than {MAX_FUNCTION_LINES}")));
    }
    let parameters = signature.inputs.len();
    if parameters > MAX_PARAMETERS {
        findings
            .push((name.clone(), format!("{path}: {name} has {parameters} parameters, more than {MAX_PARAMETERS}")));
    }
}

#[test]
fn sizes_are_within_their_limits_or_have_a_reason() {
    let mut unused: BTreeSet<(&str, &str)> = EXCEPTIONS.iter().map(|(path, name, _)| (*path, *name)).collect();
    let mut findings = Vec::new();
    for file in crate_files().iter().filter(|file| !is_test_file(&file.path)) {
        for (name, finding) in too_large(&file.path, &file.text) {
            let item = (file.path.as_str(), name.as_str());
            let is_exception = EXCEPTIONS.iter().any(|(path, name, _)| (*path, *name) == item);
            unused.retain(|known| *known != item);
            if !is_exception {
                findings.push(format!("{finding}: split it, or give the reason in tests/architecture/sizes.rs"));
            }
        }
    }
    let unused = unused.iter();
    findings
        .extend(unused.map(|(path, name)| format!("{path}: {name} is small enough: take it out of the exceptions")));
    assert_none(findings);
}

#[test]
fn items_that_are_too_large_are_found() {
    let fields = (0..16).map(|number| format!("f{number}: u8,")).collect::<String>();
    let variants = (0..16).map(|number| format!("V{number},")).collect::<String>();
    let long = "a();\n".repeat(60);
    for (text, want) in [
        (format!("struct S {{ {fields} }}"), vec!["S"]),
        (format!("enum E {{ {variants} }}"), vec!["E"]),
        (format!("fn f() {{\n{long}}}"), vec!["f"]),
        (format!("impl S {{ fn g() {{\n{long}}} }}"), vec!["g"]),
        ("fn h(a: A, b: A, c: A, d: A, e: A, f: A, g: A, h: A) {}".to_owned(), vec!["h"]),
        (format!("#[cfg(test)]\nmod tests {{ fn f() {{\n{long}}} }}"), vec![]),
        (format!("#[test]\nfn f() {{\n{long}}}"), vec![]),
        ("const A: u8 = 1;\n".repeat(451), vec!["a.rs"]),
    ] {
        let names: Vec<String> = too_large("a.rs", &text).into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, want, "{text}");
    }
}
