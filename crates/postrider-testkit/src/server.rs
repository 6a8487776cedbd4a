//! One private server of any kind that is a process with one port: started on a free port with its files in a directory
//! of its own, killed, frozen and started again. The brokers say how their program is called; everything else about
//! their lives is here. Like the cluster, a server keeps its port for life, and goes when its test process does.

use std::{
    ffi::OsString,
    fmt, fs,
    io::{Read as _, Seek as _, SeekFrom},
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use tokio::time::sleep;

use crate::{
    account::Account,
    cluster::{blocking, free_port},
    error::{Error, Result, or_panic},
    processes,
    supervisor::{Supervisor, lock},
};

/// Ports to try: another test process may take one between the look and the start.
const PORT_TRIES: u32 = 20;
/// From start to the line that says so. RabbitMQ takes six seconds on an idle machine, and recovery comes on top.
const READY_DEADLINE: Duration = Duration::from_mins(2);
/// Between two looks at the log.
const READY_LOOK_EVERY: Duration = Duration::from_millis(5);
/// Last words of a server whose port is taken; Erlang's have their own.
const PORT_IN_USE: [&str; 3] = ["already in use", "eaddrinuse", "already a epmd running"];

/// A private server process; it ends when dropped.
pub struct Server {
    name: &'static str,
    ready: &'static str,
    port: u16,
    argv: Vec<OsString>,
    supervisor: Arc<Mutex<Supervisor>>,
}

impl Server {
    /// Starts a server of a kind. `ready` is part of the line that it writes once it takes connections: unlike an open
    /// port, it cannot be another's. `command` writes the settings for a port into the server's directory and returns the
    /// program with its arguments.
    pub(crate) async fn start(
        name: &'static str,
        ready: &'static str,
        command: impl Fn(u16, &Path) -> Result<Vec<OsString>>,
    ) -> Self {
        or_panic(Self::try_start(name, ready, command).await)
    }

    async fn try_start(
        name: &'static str,
        ready: &'static str,
        command: impl Fn(u16, &Path) -> Result<Vec<OsString>>,
    ) -> Result<Self> {
        let account = Account::choose()?;
        let supervisor = blocking(move || Supervisor::start(account)).await?;
        let directory = supervisor.directory().to_owned();
        let supervisor = Arc::new(Mutex::new(supervisor));
        let mut tries = 0;
        loop {
            let port = free_port()?;
            let argv = command(port, &directory)?;
            let server = Self { name, ready, port, argv, supervisor: Arc::clone(&supervisor) };
            match server.launch().await {
                Err(Error::PortInUse { .. }) if tries < PORT_TRIES => tries += 1,
                launched => return launched.map(|()| server),
            }
        }
    }

    /// The port on 127.0.0.1; it stays the same over a restart.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Where the server keeps its files.
    pub fn directory(&self) -> PathBuf {
        lock(&self.supervisor).directory().to_owned()
    }

    /// Kills the server with SIGKILL and returns when it is gone; nothing to do for one that is down.
    pub fn kill(&self) {
        or_panic(lock(&self.supervisor).kill());
    }

    /// Ends the server as an operator would, with SIGTERM, and returns when it is gone.
    pub async fn stop(&self) {
        or_panic(self.try_stop().await);
    }

    async fn try_stop(&self) -> Result<()> {
        let supervisor = Arc::clone(&self.supervisor);
        blocking(move || lock(&supervisor).stop("TERM")).await
    }

    /// Freezes the server with SIGSTOP: connections stay open and nobody answers. Returns when it stands still.
    pub fn stall(&self) {
        lock(&self.supervisor).freeze();
    }

    /// Lets a frozen server go on.
    pub fn resume(&self) {
        lock(&self.supervisor).thaw();
    }

    /// Starts the server again after [`Server::kill`], or restarts a running one cleanly: the same port, the same data.
    /// Returns when it takes connections.
    pub async fn restart(&self) {
        or_panic(self.try_restart().await);
    }

    async fn try_restart(&self) -> Result<()> {
        self.try_stop().await?;
        let deadline = Instant::now() + READY_DEADLINE;
        loop {
            match self.launch().await {
                Err(Error::PortInUse { .. }) if Instant::now() < deadline => sleep(READY_LOOK_EVERY).await,
                launched => return launched,
            }
        }
    }

    /// Starts the process, which must not run, and waits until it says that it is ready.
    async fn launch(&self) -> Result<()> {
        let (pid, log) = {
            let mut supervisor = lock(&self.supervisor);
            let log = Log::from_here(supervisor.log_path());
            // Whatever a server would save at its end goes with its directory.
            (supervisor.run("KILL", &self.argv)?, log)
        };
        let deadline = Instant::now() + READY_DEADLINE;
        loop {
            // Looked at first: what a process wrote before it ended is then in the log.
            let running = processes::is_running(pid);
            let written = log.read();
            if written.contains(self.ready) {
                return Ok(());
            }
            if running && Instant::now() < deadline {
                sleep(READY_LOOK_EVERY).await;
                continue;
            }
            let mut supervisor = lock(&self.supervisor);
            supervisor.kill()?;
            if !running && PORT_IN_USE.iter().any(|words| written.contains(words)) {
                return Err(Error::PortInUse { port: self.port });
            }
            let what = if running { "did not get ready in time" } else { "ended while it was starting" };
            return Err(supervisor.lost(&format!("the private {} on port {} {what}", self.name, self.port)));
        }
    }
}

// By hand: the arguments may hold a password of the test's own.
impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("name", &self.name).field("port", &self.port).finish_non_exhaustive()
    }
}

/// What a server has written since its last start.
struct Log {
    path: PathBuf,
    start: u64,
}

impl Log {
    fn from_here(path: PathBuf) -> Self {
        let start = fs::metadata(&path).map_or(0, |metadata| metadata.len());
        Self { path, start }
    }

    fn read(&self) -> String {
        let mut bytes = Vec::new();
        if let Ok(mut file) = fs::File::open(&self.path)
            && file.seek(SeekFrom::Start(self.start)).is_ok()
        {
            let _ = file.read_to_end(&mut bytes);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

/// What every private broker can be made to suffer; bring it into scope to call it.
pub trait Broker {
    /// How its addresses begin.
    const SCHEME: &'static str;

    /// Its process. Panics when the broker is not a private one (`POSTRIDER_TEST_KAFKA`).
    fn server(&self) -> &Server;

    /// The port on 127.0.0.1; it stays the same over a restart.
    fn port(&self) -> u16 {
        self.server().port()
    }

    /// The address for a client without a password.
    fn url(&self) -> String {
        format!("{}://127.0.0.1:{}", Self::SCHEME, self.port())
    }

    /// The address for a user.
    fn url_as(&self, user: &str, password: &str) -> String {
        format!("{}://{user}:{password}@127.0.0.1:{}", Self::SCHEME, self.port())
    }

    /// See [`Server::kill`].
    fn kill(&self) {
        self.server().kill();
    }

    /// See [`Server::stop`].
    fn stop(&self) -> impl Future<Output = ()> + Send {
        self.server().stop()
    }

    /// See [`Server::restart`].
    fn restart(&self) -> impl Future<Output = ()> + Send {
        self.server().restart()
    }

    /// See [`Server::stall`].
    fn stall(&self) {
        self.server().stall();
    }

    /// See [`Server::resume`].
    fn resume(&self) {
        self.server().resume();
    }
}

/// Writes a file of settings into a server's directory.
pub(crate) fn write_settings(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).map_err(|source| Error::File { doing: "write the settings", path: path.to_owned(), source })
}

/// Settings of the form `name value`, one a line.
pub(crate) fn lines(settings: &[(&str, &str)], between: &str) -> String {
    settings.iter().fold(String::new(), |text, (name, value)| text + name + between + value + "\n")
}
