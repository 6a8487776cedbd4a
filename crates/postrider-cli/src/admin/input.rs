//! Reads what a request says: parameters, a body, an id in the path. What is unknown, wrong or too much is refused with
//! its name before the store is asked; the endpoints see typed values alone.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::rejection::JsonRejection;
use axum::extract::{FromRequest, FromRequestParts, Query, Request};
use axum::http::request::Parts;
use axum::http::{StatusCode, Uri};
use axum::{Extension, Json};
use postrider::inspect::{Cursor, PageRequest};
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer};
use tokio::time::timeout;
use utoipa::IntoParams;
use uuid::Uuid;

use super::access::Caller;
use super::error::ApiError;
use super::state::{Admin, Served};
use crate::format;

/// The largest body.
pub(super) const MAX_BODY_BYTES: usize = 1024 * 1024;
/// How long a body may take to arrive.
const READ_TIMEOUT: Duration = Duration::from_secs(30);
/// Lines of an answer, unless something else was asked for.
const DEFAULT_LIMIT: u32 = 100;
/// Lines of an answer, at most.
pub(super) const MAX_LIMIT: u32 = 1_000;

/// The parameters behind the question mark.
pub(super) struct Parameters<T>(pub(super) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Parameters<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        parameters(&parts.uri).map(Self)
    }
}

/// Parameters of which one struct says where to look, and a filter of the library what for. Read apart, not flattened into
/// each other, so that what is wrong is named.
pub(super) struct Filtered<T, F>(pub(super) T, pub(super) F);

impl<S: Send + Sync, T: DeserializeOwned, F: DeserializeOwned> FromRequestParts<S> for Filtered<T, F> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        let (place, filter): (Vec<&str>, Vec<&str>) =
            parts.uri.query().unwrap_or_default().split('&').partition(|pair| {
                let name = pair.split('=').next().unwrap_or_default();
                ["database", "after", "limit"].contains(&name)
            });
        let read = |pairs: Vec<&str>| format!("/?{}", pairs.join("&")).parse().unwrap_or_else(|_| parts.uri.clone());
        Ok(Self(parameters(&read(place))?, parameters(&read(filter))?))
    }
}

fn parameters<T: DeserializeOwned>(uri: &Uri) -> Result<T, ApiError> {
    let read = Query::try_from_uri(uri).map(|Query(read)| read);
    read.map_err(|rejection| {
        let words = reason("the parameters cannot be used", &rejection.body_text());
        ApiError::new(StatusCode::BAD_REQUEST, "INVALID_PARAMETER", words)
            .hint("see /api/openapi.json for what may be asked")
    })
}

/// A body of JSON.
pub(super) struct Body<T>(pub(super) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Body<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        let body = match timeout(READ_TIMEOUT, Bytes::from_request(request, state)).await {
            Ok(Ok(body)) => body,
            Ok(Err(rejection)) if rejection.status() == StatusCode::PAYLOAD_TOO_LARGE => {
                let words = format!("the body is larger than {}", format::size(MAX_BODY_BYTES));
                return Err(ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, "TOO_LARGE", words));
            }
            Ok(Err(rejection)) => {
                let words = format!("the body cannot be read: {}", rejection.body_text());
                return Err(ApiError::new(StatusCode::BAD_REQUEST, "UNREADABLE_BODY", words));
            }
            Err(_) => {
                return Err(ApiError::new(StatusCode::REQUEST_TIMEOUT, "TIMEOUT", "the body did not come in time"));
            }
        };
        if body.is_empty() {
            return Err(ApiError::invalid("there is no body: send JSON"));
        }
        Json::from_bytes(&body).map(|Json(sent)| Self(sent)).map_err(|rejection| match rejection {
            JsonRejection::JsonDataError(error) => {
                ApiError::invalid(reason("the body cannot be used", &error.body_text()))
            }
            other => {
                let words = reason("the body is not JSON", &other.body_text());
                ApiError::new(StatusCode::BAD_REQUEST, "INVALID_JSON", words)
            }
        })
    }
}

/// What is wrong with which part, without the preamble of whoever noticed.
fn reason(what: &str, words: &str) -> String {
    format!("{what}: {}", words.split_once(": ").map_or(words, |(_, reason)| reason))
}

/// An id as it stands in the path.
pub(super) fn id(text: &str) -> Result<Uuid, ApiError> {
    text.parse().map_err(|_| {
        ApiError::invalid("the id in the path is not a UUID").hint("such as 019a8f3c-6b1e-7c02-9d55-0f2b6a3e8d41")
    })
}

/// How many lines.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limit(pub(super) u32);

impl Default for Limit {
    fn default() -> Self {
        Self(DEFAULT_LIMIT)
    }
}

impl<'de> Deserialize<'de> for Limit {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match u32::deserialize(deserializer) {
            Ok(limit) if (1..=MAX_LIMIT).contains(&limit) => Ok(Self(limit)),
            _ => Err(D::Error::custom(format_args!("expected a whole number from 1 to {MAX_LIMIT}"))),
        }
    }
}

/// Nothing but which database.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct DatabaseQuery {
    /// Which database; the first if it is left out.
    pub(super) database: Option<String>,
}

/// The database that a request names, and who asks.
pub(super) struct OnDatabase {
    admin: Arc<Admin>,
    place: usize,
    pub(super) caller: Caller,
}

impl FromRequestParts<Arc<Admin>> for OnDatabase {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, admin: &Arc<Admin>) -> Result<Self, ApiError> {
        let query: DatabaseQuery = parameters(&parts.uri)?;
        let named = query.of(admin)?;
        let place = admin.databases.iter().position(|database| database.name == named.name).unwrap_or(0);
        let Extension(caller) = Extension::from_request_parts(parts, admin)
            .await
            .map_err(|_| ApiError::forbidden("nobody knows who asks"))?;
        Ok(Self { admin: Arc::clone(admin), place, caller })
    }
}

impl Deref for OnDatabase {
    type Target = Served;

    fn deref(&self) -> &Served {
        &self.admin.databases[self.place]
    }
}

impl DatabaseQuery {
    pub(super) fn of<'a>(&self, admin: &'a Admin) -> Result<&'a Served, ApiError> {
        admin.database(self.database.as_deref())
    }
}

/// A page of one outbox.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct PageQuery {
    /// Which database; the first if it is left out.
    database: Option<String>,
    /// The `next` of the page before.
    #[param(value_type = Option<String>)]
    after: Option<Cursor>,
    /// At most this many.
    #[serde(default)]
    #[param(value_type = u32, required = false, minimum = 1, maximum = 1000, default = 100)]
    limit: Limit,
}

impl PageQuery {
    pub(super) fn of<'a>(&self, admin: &'a Admin) -> Result<&'a Served, ApiError> {
        admin.database(self.database.as_deref())
    }

    pub(super) fn page(&self) -> PageRequest {
        PageRequest { after: self.after.clone(), limit: self.limit.0 }
    }
}
