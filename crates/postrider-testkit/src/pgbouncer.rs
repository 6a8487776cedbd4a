//! A private pgbouncer in transaction mode in front of one database, for the tests that must hold behind a pooler. It
//! has fewer server connections than any such test has clients, so that sessions are really shared. It runs under the
//! same account as the server, and ends with the test process in the same way.

use std::{
    fs,
    time::{Duration, Instant},
};

use tokio::{net::TcpStream, time::sleep};

use crate::{
    account::Account,
    binaries::pgbouncer_program,
    cluster::{blocking, free_port},
    database::{Database, url},
    error::{Error, Result, or_panic},
    processes,
    supervisor::Supervisor,
};

/// Server connections for all clients together.
const POOL_SIZE: u32 = 2;
/// Clients that may wait for one.
const MAX_CLIENTS: u32 = 500;
/// From start to the first accepted connection.
const READY_DEADLINE: Duration = Duration::from_secs(20);
const READY_LOOK_EVERY: Duration = Duration::from_millis(5);

/// A private pooler; it ends when dropped.
#[derive(Debug)]
pub struct PgBouncer {
    // Declared first, so that the pooler is gone before its server may go.
    _supervisor: Supervisor,
    port: u16,
    database: Database,
}

impl PgBouncer {
    /// Starts a pooler in transaction mode with two server connections. Whatever role a client names, it is logged in
    /// as the superuser.
    ///
    /// # Panics
    /// When pgbouncer is not installed or does not start.
    pub async fn start(database: &Database) -> Self {
        or_panic(Self::try_start(database).await)
    }

    async fn try_start(database: &Database) -> Result<Self> {
        let program = pgbouncer_program()?;
        let account = Account::choose()?;
        let port = free_port()?;
        let settings = format!(
            "[databases]\n\
             {name} = host=127.0.0.1 port={server} dbname={name} user=postgres\n\
             [pgbouncer]\n\
             listen_addr = 127.0.0.1\n\
             listen_port = {port}\n\
             unix_socket_dir =\n\
             auth_type = any\n\
             pool_mode = transaction\n\
             default_pool_size = {POOL_SIZE}\n\
             max_client_conn = {MAX_CLIENTS}\n\
             ignore_startup_parameters = extra_float_digits\n",
            name = database.name(),
            server = database.cluster().port(),
        );
        let (supervisor, pid) = blocking(move || {
            let mut supervisor = Supervisor::start(account)?;
            let path = supervisor.directory().join("pgbouncer.ini");
            fs::write(&path, settings).map_err(|source| Error::File {
                doing: "write the settings",
                path: path.clone(),
                source,
            })?;
            let pid = supervisor.run("TERM", &[program, path])?;
            Ok((supervisor, pid))
        })
        .await?;
        let deadline = Instant::now() + READY_DEADLINE;
        while TcpStream::connect(("127.0.0.1", port)).await.is_err() {
            if !processes::is_running(pid) || Instant::now() > deadline {
                return Err(supervisor.lost("the private pgbouncer did not start"));
            }
            sleep(READY_LOOK_EVERY).await;
        }
        Ok(Self { _supervisor: supervisor, port, database: database.clone() })
    }

    /// The address of the same database, through the pooler.
    #[must_use]
    pub fn url(&self) -> String {
        url(self.port, "postgres", self.database.name())
    }

    /// The port on 127.0.0.1.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }
}
