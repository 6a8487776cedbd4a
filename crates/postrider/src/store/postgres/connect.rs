//! Turns a database URL into a pool, and a failed connection into words. The URL holds a password: nothing here ever
//! repeats it.

use std::time::Duration;

use deadpool_postgres::{Manager, ManagerConfig, Pool, PoolError, RecyclingMethod, Runtime};
use tokio_postgres::config::Host;
use tokio_postgres::{Config, NoTls};
use tokio_postgres_rustls::MakeRustlsConnect;
use url::Url;

use super::tls;
use crate::error::{Error, words_and_causes};

/// Connections of one store. A relay needs few: two round trips move a whole batch.
const MAX_CONNECTIONS: usize = 8;
/// How long to wait for the server to answer a connect.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// A connection whose other end is gone without a word is noticed after this long.
const DEAD_AFTER: Duration = Duration::from_secs(30);
/// How long to wait for a free connection of the pool.
const WAIT_TIMEOUT: Duration = Duration::from_secs(30);

/// Where the server is and how it is spoken to: enough to make a connection.
#[derive(Clone)]
pub(super) struct Dial {
    pub(super) config: Config,
    pub(super) connector: Option<MakeRustlsConnect>,
    /// `host:port/database`, for error messages.
    target: String,
}

impl Dial {
    pub(super) fn new(url: &str) -> Result<Self, Error> {
        let mut url = Url::parse(url).map_err(|error| bad_url(error.to_string()))?;
        if !matches!(url.scheme(), "postgres" | "postgresql") {
            return Err(bad_url(format!("it begins with {}://, not postgres://", url.scheme())));
        }
        let tls = tls::Mode::take_from(&mut url)?;
        let mut config: Config =
            url.as_str().parse().map_err(|error: tokio_postgres::Error| bad_url(words_and_causes(&error)))?;
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(CONNECT_TIMEOUT);
        }
        if config.get_application_name().is_none() {
            config.application_name("postrider");
        }
        config.keepalives_idle(DEAD_AFTER);
        if config.get_tcp_user_timeout().is_none() {
            config.tcp_user_timeout(DEAD_AFTER);
        }
        config.ssl_mode(tls.ssl_mode());
        let target = target(&config);
        Ok(Self { config, connector: tls.connector()?, target })
    }

    pub(super) fn explain(&self, error: &tokio_postgres::Error) -> Error {
        Error::Connect { target: self.target.clone(), reason: reason(error) }
    }
}

pub(super) fn pool(dial: &Dial) -> Result<Pool, Error> {
    let recycling = ManagerConfig { recycling_method: RecyclingMethod::Fast };
    let manager = match &dial.connector {
        Some(connector) => Manager::from_config(dial.config.clone(), connector.clone(), recycling),
        None => Manager::from_config(dial.config.clone(), NoTls, recycling),
    };
    Pool::builder(manager)
        .max_size(MAX_CONNECTIONS)
        .runtime(Runtime::Tokio1)
        .wait_timeout(Some(WAIT_TIMEOUT))
        .create_timeout(Some(CONNECT_TIMEOUT))
        .build()
        .map_err(|error| bad_url(error.to_string()))
}

pub(super) fn bad_url(reason: String) -> Error {
    Error::BadUrl { reason }
}

/// Why there is no connection, and what to do about it.
pub(super) fn explain(dial: &Dial, error: PoolError) -> Error {
    let reason = match error {
        PoolError::Timeout(_) => format!("no answer within {} seconds", CONNECT_TIMEOUT.as_secs()),
        PoolError::Backend(error) => reason(&error),
        other => other.to_string(),
    };
    Error::Connect { target: dial.target.clone(), reason }
}

fn reason(error: &tokio_postgres::Error) -> String {
    match error.as_db_error().map(|db| (db.code().code(), db.message())) {
        Some(("28P01" | "28000", message)) => format!("{message} (check user and password in the database URL)"),
        Some(("3D000", message)) => format!("{message} (create it, or check the name in the database URL)"),
        Some((_, message)) => message.to_owned(),
        // The driver's own text alone is just "error connecting to server".
        None => words_and_causes(error),
    }
}

/// `host:port/database`, from what the driver will really use.
fn target(config: &Config) -> String {
    let host = match config.get_hosts().first() {
        Some(Host::Tcp(name)) => name.clone(),
        Some(Host::Unix(path)) => path.display().to_string(),
        None => "localhost".to_owned(),
    };
    let port = config.get_ports().first().copied().unwrap_or(5432);
    format!("{host}:{port}/{}", config.get_dbname().or(config.get_user()).unwrap_or_default())
}
