//! One private PostgreSQL server: started from a copy of the template, killed, frozen, restarted and reconfigured on
//! demand. Tests call it for their databases; the template is built with it too. It must never be pointed at a server
//! that it did not start, and it keeps its port for life, because URLs of it are already in other hands.

use std::{
    fmt::Write as _,
    fs::{self, OpenOptions},
    io::Write as _,
    net::TcpListener,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use tokio::time::sleep;
use uuid::Uuid;

use crate::{
    account::Account,
    binaries::Binaries,
    database::{ADMIN_DATABASE, Database, connect, url},
    error::{Error, Result, or_panic},
    processes,
    supervisor::{Supervisor, lock},
    template,
};

/// Below the range that Linux hands out to outgoing connections, so that nobody takes the port during a restart.
const PORTS: std::ops::Range<u16> = 15_000..32_000;
/// Ports to try before giving up; another test process may take one between the look and the start.
const PORT_TRIES: u32 = 20;
/// From start to the first answered query; crash recovery on a loaded machine is in it.
const READY_DEADLINE: Duration = Duration::from_mins(1);
/// Between two attempts to connect.
const READY_LOOK_EVERY: Duration = Duration::from_millis(5);
/// A reload is a signal and a file read.
const RELOAD_DEADLINE: Duration = Duration::from_secs(20);
/// The settings of this process; the template's `postgresql.conf` includes it.
pub(crate) const SETTINGS_FILE: &str = "postrider.conf";

const SETTINGS: &[(&str, &str)] = &[
    ("listen_addresses", "127.0.0.1"),
    ("fsync", "on"),
    ("shared_buffers", "128MB"),
    ("max_connections", "200"),
    ("timezone", "UTC"),
    ("log_line_prefix", "%m [%p] %q%d "),
    // In the data directory, which is removed: segments in /dev/shm would outlive a killed server.
    ("dynamic_shared_memory_type", "mmap"),
];

/// A private PostgreSQL server. Cloning shares it; it ends, and its files with it, when the last handle is dropped or
/// the process ends.
#[derive(Clone, Debug)]
pub struct Cluster {
    server: Arc<Server>,
}

#[derive(Debug)]
struct Server {
    binaries: Binaries,
    port: u16,
    data: PathBuf,
    supervisor: Mutex<Supervisor>,
    databases: AtomicU32,
}

impl Cluster {
    /// Starts a server with the usual settings.
    pub async fn start() -> Self {
        Self::start_with(&[]).await
    }

    /// Starts a server with further settings, which win over the usual ones.
    pub async fn start_with(settings: &[(&str, &str)]) -> Self {
        or_panic(Self::from_template(settings).await)
    }

    async fn from_template(settings: &[(&str, &str)]) -> Result<Self> {
        let account = Account::choose()?;
        let binaries = blocking(Binaries::find).await?;
        let template = template::ensure(&binaries, account).await?;
        let supervisor = blocking(move || copied(account, template)).await?;
        Self::launch(binaries, supervisor, settings).await
    }

    /// Starts the server whose data directory the supervisor already holds.
    pub(crate) async fn launch(
        binaries: Binaries,
        mut supervisor: Supervisor,
        settings: &[(&str, &str)],
    ) -> Result<Self> {
        let data = data_directory(&supervisor);
        let mut tries = 0;
        loop {
            let port = free_port()?;
            let sockets = supervisor.directory().to_string_lossy().into_owned();
            let own = [("port", &*port.to_string()), ("unix_socket_directories", &*sockets)];
            write_settings(&data, true, &[SETTINGS, &own, settings].concat())?;
            let pid = supervisor.run("QUIT", &[binaries.program("postgres"), "-D".into(), data.clone()])?;
            match ready(pid, port, &data).await {
                Ok(()) => {
                    let (supervisor, databases) = (Mutex::new(supervisor), AtomicU32::new(0));
                    return Ok(Self { server: Arc::new(Server { binaries, port, data, supervisor, databases }) });
                }
                Err(Error::PortInUse { .. }) if tries < PORT_TRIES => {
                    supervisor.wait()?;
                    tries += 1;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// A fresh database with Postrider's schema, cloned from the template.
    pub async fn database(&self) -> Database {
        self.create_database(template::DATABASE).await
    }

    /// A fresh database with nothing in it.
    pub async fn empty_database(&self) -> Database {
        self.create_database("template0").await
    }

    async fn create_database(&self, template: &str) -> Database {
        let name = format!("test_{}", self.server.databases.fetch_add(1, Ordering::Relaxed) + 1);
        or_panic(self.admin(&format!("create database {name} template {template}")).await);
        Database::new(self.clone(), name)
    }

    /// Runs one statement in the administrative database, by a connection of its own.
    pub(crate) async fn admin(&self, statement: &str) -> Result<()> {
        let client = connect(&url(self.port(), "postgres", ADMIN_DATABASE)).await?;
        client
            .batch_execute(statement)
            .await
            .map_err(|source| Error::Postgres { doing: "prepare a private database", source })
    }

    /// The port on 127.0.0.1; it stays the same over a restart.
    pub fn port(&self) -> u16 {
        self.server.port
    }

    /// The major version of the server, such as 15.
    pub fn version(&self) -> u32 {
        self.server.binaries.major
    }

    /// Where `postgres` and its companions are.
    pub fn bin_dir(&self) -> &Path {
        &self.server.binaries.dir
    }

    /// Where the server keeps its files.
    pub fn data_dir(&self) -> &Path {
        &self.server.data
    }

    /// Kills every process of the server at once, as a loss of power would, and returns when they are gone.
    pub fn kill9(&self) {
        or_panic(self.supervisor().kill());
    }

    /// Freezes every process of the server: connections stay open and nobody answers. Returns when all are frozen.
    pub fn pause(&self) {
        self.supervisor().freeze();
    }

    /// Lets a frozen server go on.
    pub fn resume(&self) {
        self.supervisor().thaw();
    }

    /// Starts the server again after [`Cluster::kill9`], or restarts a running one (fast: its sessions are ended).
    /// Returns when it answers queries.
    pub async fn restart(&self) {
        or_panic(self.try_restart().await);
    }

    async fn try_restart(&self) -> Result<()> {
        self.stop().await?;
        let deadline = Instant::now() + READY_DEADLINE;
        loop {
            let program = self.server.binaries.program("postgres");
            let pid = self.supervisor().run("QUIT", &[program, "-D".into(), self.server.data.clone()])?;
            match ready(pid, self.port(), &self.server.data).await {
                Err(Error::PortInUse { .. }) if Instant::now() < deadline => self.supervisor().wait()?,
                other => return other,
            };
        }
    }

    /// Stops the server, starts it again, and starts another one from a copy of all that it holds: what a failover finds.
    pub async fn duplicate(&self) -> Self {
        or_panic(self.try_duplicate().await)
    }

    async fn try_duplicate(&self) -> Result<Self> {
        self.stop().await?;
        let (account, original) = (Account::choose()?, self.server.data.clone());
        let supervisor = blocking(move || copied(account, original)).await?;
        let copy = Self::launch(self.server.binaries.clone(), supervisor, &[]).await?;
        self.try_restart().await?;
        Ok(copy)
    }

    /// Restarts the server as a standby that follows nobody: it answers what only reads.
    pub async fn demote(&self) {
        or_panic(self.try_demote().await);
    }

    async fn try_demote(&self) -> Result<()> {
        self.stop().await?;
        let path = self.server.data.join("standby.signal");
        let written = fs::write(&path, "");
        written.map_err(|source| Error::File { doing: "make a standby of the server", path, source })?;
        self.try_restart().await
    }

    /// A clean, fast stop; nothing to do for a server that is down.
    pub(crate) async fn stop(&self) -> Result<()> {
        let server = Arc::clone(&self.server);
        blocking(move || lock(&server.supervisor).stop("INT")).await
    }

    /// Appends settings and reloads; returns when new sessions see them. A setting that needs a restart waits for
    /// [`Cluster::restart`].
    pub async fn reconfigure(&self, settings: &[(&str, &str)]) {
        or_panic(self.try_reconfigure(settings).await);
    }

    async fn try_reconfigure(&self, settings: &[(&str, &str)]) -> Result<()> {
        let before = self.loaded_at().await?;
        write_settings(&self.server.data, false, settings)?;
        let pid = self.supervisor().pid();
        processes::signal("HUP", pid.as_slice());
        let deadline = Instant::now() + RELOAD_DEADLINE;
        while self.loaded_at().await? == before {
            if Instant::now() > deadline {
                return Err(self.supervisor().lost("the server did not reload its settings"));
            }
            sleep(READY_LOOK_EVERY).await;
        }
        Ok(())
    }

    async fn loaded_at(&self) -> Result<String> {
        let client = connect(&url(self.port(), "postgres", ADMIN_DATABASE)).await?;
        client
            .query_one("select pg_conf_load_time()::text", &[])
            .await
            .map(|row| row.get(0))
            .map_err(|source| Error::Postgres { doing: "ask when the settings were loaded", source })
    }

    fn supervisor(&self) -> MutexGuard<'_, Supervisor> {
        lock(&self.server.supervisor)
    }
}

/// A supervisor with a copy of this data directory.
fn copied(account: Account, original: PathBuf) -> Result<Supervisor> {
    let mut supervisor = Supervisor::start(account)?;
    let copy = ["cp", "-a", "--reflink=auto", "--"].map(PathBuf::from);
    let data = data_directory(&supervisor);
    supervisor.run_to_end("copying a data directory", &[&copy[..], &[original, data]].concat())?;
    Ok(supervisor)
}

pub(crate) fn data_directory(supervisor: &Supervisor) -> PathBuf {
    supervisor.directory().join("data")
}

/// Runs what blocks (a copy, a lock, a wait for a process) beside the runtime's own work.
pub(crate) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(panicked) => std::panic::resume_unwind(panicked.into_panic()),
    }
}

/// Waits until the server answers, and is ours: another could have the port.
async fn ready(pid: u32, port: u16, data: &Path) -> Result<()> {
    let deadline = Instant::now() + READY_DEADLINE;
    loop {
        if let Ok(client) = connect(&url(port, "postgres", ADMIN_DATABASE)).await
            && let Ok(row) = client.query_one("select current_setting('data_directory')", &[]).await
            && Path::new(row.get::<_, &str>(0)) == data
        {
            return Ok(());
        }
        let running = processes::is_running(pid);
        if running && Instant::now() < deadline {
            sleep(READY_LOOK_EVERY).await;
            continue;
        }
        let log = data.with_file_name("log");
        let log = String::from_utf8_lossy(&fs::read(log).unwrap_or_default()).into_owned();
        // PostgreSQL's last words when the port is taken; an earlier try left the same line further up.
        if !running && log.lines().rev().take(2).any(|line| line.contains("could not create any TCP/IP sockets")) {
            return Err(Error::PortInUse { port });
        }
        let what = if running { "did not answer in time" } else { "ended while it was starting" };
        return Err(Error::Server { what: format!("the private PostgreSQL server on port {port} {what}"), log });
    }
}

/// A port that is free at this moment, and chosen at random so that parallel test processes seldom meet.
pub(crate) fn free_port() -> Result<u16> {
    let mut port = PORTS.start;
    for _ in 0..PORT_TRIES {
        let [high, low, ..] = *Uuid::new_v4().as_bytes();
        port = PORTS.start + u16::from_be_bytes([high, low]) % (PORTS.end - PORTS.start);
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return Ok(port);
        }
    }
    Err(Error::PortInUse { port })
}

fn write_settings(data: &Path, anew: bool, settings: &[(&str, &str)]) -> Result<()> {
    let mut text = String::new();
    for (name, value) in settings {
        let _ = writeln!(text, "{name} = '{}'", value.replace('\'', "''"));
    }
    let path = data.join(SETTINGS_FILE);
    OpenOptions::new()
        .create(true)
        .write(true)
        .truncate(anew)
        .append(!anew)
        .open(&path)
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .map_err(|source| Error::File { doing: "write the settings", path, source })
}
