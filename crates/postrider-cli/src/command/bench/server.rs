//! A private PostgreSQL server for the time of a measurement: its files in a temporary directory, a Unix socket and no port,
//! and a disk that is really written to. Root hands it to another account, because PostgreSQL refuses root. It ends, and its
//! files go, when this is dropped.

use std::env;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

use crate::exit_code::ExitCode;
use crate::failure::{Failure, Result};

const DEBIAN_ROOT: &str = "/usr/lib/postgresql";
/// Who may run it if root may not.
const ACCOUNTS: [&str; 2] = ["postgres", "nobody"];
/// Nothing of the server's own gets in between: no checkpoint in a run, and room for every client.
const SETTINGS: &str = "\
listen_addresses = ''
port = 5432
max_connections = 300
shared_buffers = 512MB
max_wal_size = 16GB
checkpoint_timeout = 1h
dynamic_shared_memory_type = mmap
timezone = UTC
";

pub(super) struct Server {
    place: TempDir,
    programs: PathBuf,
    account: Option<(u32, u32)>,
}

impl Server {
    /// Starts one and waits until it takes connections.
    pub(super) fn start() -> Result<Self> {
        let programs = find_programs().ok_or_else(|| {
            Failure::new(ExitCode::Unreachable, "no PostgreSQL server is installed here")
                .hint("install one (apt-get install postgresql), or give --database-url URL or --sqlite")
        })?;
        // A short path: a socket's may not be longer than about 100 bytes.
        let place = tempfile::Builder::new()
            .prefix("postrider-bench-")
            .tempdir_in(short_directory())
            .map_err(|error| cannot(&error))?;
        let account = account(place.path())?;
        if let Some((uid, gid)) = account {
            chown(place.path(), Some(uid), Some(gid)).map_err(|error| cannot(&error))?;
        }
        let server = Self { place, programs, account };
        let data = server.data();
        server
            .call("initdb", &["-D", &data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"])?;
        let sockets = format!("{SETTINGS}unix_socket_directories = '{}'\n", server.place.path().display());
        let settings = Path::new(&data).join("postgresql.auto.conf");
        fs::write(settings, sockets).map_err(|error| cannot(&error))?;
        let log = server.place.path().join("server.log");
        server.call("pg_ctl", &["-D", &data, "-w", "-l", &log.to_string_lossy(), "start"])?;
        Ok(server)
    }

    pub(super) fn url(&self) -> String {
        format!("postgres:///postgres?host={}&user=postgres", self.place.path().display())
    }

    /// Ends it and removes its files; there is nothing to save.
    pub(super) fn end(&self) {
        drop(self.call("pg_ctl", &["-D", &self.data(), "-m", "immediate", "-w", "stop"]));
        drop(fs::remove_dir_all(self.place.path()));
    }

    fn data(&self) -> String {
        self.place.path().join("data").to_string_lossy().into_owned()
    }

    /// In a group of its own, so that Ctrl-C reaches this process alone and not the server.
    fn call(&self, program: &str, arguments: &[&str]) -> Result<()> {
        let mut command = Command::new(self.programs.join(program));
        command.args(arguments).process_group(0).current_dir("/").stdin(Stdio::null());
        // What the caller has in PGHOST, PGPORT and the like must not lead to another server.
        for (name, _) in env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("PG")) {
            command.env_remove(name);
        }
        if let Some((uid, gid)) = self.account {
            command.uid(uid).gid(gid);
        }
        let said = self.place.path().join("said");
        let file = fs::File::create(&said).map_err(|error| cannot(&error))?;
        let status = command
            .stdout(file.try_clone().map_err(|error| cannot(&error))?)
            .stderr(file)
            .status()
            .map_err(|error| cannot(&error))?;
        if status.success() {
            return Ok(());
        }
        let said = fs::read_to_string(said).unwrap_or_default();
        let last = said.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("it said nothing").to_owned();
        Err(Failure::new(ExitCode::Unreachable, format!("the private server did not start: {program}: {last}"))
            .hint("give --database-url URL to measure on a server of your own, or --sqlite"))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end();
    }
}

fn cannot(error: &std::io::Error) -> Failure {
    Failure::new(ExitCode::Unreachable, format!("cannot start a private server: {error}"))
        .hint("set TMPDIR to a directory that can be written, or give --database-url URL")
}

fn short_directory() -> PathBuf {
    let named = env::temp_dir();
    if named.as_os_str().len() < 60 { named } else { PathBuf::from("/tmp") }
}

/// The newest of Debian's, or what is on the path.
fn find_programs() -> Option<PathBuf> {
    let has = |directory: &PathBuf| directory.join("initdb").is_file() && directory.join("pg_ctl").is_file();
    if let Some(named) = env::var_os("POSTRIDER_TEST_PG_BIN") {
        return Some(PathBuf::from(named)).filter(has);
    }
    let debian = fs::read_dir(DEBIAN_ROOT).into_iter().flatten().flatten().filter_map(|entry| {
        let version: u32 = entry.file_name().to_str()?.parse().ok()?;
        Some((version, entry.path().join("bin")))
    });
    let newest = debian.filter(|(_, directory)| has(directory)).max().map(|(_, directory)| directory);
    newest.or_else(|| env::split_paths(&env::var_os("PATH")?).find(has))
}

/// User and group to run it under: `None` for this process's own.
fn account(own: &Path) -> Result<Option<(u32, u32)>> {
    if fs::metadata(own).map_err(|error| cannot(&error))?.uid() != 0 {
        return Ok(None);
    }
    let users = fs::read_to_string("/etc/passwd").map_err(|error| cannot(&error))?;
    let find = |name: &&str| {
        users.lines().find_map(|line| {
            let fields: Vec<&str> = line.split(':').collect();
            (fields.first() == Some(name))
                .then(|| Some((fields.get(2)?.parse().ok()?, fields.get(3)?.parse().ok()?)))?
        })
    };
    ACCOUNTS.iter().find_map(find).map(Some).ok_or_else(|| {
        Failure::new(
            ExitCode::Unreachable,
            "PostgreSQL refuses to run as root, and there is no account postgres or nobody",
        )
        .hint("run it as another user, or give --database-url URL")
    })
}
