//! Stands in front of every request, whatever it asks for: what `server/guard.rs` refuses is refused, a body must be JSON,
//! and there must be room. Every answer leaves with headers that let a browser do as little as possible with it. Who may do
//! what is decided in `access.rs`.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};

use super::error::ApiError;
use super::state::{Admin, MAX_REQUESTS};

/// Supervisors ask these. They are answered when there is no room for anything else.
pub(super) const PROBES: &[&str] = &["/api/health", "/api/ready"];

const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
                                       connect-src 'self'; font-src 'self'; base-uri 'none'; form-action 'none'; \
                                       frame-ancestors 'none'";

/// On every answer.
const HEADERS: [(HeaderName, &str); 6] = [
    (header::CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];

/// The outermost layer.
pub(super) async fn guard(State(admin): State<Arc<Admin>>, mut request: Request, next: Next) -> Response {
    let mut answer = match check(&admin, &mut request) {
        Err(error) => error.into_response(),
        Ok(()) if admin.guard.is_probe(&request) => next.run(request).await,
        Ok(()) => match admin.room.try_acquire() {
            Ok(_place) => next.run(request).await,
            Err(_) => ApiError::new(
                StatusCode::TOO_MANY_REQUESTS,
                "TOO_MANY_REQUESTS",
                format!("{MAX_REQUESTS} requests are being answered already"),
            )
            .into_response(),
        },
    };
    let headers = answer.headers_mut();
    for (name, value) in HEADERS {
        headers.insert(name, HeaderValue::from_static(value));
    }
    // The page's assets say for themselves how long they may be kept.
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    answer
}

fn check(admin: &Admin, request: &mut Request) -> Result<(), ApiError> {
    admin.guard.check(request)?;
    if matches!(*request.method(), Method::GET | Method::HEAD) { Ok(()) } else { check_type(request.headers()) }
}

/// A form of another site cannot send JSON without asking first.
fn check_type(headers: &HeaderMap) -> Result<(), ApiError> {
    let empty = headers.get(header::CONTENT_LENGTH).is_none_or(|length| length == "0");
    if empty && !headers.contains_key(header::TRANSFER_ENCODING) {
        return Ok(());
    }
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    if kind.eq_ignore_ascii_case("application/json") && !headers.contains_key(header::CONTENT_ENCODING) {
        return Ok(());
    }
    Err(ApiError::new(
        StatusCode::UNSUPPORTED_MEDIA_TYPE,
        "UNSUPPORTED_MEDIA_TYPE",
        "a body must be plain JSON: send Content-Type: application/json and no Content-Encoding",
    ))
}
