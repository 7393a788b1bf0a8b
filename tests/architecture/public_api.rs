//! The public API of the library `soong` as text, so that each change of it is seen in review.
//!
//! Only what a user of the crate can name counts: public items of public modules, and what these
//! re-export, also from the crates in [`PARTS`]. Items of other crates are listed by their path. To
//! accept a change, run the test with `INSTA_UPDATE=always`.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use quote::ToTokens;
use syn::{Fields, ImplItem, Item, TraitItem, UseTree, Visibility};

use super::root;

/// Maximum number of re-exports that are followed for one name.
const MAX_DEPTH: usize = 8;

/// Crates of the workspace whose items the library re-exports as its own: name and folder.
const PARTS: [(&str, &str); 5] = [
    ("soong_match", "actors/match"),
    ("soong_model", "actors/model"),
    ("soong_text", "actors/text"),
    ("soong_tool", "actors/tool"),
    ("soong_web", "actors/web"),
];

type Segments = Vec<String>;

/// The items of the library's modules, by module path. The path of a module of another crate starts
/// with the name of that crate.
#[derive(Default)]
struct Library {
    modules: BTreeMap<Segments, Vec<Item>>,
}

impl Library {
    fn file(&mut self, file: &Path, folder: &Path, at: Segments) {
        let text = std::fs::read_to_string(file)
            .unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        self.items(syn::parse_file(&text).unwrap().items, folder, at);
    }

    fn items(&mut self, items: Vec<Item>, folder: &Path, at: Segments) {
        for item in &items {
            let Item::Mod(module) = item else { continue };
            let text = module.to_token_stream().to_string();
            // Modules for tests, and the substitutes of features that are off, are no part of the
            // API.
            if text.contains("cfg (test)") || text.contains("cfg (not (feature") {
                continue;
            }
            let name = module.ident.to_string();
            let inner = [&at[..], std::slice::from_ref(&name)].concat();
            match &module.content {
                Some((_, items)) => self.items(items.clone(), &folder.join(&name), inner),
                None => self.file(
                    &folder.join(format!("{name}.rs")),
                    &folder.join(&name),
                    inner,
                ),
            }
        }
        self.modules.insert(at, items);
    }

    /// Adds the lines of the public module `home`, which users see as module `at`.
    fn module(&self, at: &Segments, home: &Segments, lines: &mut BTreeSet<String>) {
        let inner = |of: &Segments, name: &str| [&of[..], &[name.to_owned()]].concat();
        for item in self.modules.get(home).into_iter().flatten() {
            match item {
                Item::Mod(module) if is_public(&module.vis) => {
                    let name = module.ident.to_string();
                    self.module(&inner(at, &name), &inner(home, &name), lines);
                }
                Item::Use(import) if is_public(&import.vis) => {
                    for (name, path) in imported(&import.tree, &[]) {
                        if self.find(home, &path, 0).is_none() && self.modules.contains_key(&path) {
                            self.module(&inner(at, &name), &path, lines)
                        } else {
                            self.reexport(at, home, &name, &path, lines)
                        }
                    }
                }
                item => self.item(at, home, item, lines),
            }
        }
    }

    fn reexport(
        &self,
        at: &Segments,
        from: &Segments,
        name: &str,
        path: &Segments,
        lines: &mut BTreeSet<String>,
    ) {
        match self.find(from, path, 0) {
            Some((home, item)) => self.item(at, &home, item, lines),
            None => {
                lines.insert(format!("{}: pub use {}", place(at, name), path.join("::")));
            }
        }
    }

    /// Finds the item that a path of module `from` names.
    fn find(&self, from: &Segments, path: &[String], depth: usize) -> Option<(Segments, &Item)> {
        let (name, parents) = path.split_last()?;
        let is_part = |name: &str| PARTS.iter().any(|(of, _)| *of == name);
        let mut at = from.clone();
        for part in parents {
            match part.as_str() {
                "crate" => at.truncate(usize::from(at.first().is_some_and(|first| is_part(first)))),
                part if is_part(part) => at = vec![part.to_owned()],
                "self" => {}
                "super" => drop(at.pop()),
                part => at.push(part.to_owned()),
            }
        }
        let items = self.modules.get(&at)?;
        if let Some(item) = items
            .iter()
            .find(|item| declared(item).is_some_and(|(_, of)| of == *name))
        {
            return Some((at, item));
        }
        let uses = items.iter().filter_map(|item| {
            if let Item::Use(import) = item {
                Some(import)
            } else {
                None
            }
        });
        let paths = uses.flat_map(|import| imported(&import.tree, &[]));
        let mut named = paths.filter(|(of, _)| of == name && depth < MAX_DEPTH);
        named.find_map(|(_, path)| self.find(&at, &path, depth + 1))
    }

    /// Adds the lines of one item, which module `home` defines and module `at` shows.
    fn item(&self, at: &Segments, home: &Segments, item: &Item, lines: &mut BTreeSet<String>) {
        let Some((vis, name)) = declared(item).filter(|(vis, _)| is_public(vis)) else {
            return;
        };
        let here = place(at, &name);
        let mut add = |text: String| _ = lines.insert(format!("{here}: {}", pretty(&text)));
        match item {
            Item::Fn(function) => add(function.sig.to_token_stream().to_string()),
            Item::Const(constant) => add(format!("const {}", constant.ty.to_token_stream())),
            Item::Type(alias) => add(format!("type = {}", alias.ty.to_token_stream())),
            Item::Struct(of) => {
                add(format!("struct{}", of.generics.to_token_stream()));
                fields(&of.fields, "", &mut add);
            }
            Item::Enum(of) => {
                add(format!("enum{}", of.generics.to_token_stream()));
                for variant in &of.variants {
                    let mut shape = variant.clone();
                    shape.attrs.clear();
                    shape
                        .fields
                        .iter_mut()
                        .for_each(|field| field.attrs.clear());
                    add(format!("variant {}", shape.to_token_stream()));
                }
            }
            Item::Trait(of) => {
                let parents = of.supertraits.to_token_stream().to_string();
                let colon = if parents.is_empty() { "" } else { " : " };
                add(format!(
                    "trait{}{colon}{parents}",
                    of.generics.to_token_stream()
                ));
                for item in &of.items {
                    if let TraitItem::Fn(function) = item {
                        let default = if function.default.is_some() {
                            " { default }"
                        } else {
                            ""
                        };
                        add(format!("{}{default}", function.sig.to_token_stream()));
                    }
                }
            }
            _ => add(vis.to_token_stream().to_string()),
        }
        self.implementations(home, &name, &mut add);
    }

    /// Adds the public methods and the implemented traits of a type that module `home` defines.
    fn implementations(&self, home: &Segments, name: &str, add: &mut impl FnMut(String)) {
        for (at, items) in &self.modules {
            for item in items {
                let Item::Impl(block) = item else { continue };
                let syn::Type::Path(path) = &*block.self_ty else {
                    continue;
                };
                let path: Segments = path
                    .path
                    .segments
                    .iter()
                    .map(|part| part.ident.to_string())
                    .collect();
                if path.last().is_none_or(|last| last != name)
                    || self
                        .find(at, &path, 0)
                        .is_none_or(|(found, _)| found != *home)
                {
                    continue;
                }
                if let Some((_, of, _)) = &block.trait_ {
                    add(format!("impl {}", of.to_token_stream()));
                    continue;
                }
                for item in &block.items {
                    match item {
                        ImplItem::Fn(function) if is_public(&function.vis) => {
                            add(function.sig.to_token_stream().to_string());
                        }
                        ImplItem::Const(constant) if is_public(&constant.vis) => {
                            add(format!(
                                "const {} : {}",
                                constant.ident,
                                constant.ty.to_token_stream()
                            ));
                        }
                        _ => {}
                    }
                }
            }
        }
    }
}

fn place(at: &Segments, name: &str) -> String {
    [&["soong".to_owned()][..], at, &[name.to_owned()]]
        .concat()
        .join("::")
}

fn is_public(vis: &Visibility) -> bool {
    matches!(vis, Visibility::Public(_))
}

fn declared(item: &Item) -> Option<(&Visibility, String)> {
    let (vis, ident) = match item {
        Item::Fn(of) => (&of.vis, &of.sig.ident),
        Item::Struct(of) => (&of.vis, &of.ident),
        Item::Enum(of) => (&of.vis, &of.ident),
        Item::Trait(of) => (&of.vis, &of.ident),
        Item::Type(of) => (&of.vis, &of.ident),
        Item::Const(of) => (&of.vis, &of.ident),
        _ => return None,
    };
    Some((vis, ident.to_string()))
}

fn fields(fields: &Fields, prefix: &str, add: &mut impl FnMut(String)) {
    for field in fields.iter().filter(|field| is_public(&field.vis)) {
        let name = field
            .ident
            .as_ref()
            .map_or_else(|| "_".to_owned(), ToString::to_string);
        add(format!(
            "{prefix}field {name} : {}",
            field.ty.to_token_stream()
        ));
    }
}

/// Returns the names that a `use` introduces, with their paths.
fn imported(tree: &UseTree, prefix: &[String]) -> Vec<(String, Segments)> {
    let with = |name: &str| [prefix, &[name.to_owned()]].concat();
    match tree {
        UseTree::Path(path) => imported(&path.tree, &with(&path.ident.to_string())),
        UseTree::Name(name) if name.ident == "self" => {
            vec![(prefix.last().cloned().unwrap_or_default(), prefix.to_vec())]
        }
        UseTree::Name(name) => vec![(name.ident.to_string(), with(&name.ident.to_string()))],
        UseTree::Rename(name) => vec![(name.rename.to_string(), with(&name.ident.to_string()))],
        UseTree::Glob(_) => vec![("*".to_owned(), with("*"))],
        UseTree::Group(group) => group
            .items
            .iter()
            .flat_map(|tree| imported(tree, prefix))
            .collect(),
    }
}

/// Removes the spaces that are printed between tokens.
fn pretty(text: &str) -> String {
    let mut text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for (from, to) in [
        (" :: ", "::"),
        (":: ", "::"),
        (" ::", "::"),
        (" < ", "<"),
        ("< ", "<"),
        (" >", ">"),
        (" ,", ","),
        ("& ", "&"),
        (" (", "("),
        ("( ", "("),
        (" )", ")"),
        (" : ", ": "),
        ("[ ", "["),
        (" ]", "]"),
        (" ;", ";"),
        ("' ", "'"),
        (",)", ")"),
        (", >", ">"),
    ] {
        text = text.replace(from, to);
    }
    text.replace("->(", "-> (").replace("- >", "->")
}

#[test]
fn public_api_of_the_library_matches_its_snapshot() {
    let mut library = Library::default();
    for (at, folder) in PARTS
        .iter()
        .map(|(name, folder)| (vec![(*name).to_owned()], folder))
        .chain([(vec![], &"actors")])
    {
        let src = root().join(folder).join("src");
        library.file(&src.join("lib.rs"), &src, at);
    }
    let mut lines = BTreeSet::new();
    library.module(&Vec::new(), &Vec::new(), &mut lines);
    assert!(
        lines.len() > 300,
        "most of the API is missing: {}",
        lines.len()
    );
    let text = lines
        .into_iter()
        .map(|line| line + "\n")
        .collect::<String>();
    let path = root().join("tests/architecture/public_api.txt");
    if std::env::var("INSTA_UPDATE").is_ok_and(|mode| mode == "always") {
        std::fs::write(&path, &text).unwrap();
    }
    let stored = std::fs::read_to_string(&path).unwrap_or_default();
    let changed: Vec<&str> = text
        .lines()
        .filter(|line| !stored.lines().any(|old| old == *line))
        .collect();
    let removed: Vec<&str> = stored
        .lines()
        .filter(|old| !text.lines().any(|line| line == *old))
        .collect();
    assert!(
        changed.is_empty() && removed.is_empty(),
        "the public API has changed; accept it with INSTA_UPDATE=always\nnew: {changed:#?}\ngone: {removed:#?}"
    );
}

#[test]
fn reexports_methods_and_traits_are_listed() {
    let mut library = Library::default();
    let text =
        "mod inner { pub struct Shown<T>(T); impl<T> Shown<T> { pub fn go(&self) -> u8 { 1 } fn hidden(&self) {} }
        impl<T> Clone for Shown<T> { fn clone(&self) -> Self { todo!() } } pub fn unseen() {} }
        pub use inner::Shown; pub use other::Thing;
        pub trait Act { fn act(&self); }";
    library.items(
        syn::parse_file(text).unwrap().items,
        Path::new(""),
        Vec::new(),
    );
    let mut lines = BTreeSet::new();
    library.module(&Vec::new(), &Vec::new(), &mut lines);
    let lines: Vec<String> = lines.into_iter().collect();
    assert_eq!(
        lines,
        [
            "soong::Act: fn act(&self)",
            "soong::Act: trait",
            "soong::Shown: fn go(&self) -> u8",
            "soong::Shown: impl Clone",
            "soong::Shown: struct<T>",
            "soong::Thing: pub use other::Thing",
        ]
    );
}
