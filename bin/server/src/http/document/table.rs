//! Describes the operations of the table in `soong::protocol::api::operation`.

use soong::protocol::{
    api::operation::{
        AllowedCaller, Endpoint, ListExperiences, Method, Operation, ReadEvents, StartRun,
    },
    for_each_operation,
};
use utoipa::{
    IntoParams, PartialSchema, ToSchema,
    openapi::{
        ContentBuilder, HttpMethod, ObjectBuilder, OpenApi, Ref, RefOr, Required, ResponseBuilder,
        Schema, Type,
        content::Content,
        path::{OperationBuilder, Parameter, ParameterBuilder, ParameterIn, PathItem},
        request_body::RequestBodyBuilder,
        security::SecurityRequirement,
    },
};

/// The operations that answer with a text if `Accept` requests it, and its content type.
const TEXTS: [(&str, &str); 3] = [
    (StartRun::NAME, "text/event-stream"),
    (ReadEvents::NAME, "text/event-stream"),
    (ListExperiences::NAME, "text/markdown"),
];

/// Adds the description of each operation to the document, and the schemas that it names.
pub(super) fn add_operations(document: &mut OpenApi) {
    macro_rules! add_all {
        ($document:expr; $([$operation:ident $response:ty])*) => {
            $(add::<soong::protocol::api::operation::$operation>($document);)*
        };
    }
    for_each_operation!(add_all; document);
}

fn add<O>(document: &mut OpenApi)
where
    O: Operation<Query: IntoParams, Body: ToSchema, Response: ToSchema>,
{
    let about = About::of(O::ABOUT);
    let mut operation = OperationBuilder::new()
        .tag(O::GROUP)
        .summary(Some(about.summary))
        .description(about.description);
    for parameter in path_parameters(O::PATH) {
        operation = operation.parameter(parameter);
    }
    for parameter in O::Query::into_params(|| Some(ParameterIn::Query)) {
        operation = operation.parameter(parameter);
    }
    if O::NAME == ReadEvents::NAME {
        operation = operation.parameter(last_event_id());
    }
    if O::HAS_JSON_BODY {
        add_schemas::<O::Body>(document);
        let mut body =
            RequestBodyBuilder::new().content("application/json", json_content::<O::Body>());
        if !O::IS_BODY_OPTIONAL {
            body = body.required(Some(Required::True));
        }
        operation = operation.request_body(Some(body.build()));
    }
    let mut response = ResponseBuilder::new();
    let has_content = O::STATUS != 204;
    if has_content {
        add_schemas::<O::Response>(document);
        response = response.content("application/json", json_content::<O::Response>());
    }
    for (name, content_type) in TEXTS {
        if name == O::NAME {
            let text = ContentBuilder::new().schema(Some(String::schema())).build();
            response = response.content(content_type, text);
        }
    }
    operation = operation.response(O::STATUS.to_string(), response.build());
    if O::CALLER == AllowedCaller::Anyone {
        operation = operation.security(SecurityRequirement::default());
    }
    let item = PathItem::new(http_method(O::METHOD), operation.build());
    match document.paths.paths.get_mut(O::PATH) {
        Some(known) => known.merge_operations(item),
        None => drop(document.paths.paths.insert(O::PATH.to_owned(), item)),
    }
}

/// Summary and description of an operation.
struct About {
    summary: String,
    description: Option<String>,
}

impl About {
    /// Splits a documentation comment. The lines of a paragraph are joined.
    fn of(comment: &str) -> Self {
        let mut paragraphs = vec![String::new()];
        for line in comment.lines().map(str::trim) {
            let Some(paragraph) = paragraphs.last_mut() else {
                continue;
            };
            if line.is_empty() {
                paragraphs.push(String::new());
                continue;
            }
            if !paragraph.is_empty() {
                paragraph.push(' ');
            }
            paragraph.push_str(line);
        }
        let summary = paragraphs.remove(0);
        let description = paragraphs.join("\n\n").trim().to_owned();
        Self {
            summary,
            description: Some(description).filter(|text| !text.is_empty()),
        }
    }
}

/// Describes the parameters of a path. All are texts except the version of an artifact.
fn path_parameters(path: &str) -> Vec<Parameter> {
    let mut parameters = Vec::new();
    for segment in path.split('/') {
        let Some(name) = segment
            .strip_prefix('{')
            .and_then(|rest| rest.strip_suffix('}'))
        else {
            continue;
        };
        let schema = if name == "version" {
            u64::schema()
        } else {
            String::schema()
        };
        let parameter = ParameterBuilder::new()
            .name(name)
            .parameter_in(ParameterIn::Path)
            .required(Required::True)
            .schema(Some(schema));
        parameters.push(parameter.build());
    }
    parameters
}

/// Adds the schema of a type, and those that it names.
fn add_schemas<T: ToSchema>(document: &mut OpenApi) {
    let mut schemas: Vec<(String, RefOr<Schema>)> = vec![(T::name().into_owned(), T::schema())];
    T::schemas(&mut schemas);
    let components = document.components.get_or_insert_default();
    components.schemas.extend(schemas);
}

fn json_content<T: ToSchema>() -> Content {
    let schema = Ref::from_schema_name(T::name());
    ContentBuilder::new().schema(Some(schema)).build()
}

fn http_method(method: Method) -> HttpMethod {
    match method {
        Method::Get => HttpMethod::Get,
        Method::Post => HttpMethod::Post,
        Method::Put => HttpMethod::Put,
        Method::Patch => HttpMethod::Patch,
        Method::Delete => HttpMethod::Delete,
    }
}

/// Describes the header with which a client resumes a stream.
fn last_event_id() -> Parameter {
    let number = ObjectBuilder::new()
        .schema_type(Type::String)
        .pattern(Some("^[0-9]{0,18}$"));
    ParameterBuilder::new()
        .name("last-event-id")
        .parameter_in(ParameterIn::Header)
        .required(Required::False)
        .schema(Some(number))
        .build()
}
