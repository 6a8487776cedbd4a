//! Files: how they are set, what is said about those that cannot be used, and those that other builds made.

use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use postrider::inspect::{DeliveryFilter, RelayReport};
use postrider::lifecycle::{Claim, Outcome};
use postrider::operate::Action;
use postrider::{Error, ErrorKind, Event, Inspect as _, Message, Operate as _, Queue as _, Route, SqliteStore};
use postrider_testkit::python;
use rusqlite::Connection;

use super::{Site, message};

/// Set for a child process: the file it tries to open as another user. The same test is then the child.
const CHILD_PATH: &str = "POSTRIDER_SQLITE_READ_ONLY";
/// The user `nobody`, on every Linux.
const NOBODY: u32 = 65_534;

fn why_not(path: &Path) -> String {
    match SqliteStore::open(path) {
        Ok(_) => panic!("{} was opened", path.display()),
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::FileUnusable, "{error:?}");
            let words = error.to_string();
            assert!(words.contains(&path.display().to_string()), "it names the file: {words}");
            words
        }
    }
}

/// Proves E11: a commit is on the disk when it returns, and readers do not wait for writers.
#[test]
fn a_file_is_made_to_last() {
    let site = Site::new();
    let text = |pragma: &str| site.app.query_row(pragma, [], |row| row.get::<_, String>(0)).unwrap();
    assert_eq!(text("pragma journal_mode"), "wal", "whoever opens the file");
    assert_eq!(text("pragma integrity_check"), "ok");
    assert_eq!(site.number("select user_version from pragma_user_version"), 0, "that number is the application's");
    let version: String = text("select sqlite_version()");
    let numbers: Vec<u32> = version.split('.').map(|part| part.parse().unwrap()).collect();
    assert!(numbers >= vec![3, 51, 3], "older ones can lose a file when the log is reset: {version}");
}

/// Only its owner reads what is in an outbox: the file, its log and the index of the log. A file that is there keeps its mode.
#[test]
fn a_file_is_its_owners_alone() {
    use std::os::unix::fs::PermissionsExt as _;
    let directory = tempfile::tempdir().unwrap();
    let mode = |name: &str| std::fs::metadata(directory.path().join(name)).unwrap().permissions().mode() & 0o777;
    let store = SqliteStore::open(directory.path().join("app.db")).unwrap();
    assert_eq!(["app.db", "app.db-wal", "app.db-shm"].map(mode), [0o600; 3]);
    drop(store);
    let shared = directory.path().join("shared.db");
    std::fs::write(&shared, "").unwrap();
    std::fs::set_permissions(&shared, std::fs::Permissions::from_mode(0o660)).unwrap();
    let store = SqliteStore::open(&shared).unwrap();
    assert_eq!(["shared.db", "shared.db-wal", "shared.db-shm"].map(mode), [0o660; 3]);
    drop(store);
}

/// A symbolic link to a file is followed; nothing is made where a link leads to.
#[test]
fn a_file_is_not_made_through_a_link() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    std::os::unix::fs::symlink(at("elsewhere.db"), at("app.db")).unwrap();
    assert!(why_not(&at("app.db")).contains("it is a symbolic link to a file that is not there"));
    assert!(!at("elsewhere.db").exists());
    std::fs::write(at("elsewhere.db"), "").unwrap();
    let store = SqliteStore::open(at("app.db")).unwrap();
    assert!(at("elsewhere.db-wal").exists() && !at("app.db-wal").exists(), "beside the file itself");
    drop(store);
}

/// A file that cannot be used is named, with the reason and what to do.
#[test]
fn unusable_files_say_why() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    assert!(why_not(&at("missing/app.db")).contains("missing does not exist: create it first"));
    assert!(why_not(directory.path()).contains("it is a directory"));
    std::fs::write(at("notes.txt"), "not a database at all, but long enough to be read as one".repeat(20)).unwrap();
    assert!(why_not(&at("notes.txt")).contains("not a SQLite database"));
    assert!(why_not(Path::new("/proc/app.db")).contains("let this user write"));
    assert!(why_not(Path::new(":memory:")).contains("write-ahead log"));
    assert!(!at("missing").exists(), "nothing is made on the way");
}

/// The same for a user who may only read. Root may write everywhere, so a child process tries as somebody else.
#[test]
fn a_read_only_file_says_why() {
    if let Ok(path) = std::env::var(CHILD_PATH) {
        let path = Path::new(&path);
        println!("{}", why_not(path));
        println!("{}", why_not(&path.with_file_name("new.db")));
        return;
    }
    let site = Site::new();
    let open_to_all = |path: &Path, mode| {
        use std::os::unix::fs::PermissionsExt as _;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    let path = site.path();
    let Site { directory, store, app } = site;
    drop((store, app));
    open_to_all(directory.path(), 0o555);
    open_to_all(&path, 0o444);
    // The tests may lie where nobody may look.
    let program = std::env::temp_dir().join(format!("postrider-it-{}", std::process::id()));
    std::fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    open_to_all(&program, 0o755);
    let mut child = Command::new(&program);
    child.args(["--exact", "sqlite::files::a_read_only_file_says_why", "--nocapture"]).env(CHILD_PATH, &path);
    if std::fs::metadata("/proc/self").map(|own| std::os::unix::fs::MetadataExt::uid(&own)).unwrap() == 0 {
        child.uid(NOBODY).gid(NOBODY);
    }
    let output = child.output().unwrap();
    std::fs::remove_file(&program).unwrap();
    open_to_all(directory.path(), 0o755);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("read-only for this user") && said.contains("Permission denied"), "{said}");
}

/// Any number open a new file at once: its tables are made once.
#[test]
fn twenty_open_a_new_file_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("app.db");
    std::thread::scope(|scope| {
        for _ in 0..20 {
            scope.spawn(|| SqliteStore::open(&path).unwrap());
        }
    });
    let app = Connection::open(&path).unwrap();
    let sql = "select group_concat(name, ' ' order by version) from outbox_migration";
    let applied: String = app.query_row(sql, [], |row| row.get(0)).unwrap();
    assert_eq!(applied, "outbox inbox audit watch import");
}

/// A file that a newer build has made is refused and left alone; so is one whose migrations are not this build's.
#[test]
fn a_file_of_another_build_is_refused() {
    let site = Site::new();
    site.app.execute_batch("insert into outbox_migration values (999, 'future', 'x', 0)").unwrap();
    let error = SqliteStore::open(site.path()).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::SchemaTooNew, "{error:?}");
    assert!(error.to_string().contains("is at version 999,"), "{error}");
    assert!(error.to_string().contains("app.db") && error.to_string().contains("use a newer postrider"), "{error}");
    site.app
        .execute_batch("delete from outbox_migration where version = 999; update outbox_migration set checksum = 'x'")
        .unwrap();
    let error = SqliteStore::open(site.path()).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::MigrationChanged, "{error:?}");
    assert!(error.to_string().starts_with("migration 1 ("), "{error}");
}

/// Views and triggers of an older build are replaced; a file that is current is not written.
#[test]
fn views_are_replaced_when_they_differ() {
    let site = Site::new();
    let version = || site.number("select data_version from pragma_data_version");
    site.app
        .execute_batch("drop view outbox_lanes; create view outbox_lanes as select 1 as old; update outbox_setting set views_hash = 'old'")
        .unwrap();
    let before = version();
    drop(SqliteStore::open(site.path()).unwrap());
    assert_ne!(version(), before);
    assert_eq!(site.number("select count(*) from pragma_table_info('outbox_lanes') where name = 'depth'"), 1);
    let before = version();
    drop(SqliteStore::open(site.path()).unwrap());
    assert_eq!(version(), before, "opening a file that is current writes nothing");
}

/// Debian's SQLite, older than the one that is built in, finds nothing wrong with a file that has every kind of row: no
/// rule of the tables rests on what a function says about NULL.
#[tokio::test]
async fn an_older_sqlite_finds_the_file_whole() {
    let site = Site::new();
    let tenant = "tenant-1";
    let full = message("t").tenant(tenant).lane("a").dedupe_key(format!("{tenant}/1")).header("h", "v");
    let plain = [message("t"), full, Message::bytes("t", vec![0, 1], "x/y"), message("dead").lane("b")];
    site.store.operate("ann", &Action::AddRoute { route: Route::new("t*", "s") }).await.unwrap();
    site.store.enqueue(&plain).await.unwrap();
    let held = site.claim(10).await;
    site.store.finish("w", &held[0], Outcome::Failed(postrider::lifecycle::Failure::new("E1", "no"))).await.unwrap();
    let claim = Claim::new("w").batch_size(2).sink("s".to_owned());
    let held = site.store.claim(&claim).await.unwrap();
    site.store.finish("w", &held[0], Outcome::Dispatched).await.unwrap();
    let events = [Event::new(uuid::Uuid::from_u128(7)), Event::new(uuid::Uuid::now_v7()).lane("l", 1)];
    let arrivals = events.map(|event| (event, message("t")));
    assert_eq!(site.store.forward(&arrivals).await.unwrap(), [true, true]);
    // Received in a millisecond that has not passed yet: then again.
    let mut pruned = 0;
    while pruned < 2 {
        pruned += site.store.prune_inbox(Some(Duration::ZERO)).await.unwrap();
    }
    site.store.forward(&arrivals[..1]).await.unwrap();
    assert!(site.store.measure().await.unwrap());
    let (worker_id, version) = ("w".to_owned(), "1".to_owned());
    let report = RelayReport { worker_id, version, every: Duration::from_secs(10), sinks: Vec::new() };
    site.store.report(&report).await.unwrap();
    site.store.operate("ann", &Action::Pause { sink: "s".to_owned() }).await.unwrap();
    let cancel = Action::Cancel { which: DeliveryFilter::default(), at_most: 1 };
    assert_eq!(site.store.operate("ann", &cancel).await.unwrap().affected, 1);
    for table in [
        "message",
        "delivery",
        "attempt",
        "dead_letter",
        "lane_sequence",
        "dedupe",
        "route",
        "sink",
        "inbox",
        "inbox_lane",
        "audit",
        "relay",
        "sample",
        "setting",
    ] {
        assert!(site.number(&format!("select count(*) from outbox_{table}")) > 0, "{table} is empty");
    }
    let program = "import sqlite3, sys\nc = sqlite3.connect(sys.argv[1])\nprint(sqlite3.sqlite_version)\n\
                   print(*[row[0] for row in c.execute('pragma integrity_check')], sep='\\n')";
    let said = python(program, &[site.path().to_str().unwrap()], b"").await;
    let lines: Vec<&str> = said.stdout.lines().collect();
    assert_eq!(lines[1..], ["ok"], "SQLite {}: {}", lines[0], said.stderr);
}

/// A file that was deleted, or that another one took the place of, is not worked on in silence: everything says so, and
/// nothing is made in its place.
#[tokio::test]
async fn a_file_that_was_deleted_or_replaced_is_noticed() {
    for replaced in [false, true] {
        let site = Site::new();
        site.store.enqueue(&[message("t")]).await.unwrap();
        let mut listener = site.store.listen().await.unwrap();
        let away = site.directory.path().join("away.db");
        std::fs::rename(site.path(), &away).unwrap();
        if replaced {
            std::fs::write(site.path(), b"").unwrap();
        }
        let gone = |error: Error| {
            assert_eq!(error.kind(), ErrorKind::FileGone, "{error:?}");
            assert!(error.to_string().contains("app.db") && error.to_string().contains("restart"), "{error}");
            assert!(!error.is_refusal(), "it may come back");
        };
        gone(site.store.now().await.unwrap_err());
        gone(site.store.claim(&Claim::new("w")).await.unwrap_err());
        gone(site.store.enqueue(&[message("t")]).await.unwrap_err());
        gone(listener.news().await.unwrap_err());
        gone(site.store.listen().await.err().unwrap());
        assert_eq!(site.path().exists(), replaced, "nothing is made in its place");
        std::fs::rename(&away, site.path()).unwrap();
        assert_eq!(site.claim(10).await.len(), 1, "it is back");
    }
}

/// A log that grew while somebody read for long is cut back after that, by the next who writes.
#[tokio::test]
async fn a_long_log_is_cut_back_when_the_reader_has_gone() {
    let site = Site::new();
    let log = site.directory.path().join("app.db-wal");
    let bytes = || std::fs::metadata(&log).unwrap().len();
    site.store.enqueue(&[message("t")]).await.unwrap();
    site.app.execute_batch("begin; select count(*) from outbox_message").unwrap();
    let large = Message::bytes("t", vec![7; 1 << 20], "x/y");
    while bytes() < 32 << 20 {
        site.store.enqueue(std::slice::from_ref(&large)).await.unwrap();
    }
    site.app.execute_batch("commit").unwrap();
    let deadline = std::time::Instant::now() + Duration::from_secs(30);
    while bytes() > 1 << 20 {
        assert!(std::time::Instant::now() < deadline, "the log has {} bytes", bytes());
        site.store.enqueue(&[message("t")]).await.unwrap();
    }
    assert!(site.counts().1 > 32, "nothing is lost");
}
