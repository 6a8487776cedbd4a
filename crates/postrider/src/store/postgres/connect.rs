//! Turns a database URL into a pool, and a failed connection into words. The URL holds a password: nothing here ever
//! repeats it.

use std::time::Duration;

use deadpool_postgres::{Manager, ManagerConfig, Pool, PoolError, RecyclingMethod, Runtime};
use tokio_postgres::Config;
use tokio_postgres::config::Host;
use url::Url;

use super::tls;
use crate::error::{Error, words_and_causes};

/// Connections of one store. A relay needs few: two round trips move a whole batch.
const MAX_CONNECTIONS: usize = 8;
/// How long to wait for the server to answer a connect.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long to wait for a free connection of the pool.
const WAIT_TIMEOUT: Duration = Duration::from_secs(30);

/// The pool, and the target's name for error messages.
pub(super) fn pool(url: &str) -> Result<(Pool, String), Error> {
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
    config.ssl_mode(tls.ssl_mode());
    let target = target(&config);
    let recycling = ManagerConfig { recycling_method: RecyclingMethod::Fast };
    let manager = match tls.connector()? {
        Some(connector) => Manager::from_config(config, connector, recycling),
        None => Manager::from_config(config, tokio_postgres::NoTls, recycling),
    };
    let pool = Pool::builder(manager)
        .max_size(MAX_CONNECTIONS)
        .runtime(Runtime::Tokio1)
        .wait_timeout(Some(WAIT_TIMEOUT))
        .create_timeout(Some(CONNECT_TIMEOUT))
        .build()
        .map_err(|error| bad_url(error.to_string()))?;
    Ok((pool, target))
}

pub(super) fn bad_url(reason: String) -> Error {
    Error::BadUrl { reason }
}

/// Why there is no connection, and what to do about it.
pub(super) fn explain(target: &str, error: PoolError) -> Error {
    let reason = match error {
        PoolError::Timeout(_) => format!("no answer within {} seconds", CONNECT_TIMEOUT.as_secs()),
        PoolError::Backend(error) => match error.as_db_error().map(|db| (db.code().code(), db.message())) {
            Some(("28P01" | "28000", message)) => format!("{message} (check user and password in the database URL)"),
            Some(("3D000", message)) => format!("{message} (create it, or check the name in the database URL)"),
            Some((_, message)) => message.to_owned(),
            // The driver's own text alone is just "error connecting to server".
            None => words_and_causes(&error),
        },
        other => other.to_string(),
    };
    Error::Connect { target: target.to_owned(), reason }
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
