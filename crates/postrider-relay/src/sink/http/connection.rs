//! Makes the client: TLS on rustls with ring, no redirects, no proxy of the environment, connections kept and given up in
//! time. It also says what an error of the transport, reqwest's or our own, means, in one table. Called when a sink is made.

use std::error::Error as StdError;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use reqwest::{Client, redirect};
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

use super::guard::{Forbidden, Guard};
use super::options::HttpOptions;
use crate::error::Error;
use crate::sink::SinkFailure;

/// Who we say we are.
pub(super) const USER_AGENT: &str = concat!("postrider/", env!("CARGO_PKG_VERSION"));
/// How long a connection is kept that nothing goes over. Node's servers hang up after five seconds, sooner than any other
/// in common use, and a request that meets a hang-up costs an attempt.
pub(super) const IDLE: Duration = Duration::from_secs(4);
/// Most idle connections to one host: as many as a relay has deliveries at once.
pub(super) const MAX_IDLE: usize = 256;

/// With the certificates of the options, or the system's.
pub(super) fn tls(options: &HttpOptions) -> Result<ClientConfig, Error> {
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| Error::options(error.to_string()))?
        .with_root_certificates(roots(options)?);
    let mut config = match (&options.client_cert, &options.client_key) {
        (None, None) => builder.with_no_client_auth(),
        (Some(certificate), Some(key)) => {
            let chain = certificates("client_cert", certificate)?;
            let key_der = PrivateKeyDer::from_pem_file(key).map_err(|error| unusable("client_key", key, &error))?;
            builder.with_client_auth_cert(chain, key_der).map_err(|error| unusable("client_key", key, &error))?
        }
        _ => return Err(Error::options("client_cert and client_key go together: give both or neither")),
    };
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

fn roots(options: &HttpOptions) -> Result<RootCertStore, Error> {
    let mut store = RootCertStore::empty();
    let plain = options.url.to_string().to_ascii_lowercase().starts_with("http:");
    match &options.ca {
        Some(path) => {
            for certificate in certificates("ca", path)? {
                store.add(certificate).map_err(|error| unusable("ca", path, &error))?;
            }
        }
        None if plain => {}
        None => {
            store.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
    }
    if store.is_empty() && !plain {
        let reason = "there is no authority to verify the receiver with: this system has none, so give `ca` a PEM file";
        return Err(Error::options(reason));
    }
    Ok(store)
}

fn certificates(what: &str, path: &Path) -> Result<Vec<CertificateDer<'static>>, Error> {
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let certificates = read.map_err(|error| unusable(what, path, &error))?;
    if certificates.is_empty() {
        return Err(unusable(what, path, &"it holds no certificate"));
    }
    Ok(certificates)
}

fn unusable(what: &str, path: &Path, reason: &dyn std::fmt::Display) -> Error {
    Error::options(format!("{what} {} cannot be used: {reason}", path.display()))
}

pub(super) fn client(options: &HttpOptions, tls: ClientConfig, guard: Guard) -> Result<Client, Error> {
    let mut builder = Client::builder()
        .tls_backend_preconfigured(tls)
        .dns_resolver(guard)
        .user_agent(USER_AGENT)
        .redirect(redirect::Policy::none())
        .referer(false)
        .no_proxy()
        .connect_timeout(options.connect_timeout)
        .pool_idle_timeout(IDLE)
        .pool_max_idle_per_host(MAX_IDLE)
        // A connection that many requests share and whose other end is gone must not outlive them.
        .http2_keep_alive_interval(options.timeout / 2)
        .http2_keep_alive_timeout(options.connect_timeout);
    if options.http2_prior_knowledge {
        builder = builder.http2_prior_knowledge();
    }
    builder.build().map_err(|error| Error::options(format!("no HTTP client can be made: {}", chain(&error))))
}

/// Why there is no answer.
pub(super) enum Unanswered {
    /// On reqwest's connection.
    Reqwest(reqwest::Error),
    /// There is no connection of our own.
    NoConnection(Box<dyn StdError + Send + Sync>),
    /// Our connection broke before the answer began.
    Broken(hyper::Error),
}

impl From<reqwest::Error> for Unanswered {
    fn from(error: reqwest::Error) -> Self {
        Self::Reqwest(error)
    }
}

impl Unanswered {
    /// What it means. All may be retried: none of them is about the message.
    pub(super) fn failure(self, host: &str) -> SinkFailure {
        const NO_CONNECTION: &str = "no connection";
        const BROKEN: &str = "the connection broke before the answer";
        let (code, what, error): (_, _, Box<dyn StdError>) = match self {
            Self::NoConnection(error) => (SinkFailure::UNREACHABLE, NO_CONNECTION, error),
            Self::Broken(error) => (SinkFailure::UNREACHABLE, BROKEN, error.into()),
            Self::Reqwest(error) => {
                let (code, what) = match () {
                    () if error.is_connect() => (SinkFailure::UNREACHABLE, NO_CONNECTION),
                    () if error.is_timeout() => (SinkFailure::TIMEOUT, "no answer in time"),
                    () if error.is_body() || error.is_decode() => (SinkFailure::UNREACHABLE, "the answer broke off"),
                    () => (SinkFailure::UNREACHABLE, BROKEN),
                };
                (code, what, error.without_url().into())
            }
        };
        let mut cause: Option<&(dyn StdError + 'static)> = Some(&*error);
        while let Some(error) = cause {
            if let Some(forbidden) = error.downcast_ref::<Forbidden>() {
                return forbidden.failure();
            }
            cause = error.source();
        }
        SinkFailure::retryable(code, format!("{host}: {what}: {}", chain(&*error)))
    }
}

/// An error with its causes. The URL is taken out before: it may hold a secret.
fn chain(error: &dyn StdError) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}
