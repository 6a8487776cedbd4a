//! A private pgbouncer in transaction mode in front of one database, for the tests that must hold behind a pooler. It
//! has fewer server connections than any such test has clients, so that sessions are really shared. It runs under the
//! same account as the server, and ends with the test process in the same way.

use crate::binaries::find;
use crate::database::{Database, url};
use crate::server::{Server, write_settings};

/// Server connections for all clients together.
const POOL_SIZE: u32 = 2;
/// Clients that may wait for one.
const MAX_CLIENTS: u32 = 500;

/// A private pooler; it ends when dropped.
#[derive(Debug)]
pub struct PgBouncer {
    // Declared first, so that the pooler is gone before its server may go.
    server: Server,
    database: Database,
}

impl PgBouncer {
    /// Starts a pooler in transaction mode with two server connections. Whatever role a client names, it is logged in
    /// as the superuser.
    pub async fn start(database: &Database) -> Self {
        let (name, server_port) = (database.name().to_owned(), database.cluster().port());
        let command = move |port, directory: &std::path::Path| {
            let settings = format!(
                "[databases]\n\
                 {name} = host=127.0.0.1 port={server_port} dbname={name} user=postgres\n\
                 [pgbouncer]\n\
                 listen_addr = 127.0.0.1\n\
                 listen_port = {port}\n\
                 unix_socket_dir =\n\
                 auth_type = any\n\
                 pool_mode = transaction\n\
                 default_pool_size = {POOL_SIZE}\n\
                 max_client_conn = {MAX_CLIENTS}\n\
                 ignore_startup_parameters = extra_float_digits\n"
            );
            let path = directory.join("pgbouncer.ini");
            write_settings(&path, &settings)?;
            Ok(vec![find("pgbouncer", Some("/usr/sbin".into()))?.into(), path.into()])
        };
        Self { server: Server::start("pgbouncer", "process up", command).await, database: database.clone() }
    }

    /// The address of the same database, through the pooler.
    pub fn url(&self) -> String {
        url(self.port(), "postgres", self.database.name())
    }

    /// The port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.server.port()
    }
}
