//! Looks at a receiver without sending it anything: finds its addresses, connects, shakes hands if there is TLS, and hangs
//! up. No request is made, because any request may mean something to a receiver. Called by `postrider check`.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::{CertificateError, Error as TlsError};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use url::{Host, Url};

use super::guard::Forbidden;
use super::{HttpSink, target};
use crate::sink::Finding;
use crate::sink::destinations::Destinations;

impl HttpSink {
    pub(super) async fn findings(&self) -> Vec<Finding> {
        let mut findings = self.weaknesses();
        let Some(url) = self.composer.target.common() else {
            findings.push(Finding::works("each message says where it goes, so there is no one place to look at"));
            return findings;
        };
        let addresses = match self.addresses(&url).await {
            Ok(addresses) => addresses,
            Err(finding) => {
                findings.push(*finding);
                return findings;
            }
        };
        let loopback = addresses.iter().all(|address| address.ip().is_loopback());
        if url.scheme() == "http" && !loopback {
            findings.push(Finding::weak(
                format!(
                    "{} is sent to without TLS: others on the way can read and change messages",
                    target::host(&url)
                ),
                "use https:// unless the network itself is encrypted",
            ));
        }
        findings.push(self.connect(&url, &addresses).await);
        findings
    }

    fn weaknesses(&self) -> Vec<Finding> {
        let mut findings = Vec::new();
        if self.composer.target.common().is_none() && self.options.destinations == Destinations::default() {
            findings.push(Finding::weak(
                "messages choose the host: a producer can send to any public address",
                "list what is meant, as in destinations = [\"https://*.example.org/*\"]",
            ));
        }
        if self.composer.signer.is_some() && !self.options.guarded() {
            findings.push(Finding::weak(
                "webhooks go to any address, internal ones too",
                "take out `guard = false`, and open what is meant with `allow`",
            ));
        }
        if self.composer.signer.as_ref().is_some_and(|signer| signer.secrets() > 1) {
            findings.push(Finding::weak(
                "webhooks are signed with two secrets: a replacement that is not finished",
                "take the old secret out when every receiver has the new one",
            ));
        }
        findings
    }

    async fn addresses(&self, url: &Url) -> Result<Vec<SocketAddr>, Box<Finding>> {
        let forbidden =
            |forbidden: &Forbidden| Finding::broken(forbidden.to_string(), "correct the url, or set `allow`");
        let port = url.port_or_known_default().unwrap_or(443);
        self.guard.check(url).map_err(|error| forbidden(&error))?;
        let found: Vec<IpAddr> = match url.host() {
            Some(Host::Ipv4(address)) => vec![address.into()],
            Some(Host::Ipv6(address)) => vec![address.into()],
            Some(Host::Domain(name)) => match timeout(self.options.connect_timeout, self.guard.addresses(name)).await {
                Ok(Ok(found)) => found,
                Ok(Err(error)) => {
                    return Err(Box::new(match error.downcast_ref::<Forbidden>() {
                        Some(error) => forbidden(error),
                        None => Finding::broken(
                            format!("{name} cannot be looked up: {error}"),
                            "correct the host in the url, or the resolver of this machine",
                        ),
                    }));
                }
                Err(_) => {
                    let what = format!("{name} could not be looked up within {:?}", self.options.connect_timeout);
                    return Err(Box::new(Finding::broken(what, "look at the resolver of this machine")));
                }
            },
            None => Vec::new(),
        };
        Ok(found.into_iter().map(|address| SocketAddr::new(address, port)).collect())
    }

    async fn connect(&self, url: &Url, addresses: &[SocketAddr]) -> Finding {
        let host = target::host(url);
        let stream = match timeout(self.options.connect_timeout, TcpStream::connect(addresses)).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => {
                return Finding::broken(
                    format!("{host} cannot be connected to: {error}"),
                    "start the receiver, or correct host and port of the url",
                );
            }
            Err(_) => {
                return Finding::broken(
                    format!("{host} took no connection within {:?}", self.options.connect_timeout),
                    "look at the firewalls between here and there",
                );
            }
        };
        if url.scheme() == "http" {
            return Finding::works(format!("{host} takes connections; no request was sent"));
        }
        let name = url.host_str().unwrap_or_default().trim_matches(['[', ']']).to_owned();
        let Ok(name) = ServerName::try_from(name) else {
            return Finding::broken(format!("{host} is no name that a certificate can have"), "correct the url");
        };
        let shaking_hands = TlsConnector::from(Arc::clone(&self.tls)).connect(name, stream);
        match timeout(self.options.connect_timeout, shaking_hands).await {
            Ok(Ok(stream)) => {
                let agreed = stream.get_ref().1.alpn_protocol().unwrap_or(b"http/1.1");
                let agreed = String::from_utf8_lossy(agreed).into_owned();
                Finding::works(format!("{host} takes connections with TLS and speaks {agreed}; no request was sent"))
            }
            Ok(Err(error)) => Finding::broken(format!("{host}: the TLS handshake failed: {error}"), advice(&error)),
            Err(_) => Finding::broken(
                format!("{host} did not finish the TLS handshake within {:?}", self.options.connect_timeout),
                "see whether TLS is spoken on that port",
            ),
        }
    }
}

/// What to do about a handshake that failed.
fn advice(error: &std::io::Error) -> &'static str {
    match error.get_ref().and_then(|error| error.downcast_ref::<TlsError>()) {
        Some(TlsError::InvalidCertificate(reason)) => match reason {
            // The second: an authority of the same name, with another key.
            CertificateError::UnknownIssuer | CertificateError::BadSignature => {
                "give `ca` the PEM file of the authority that signed the certificate"
            }
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                "the receiver has to renew its certificate; see also that this machine's clock is right"
            }
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                "see that this machine's clock is right"
            }
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                "use the name in the url that the certificate is for"
            }
            _ => "the receiver's certificate has to be replaced",
        },
        Some(TlsError::AlertReceived(_)) => {
            "see whether the receiver wants a client certificate: client_cert, client_key"
        }
        Some(TlsError::InvalidMessage(_)) => "TLS is not spoken on that port: correct it, or use http://",
        _ => "see whether TLS is spoken on that port",
    }
}
