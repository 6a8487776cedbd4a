//! Stands in front of every request, whatever it asks for: it must be meant for us (against DNS rebinding), a write must
//! not come from another site's page, a body must be JSON, and there must be room. Every answer leaves with headers that
//! let a browser do as little as possible with it. Who may do what is decided in `access.rs`.

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};

use super::error::ApiError;
use super::state::{Admin, MAX_REQUESTS};

/// Asks nothing of anybody, so it is answered even when there is no room.
const HEALTH_PATH: &str = "/api/health";

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
pub(super) async fn guard(State(admin): State<Arc<Admin>>, request: Request, next: Next) -> Response {
    let mut answer = match check(&admin.access.hosts, &request) {
        Err(error) => error.into_response(),
        Ok(()) if request.uri().path() == HEALTH_PATH => next.run(request).await,
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

fn check(hosts: &[String], request: &Request) -> Result<(), ApiError> {
    check_host(hosts, request.uri(), request.headers())?;
    if matches!(*request.method(), Method::GET | Method::HEAD) {
        return Ok(());
    }
    check_site(hosts, request.headers())?;
    check_type(request.headers())
}

/// A page of another site can make a browser resolve its own name to our address; the browser then sends that name.
fn check_host(hosts: &[String], uri: &Uri, headers: &HeaderMap) -> Result<(), ApiError> {
    let given = headers.get(header::HOST).and_then(|host| host.to_str().ok());
    let all_known = given.is_some_and(|given| is_known(hosts, given))
        && uri.authority().is_none_or(|authority| is_known(hosts, authority.as_str()));
    if all_known {
        return Ok(());
    }
    Err(ApiError::new(
        StatusCode::MISDIRECTED_REQUEST,
        "MISDIRECTED",
        "the Host header is no address, not localhost, and no name in [admin] hosts",
    )
    .hint("call by address, or add the name to hosts in [admin] of the configuration"))
}

/// Whether `host`, `host:port` or `[v6]:port` is an address, localhost, or a name that was configured.
fn is_known(hosts: &[String], authority: &str) -> bool {
    let host = host_of(authority);
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    bare.parse::<IpAddr>().is_ok()
        || host.eq_ignore_ascii_case("localhost")
        || hosts.iter().any(|known| known.eq_ignore_ascii_case(host))
}

/// Without the port and the dot that ends a full name.
fn host_of(authority: &str) -> &str {
    let host = match authority.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
        _ => authority,
    };
    host.strip_suffix('.').unwrap_or(host)
}

/// Browsers say where a request comes from; programs say nothing, and have no cookies that could be misused.
fn check_site(hosts: &[String], headers: &HeaderMap) -> Result<(), ApiError> {
    let refuse = || {
        Err(ApiError::new(StatusCode::FORBIDDEN, "CROSS_SITE", "a page of another site may not change anything here"))
    };
    let text = |name: &HeaderName| headers.get(name).map(|value| value.to_str().unwrap_or("?"));
    let site = text(&HeaderName::from_static("sec-fetch-site"));
    if !matches!(site, None | Some("same-origin" | "none")) {
        return refuse();
    }
    let Some(origin) = text(&header::ORIGIN) else { return Ok(()) };
    let Some((_, authority)) = origin.split_once("://") else { return refuse() };
    let ours = text(&header::HOST).is_some_and(|host| host.eq_ignore_ascii_case(authority));
    // A proxy that ends TLS may call us by another name than the browser calls it.
    let configured = hosts.iter().any(|known| known.eq_ignore_ascii_case(host_of(authority)));
    if ours || configured { Ok(()) } else { refuse() }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_an_address_or_a_name_we_know() {
        let hosts = ["outbox.example".to_owned()];
        for known in [
            "127.0.0.1",
            "127.0.0.1:7433",
            "10.1.2.3:80",
            "[::1]",
            "[::1]:7433",
            "localhost",
            "LOCALHOST:7433",
            "localhost.:7433",
            "outbox.example",
            "Outbox.Example:443",
        ] {
            assert!(is_known(&hosts, known), "{known}");
        }
        for unknown in
            ["", ":80", "evil.example", "127.0.0.1.evil.example", "localhost.evil.example:80", "x@127.0.0.1", "[]"]
        {
            assert!(!is_known(&hosts, unknown), "{unknown}");
        }
    }

    #[test]
    fn a_write_comes_from_here_or_from_no_page() {
        let hosts = ["outbox.example".to_owned()];
        let told = |origin: Option<&str>, site: Option<&str>| {
            let mut headers = HeaderMap::new();
            headers.insert(header::HOST, HeaderValue::from_static("127.0.0.1:7433"));
            for (name, value) in [("origin", origin), ("sec-fetch-site", site)] {
                if let Some(value) = value {
                    headers.insert(HeaderName::from_static(name), HeaderValue::from_str(value).unwrap());
                }
            }
            check_site(&hosts, &headers).is_ok()
        };
        for (origin, site) in [
            (None, None),
            (None, Some("none")),
            (Some("http://127.0.0.1:7433"), Some("same-origin")),
            (Some("https://outbox.example"), None),
        ] {
            assert!(told(origin, site), "{origin:?} {site:?}");
        }
        for (origin, site) in [
            (Some("null"), None),
            (Some("http://127.0.0.1:8080"), None),
            (Some("http://evil.example"), Some("same-origin")),
            (None, Some("cross-site")),
            (Some("http://127.0.0.1:7433"), Some("same-site")),
        ] {
            assert!(!told(origin, site), "{origin:?} {site:?}");
        }
    }
}
