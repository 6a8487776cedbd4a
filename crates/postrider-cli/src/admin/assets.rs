//! The web page, as files that are built into the program. A browser asks again each time and is told that nothing
//! changed; what it may do with the page is settled by the headers of `guard.rs`.

use axum::extract::Path;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use rust_embed::{EmbeddedFile, RustEmbed};

use super::error::ApiError;

#[derive(RustEmbed)]
#[folder = "web"]
struct Web;

/// `/`.
pub(super) async fn index(headers: HeaderMap) -> Response {
    file("index.html", &headers)
}

/// `/assets/*`.
pub(super) async fn asset(Path(path): Path<String>, headers: HeaderMap) -> Response {
    file(&format!("assets/{path}"), &headers)
}

fn file(path: &str, headers: &HeaderMap) -> Response {
    let (Some(file), Some(kind)) = (Web::get(path), kind(path)) else {
        return ApiError::not_found("there is no such file").into_response();
    };
    let tag = tag(&file);
    let known = headers.get_all(header::IF_NONE_MATCH).iter().any(|given| is_among(given, &tag));
    let mut answer = if known { StatusCode::NOT_MODIFIED.into_response() } else { file.data.into_response() };
    let headers = answer.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        headers.insert(header::ETAG, tag);
    }
    answer
}

/// Sixteen bytes of the content's hash.
fn tag(file: &EmbeddedFile) -> String {
    let hash = file.metadata.sha256_hash();
    let hash = hash.first_chunk().map_or(0, |bytes| u128::from_be_bytes(*bytes));
    format!("\"{hash:032x}\"")
}

fn is_among(given: &HeaderValue, tag: &str) -> bool {
    let given = given.to_str().unwrap_or_default();
    given.split(',').map(|one| one.trim().trim_start_matches("W/")).any(|one| one == tag || one == "*")
}

fn kind(path: &str) -> Option<&'static str> {
    let (_, ending) = path.rsplit_once('.')?;
    Some(match ending {
        "html" => "text/html; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "js" => "text/javascript; charset=utf-8",
        "svg" => "image/svg+xml",
        "png" => "image/png",
        "ico" => "image/x-icon",
        "woff2" => "font/woff2",
        "json" => "application/json",
        "txt" => "text/plain; charset=utf-8",
        _ => return None,
    })
}
