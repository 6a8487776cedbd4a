//! Which host a request asks for. This is decided here and nowhere else: for the check of the `Host` header, for the check
//! of the `Origin`, and for who may look without a token. A host has one spelling: lower case, without the port and the
//! dot that ends a full name.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use axum::http::{HeaderMap, Uri, header};

/// No name is longer than this, by DNS.
const MAX_NAME_BYTES: usize = 253;
const LOCALHOST: &str = "localhost";

/// A host in its one spelling.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Host {
    Address(IpAddr),
    Name(String),
}

impl Host {
    /// A host without a port: `outbox.example.org`, `192.0.2.7`, `[::1]`. `None`: it can be none.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        if let Some(inner) = text.strip_prefix('[') {
            let address: Ipv6Addr = inner.strip_suffix(']')?.parse().ok()?;
            return Some(Self::Address(IpAddr::V6(address).to_canonical()));
        }
        let name = text.strip_suffix('.').unwrap_or(text);
        if let Ok(address) = name.parse::<Ipv4Addr>() {
            return Some(Self::Address(address.into()));
        }
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        let labels = name.split('.').all(|label| !label.is_empty() && label.bytes().all(allowed));
        (labels && name.len() <= MAX_NAME_BYTES).then(|| Self::Name(name.to_ascii_lowercase()))
    }

    /// Whether it stands for this machine and no other.
    pub(crate) fn is_loopback(&self) -> bool {
        match self {
            Self::Address(address) => address.is_loopback(),
            Self::Name(name) => name == LOCALHOST,
        }
    }
}

/// A host with its port, as `Host` and `Origin` have it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Authority {
    pub(crate) host: Host,
    pub(crate) port: Option<u16>,
}

impl Authority {
    /// `host`, `host:port`, `[v6]`, `[v6]:port`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        // The colons of an address in brackets are its own.
        let behind = text.rfind(']').map_or(0, |bracket| bracket + 1);
        let (host, port) = match text.get(behind..)?.split_once(':') {
            None => (text, ""),
            Some((rest, port)) => (text.get(..behind + rest.len())?, port),
        };
        let port = if port.is_empty() { None } else { Some(port.parse().ok()?) };
        Some(Self { host: Host::parse(host)?, port })
    }
}

/// What a request asks for.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    pub(crate) authority: Authority,
    /// The host is in the request line, too, as it is for a proxy.
    pub(crate) absolute: bool,
}

impl Target {
    /// `None`: there is no `Host`, or two, or one that cannot be, or the request line says otherwise.
    pub(crate) fn of(uri: &Uri, headers: &HeaderMap) -> Option<Self> {
        let mut given = headers.get_all(header::HOST).iter();
        let (Some(host), None) = (given.next(), given.next()) else { return None };
        let authority = Authority::parse(host.to_str().ok()?)?;
        if let Some(line) = uri.authority()
            && Authority::parse(line.as_str())? != authority
        {
            return None;
        }
        Some(Self { authority, absolute: uri.authority().is_some() })
    }
}

/// The names that a server answers to, beside addresses and localhost.
#[derive(Debug, Clone, Default)]
pub(crate) struct Hosts(Vec<Host>);

impl Hosts {
    /// Reads a list of a configuration. `Err`: the one that can be no host.
    pub(crate) fn parse(names: &[String]) -> Result<Self, &str> {
        names.iter().map(|name| Host::parse(name).ok_or(name.as_str())).collect::<Result<_, _>>().map(Self)
    }

    /// Whether it is in the list.
    pub(crate) fn name(&self, host: &Host) -> bool {
        self.0.contains(host)
    }

    /// Whether a request for it is answered. A page of another site cannot give itself an address as its name.
    pub(crate) fn know(&self, host: &Host) -> bool {
        matches!(host, Host::Address(_)) || host.is_loopback() || self.name(host)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(line: &str, hosts: &[&str]) -> Option<Target> {
        let mut headers = HeaderMap::new();
        for host in hosts {
            headers.append(header::HOST, host.parse().unwrap());
        }
        Target::of(&line.parse().unwrap(), &headers)
    }

    #[test]
    fn a_host_is_an_address_or_a_name_we_know() {
        let hosts = Hosts::parse(&["Outbox.Example.".to_owned()]).unwrap();
        let known = |text: &str| Authority::parse(text).is_some_and(|one| hosts.know(&one.host));
        for text in [
            "127.0.0.1",
            "127.0.0.1:7433",
            "10.1.2.3:80",
            "127.0.0.1.",
            "[::1]",
            "[::1]:7433",
            "[::ffff:127.0.0.1]:80",
            "localhost",
            "LOCALHOST:7433",
            "localhost.:7433",
            "outbox.example",
            "outbox.example.",
            "Outbox.Example:443",
        ] {
            assert!(known(text), "{text}");
        }
        for text in [
            "",
            ".",
            ":80",
            "evil.example",
            "outbox.example..",
            "127.0.0.1.evil.example",
            "localhost.evil.example:80",
            "x@127.0.0.1",
            "[]",
            "[::1",
            "[::1]x",
            "[fe80::1%eth0]",
            "::1",
            "127.1",
            "127.0.0.1:80:80",
            "127.0.0.1:65536",
            "127.0.0.1/x",
        ] {
            assert!(!known(text), "{text}");
        }
    }

    #[test]
    fn a_host_has_one_spelling() {
        for (one, other) in [
            ("OUTBOX.example.:443", "outbox.example:443"),
            ("[0:0::1]:80", "[::1]:80"),
            ("[::ffff:10.0.0.1]", "10.0.0.1"),
            ("localhost:", "localhost"),
        ] {
            assert_eq!(Authority::parse(one).unwrap(), Authority::parse(other).unwrap(), "{one}");
        }
    }

    #[test]
    fn the_request_line_and_the_header_agree() {
        for (line, hosts, absolute) in [
            ("/x", &["localhost:80"][..], Some(false)),
            ("http://LOCALHOST.:80/x", &["localhost:80"], Some(true)),
            ("http://localhost/x", &["127.0.0.1"], None),
            ("http://localhost:81/x", &["localhost:80"], None),
            ("/x", &[], None),
            ("/x", &["localhost", "localhost"], None),
        ] {
            assert_eq!(asked(line, hosts).map(|asked| asked.absolute), absolute, "{line} {hosts:?}");
        }
    }

    #[test]
    fn what_is_no_name_is_refused_in_a_list() {
        for wrong in ["https://a.example", "a.example:80", "a.example/x", "*.example", "", " a.example"] {
            assert_eq!(Hosts::parse(&["a.example".to_owned(), wrong.to_owned()]).unwrap_err(), wrong);
        }
    }
}
