//! Bounds on the work that a JSON schema causes.
//!
//! A validator follows references as if their targets were written in their place. So a short
//! schema whose references double per level, or a recursive one on a deeply nested value, would
//! take longer than anybody waits. Schemas come from models and servers: each is counted when it is
//! compiled, and each value before it is checked.
//!
//! The count walks the schema as the validator does, without its checks, and stops at the limit: it
//! is bounded itself.
//!
//! Invariants:
//! - A schema that expands to more than [`MAX_EXPANSIONS`] schemas is refused.
//! - A value whose check takes more than [`MAX_STEPS`] steps is not checked, and does not match.
//!
//! Elsewhere: the validator (`json_schema.rs`).

use std::collections::HashMap;

use referencing::{Draft, Registry, Resolver, ResourceRef, uri};
use serde_json::{Map, Value};

/// Maximum number of schemas after all references are expanded, summed over the root and all
/// schemas of members and items.
const MAX_EXPANSIONS: usize = 100_000;
/// Maximum number of steps for the check of one value. A step takes some nanoseconds.
const MAX_STEPS: usize = 2_000_000;
/// Maximum number of schemas that are nested within each other. The validator uses the stack for
/// them.
const MAX_DEPTH: usize = 512;
/// Maximum length of all patterns of a schema, in characters.
const MAX_PATTERN_CHARS: usize = 20_000;
/// Reading this many bytes of a text counts as one step.
const BYTES_PER_STEP: usize = 64;
/// Comparing this many values of an `enum` counts as one step.
const VALUES_PER_STEP: usize = 16;

/// A schema as the graph of its subschemas, to count the steps of a check.
#[derive(Debug)]
pub(super) struct Steps {
    nodes: Vec<Node>,
}

/// One subschema, and those that a validator applies after it. The numbers are indexes of nodes.
#[derive(Debug, Default)]
struct Node {
    /// Path of the subschema in the document, as a JSON pointer.
    path: String,
    /// Steps for keywords with lists of values.
    weight: usize,
    /// Schemas for the same value.
    in_place: Vec<usize>,
    /// Schemas for the member with a name.
    by_name: HashMap<String, usize>,
    /// Schemas for each member.
    each_member: Vec<usize>,
    /// Schemas for each name of a member.
    names: Vec<usize>,
    /// Schemas for each item.
    each_item: Vec<usize>,
    /// Schemas for the items at the beginning, by position.
    by_position: Vec<usize>,
    /// Whether a text is read as a whole: for its length, its format or a pattern.
    reads_text: bool,
    /// Number of patterns that are matched with the value or with names of its members.
    patterns: usize,
    /// Whether a pattern may go back in the text, so that its time grows with the square of the
    /// length.
    backtracks: bool,
    /// Whether the whole value is compared.
    reads_whole: bool,
    /// Whether the node looks up which members or items other schemas have evaluated.
    is_unevaluated: bool,
}

impl Steps {
    /// Reads a schema.
    ///
    /// # Errors
    /// Returns the reason if a reference cannot be resolved, or the schema exceeds a limit; the
    /// reason names the path.
    pub(super) fn new(schema: &Value) -> Result<Self, String> {
        let draft = Draft::default().detect(schema);
        let resource = draft.create_resource_ref(schema);
        let base = resource.id().unwrap_or("json-schema:///").to_owned();
        let base = uri::from_str(&base).map_err(|error| error.to_string())?;
        let registry = Registry::new()
            .draft(draft)
            .add(base.as_str(), resource)
            .map_err(|error| error.to_string())?;
        let registry = registry.prepare().map_err(|error| error.to_string())?;
        let mut builder = Builder {
            nodes: Vec::new(),
            known: HashMap::new(),
            open: Vec::new(),
            pattern_chars: 0,
        };
        builder.node(schema, &registry.resolver(base), draft, "#".to_owned());
        builder.read_all()?;
        let steps = Self {
            nodes: builder.nodes,
        };
        steps.check_expansions()?;
        Ok(steps)
    }

    /// Counts the schemas that are applied to one value, for the root and for each schema of
    /// members and items.
    fn check_expansions(&self) -> Result<(), String> {
        let mut targets = vec![0];
        for node in &self.nodes {
            targets.extend(node.by_name.values());
            targets.extend(&node.each_member);
            targets.extend(&node.names);
            targets.extend(&node.each_item);
            targets.extend(&node.by_position);
        }
        targets.sort_unstable();
        targets.dedup();
        let mut walk = Walk::new(self, MAX_EXPANSIONS);
        for target in targets {
            walk.check(target, None).map_err(|stop| match stop {
                Stop::Limit(path) => {
                    format!("it expands to more than {MAX_EXPANSIONS} schemas at {path}")
                }
                Stop::Depth(path) => format!("it nests more than {MAX_DEPTH} schemas at {path}"),
            })?;
        }
        Ok(())
    }

    /// Returns the number of steps that the check of a value takes.
    ///
    /// # Errors
    /// Returns the reason if it takes too many; the reason names the path in the schema.
    pub(super) fn count(&self, value: &Value) -> Result<usize, String> {
        self.count_up_to(MAX_STEPS, value)
    }

    /// Same as [`count`](Self::count), with another limit.
    pub(super) fn count_up_to(&self, max_steps: usize, value: &Value) -> Result<usize, String> {
        let mut walk = Walk::new(self, max_steps);
        walk.check(0, Some(value)).map_err(|stop| match stop {
            Stop::Limit(path) => {
                format!("checking it takes more than {max_steps} steps, at {path} of the schema")
            }
            Stop::Depth(path) => {
                format!("it nests more than {MAX_DEPTH} schemas, at {path} of the schema")
            }
        })?;
        Ok(walk.count)
    }
}

/// A subschema that is not read yet.
struct PendingSchema<'r> {
    index: usize,
    schema: &'r Value,
    resolver: Resolver<'r>,
    draft: Draft,
}

/// Builds the graph. Works through a list, because schemas may be nested deeply.
struct Builder<'r> {
    nodes: Vec<Node>,
    /// Index of each subschema by its address. The document does not move while the graph is built.
    known: HashMap<*const Value, usize>,
    open: Vec<PendingSchema<'r>>,
    pattern_chars: usize,
}

impl<'r> Builder<'r> {
    /// Returns the index of a subschema.
    fn node(
        &mut self,
        schema: &'r Value,
        resolver: &Resolver<'r>,
        draft: Draft,
        path: String,
    ) -> usize {
        if let Some(index) = self.known.get(&std::ptr::from_ref(schema)) {
            return *index;
        }
        let index = self.nodes.len();
        self.known.insert(std::ptr::from_ref(schema), index);
        self.nodes.push(Node {
            path,
            ..Node::default()
        });
        self.open.push(PendingSchema {
            index,
            schema,
            resolver: resolver.clone(),
            draft,
        });
        index
    }

    fn read_all(&mut self) -> Result<(), String> {
        while let Some(open) = self.open.pop() {
            if let Value::Object(keywords) = open.schema {
                self.read(
                    open.index,
                    open.schema,
                    keywords,
                    &open.resolver,
                    open.draft,
                )?;
            }
        }
        if self.pattern_chars > MAX_PATTERN_CHARS {
            return Err(format!(
                "its patterns have more than {MAX_PATTERN_CHARS} characters"
            ));
        }
        Ok(())
    }

    fn read(
        &mut self,
        index: usize,
        schema: &'r Value,
        keywords: &'r Map<String, Value>,
        resolver: &Resolver<'r>,
        draft: Draft,
    ) -> Result<(), String> {
        let draft = draft.detect(schema);
        let resolver = &resolver
            .in_subresource(ResourceRef::new(schema, draft))
            .map_err(|error| error.to_string())?;
        let mut node = Node {
            path: std::mem::take(&mut self.nodes[index].path),
            ..Node::default()
        };
        // Up to draft 7, the keywords beside a reference are ignored.
        let has_only_reference = matches!(draft, Draft::Draft4 | Draft::Draft6 | Draft::Draft7)
            && keywords.get("$ref").is_some_and(Value::is_string);
        for (keyword, value) in keywords {
            if has_only_reference && keyword != "$ref" {
                continue;
            }
            let path = format!("{}/{keyword}", node.path);
            match keyword.as_str() {
                "$dynamicRef" if draft != Draft::Draft202012 => {}
                "$recursiveRef" if draft != Draft::Draft201909 => {}
                "$ref" | "$dynamicRef" => {
                    let Some(reference) = value.as_str() else {
                        continue;
                    };
                    let target = resolver
                        .lookup(reference)
                        .map_err(|error| error.to_string())?;
                    let (contents, resolver, draft) = target.into_inner();
                    node.in_place
                        .push(self.node(contents, &resolver, draft, reference.to_owned()));
                }
                "$recursiveRef" => {
                    let target = resolver
                        .lookup_recursive_ref()
                        .map_err(|error| error.to_string())?;
                    let (contents, resolver, draft) = target.into_inner();
                    node.in_place
                        .push(self.node(contents, &resolver, draft, "#".to_owned()));
                }
                "allOf" | "anyOf" | "oneOf" => node
                    .in_place
                    .extend(self.list(value, resolver, draft, &path)),
                "not" | "if" | "then" | "else" => {
                    node.in_place.push(self.node(value, resolver, draft, path))
                }
                "dependentSchemas" | "dependencies" => {
                    node.in_place
                        .extend(self.named(value, resolver, draft, &path).into_values());
                }
                "properties" => node.by_name = self.named(value, resolver, draft, &path),
                "patternProperties" => {
                    let named = self.named(value, resolver, draft, &path);
                    node.patterns += named.len();
                    node.backtracks |= named.keys().any(|pattern| needs_backtracking(pattern));
                    self.pattern_chars += named
                        .keys()
                        .map(|pattern| pattern.chars().count())
                        .sum::<usize>();
                    node.each_member.extend(named.into_values());
                }
                "additionalProperties" => node
                    .each_member
                    .push(self.node(value, resolver, draft, path)),
                "unevaluatedProperties" => {
                    node.is_unevaluated = true;
                    node.each_member
                        .push(self.node(value, resolver, draft, path));
                }
                "propertyNames" => node.names.push(self.node(value, resolver, draft, path)),
                "items" if value.is_array() => node
                    .by_position
                    .extend(self.list(value, resolver, draft, &path)),
                "prefixItems" => node
                    .by_position
                    .extend(self.list(value, resolver, draft, &path)),
                "items" | "additionalItems" | "contains" => {
                    node.each_item.push(self.node(value, resolver, draft, path));
                }
                "unevaluatedItems" => {
                    node.is_unevaluated = true;
                    node.each_item.push(self.node(value, resolver, draft, path));
                }
                "pattern" => {
                    let pattern = value.as_str().unwrap_or_default();
                    node.patterns += 1;
                    node.reads_text = true;
                    node.backtracks |= needs_backtracking(pattern);
                    self.pattern_chars += pattern.chars().count();
                }
                "minLength" | "maxLength" | "format" => node.reads_text = true,
                "enum" | "const" | "uniqueItems" => {
                    node.reads_whole = true;
                    node.weight += size_of_value(value) / VALUES_PER_STEP;
                }
                "required" => node.weight += value.as_array().map_or(0, Vec::len),
                _ => {}
            }
        }
        self.nodes[index] = node;
        Ok(())
    }

    fn list(
        &mut self,
        schemas: &'r Value,
        resolver: &Resolver<'r>,
        draft: Draft,
        path: &str,
    ) -> Vec<usize> {
        let mut indexes = Vec::new();
        for (number, schema) in schemas.as_array().into_iter().flatten().enumerate() {
            indexes.push(self.node(schema, resolver, draft, format!("{path}/{number}")));
        }
        indexes
    }

    fn named(
        &mut self,
        schemas: &'r Value,
        resolver: &Resolver<'r>,
        draft: Draft,
        path: &str,
    ) -> HashMap<String, usize> {
        let mut indexes = HashMap::new();
        for (name, schema) in schemas.as_object().into_iter().flatten() {
            // A dependency may be a list of names.
            if !schema.is_array() {
                indexes.insert(
                    name.clone(),
                    self.node(schema, resolver, draft, format!("{path}/{name}")),
                );
            }
        }
        indexes
    }
}

/// Reason why a walk stopped, with the path of a schema.
enum Stop {
    Limit(String),
    Depth(String),
}

/// A schema that is being applied.
struct Frame {
    node: usize,
    /// Address of the value; `None` if schemas are counted without a value.
    value: Option<*const Value>,
    /// Number of steps before it.
    count_before: usize,
}

/// Walks through a schema as a validator does, and counts.
struct Walk<'a> {
    steps: &'a Steps,
    limit: usize,
    count: usize,
    stack: Vec<Frame>,
}

impl<'a> Walk<'a> {
    fn new(steps: &'a Steps, limit: usize) -> Self {
        Self {
            steps,
            limit,
            count: 0,
            stack: Vec::new(),
        }
    }

    /// Counts the application of a schema to a value.
    fn check(&mut self, index: usize, value: Option<&Value>) -> Result<(), Stop> {
        let address = value.map(std::ptr::from_ref);
        // A validator does not follow a cycle for the same value.
        if self
            .stack
            .iter()
            .rev()
            .any(|frame| frame.node == index && frame.value == address)
        {
            return self.add(1);
        }
        self.stack.push(Frame {
            node: index,
            value: address,
            count_before: self.count,
        });
        if self.stack.len() > MAX_DEPTH {
            return Err(Stop::Depth(self.steps.nodes[index].path.clone()));
        }
        let node = &self.steps.nodes[index];
        // Schemas without a value are only counted.
        self.add(1 + value.map_or(0, |value| node.weight + own_size(node, value)))?;
        for target in &node.in_place {
            self.check(*target, value)?;
            if node.is_unevaluated {
                // A second pass finds out what the schema has evaluated; nested ones multiply.
                self.check(*target, value)?;
            }
        }
        match value {
            Some(Value::Object(members)) => {
                for (name, member) in members {
                    if let Some(target) = node.by_name.get(name) {
                        self.check(*target, Some(member))?;
                    }
                    for target in &node.each_member {
                        self.check(*target, Some(member))?;
                    }
                    for target in &node.names {
                        self.check(*target, None)?;
                        self.add(text_steps(&self.steps.nodes[*target], name.len()))?;
                    }
                }
            }
            Some(Value::Array(items)) => {
                for (position, item) in items.iter().enumerate() {
                    if let Some(target) = node.by_position.get(position) {
                        self.check(*target, Some(item))?;
                    }
                    for target in &node.each_item {
                        self.check(*target, Some(item))?;
                    }
                }
            }
            _ => {}
        }
        self.stack.pop();
        Ok(())
    }

    fn add(&mut self, steps: usize) -> Result<(), Stop> {
        self.count = self.count.saturating_add(steps);
        if self.count <= self.limit {
            return Ok(());
        }
        // The innermost schema that causes at least half of the steps.
        let is_cause = |frame: &&Frame| self.count - frame.count_before >= self.limit / 2;
        let cause = self
            .stack
            .iter()
            .rev()
            .find(is_cause)
            .or(self.stack.first());
        Err(Stop::Limit(cause.map_or_else(
            || "#".to_owned(),
            |frame| self.steps.nodes[frame.node].path.clone(),
        )))
    }
}

/// Returns the steps for the parts of a value that a node looks at itself.
fn own_size(node: &Node, value: &Value) -> usize {
    let size = match value {
        Value::Object(members) => {
            let name_steps: usize = members
                .keys()
                .map(|name| text_steps(node, name.len()))
                .sum();
            members.len() + name_steps
        }
        Value::Array(items) => items.len(),
        Value::String(text) if node.reads_text => text_steps(node, text.len()),
        _ => 0,
    };
    if node.reads_whole {
        size + size_of_value(value)
    } else {
        size
    }
}

/// Returns the steps for matching the patterns of a node with a text.
fn text_steps(node: &Node, bytes: usize) -> usize {
    let steps = (bytes / BYTES_PER_STEP) * (1 + node.patterns);
    if node.backtracks {
        steps + bytes.saturating_mul(bytes) / BYTES_PER_STEP
    } else {
        steps
    }
}

/// Returns whether a pattern has look-around or a backreference, which the linear engine does not
/// support.
fn needs_backtracking(pattern: &str) -> bool {
    let has_backreference = pattern
        .as_bytes()
        .windows(2)
        .any(|pair| pair[0] == b'\\' && matches!(pair[1], b'1'..=b'9' | b'k'));
    has_backreference
        || ["(?=", "(?!", "(?<=", "(?<!", "(?>"]
            .iter()
            .any(|start| pattern.contains(start))
}

/// Returns the number of values within a value, and 1 for every 64 bytes of text.
fn size_of_value(value: &Value) -> usize {
    match value {
        Value::Object(members) => 1 + members.values().map(size_of_value).sum::<usize>(),
        Value::Array(items) => 1 + items.iter().map(size_of_value).sum::<usize>(),
        Value::String(text) => 1 + text.len() / BYTES_PER_STEP,
        _ => 1,
    }
}
