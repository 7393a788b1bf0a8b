//! Generates the OpenAPI document: the operations of the table, the descriptions of the handlers of
//! the other endpoints, and the parts common to all of them.
//!
//! The binary contains the generated document, `openapi.json`, and not this module.

mod generators;
mod table;

use std::{collections::BTreeSet, path::Path};

use serde_json::Value;
use soong::protocol::api::{ErrorBody, IDEMPOTENCY_KEY, UPLOAD_NAME, operation::ENDPOINTS};
use utoipa::{
    OpenApi, PartialSchema, ToSchema,
    openapi::{
        ContentBuilder, HttpMethod, ObjectBuilder, Ref, RefOr, Required, ResponseBuilder, Type,
        path::{Operation, Parameter, ParameterBuilder, ParameterIn, PathItem},
        security::{Http, HttpAuthScheme, SecurityRequirement, SecurityScheme},
    },
};

use super::{artifact, call, keyed::MAX_KEY_BYTES, metrics, task, watch};

const ABOUT: &str = "\
Starts, watches and controls runs of agents, and reads their records.

Every request except `/` and `/health/*` requires `Authorization: Bearer TOKEN`. All errors have the same format, with a \
stable `code`. Times are RFC 3339 in UTC, amounts in USD are decimal strings. Records of other users are reported as not found.";

/// The parts of the document that do not come from the table: endpoints that are no operations have
/// their description at their handler.
#[derive(OpenApi)]
#[openapi(
    info(title = "Soong", description = ABOUT, license(name = "Apache-2.0", identifier = "Apache-2.0")),
    paths(
        watch::trace,
        call::call,
        artifact::put,
        artifact::upload,
        artifact::content,
        artifact::export,
        task::clean_up,
        watch::tree,
        metrics::show,
    ),
    components(schemas(ErrorBody)),
    tags(
        (name = "runs", description = "Start, stop and extend runs"),
        (name = "traces", description = "Conversations, goals and events of each agent"),
        (name = "sessions", description = "Conversations"),
        (name = "artifacts", description = "Named, versioned files"),
        (name = "people", description = "Questions and permission requests of agents"),
        (name = "home", description = "Resources of the whole home"),
        (name = "tree", description = "The supervision tree"),
        (name = "health", description = "Health checks and metrics"),
    )
)]
struct Base;

/// Content type of bodies that are stored unchanged.
const BYTES: &str = "application/octet-stream";

/// Errors of every endpoint, in addition to those that a handler declares.
const COMMON_ERRORS: [(&str, &str); 5] = [
    ("400", "The request is invalid; nothing was changed."),
    ("401", "The token is missing or unknown."),
    (
        "403",
        "The user, the host or the origin of the request is not allowed.",
    ),
    ("429", "A limit is reached: retry later."),
    (
        "503",
        "The store is unavailable, an actor is being restarted, or the server is shutting down.",
    ),
];
const NOT_FOUND: (&str, &str) = ("404", "The resource does not exist.");
const CONFLICT: (&str, &str) = ("409", "The request conflicts with the current state.");
const BODY_ERRORS: [(&str, &str); 2] = [
    ("413", "The body is too large."),
    (
        "415",
        "The media type of the body or of the artifact is not supported.",
    ),
];
/// Additional error of changes of an artifact.
const PRECONDITION_ERROR: (&str, &str) = (
    "412",
    "The artifact does not have a version that the request allows: see `details.version`. Nothing was changed.",
);
/// Headers of changes with a condition on the version of an artifact, and what they do.
const CONDITIONS: [(&str, &str); 2] = [
    (
        "If-Match",
        "Changes the artifact only if its version is one of these ETags, or exists (`*`).",
    ),
    (
        "If-None-Match",
        "Changes the artifact only if its version is none of these ETags, or does not exist (`*`).",
    ),
];
/// Additional error of starting a run.
const START_ERRORS: [(&str, &str); 1] = [("500", "The configuration does not allow this run.")];
/// Error for an invalid cursor.
const CURSOR_ERROR: (&str, &str) = (
    "410",
    "The cursor does not belong to this store: see `details.start_again`.",
);
/// Additional error of operations that create a session.
const PROJECT_ERROR: (&str, &str) = (
    "422",
    "The folder cannot be used as a project: see `details.field`.",
);

/// Adds the parts common to all operations: security, operation ids and error responses.
fn add_common_parts(document: &mut utoipa::openapi::OpenApi) {
    document.info.version = env!("CARGO_PKG_VERSION").to_owned();
    let components = document.components.get_or_insert_default();
    components.add_security_scheme(
        "token",
        SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer)),
    );
    let mut schemas = vec![(ErrorBody::name().into_owned(), ErrorBody::schema())];
    ErrorBody::schemas(&mut schemas);
    components.schemas.extend(schemas);
    // Files are posted to the path `upload`, not to an artifact.
    let one = "/api/sessions/{session_id}/artifacts/{name}";
    if let Some(post) = document
        .paths
        .paths
        .get_mut(one)
        .and_then(|item| item.post.take())
    {
        let path = one.replace("{name}", UPLOAD_NAME);
        document
            .paths
            .paths
            .insert(path, PathItem::new(HttpMethod::Post, post));
    }
    for (path, item) in &mut document.paths.paths {
        let has_id = path.contains('{');
        for (method, operation) in operations(item) {
            operation.operation_id = Some(operation_id(method, path));
            let writes = method != "get";
            let is_open = operation.security.is_some();
            if !is_open {
                operation.security = Some(vec![SecurityRequirement::new("token", [""; 0])]);
            }
            if method == "post" {
                operation
                    .parameters
                    .get_or_insert_default()
                    .push(RefOr::T(idempotency_key()));
            }
            let is_conditional = path.ends_with("/artifacts/{name}") && method != "post";
            if writes && is_conditional {
                let parameters = operation.parameters.get_or_insert_default();
                parameters.extend(
                    CONDITIONS.map(|(name, about)| RefOr::T(version_condition(name, about))),
                );
            }
            let has_body = operation.request_body.is_some();
            if let Some(RefOr::T(body)) = &mut operation.request_body
                && body.content.contains_key(BYTES)
            {
                // A file may be empty.
                body.required = Some(Required::False);
            }
            let starts =
                path.ends_with("/run") || path.ends_with("/reflect") || path == "/api/traces";
            let refusals = COMMON_ERRORS
                .into_iter()
                .chain((has_id || has_body).then_some(NOT_FOUND))
                .chain((writes || has_id).then_some(CONFLICT))
                .chain((writes && is_conditional).then_some(PRECONDITION_ERROR))
                .chain(BODY_ERRORS.into_iter().filter(|_| has_body || has_id))
                .chain(path.ends_with("/events").then_some(CURSOR_ERROR))
                .chain((has_body && (starts || path == "/api/sessions")).then_some(PROJECT_ERROR))
                .chain(START_ERRORS.into_iter().filter(|_| starts && has_body));
            for (status, response) in &mut operation.responses.responses {
                if let RefOr::T(response) = response {
                    success_description(status).clone_into(&mut response.description);
                }
            }
            for (status, description) in refusals {
                let content = ContentBuilder::new()
                    .schema(Some(Ref::from_schema_name("ErrorBody")))
                    .build();
                let response = ResponseBuilder::new()
                    .description(description)
                    .content("application/json", content);
                operation
                    .responses
                    .responses
                    .entry(status.to_owned())
                    .or_insert(RefOr::T(response.build()));
            }
        }
    }
}

/// Describes the header of a request that is executed once.
fn idempotency_key() -> Parameter {
    let description = "Executes the request once: if it is repeated with the same key, it has no effect and gets the \
                       first answer, for 24 hours. A key that was used for another request is refused with 409 \
                       `idempotency_conflict`.";
    let key = ObjectBuilder::new()
        .schema_type(Type::String)
        .pattern(Some("^[!-~]+$"))
        .min_length(Some(1))
        .max_length(Some(MAX_KEY_BYTES));
    ParameterBuilder::new()
        .name(IDEMPOTENCY_KEY)
        .parameter_in(ParameterIn::Header)
        .required(Required::False)
        .description(Some(description))
        .schema(Some(key))
        .build()
}

/// Describes a header with a condition on the version of an artifact.
fn version_condition(name: &str, about: &str) -> Parameter {
    let tags = r#"^(\*|(W/)?"[!#-~]*"(, (W/)?"[!#-~]*")*)$"#;
    ParameterBuilder::new()
        .name(name)
        .parameter_in(ParameterIn::Header)
        .required(Required::False)
        .description(Some(about))
        .schema(Some(
            ObjectBuilder::new()
                .schema_type(Type::String)
                .pattern(Some(tags)),
        ))
        .build()
}

/// Returns the document in a form that client generators understand.
fn document() -> Value {
    let mut document = Base::openapi();
    table::add_operations(&mut document);
    add_common_parts(&mut document);
    let mut written = serde_json::to_value(document).unwrap_or_default();
    generators::simplify(&mut written);
    written
}

/// Returns the description of a successful status.
fn success_description(status: &str) -> &'static str {
    match status {
        "101" => "The connection is upgraded to a WebSocket.",
        "201" => "Created.",
        "202" => "Accepted; events report the result.",
        "204" => "Deleted.",
        "304" => "The client has this version.",
        "426" => "A WebSocket request is required.",
        _ => "Success.",
    }
}

/// Returns the operations of a path with their methods.
fn operations(item: &mut PathItem) -> impl Iterator<Item = (&'static str, &mut Operation)> {
    [
        ("get", &mut item.get),
        ("post", &mut item.post),
        ("put", &mut item.put),
        ("patch", &mut item.patch),
        ("delete", &mut item.delete),
    ]
    .into_iter()
    .filter_map(|(method, operation)| Some((method, operation.as_mut()?)))
}

/// Returns the operation id used by generated clients: `get_traces_by_trace_id_messages`.
fn operation_id(method: &str, path: &str) -> String {
    let words = path
        .trim_start_matches("/api")
        .split(['/', '.'])
        .filter(|word| !word.is_empty());
    let words = words.map(|word| {
        match word
            .strip_prefix('{')
            .and_then(|word| word.strip_suffix('}'))
        {
            Some(parameter) => format!("_by_{parameter}"),
            None => format!("_{word}"),
        }
    });
    format!("{method}{}", words.collect::<String>())
}

/// Writes the document with one operation or schema per line, so that changes can be reviewed.
fn written(document: &Value) -> String {
    let mut text = String::new();
    write(&mut text, document, 3);
    text + "\n"
}

/// Writes a value; objects down to `levels` have a line for each of their fields.
fn write(text: &mut String, value: &Value, levels: usize) {
    let Some(fields) = value
        .as_object()
        .filter(|fields| levels > 0 && !fields.is_empty())
    else {
        return text.push_str(&value.to_string());
    };
    for (at, (name, value)) in fields.iter().enumerate() {
        let start = if at == 0 { "{" } else { "," };
        text.push_str(&format!("{start}\n{}:", Value::from(name.as_str())));
        write(text, value, levels - 1);
    }
    text.push('}');
}

#[test]
fn document_in_the_binary_is_up_to_date() {
    let generated = written(&document());
    if std::env::var_os("UPDATE_OPENAPI").is_some() {
        std::fs::write(
            Path::new(env!("CARGO_MANIFEST_DIR")).join("openapi.json"),
            &generated,
        )
        .unwrap();
    } else {
        assert!(
            generated == super::OPENAPI,
            "run `UPDATE_OPENAPI=1 cargo test -p soong-server`"
        );
    }
}

#[test]
fn each_endpoint_is_documented() {
    let document = document();
    let mut documented = BTreeSet::new();
    for (path, operations) in document["paths"].as_object().unwrap() {
        // A path of its own in the document, but not for the router.
        let path = path.replace(&format!("/artifacts/{UPLOAD_NAME}"), "/artifacts/{name}");
        for method in operations.as_object().unwrap().keys() {
            documented.insert(format!("{} {path}", method.to_uppercase()));
        }
    }
    let declared: BTreeSet<String> = ENDPOINTS
        .iter()
        .map(|endpoint| format!("{} {}", endpoint.method.as_str(), endpoint.path))
        .collect();
    assert_eq!(documented, declared);
}
