//! What stands in front of every request to the admin API and to `postrider receive`: it must be meant for us (against DNS
//! rebinding), a change must not come from another site's page, and on a connection that is kept for probes it must be one.
//! Who may do what is decided behind it. Each server says no in its own words, made of a [`Refusal`].

use axum::extract::Request;
use axum::http::{HeaderMap, HeaderName, Method, StatusCode, header};

use super::connections::Kept;
use super::host::{Authority, Hosts, Target};

/// What a server's guard has to know.
pub(crate) struct Guard {
    /// Names in the `Host` header that are answered to, beside addresses and localhost.
    pub(crate) hosts: Hosts,
    /// The section of the configuration that they stand in.
    pub(crate) section: &'static str,
    /// The paths that supervisors ask: they are answered whatever else goes on.
    pub(crate) probes: &'static [&'static str],
}

/// A request that is not answered, and why.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) status: StatusCode,
    /// For programs: a stable word.
    pub(crate) code: &'static str,
    pub(crate) message: String,
    pub(crate) hint: Option<String>,
}

impl Guard {
    /// What the request asks for, if it may be answered; whoever stands behind finds that in the request, too.
    pub(crate) fn check(&self, request: &mut Request) -> Result<(), Refusal> {
        let asked = Target::of(request.uri(), request.headers()).filter(|asked| self.hosts.know(&asked.authority.host));
        let asked = asked.ok_or_else(|| self.misdirected())?;
        if !matches!(*request.method(), Method::GET | Method::HEAD) && !self.is_our_page(&asked, request.headers()) {
            return Err(Refusal {
                status: StatusCode::FORBIDDEN,
                code: "CROSS_SITE",
                message: "a page of another site may not change anything here".to_owned(),
                hint: None,
            });
        }
        if request.extensions().get::<Kept>().is_some() && !self.is_probe(request) {
            return Err(Refusal {
                status: StatusCode::TOO_MANY_REQUESTS,
                code: "TOO_MANY_CONNECTIONS",
                message: "every connection is in use, and this one is kept for probes".to_owned(),
                hint: None,
            });
        }
        request.extensions_mut().insert(asked);
        Ok(())
    }

    pub(crate) fn is_probe(&self, request: &Request) -> bool {
        self.probes.contains(&request.uri().path())
    }

    /// A page of another site can make a browser resolve its own name to our address; the browser then sends that name.
    fn misdirected(&self) -> Refusal {
        let section = self.section;
        Refusal {
            status: StatusCode::MISDIRECTED_REQUEST,
            code: "MISDIRECTED",
            message: format!("the Host header is no address, not localhost, and no name in [{section}] hosts"),
            hint: Some(format!("call by address, or add the name to hosts in [{section}] of the configuration")),
        }
    }

    /// Browsers say where a request comes from; programs say nothing, and have no cookies that could be misused.
    fn is_our_page(&self, asked: &Target, headers: &HeaderMap) -> bool {
        let text = |name: &HeaderName| headers.get(name).map(|value| value.to_str().unwrap_or("?"));
        if !matches!(text(&HeaderName::from_static("sec-fetch-site")), None | Some("same-origin" | "none")) {
            return false;
        }
        let Some(origin) = text(&header::ORIGIN) else { return true };
        let authority = origin.split_once("://").and_then(|(_, authority)| Authority::parse(authority));
        // A proxy that ends TLS may call us by another name than the browser calls it.
        authority.is_some_and(|from| from == asked.authority || self.hosts.name(&from.host))
    }
}

#[cfg(test)]
mod tests {
    use axum::body::Body;

    use super::*;

    const PROBE: &str = "/health";

    fn guard() -> Guard {
        Guard { hosts: Hosts::parse(&["outbox.example".to_owned()]).unwrap(), section: "admin", probes: &[PROBE] }
    }

    fn request(method: Method, path: &str, headers: &[(&str, &str)]) -> Request {
        let request = Request::builder().method(method).uri(path).header("host", "127.0.0.1:7433");
        let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        request.body(Body::empty()).unwrap()
    }

    #[test]
    fn a_write_comes_from_here_or_from_no_page() {
        let told = |origin: Option<&str>, site: Option<&str>| {
            let headers = [("origin", origin), ("sec-fetch-site", site)];
            let headers: Vec<_> = headers.into_iter().filter_map(|(name, value)| Some((name, value?))).collect();
            guard().check(&mut request(Method::POST, "/", &headers)).is_ok()
        };
        for (origin, site) in [
            (None, None),
            (None, Some("none")),
            (Some("http://127.0.0.1:7433"), Some("same-origin")),
            (Some("https://outbox.example"), None),
            (Some("https://OUTBOX.example.:8443"), None),
        ] {
            assert!(told(origin, site), "{origin:?} {site:?}");
        }
        for (origin, site) in [
            (Some("null"), None),
            (Some("http://127.0.0.1:8080"), None),
            (Some("http://evil.example"), Some("same-origin")),
            (Some("http://outbox.example.evil.example"), None),
            (None, Some("cross-site")),
            (Some("http://127.0.0.1:7433"), Some("same-site")),
        ] {
            assert!(!told(origin, site), "{origin:?} {site:?}");
        }
    }

    #[test]
    fn a_kept_connection_is_for_probes() {
        for (path, kept, answered) in [(PROBE, true, true), ("/x", true, false), ("/x", false, true)] {
            let mut request = request(Method::GET, path, &[]);
            if kept {
                request.extensions_mut().insert(Kept);
            }
            assert_eq!(guard().check(&mut request).is_ok(), answered, "{path} {kept}");
        }
    }
}
