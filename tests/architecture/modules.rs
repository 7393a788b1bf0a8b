//! The modules of a crate and the paths between them, read with `syn`.
//!
//! A path through a re-export counts as using the module that defines the name. Test modules are
//! ignored. Paths inside macro calls are recognized as token sequences of the form `name::name`.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    path::{Path, PathBuf},
};

use proc_macro2::{TokenStream, TokenTree};
use syn::{Attribute, Item, UseTree, visit::Visit};

/// Maximum number of re-exports that are followed for one path. A longer chain is treated as a
/// cycle.
const MAX_DEPTH: usize = 12;

type Segments = Vec<String>;

/// One module of a crate.
#[derive(Default)]
struct Module {
    children: BTreeSet<String>,
    /// Names defined in the module.
    items: BTreeSet<String>,
    /// Names imported by `use`, with their paths.
    imported: HashMap<String, Segments>,
    /// Paths of glob imports.
    globs: Vec<Segments>,
    /// Every path used in the module.
    paths: BTreeSet<Segments>,
}

/// The modules of one crate by path. The path of the root module is empty.
#[derive(Default)]
pub(super) struct Crate {
    modules: BTreeMap<Segments, Module>,
}

/// An import edge: the using module, the used module, and one path as an example.
pub(super) type Edge = (Segments, Segments, String);

impl Crate {
    /// Parses a crate from its root file.
    pub(super) fn read(root: &Path) -> Self {
        let mut found = Self::default();
        found.file(root, root.parent().unwrap(), Vec::new());
        found
    }

    /// Parses a crate from one text. Modules without a body are empty.
    #[cfg(test)]
    pub(super) fn of_text(text: &str) -> Self {
        let mut found = Self::default();
        found.items(syn::parse_file(text).unwrap().items, None, Vec::new());
        found
    }

    fn file(&mut self, file: &Path, folder: &Path, at: Segments) {
        let text = std::fs::read_to_string(file)
            .unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let parsed =
            syn::parse_file(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        self.items(parsed.items, Some((file, folder)), at);
    }

    fn items(&mut self, items: Vec<Item>, location: Option<(&Path, &Path)>, at: Segments) {
        self.modules.entry(at.clone()).or_default();
        for item in items.into_iter().filter(|item| !is_test(attributes(item))) {
            if let Item::Mod(module) = item {
                self.submodule(module, location, &at);
                continue;
            }
            let here = self.modules.get_mut(&at).unwrap();
            if let Item::Use(import) = &item {
                imports(&import.tree, &mut Vec::new(), here);
            } else {
                here.items.extend(name(&item));
                PathsOf(here).visit_item(&item);
            }
        }
    }

    fn submodule(&mut self, module: syn::ItemMod, location: Option<(&Path, &Path)>, at: &Segments) {
        let name = module.ident.to_string();
        self.modules
            .get_mut(at)
            .unwrap()
            .children
            .insert(name.clone());
        let mut inner = at.clone();
        inner.push(name.clone());
        self.modules.entry(inner.clone()).or_default();
        match (module.content, location) {
            (Some((_, items)), location) => {
                let folder = location.map(|(_, folder)| folder.join(&name));
                self.items(
                    items,
                    location.map(|(file, _)| file).zip(folder.as_deref()),
                    inner,
                );
            }
            (None, None) => {}
            (None, Some((file, folder))) => {
                let given =
                    path_attribute(&module.attrs).map(|path| file.parent().unwrap().join(path));
                let file = given.unwrap_or_else(|| folder.join(format!("{name}.rs")));
                self.file(&file, &folder.join(&name), inner);
            }
        }
    }

    /// Returns the import edges, each pair of modules once.
    pub(super) fn edges(&self) -> Vec<Edge> {
        let mut found: BTreeMap<(Segments, Segments), String> = BTreeMap::new();
        for (at, module) in &self.modules {
            let globbed = module
                .globs
                .iter()
                .flat_map(|glob| self.named_through(at, glob));
            for path in module.paths.iter().cloned().chain(globbed) {
                if let Some(target) = self.resolve(at, &path, 0)
                    && target != *at
                {
                    found
                        .entry((at.clone(), target))
                        .or_insert_with(|| path.join("::"));
                }
            }
        }
        found
            .into_iter()
            .map(|((from, to), path)| (from, to, path))
            .collect()
    }

    /// Returns the paths of the names that a module uses through the glob import `glob`.
    fn named_through(&self, at: &Segments, glob: &Segments) -> Vec<Segments> {
        let Some(target) = self
            .resolve(at, glob, 0)
            .and_then(|target| self.modules.get(&target))
        else {
            return Vec::new();
        };
        let heads = self.modules[at].paths.iter().map(|path| &path[0]);
        let known = heads.filter(|head| {
            target.items.contains(*head)
                || target.children.contains(*head)
                || target.imported.contains_key(*head)
        });
        known
            .map(|head| [glob.as_slice(), std::slice::from_ref(head)].concat())
            .collect()
    }

    /// Resolves a path to the module that defines its last name, or to the module that the path
    /// names.
    ///
    /// `None`: the path belongs to another crate or starts with a local variable.
    fn resolve(&self, from: &Segments, path: &[String], depth: usize) -> Option<Segments> {
        if depth > MAX_DEPTH {
            return None;
        }
        let module = &self.modules[from];
        let (head, rest) = path.split_first()?;
        match head.as_str() {
            "crate" => self.follow(Vec::new(), rest, depth),
            "Self" => None,
            "self" => self.follow(from.clone(), rest, depth),
            "super" => {
                let mut above = from.clone();
                above.pop()?;
                match rest.first().map(String::as_str) {
                    Some("super") => self.resolve(&above, rest, depth),
                    _ => self.follow(above, rest, depth),
                }
            }
            name if module.children.contains(name) => self.follow(from.clone(), path, depth),
            name => match module.imported.get(name) {
                Some(import) if import.as_slice() != [name] => {
                    self.resolve(from, &[import.as_slice(), rest].concat(), depth + 1)
                }
                _ => module.items.contains(name).then(|| from.clone()),
            },
        }
    }

    /// Follows the rest of a path from a module.
    fn follow(&self, mut at: Segments, path: &[String], depth: usize) -> Option<Segments> {
        for (index, name) in path.iter().enumerate() {
            let module = &self.modules[&at];
            let is_last = index + 1 == path.len();
            if module.children.contains(name) && !(is_last && module.items.contains(name)) {
                at.push(name.clone());
            } else if module.items.contains(name) {
                return Some(at);
            } else if let Some(import) = module.imported.get(name) {
                let through = [import.as_slice(), &path[index + 1..]].concat();
                // A name of another crate counts as defined in the module that re-exports it.
                return self.resolve(&at, &through, depth + 1).or(Some(at));
            } else {
                let globs = module
                    .globs
                    .iter()
                    .filter_map(|glob| self.resolve(&at, glob, depth + 1));
                let through = globs
                    .filter(|target| *target != at && depth < MAX_DEPTH)
                    .filter_map(|target| {
                        self.follow(target.clone(), &path[index..], depth + 1)
                            .filter(|to| *to != target)
                    })
                    .next();
                return through.or(Some(at));
            }
        }
        Some(at)
    }
}

/// Returns, for each module, the edges between its children: which child uses which sibling, with
/// an example.
pub(super) fn siblings(
    edges: &[Edge],
) -> BTreeMap<Segments, BTreeMap<String, BTreeMap<String, String>>> {
    let mut rooms: BTreeMap<Segments, BTreeMap<String, BTreeMap<String, String>>> = BTreeMap::new();
    for (from, to, path) in edges {
        let common = from.iter().zip(to).take_while(|(a, b)| a == b).count();
        if let (Some(user), Some(used)) = (from.get(common), to.get(common)) {
            let example = format!("{} names {path}", from.join("::"));
            let room = rooms.entry(from[..common].to_vec()).or_default();
            room.entry(user.clone())
                .or_default()
                .entry(used.clone())
                .or_insert(example);
        }
    }
    rooms
}

/// Returns the import cycles: groups of names that reach each other, each sorted.
pub(super) fn circles(arrows: &BTreeMap<String, BTreeMap<String, String>>) -> Vec<Vec<String>> {
    let reach = |start: &String| {
        let mut reached = BTreeSet::new();
        let mut open = vec![start.clone()];
        while let Some(name) = open.pop() {
            for next in arrows.get(&name).into_iter().flat_map(BTreeMap::keys) {
                if reached.insert(next.clone()) {
                    open.push(next.clone());
                }
            }
        }
        reached
    };
    let reached: BTreeMap<&String, BTreeSet<String>> =
        arrows.keys().map(|name| (name, reach(name))).collect();
    let mut groups: BTreeSet<Vec<String>> = BTreeSet::new();
    for (name, all) in &reached {
        let is_mutual =
            |other: &&String| reached.get(*other).is_some_and(|back| back.contains(*name));
        let group: Vec<String> = all.iter().filter(is_mutual).cloned().collect();
        if group.len() > 1 {
            groups.insert(group);
        }
    }
    groups.into_iter().collect()
}

struct PathsOf<'a>(&'a mut Module);

impl<'ast> Visit<'ast> for PathsOf<'_> {
    fn visit_path(&mut self, path: &'ast syn::Path) {
        self.0.paths.insert(
            path.segments
                .iter()
                .map(|segment| segment.ident.to_string())
                .collect(),
        );
        syn::visit::visit_path(self, path);
    }

    fn visit_item_use(&mut self, import: &'ast syn::ItemUse) {
        imports(&import.tree, &mut Vec::new(), self.0);
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        paths_in(call.tokens.clone(), self.0);
        syn::visit::visit_macro(self, call);
    }
}

fn paths_in(tokens: TokenStream, module: &mut Module) {
    let mut path: Segments = Vec::new();
    let mut colons = 0;
    for token in tokens {
        match token {
            TokenTree::Ident(name) if colons == 2 && !path.is_empty() => {
                path.push(name.to_string())
            }
            TokenTree::Punct(punct) if punct.as_char() == ':' => {
                colons += 1;
                continue;
            }
            other => {
                if !path.is_empty() {
                    module.paths.insert(std::mem::take(&mut path));
                }
                match other {
                    TokenTree::Ident(name) => path.push(name.to_string()),
                    TokenTree::Group(group) => paths_in(group.stream(), module),
                    _ => {}
                }
            }
        }
        colons = 0;
    }
    if !path.is_empty() {
        module.paths.insert(path);
    }
}

fn imports(tree: &UseTree, prefix: &mut Segments, module: &mut Module) {
    let mut bring = |prefix: &Segments, name: String, source: String| {
        let path = match source.as_str() {
            "self" => prefix.clone(),
            _ => [prefix.as_slice(), &[source]].concat(),
        };
        module.paths.insert(path.clone());
        module.imported.insert(name, path);
    };
    match tree {
        UseTree::Path(path) => {
            prefix.push(path.ident.to_string());
            imports(&path.tree, prefix, module);
            prefix.pop();
        }
        UseTree::Name(name) if name.ident == "self" => {
            bring(
                prefix,
                prefix.last().cloned().unwrap_or_default(),
                "self".to_owned(),
            );
        }
        UseTree::Name(name) => bring(prefix, name.ident.to_string(), name.ident.to_string()),
        UseTree::Rename(rename) => {
            bring(prefix, rename.rename.to_string(), rename.ident.to_string())
        }
        UseTree::Glob(_) => module.globs.push(prefix.clone()),
        UseTree::Group(group) => group
            .items
            .iter()
            .for_each(|tree| imports(tree, prefix, module)),
    }
}

fn name(item: &Item) -> Option<String> {
    Some(match item {
        Item::Const(item) => item.ident.to_string(),
        Item::Enum(item) => item.ident.to_string(),
        Item::Fn(item) => item.sig.ident.to_string(),
        Item::Static(item) => item.ident.to_string(),
        Item::Struct(item) => item.ident.to_string(),
        Item::Trait(item) => item.ident.to_string(),
        Item::Type(item) => item.ident.to_string(),
        Item::Union(item) => item.ident.to_string(),
        Item::Macro(item) => item.ident.as_ref()?.to_string(),
        _ => return None,
    })
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// Whether an item is compiled for tests only.
fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        syn::Meta::List(list) => list.path.is_ident("cfg") && list.tokens.to_string() == "test",
        _ => false,
    })
}

fn path_attribute(attributes: &[Attribute]) -> Option<PathBuf> {
    attributes
        .iter()
        .find_map(|attribute| match &attribute.meta {
            syn::Meta::NameValue(pair) if pair.path.is_ident("path") => match &pair.value {
                syn::Expr::Lit(syn::ExprLit {
                    lit: syn::Lit::Str(text),
                    ..
                }) => Some(PathBuf::from(text.value())),
                _ => None,
            },
            _ => None,
        })
}
