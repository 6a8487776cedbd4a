//! A database of a private server, and the shorthand that most tests begin with. A handle keeps its server alive.
//! Databases are never dropped one by one: they go with their server.

use tokio::sync::OnceCell;
use tokio_postgres::{Client, NoTls};

use crate::{
    cluster::Cluster,
    error::{Error, Result, or_panic},
};

/// Always there, never a template.
pub(crate) const ADMIN_DATABASE: &str = "postgres";

/// Shared by the tests of one process. It is never dropped: the end of the process is what cleans it up.
static SHARED: OnceCell<Cluster> = OnceCell::const_new();

/// A fresh, migrated database on the server that this process shares. A test that kills, freezes or reconfigures
/// wants a [`Cluster`] of its own.
pub async fn database() -> Database {
    SHARED.get_or_init(Cluster::start).await.database().await
}

/// One database of a private server.
#[derive(Clone, Debug)]
pub struct Database {
    cluster: Cluster,
    name: String,
}

impl Database {
    pub(crate) fn new(cluster: Cluster, name: String) -> Self {
        Self { cluster, name }
    }

    /// The address for the superuser `postgres`; no password is asked.
    pub fn url(&self) -> String {
        self.url_as("postgres")
    }

    /// The address for another role, which the test has created.
    pub fn url_as(&self, user: &str) -> String {
        url(self.cluster.port(), user, &self.name)
    }

    /// The database of the same name on another server, such as a copy of this one's.
    #[must_use]
    pub fn on(&self, cluster: &Cluster) -> Self {
        Self::new(cluster.clone(), self.name.clone())
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The server that it is on.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// A new connection as superuser. A task of the current runtime drives it until the client is dropped.
    pub async fn connect(&self) -> Client {
        self.connect_as("postgres").await
    }

    /// A new connection as another role.
    pub async fn connect_as(&self, user: &str) -> Client {
        or_panic(connect(&self.url_as(user)).await)
    }
}

pub(crate) fn url(port: u16, user: &str, database: &str) -> String {
    format!("postgres://{user}@127.0.0.1:{port}/{database}")
}

pub(crate) async fn connect(url: &str) -> Result<Client> {
    let (client, connection) = tokio_postgres::connect(url, NoTls)
        .await
        .map_err(|source| Error::Postgres { doing: "connect to a private database", source })?;
    // A connection that the test killed ends with an error; the client's own calls report it.
    tokio::spawn(async move { drop(connection.await) });
    Ok(client)
}
