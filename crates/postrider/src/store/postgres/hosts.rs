//! The hosts of a database URL: by name, by address or by the directory of a socket, each with its port. They are read and
//! counted here as libpq does; `connect.rs` tries them.

use std::net::IpAddr;
use std::path::PathBuf;

use super::connect::bad_url;
use super::url::Settings;
use crate::error::Error;

const DEFAULT_PORT: u16 = 5432;

pub(super) struct Host {
    pub(super) at: At,
    pub(super) port: u16,
}

pub(super) enum At {
    /// By name or address, and the address to use for the name if it was given.
    Tcp(String, Option<IpAddr>),
    Socket(PathBuf),
}

impl Host {
    pub(super) fn label(&self) -> String {
        match &self.at {
            At::Tcp(name, _) if name.contains(':') => format!("[{name}]:{}", self.port),
            At::Tcp(name, _) => format!("{name}:{}", self.port),
            At::Socket(path) => format!("{}:{}", path.display(), self.port),
        }
    }
}

/// The hosts, with as many ports and addresses as libpq asks for.
pub(super) fn take_from(settings: &mut Settings) -> Result<Vec<Host>, Error> {
    let mut list = |name: &str| -> Vec<String> {
        let given = settings.take(name).filter(|given| !given.is_empty());
        given.map(|given| given.split(',').map(|one| one.trim().to_owned()).collect()).unwrap_or_default()
    };
    let (names, addresses, ports) = (list("host"), list("hostaddr"), list("port"));
    let count = names.len().max(addresses.len());
    if count == 0 {
        return Err(bad_url("it names no host".to_owned()));
    }
    if !names.is_empty() && !addresses.is_empty() && names.len() != addresses.len() {
        return Err(bad_url(format!("it has {} hosts and {} addresses (hostaddr)", names.len(), addresses.len())));
    }
    if ports.len() > 1 && ports.len() != count {
        return Err(bad_url(format!("it has {count} hosts and {} ports: give one port, or one for each", ports.len())));
    }
    let host = |index: usize| -> Result<Host, Error> {
        let port = match ports.get(index).or(ports.first()).map(String::as_str) {
            None | Some("") => DEFAULT_PORT,
            Some(port) => {
                let port = port.parse().ok().filter(|port| *port > 0);
                port.ok_or_else(|| bad_url("a port is not a number between 1 and 65535".to_owned()))?
            }
        };
        let address = match addresses.get(index).map(String::as_str) {
            None | Some("") => None,
            Some(address) => {
                let wrong = |_| bad_url("a hostaddr is not an IP address".to_owned());
                Some(address.parse::<IpAddr>().map_err(wrong)?)
            }
        };
        let at = match (names.get(index).map(String::as_str), address) {
            (None | Some(""), None) => return Err(bad_url(format!("host number {} is empty", index + 1))),
            (Some(path), None) if path.starts_with('/') => At::Socket(PathBuf::from(path)),
            (None | Some(""), Some(address)) => At::Tcp(address.to_string(), Some(address)),
            (Some(name), address) => At::Tcp(name.to_owned(), address),
        };
        Ok(Host { at, port })
    };
    (0..count).map(host).collect()
}
