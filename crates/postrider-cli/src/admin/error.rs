//! What an answer says when it is no: one error type for every endpoint, with its status and its JSON. The store's errors
//! become answers here, in one match. Nothing in it may hold a token or a database URL.

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use postrider::{Error, ErrorKind};
use serde::Serialize;
use utoipa::ToSchema;

use crate::output;
use crate::server::guard::Refusal;

/// When to come again, after a 429 or a 503.
const RETRY_AFTER_SECONDS: u64 = 5;

/// What every endpoint answers with.
pub(super) type Answer<T> = Result<Json<T>, ApiError>;

/// A request that was not done, and why.
#[derive(Debug)]
pub(super) struct ApiError {
    status: StatusCode,
    code: &'static str,
    message: String,
    hint: Option<String>,
}

/// The document of every answer that is no.
#[derive(Serialize, ToSchema)]
pub(super) struct ErrorDocument {
    error: ErrorDetail,
}

#[derive(Serialize, ToSchema)]
struct ErrorDetail {
    /// For programs: a stable word.
    #[schema(example = "NOT_FOUND")]
    code: &'static str,
    /// For people: what is wrong.
    message: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
}

impl ApiError {
    pub(super) fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Self { status, code, message: message.into(), hint: None }
    }

    pub(super) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    pub(super) fn not_found(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, "NOT_FOUND", message)
    }

    /// A parameter or a field that cannot be.
    pub(super) fn invalid(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "INVALID_INPUT", message)
    }

    pub(super) fn unauthorized(message: impl Into<String>) -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "UNAUTHORIZED", message)
    }

    pub(super) fn forbidden(message: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, "FORBIDDEN", message)
    }

    pub(super) fn unavailable(message: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "UNAVAILABLE", message)
    }

    /// Something was done before it failed: that is told, too.
    pub(super) fn after(mut self, done: u64, word: &str) -> Self {
        if done > 0 {
            self.message = format!("{} ({done} were {word} before that)", self.message);
        }
        self
    }
}

impl From<Refusal> for ApiError {
    fn from(refusal: Refusal) -> Self {
        let Refusal { status, code, message, hint } = refusal;
        Self { status, code, message, hint }
    }
}

impl From<Error> for ApiError {
    fn from(error: Error) -> Self {
        match error.kind() {
            ErrorKind::Refused => Self {
                hint: error.hint().map(str::to_owned),
                ..Self::invalid(error.reason().map_or_else(|| error.in_short(), str::to_owned))
            },
            ErrorKind::InvalidMessage | ErrorKind::BatchTooLarge => Self::invalid(error.in_short()),
            ErrorKind::NoSuchSink => Self::not_found(error.in_short()).hint("GET /api/v1/sinks lists them"),
            ErrorKind::Denied => Self::new(StatusCode::SERVICE_UNAVAILABLE, "DENIED", error.in_short())
                .hint("the role of this process's database URL lacks a right: see docs/operating/install.md"),
            _ => Self::unavailable(output::printable(&error.in_short())),
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let Self { status, code, message, hint } = self;
        let error = ErrorDetail { code, message, hint };
        let mut answer = (status, Json(ErrorDocument { error })).into_response();
        if status == StatusCode::UNAUTHORIZED {
            answer.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE) {
            answer.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(RETRY_AFTER_SECONDS));
        }
        answer
    }
}
