//! Files: how they are set, what is said about those that cannot be used, and those that other builds made.

use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use postrider::{Error, SqliteStore};
use rusqlite::Connection;

use super::Site;

/// Set for a child process: the file it tries to open as another user. The same test is then the child.
const CHILD_PATH: &str = "POSTRIDER_SQLITE_READ_ONLY";
/// The user `nobody`, on every Linux.
const NOBODY: u32 = 65_534;

fn why_not(path: &Path) -> String {
    match SqliteStore::open(path) {
        Ok(_) => panic!("{} was opened", path.display()),
        Err(error) => {
            assert!(matches!(error, Error::SqliteOpen { .. }), "{error:?}");
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
    assert_eq!(applied, "outbox inbox audit watch");
}

/// A file that a newer build has made is refused and left alone; so is one whose migrations are not this build's.
#[test]
fn a_file_of_another_build_is_refused() {
    let site = Site::new();
    site.app.execute_batch("insert into outbox_migration values (999, 'future', 'x', 0)").unwrap();
    let error = SqliteStore::open(site.path()).err().unwrap();
    assert!(matches!(error, Error::SchemaTooNew { found: 999, .. }), "{error:?}");
    assert!(error.to_string().contains("app.db") && error.to_string().contains("use a newer postrider"), "{error}");
    site.app
        .execute_batch("delete from outbox_migration where version = 999; update outbox_migration set checksum = 'x'")
        .unwrap();
    let error = SqliteStore::open(site.path()).err().unwrap();
    assert!(matches!(error, Error::MigrationChanged { version: 1, .. }), "{error:?}");
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

/// Every statement says what it is for, and every one is used.
#[test]
fn statements_are_explained_and_used() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let source = |folder: &str| -> String {
        let files = std::fs::read_dir(root.join(folder)).unwrap().map(|entry| entry.unwrap().path());
        files.filter(|path| path.is_file()).map(|path| std::fs::read_to_string(path).unwrap()).collect()
    };
    let code = ["src", "src/store", "src/store/sqlite", "src/enqueue", "src/inbox"].map(source).concat();
    for folder in ["statements", "views", "migrations"] {
        for entry in std::fs::read_dir(root.join("sql/sqlite").join(folder)).unwrap() {
            let path = entry.unwrap().path();
            let sql = std::fs::read_to_string(&path).unwrap();
            let name = path.file_stem().unwrap().to_str().unwrap();
            assert!(sql.starts_with("-- "), "{name} does not say what it is for");
            let used = code.contains(&format!("sql!(\"{name}\")")) || code.contains(&format!("/{name}.sql\""));
            assert!(used, "nothing uses {name}");
        }
    }
}
