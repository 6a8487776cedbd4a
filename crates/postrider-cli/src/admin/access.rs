//! Who may do what: the tokens with their roles, and what each group of endpoints demands. Where there is a token, everything
//! here needs one: a proxy on this machine cannot be told from a program that runs on it. A layer in front of a group calls
//! `check`; the endpoint behind it finds the caller in the request. A token is never shown or logged.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::{ConnectInfo, Request, State};
use axum::http::request::Parts;
use axum::http::{Extensions, HeaderMap, HeaderName, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};

use super::error::ApiError;
use super::state::Admin;
use crate::config::admin::{AdminToken, Role};
use crate::server::host::Target;
use crate::server::token;

/// What a group of endpoints demands of whoever calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Demand {
    /// To look: a token, unless there is none and only this machine can call.
    Look,
    /// To look at what only operators see: a token everywhere, and the endpoints can be off.
    AdminLook,
    /// To change something: a token that may, and the endpoints can be off.
    Operate,
}

/// Who may come in.
pub(super) struct Access {
    tokens: Vec<AdminToken>,
    /// Whether the endpoints for operators are there.
    pub(super) enabled: bool,
    /// Only this machine can call.
    loopback: bool,
    /// Programs on this machine may look without a token, as far as they can be told from a proxy.
    loopback_reads_without_token: bool,
}

/// A proxy adds these, or such as begin like the last.
const PROXY_HEADERS: [&str; 3] = ["forwarded", "via", "x-real-ip"];
const PROXY_HEADERS_BEGIN: &str = "x-forwarded-";

/// Who calls.
#[derive(Clone)]
pub(super) struct Caller {
    name: Option<String>,
    pub(super) role: Option<Role>,
    address: SocketAddr,
}

impl Caller {
    /// `ops@192.0.2.7`, for the audit.
    pub(super) fn actor(&self) -> String {
        format!("{}@{}", self.name.as_deref().unwrap_or("anybody"), self.address.ip().to_canonical())
    }
}

impl Access {
    pub(super) fn new(
        tokens: Vec<AdminToken>,
        enabled: Option<bool>,
        loopback: bool,
        loopback_reads_without_token: bool,
    ) -> Self {
        let enabled = enabled.unwrap_or(!tokens.is_empty());
        Self { tokens, enabled, loopback, loopback_reads_without_token }
    }

    /// Whether whoever sends this may look.
    pub(super) fn may_look(&self, parts: &Parts) -> bool {
        self.admit(Demand::Look, &parts.headers, &parts.extensions).is_ok()
    }

    /// Who calls, and whether that is enough.
    fn admit(&self, demand: Demand, headers: &HeaderMap, extensions: &Extensions) -> Result<Caller, ApiError> {
        if demand != Demand::Look && !self.enabled {
            return Err(ApiError::not_found("the endpoints for operators are off").hint(
                "set POSTRIDER_ADMIN_TOKEN, or INTERNAL_ADMIN_ENABLED=true with [admin] tokens: see docs/admin-api.md",
            ));
        }
        // Both are put there for every request, by the server and by the guard.
        let (Some(ConnectInfo(address)), Some(asked)) = (extensions.get(), extensions.get::<Target>()) else {
            return Err(self.no_token());
        };
        let address: SocketAddr = *address;
        if !headers.contains_key(header::AUTHORIZATION) {
            if demand == Demand::Look && self.is_open_to(asked, headers, address) {
                return Ok(Caller { name: None, role: None, address });
            }
            return Err(self.no_token());
        }
        let Some(token) = token::given(headers).and_then(|given| self.find(given)) else {
            tracing::debug!(client = %address.ip(), "a wrong token was given to the admin API");
            return Err(ApiError::unauthorized("no such token").hint("send it as Authorization: Bearer TOKEN"));
        };
        if demand == Demand::Operate && token.role < Role::Operate {
            return Err(ApiError::forbidden(format!("the token {:?} may look and not change", token.name))
                .hint("use a token with role = \"operate\""));
        }
        Ok(Caller { name: Some(token.name.clone()), role: Some(token.role), address })
    }

    /// Whether they may look without a token: only this machine can call, and either there is no token at all, or it was
    /// configured so and nothing speaks for a proxy.
    fn is_open_to(&self, asked: &Target, headers: &HeaderMap, address: SocketAddr) -> bool {
        let by_a_proxy = || {
            asked.absolute
                || !asked.authority.host.is_loopback()
                || headers
                    .keys()
                    .map(HeaderName::as_str)
                    .any(|name| PROXY_HEADERS.contains(&name) || name.starts_with(PROXY_HEADERS_BEGIN))
        };
        let here = self.loopback && address.ip().to_canonical().is_loopback();
        here && (self.tokens.is_empty() || (self.loopback_reads_without_token && !by_a_proxy()))
    }

    /// Looks at all of them, whichever it is.
    fn find(&self, given: &str) -> Option<&AdminToken> {
        self.tokens.iter().fold(None, |found, one| if token::same(given, &one.secret) { Some(one) } else { found })
    }

    fn no_token(&self) -> ApiError {
        let error = ApiError::unauthorized("this needs a token");
        if self.tokens.is_empty() {
            error.hint("none is configured: set POSTRIDER_ADMIN_TOKEN where this process is started")
        } else {
            error.hint("send it as Authorization: Bearer TOKEN")
        }
    }
}

/// In front of a group of endpoints.
pub(super) async fn check(
    State((admin, demand)): State<(Arc<Admin>, Demand)>,
    mut request: Request,
    next: Next,
) -> Response {
    match admin.access.admit(demand, request.headers(), request.extensions()) {
        Ok(caller) => {
            request.extensions_mut().insert(caller);
            next.run(request).await
        }
        Err(error) => error.into_response(),
    }
}
