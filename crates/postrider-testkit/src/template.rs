//! The cluster that every private server is a copy of: initialised, with a migrated database, cleanly shut down. It is
//! made once for each server version, set of migrations and day (migrating makes partitions for the days ahead), kept in
//! the cache, and never started again; parallel test processes wait for the one that makes it. Called by the cluster
//! only.

use std::{
    fs::{self, File},
    hash::{DefaultHasher, Hash as _, Hasher as _},
    io::{self, Write as _},
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, SystemTime},
};

use tokio_postgres::Client;
use uuid::Uuid;

use crate::{
    account::Account,
    binaries::Binaries,
    cache,
    cluster::{Cluster, SETTINGS_FILE, blocking, data_directory},
    database::{connect, url},
    error::{Error, Result},
    supervisor::Supervisor,
};

/// The migrated database in the template.
pub(crate) const DATABASE: &str = "postrider_template";
/// What holds for every row, as constraints.
const ROW_CHECKS: &str = include_str!("row_checks.sql");
/// Raise it when the template is built differently.
const LAYOUT: u32 = 1;
/// A template that nobody has used for so long belongs to an old branch.
const KEEP_UNUSED: Duration = Duration::from_hours(24);
/// As much of the fingerprint as a file name needs.
const FINGERPRINT_CHARS: usize = 16;
const SECONDS_PER_DAY: u64 = 24 * 60 * 60;
const UNFINISHED_PREFIX: &str = ".building-";

async fn migrate_template(client: &mut Client) -> Result<()> {
    let schema = postrider::Schema::default();
    postrider::migrate::up(client, &schema).await.map(drop).map_err(|source| Error::Migrate { source })?;
    client.batch_execute(ROW_CHECKS).await.map_err(|source| Error::Postgres { doing: "add the row checks", source })
}

/// Returns the template's data directory, made if need be.
pub(crate) async fn ensure(binaries: &Binaries, account: Account) -> Result<PathBuf> {
    let shelf = cache::subdirectory("template")?;
    let template = shelf.join(key(binaries, account));
    if is_there(&template) {
        return Ok(template);
    }
    let lock = shelf.join("lock");
    let locked = blocking(move || {
        File::create(&lock).and_then(|file| file.lock().map(|()| file)).map_err(|source| Error::File {
            doing: "lock",
            path: lock,
            source,
        })
    })
    .await?;
    if !is_there(&template) {
        remove_stale(&shelf);
        build(binaries, account, &shelf, &template).await?;
    }
    drop(locked);
    Ok(template)
}

fn key(binaries: &Binaries, account: Account) -> String {
    let version: String =
        binaries.version_text.chars().map(|c| if c.is_ascii_alphanumeric() || c == '.' { c } else { '_' }).collect();
    let fingerprint: String = postrider::migrate::fingerprint().chars().take(FINGERPRINT_CHARS).collect();
    let mut row_checks = DefaultHasher::new();
    ROW_CHECKS.hash(&mut row_checks);
    let row_checks = row_checks.finish();
    let day = SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_secs() / SECONDS_PER_DAY);
    format!("{version}-{fingerprint}-{row_checks:x}-{day}-{}-{LAYOUT}", account.uid)
}

/// Marks it as used, too; that keeps other branches from removing it while it is being copied.
fn is_there(template: &Path) -> bool {
    File::open(template).and_then(|directory| directory.set_modified(SystemTime::now())).is_ok()
}

/// Called under the lock: an unfinished template is then nobody's work in progress. What cannot be removed stays.
fn remove_stale(shelf: &Path) {
    for entry in fs::read_dir(shelf).into_iter().flatten().flatten() {
        let unfinished = entry.file_name().to_string_lossy().starts_with(UNFINISHED_PREFIX);
        let unused = entry
            .metadata()
            .and_then(|metadata| metadata.modified())
            .is_ok_and(|used| used.elapsed().is_ok_and(|age| age > KEEP_UNUSED));
        if unfinished || unused {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

async fn build(binaries: &Binaries, account: Account, shelf: &Path, template: &Path) -> Result<()> {
    let cluster = Cluster::launch(binaries.clone(), blocking(initialise(binaries, account)).await?, &[]).await?;
    cluster.admin(&format!("create database {DATABASE} template template0")).await?;
    let mut client = connect(&url(cluster.port(), "postgres", DATABASE)).await?;
    migrate_template(&mut client).await?;
    drop(client);
    cluster.admin(&format!("alter database {DATABASE} is_template true")).await?;
    cluster.stop().await?;

    let data = cluster.data_dir().to_owned();
    let unfinished = shelf.join(format!("{UNFINISHED_PREFIX}{}", Uuid::new_v4().simple()));
    let (template, sync) = (template.to_owned(), binaries.program("initdb"));
    blocking(move || {
        fs::remove_file(data.join(SETTINGS_FILE)).map_err(|source| Error::File {
            doing: "remove the settings from",
            path: data.clone(),
            source,
        })?;
        command(Command::new("cp").args(["-a", "--"]).args([&data, &unfinished]))?;
        // A template that a loss of power has torn would fail every later run.
        let mut sync = Command::new(sync);
        account.apply(&mut sync);
        command(sync.arg("--sync-only").arg("-D").arg(&unfinished))?;
        fs::rename(&unfinished, &template).map_err(|source| Error::File {
            doing: "put the template in its place",
            path: template,
            source,
        })
    })
    .await
}

/// A new cluster that includes the settings file of whoever starts it.
fn initialise(binaries: &Binaries, account: Account) -> impl FnOnce() -> Result<Supervisor> + Send + use<> {
    let program = binaries.program("initdb");
    move || {
        let mut supervisor = Supervisor::start(account)?;
        let data = data_directory(&supervisor);
        let flags = ["--encoding=UTF8", "--locale=C", "--username=postgres", "--auth=trust", "--no-sync", "-D"];
        let mut argv = vec![program];
        argv.extend(flags.map(PathBuf::from));
        argv.push(data.clone());
        supervisor.run_to_end("initdb", &argv)?;
        let conf = data.join("postgresql.conf");
        File::options()
            .append(true)
            .open(&conf)
            .and_then(|mut file| writeln!(file, "include_if_exists = '{SETTINGS_FILE}'"))
            .map_err(|source| Error::File { doing: "append to", path: conf, source })?;
        Ok(supervisor)
    }
}

fn command(command: &mut Command) -> Result<()> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|source| Error::Spawn { program: program.clone(), source })?;
    if output.status.success() {
        return Ok(());
    }
    let source = io::Error::other(String::from_utf8_lossy(&output.stderr).into_owned());
    Err(Error::Spawn { program, source })
}
