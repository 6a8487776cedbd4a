//! Who may do what: the tokens with their roles, and what each group of endpoints demands. A layer in front of a group
//! calls `check`; the endpoint behind it finds the caller in the request. A token is compared in constant time, and never
//! shown or logged.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::{ConnectInfo, Request, State};
use axum::http::{HeaderMap, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use subtle::ConstantTimeEq as _;

use super::error::ApiError;
use super::state::Admin;
use crate::config::admin::{AdminConfig, AdminToken, Role};

/// What a group of endpoints demands of whoever calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Demand {
    /// To look; without a token where only this machine can.
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
    /// Names in the `Host` header that are answered to, beside addresses and localhost.
    pub(super) hosts: Vec<String>,
}

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
    pub(super) fn new(config: AdminConfig, listening: SocketAddr) -> Self {
        let AdminConfig { listen: _, explicit: _, enabled, tokens, hosts } = config;
        let enabled = enabled.unwrap_or(!tokens.is_empty());
        Self { tokens, enabled, loopback: listening.ip().is_loopback(), hosts }
    }

    /// Who calls, and whether that is enough.
    fn admit(&self, demand: Demand, headers: &HeaderMap, address: SocketAddr) -> Result<Caller, ApiError> {
        if demand != Demand::Look && !self.enabled {
            return Err(ApiError::not_found("the endpoints for operators are off").hint(
                "set POSTRIDER_ADMIN_TOKEN, or INTERNAL_ADMIN_ENABLED=true with [admin] tokens: see docs/admin-api.md",
            ));
        }
        let Some(given) = headers.get(header::AUTHORIZATION) else {
            if demand == Demand::Look && self.loopback && (self.tokens.is_empty() || !self.for_others(headers)) {
                return Ok(Caller { name: None, role: None, address });
            }
            return Err(self.no_token());
        };
        let given = given.to_str().unwrap_or_default();
        let (scheme, given) = given.split_once(' ').unwrap_or_default();
        let token = if scheme.eq_ignore_ascii_case("bearer") { self.find(given.trim()) } else { None };
        let Some(token) = token else {
            tracing::debug!(client = %address.ip(), "a wrong token was given to the admin API");
            return Err(ApiError::unauthorized("no such token").hint("send it as Authorization: Bearer TOKEN"));
        };
        if demand == Demand::Operate && token.role < Role::Operate {
            return Err(ApiError::forbidden(format!("the token {:?} may look and not change", token.name))
                .hint("use a token with role = \"operate\""));
        }
        Ok(Caller { name: Some(token.name.clone()), role: Some(token.role), address })
    }

    /// Whether a proxy on this machine may be asking for somebody else: it says so, or it was called by a name.
    fn for_others(&self, headers: &HeaderMap) -> bool {
        let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
        let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
        headers.contains_key(header::FORWARDED)
            || headers.contains_key("x-forwarded-for")
            || self.hosts.iter().any(|known| known.eq_ignore_ascii_case(name))
    }

    /// Looks at all of them, whichever it is.
    fn find(&self, given: &str) -> Option<&AdminToken> {
        let is = |token: &AdminToken| bool::from(given.as_bytes().ct_eq(token.secret.as_bytes()));
        self.tokens.iter().fold(None, |found, token| if is(token) { Some(token) } else { found })
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
    ConnectInfo(address): ConnectInfo<SocketAddr>,
    mut request: Request,
    next: Next,
) -> Response {
    match admin.access.admit(demand, request.headers(), address) {
        Ok(caller) => {
            request.extensions_mut().insert(caller);
            next.run(request).await
        }
        Err(error) => error.into_response(),
    }
}
