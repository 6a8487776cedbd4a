//! A connection to NATS, and how one is made. The library's client would mend itself and send again what it holds: here
//! it says when it is in trouble, and is thrown away then. It holds little, because its queue is short, and tries each
//! server only once more. What it still sends is a message that is retried anyway: the stream knows it by its id, and as
//! nothing of its lane was sent behind it, it overtakes nothing.

use std::path::PathBuf;
use std::time::Duration;

use async_nats::{Client, ConnectError, ConnectOptions, Event, ServerAddr};
use percent_encoding::percent_decode_str;
use tokio::sync::watch;

use super::options::{NatsOptions, NatsServers};
use crate::error::Error;
use crate::secret::Secret;

/// Messages between a delivery and the library's own buffer. Its default is 2,048, and as many would still be sent after
/// a delivery was dropped.
const QUEUE: usize = 16;
/// How often the server is asked whether it is there; after two that stay without an answer, the connection is lost.
const PING_EVERY: Duration = Duration::from_secs(5);

pub(super) struct Connection {
    pub(super) client: Client,
    pub(super) state: StateWatch,
}

impl Connection {
    /// Whether nothing has happened to it since it was made.
    pub(super) fn is_well(&self) -> bool {
        !self.state.0.borrow().lost && self.state.0.has_changed().is_ok()
    }
}

/// What the library tells of a connection.
#[derive(Debug, Default)]
struct State {
    lost: bool,
    /// The server's last words: NATS says by them, and only by them, that we may not publish somewhere.
    said: Option<String>,
}

pub(super) struct StateWatch(watch::Receiver<State>);

impl StateWatch {
    /// Waits until the connection is lost; returns what the server said before.
    pub(super) async fn until_lost(&mut self) -> Option<String> {
        // An error says that the library's tasks have ended, which is the same.
        drop(self.0.wait_for(|state| state.lost).await);
        self.said()
    }

    pub(super) fn said(&self) -> Option<String> {
        self.0.borrow().said.clone()
    }
}

/// Who we are there, and how we prove it.
enum Identity {
    Nobody,
    Password { user: String, password: String },
    Token(String),
    NKey(String),
    Credentials(String),
}

/// All that is needed to connect.
pub(super) struct Connector {
    servers: Vec<ServerAddr>,
    /// The servers without users and passwords.
    address: String,
    identity: Identity,
    ca: Option<PathBuf>,
    pair: Option<(PathBuf, PathBuf)>,
    tls: bool,
    timeout: Duration,
}

impl Connector {
    pub(super) fn new(options: &NatsOptions) -> Result<Self, Error> {
        let wrong = |reason: String| Error::options(format!("a NATS sink: {reason}"));
        let servers = servers(&options.servers)?;
        let pair = match (&options.client_cert, &options.client_key) {
            (Some(cert), Some(key)) => Some((cert.clone(), key.clone())),
            (None, None) => None,
            _ => return Err(wrong("`client_cert` and `client_key` go together".to_owned())),
        };
        for path in options.ca.iter().chain(options.client_cert.iter()).chain(options.client_key.iter()) {
            std::fs::File::open(path).map_err(|error| wrong(format!("{} cannot be read: {error}", path.display())))?;
        }
        let address = servers.iter().map(|server| format!("{}:{}", server.host(), server.port()));
        let address = address.collect::<Vec<_>>().join(",");
        let logins = (identity(options)?, servers.iter().find_map(of_url));
        let ((Identity::Nobody, Some(identity)) | (identity, None)) = logins else {
            return Err(wrong("there is a user in the URL and another way to log in: set one of them".to_owned()));
        };
        let (ca, tls, timeout) = (options.ca.clone(), options.tls, options.timeout);
        Ok(Self { servers, address, identity, ca, pair, tls, timeout })
    }

    pub(super) fn address(&self) -> &str {
        &self.address
    }

    pub(super) async fn connect(&self) -> Result<Connection, ConnectError> {
        let (tell, state) = watch::channel(State::default());
        let tell_of = move |event| {
            tell.send_modify(|state| match event {
                Event::Disconnected | Event::Closed => state.lost = true,
                Event::ServerError(error) => state.said = Some(error.to_string()),
                _ => {}
            });
            std::future::ready(())
        };
        let client = self.options().event_callback(tell_of).connect(self.servers.as_slice()).await?;
        Ok(Connection { client, state: StateWatch(state) })
    }

    fn options(&self) -> ConnectOptions {
        let mut options = ConnectOptions::new();
        options = match &self.identity {
            Identity::Nobody => options,
            Identity::Password { user, password } => options.user_and_password(user.clone(), password.clone()),
            Identity::Token(token) => options.token(token.clone()),
            Identity::NKey(seed) => options.nkey(seed.clone()),
            // They were read once already.
            Identity::Credentials(credentials) => ConnectOptions::with_credentials(credentials).unwrap_or_default(),
        };
        if let Some(ca) = &self.ca {
            options = options.add_root_certificates(ca.clone());
        }
        if let Some((cert, key)) = &self.pair {
            options = options.add_client_certificate(cert.clone(), key.clone());
        }
        options
            .require_tls(self.tls)
            .name("postrider")
            .client_capacity(QUEUE)
            .connection_timeout(self.timeout)
            .ping_interval(PING_EVERY)
            // Once around is the least that it can be told.
            .max_reconnects(self.servers.len())
    }
}

fn servers(servers: &NatsServers) -> Result<Vec<ServerAddr>, Error> {
    let wrong = |reason: String| Error::options(format!("the servers of a NATS sink: {reason}"));
    let secrets: Vec<&Secret> = match servers {
        NatsServers::One(servers) => vec![servers],
        NatsServers::Many(servers) => servers.iter().collect(),
    };
    let mut found = Vec::new();
    for secret in secrets {
        let text = secret.reveal("the servers of a NATS sink")?;
        for url in text.split(',').map(str::trim).filter(|url| !url.is_empty()) {
            let server: ServerAddr =
                url.parse().map_err(|error| wrong(format!("{error}; one looks like nats://host:4222")))?;
            if server.is_websocket() {
                return Err(wrong("WebSockets are not spoken; name the NATS port, nats://host:4222".to_owned()));
            }
            found.push(server);
        }
    }
    if found.is_empty() { Err(wrong("there is none; name one, nats://host:4222".to_owned())) } else { Ok(found) }
}

/// A user and a password in the URL, or a token. The library reads over them.
fn of_url(server: &ServerAddr) -> Option<Identity> {
    let decoded = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
    let user = decoded(server.username()?);
    Some(match server.password() {
        Some(password) => Identity::Password { user, password: decoded(password) },
        None => Identity::Token(user),
    })
}

fn identity(options: &NatsOptions) -> Result<Identity, Error> {
    let wrong = |reason: &str| Error::options(format!("a NATS sink: {reason}"));
    let reveal = |secret: &Option<Secret>, what: &str| {
        secret.as_ref().map(|secret| secret.reveal(&format!("the {what} of a NATS sink"))).transpose()
    };
    let password = reveal(&options.password, "password")?;
    let token = reveal(&options.token, "token")?;
    let nkey = reveal(&options.nkey, "nkey")?;
    let credentials = reveal(&options.credentials, "credentials")?;
    match (&options.user, password, token, nkey, credentials) {
        (None, None, None, None, None) => Ok(Identity::Nobody),
        (Some(user), Some(password), None, None, None) => Ok(Identity::Password { user: user.clone(), password }),
        (None, None, Some(token), None, None) => Ok(Identity::Token(token)),
        (None, None, None, Some(seed), None) => Ok(Identity::NKey(seed)),
        (None, None, None, None, Some(credentials)) => {
            // The library's error would quote them.
            ConnectOptions::with_credentials(&credentials)
                .map_err(|_| wrong("the credentials cannot be read; they look as `nsc generate creds` writes them"))?;
            Ok(Identity::Credentials(credentials))
        }
        _ => Err(wrong("set one of `user` with `password`, `token`, `nkey` and `credentials`")),
    }
}
