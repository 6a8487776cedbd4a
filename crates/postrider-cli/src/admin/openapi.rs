//! Every endpoint with what it demands of its caller, and the `OpenAPI` document that is made from the same list. An
//! endpoint that is not here is not served.

use std::sync::Arc;

use axum::extract::DefaultBodyLimit;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse as _;
use axum::routing::get;
use axum::{Router, middleware};
use utoipa::openapi::path::{Operation, PathItem};
use utoipa::openapi::schema::Type;
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityRequirement, SecurityScheme};
use utoipa::openapi::{ContentBuilder, ObjectBuilder, OpenApi, Ref, RefOr, ResponseBuilder};
use utoipa::{OpenApi as _, ToSchema as _};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::access::{self, Demand};
use super::error::{ApiError, ErrorDocument};
use super::input::MAX_BODY_BYTES;
use super::state::Admin;
use super::{assets, audit, bulk, dead_letters, guard, health, lanes, messages, overview, sinks, sync};

/// The name of the way to come in.
const BEARER: &str = "token";
/// What Prometheus asks for; it needs what looking needs.
const METRICS: &str = "/metrics";
/// The parameter that chooses a database.
const DATABASE: &str = "database";

#[derive(utoipa::OpenApi)]
#[openapi(
    info(
        title = "Postrider admin API",
        description = "How an outbox stands, and what operators can do about it. See docs/admin-api.md.",
    ),
    components(schemas(ErrorDocument))
)]
struct Document;

fn open() -> OpenApiRouter<Arc<Admin>> {
    OpenApiRouter::new().routes(routes!(health::health)).routes(routes!(health::ready))
}

fn look() -> OpenApiRouter<Arc<Admin>> {
    OpenApiRouter::new()
        .routes(routes!(health::metrics))
        .routes(routes!(sync::state))
        .routes(routes!(sync::outbox))
        .routes(routes!(sync::trigger))
        .routes(routes!(overview::overview))
        .routes(routes!(overview::samples))
        .routes(routes!(messages::list))
        .routes(routes!(messages::show))
        .routes(routes!(messages::explain))
        .routes(routes!(lanes::list))
        .routes(routes!(sinks::list))
        .routes(routes!(sinks::relays))
        .routes(routes!(sinks::routes))
        .routes(routes!(dead_letters::list))
        .routes(routes!(dead_letters::groups))
        .routes(routes!(audit::list))
}

fn admin_look() -> OpenApiRouter<Arc<Admin>> {
    OpenApiRouter::new().routes(routes!(sync::dlq))
}

fn operate() -> OpenApiRouter<Arc<Admin>> {
    OpenApiRouter::new()
        .routes(routes!(sync::redrive))
        .routes(routes!(sync::unclaim_stuck))
        .routes(routes!(bulk::retry_now))
        .routes(routes!(bulk::cancel))
        .routes(routes!(bulk::apply_routes))
        .routes(routes!(bulk::redrive))
        .routes(routes!(bulk::discard))
        .routes(routes!(lanes::skip))
        .routes(routes!(sinks::pause))
        .routes(routes!(sinks::resume))
        .routes(routes!(bulk::replay))
        .routes(routes!(messages::enqueue))
}

/// Everything that is served.
pub(super) fn router(admin: Arc<Admin>) -> Router {
    let group = |group: OpenApiRouter<Arc<Admin>>, demand: Demand| {
        let (routes, document) = group.split_for_parts();
        let check = middleware::from_fn_with_state((Arc::clone(&admin), demand), access::check);
        (routes.route_layer(check), document)
    };
    let (mut routes, mut document) = open().split_for_parts();
    for (more, part) in
        [group(look(), Demand::Look), group(admin_look(), Demand::AdminLook), group(operate(), Demand::Operate)]
    {
        routes = routes.merge(more);
        document.merge(part);
    }
    let names: Vec<String> = admin.databases.iter().map(|database| database.name.clone()).collect();
    let document = finish(document, &names).to_json().unwrap_or_default();
    let document = ([(header::CONTENT_TYPE, "application/json")], document);
    routes
        .route("/api/openapi.json", get(async move || document.clone().into_response()))
        .route("/", get(assets::index))
        .route("/assets/{*path}", get(assets::asset))
        .fallback(async || ApiError::not_found("there is nothing here").hint("see /api/openapi.json"))
        .method_not_allowed_fallback(async || {
            ApiError::new(StatusCode::METHOD_NOT_ALLOWED, "METHOD_NOT_ALLOWED", "this cannot be done here")
                .hint("the Allow header says what can")
        })
        .layer(DefaultBodyLimit::max(MAX_BODY_BYTES))
        .layer(middleware::from_fn_with_state(Arc::clone(&admin), guard::guard))
        .with_state(admin)
}

/// What all endpoints have in common is written into each of them here.
fn finish(endpoints: OpenApi, databases: &[String]) -> OpenApi {
    let mut document = Document::openapi();
    document.merge(endpoints);
    let bearer = SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer));
    document.components.get_or_insert_default().add_security_scheme(BEARER, bearer);
    for (path, item) in &mut document.paths.paths {
        let asks = path.starts_with("/api/v1/");
        for operation in operations(item) {
            add_refusals(operation, asks);
            if asks || path == METRICS {
                add_refusal(operation, "401", "There is no token, or no such token.");
                operation.security = Some(vec![SecurityRequirement::new::<_, [&str; 0], &str>(BEARER, [])]);
            }
            name_databases(operation, databases);
        }
    }
    document
}

fn operations(item: &mut PathItem) -> impl Iterator<Item = &mut Operation> {
    [&mut item.get, &mut item.post].into_iter().flatten()
}

fn add_refusals(operation: &mut Operation, asks: bool) {
    let mut refusals = vec![("421", "The Host header names somebody else."), ("429", "Too many requests at once.")];
    if asks {
        refusals.extend([
            ("400", "A parameter, the path or the body cannot be used."),
            ("403", "The token may not do this, or another site's page asks."),
            ("404", "There is no such thing, or the endpoint is off."),
            ("503", "The database does not answer."),
        ]);
    }
    if operation.request_body.is_some() {
        refusals.extend([
            ("408", "The body did not come in time."),
            ("413", "The body is too large."),
            ("415", "The body is not JSON."),
        ]);
    }
    for (status, description) in refusals {
        add_refusal(operation, status, description);
    }
}

fn add_refusal(operation: &mut Operation, status: &str, description: &str) {
    let schema = RefOr::Ref(Ref::from_schema_name(ErrorDocument::name()));
    let content = ContentBuilder::new().schema(Some(schema)).build();
    let response = ResponseBuilder::new().description(description).content("application/json", content).build();
    operation.responses.responses.entry(status.to_owned()).or_insert(RefOr::T(response));
}

/// Which databases there are is known only now.
fn name_databases(operation: &mut Operation, databases: &[String]) {
    for parameter in operation.parameters.iter_mut().flatten() {
        if let RefOr::T(parameter) = parameter
            && parameter.name == DATABASE
        {
            let names = databases.iter().map(String::as_str);
            let known = ObjectBuilder::new().schema_type(Type::String).enum_values(Some(names)).build();
            parameter.schema = Some(known.into());
        }
    }
}
