//! `postrider bench`, as small as it can be: every figure is there, and nothing stays, whatever ends it. How fast anything is, is
//! no test's business.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use postrider_testkit::Database;
use serde_json::Value;

use crate::support::{command, finish, run, sql};

const SCHEMAS: &str = "select count(*) from pg_namespace where nspname like 'postrider\\_bench\\_%'";
const TINY: [&str; 5] = ["--messages", "60", "--rounds", "1", "--json"];
/// More than any run gets through before it is interrupted.
const ENDLESS: [&str; 5] = ["bench", "--only", "drain", "--messages", "10000000"];
const PATIENCE: Duration = Duration::from_mins(1);

fn is_measured(spread: &Value) -> bool {
    ["median", "min", "max"].iter().all(|name| spread[name].as_f64().is_some_and(f64::is_finite))
}

/// Names of the figures, each of which was measured.
fn names(report: &Value) -> Vec<&str> {
    let figures = report["figures"].as_array().unwrap();
    for figure in figures {
        let floor = &figure["floor"];
        assert!(is_measured(&figure["ours"]), "{figure}");
        assert!(floor.is_null() || (is_measured(&floor["value"]) && floor["what"].is_string()), "{figure}");
    }
    figures.iter().map(|figure| figure["name"].as_str().unwrap()).collect()
}

/// Every element is closed, and every point is two numbers.
fn assert_is_svg(svg: &str) {
    let mut open = Vec::new();
    for tag in svg.split('<').skip(1) {
        let (tag, _) = tag.split_once('>').unwrap();
        match tag.strip_prefix('/') {
            Some(name) => assert_eq!(open.pop(), Some(name)),
            None if tag.ends_with('/') => {}
            None => open.push(tag.split(' ').next().unwrap()),
        }
    }
    assert!(open.is_empty(), "{open:?} are not closed");
    let points = svg.split("points=\"").skip(1).flat_map(|rest| rest.split('"').next().unwrap().split_whitespace());
    let numbers = points.map(|point| point.split(',').filter(|number| number.parse::<f64>().is_ok()).count());
    assert!(numbers.inspect(|numbers| assert_eq!(*numbers, 2)).count() > 0, "no points: {svg}");
}

#[tokio::test]
async fn a_tiny_run_has_every_figure_and_leaves_no_schema() {
    let database = postrider_testkit::database().await;
    let directory = tempfile::tempdir().unwrap();
    let picture = directory.path().join("bench.svg");
    let before = sql(&database, "select count(*) from outbox.message").await;
    let options = [&["bench"], &TINY[..], &["--clients", "4", "--svg", picture.to_str().unwrap()]].concat();
    let report = run(&database, &options).json();
    let names = names(&report);
    for begin in ["enqueue in a transaction", "enqueue in batches", "drain by one relay", "commit to handler", "drain"]
    {
        assert!(names.iter().any(|name| name.starts_with(begin)), "{begin}: {names:?}");
    }
    assert_eq!(report["figures"].as_array().unwrap().len(), 18, "{names:?}");
    assert_eq!((report["messages"].as_u64(), report["rounds"].as_u64()), (Some(60), Some(1)));
    assert!(report["place"].as_str().unwrap().contains("given server"), "{report}");
    assert_is_svg(&fs::read_to_string(picture).unwrap());
    assert_eq!(sql(&database, SCHEMAS).await, "0", "its schema is gone");
    assert_eq!(sql(&database, "select count(*) from outbox.message").await, before, "the outbox that was there");
}

#[tokio::test]
async fn a_shape_is_measured_in_schemas_that_go() {
    let database = postrider_testkit::database().await;
    let options = ["bench", "--shape", "blocked-lane,producers,connections", "--backlog", "50"];
    let report = run(&database, &[&options, &TINY[..]].concat()).json();
    assert_eq!(names(&report).len(), 5, "{report}");
    assert_eq!(sql(&database, SCHEMAS).await, "0");
}

#[test]
fn sqlite_is_measured_in_a_file_that_goes() {
    let directory = tempfile::tempdir().unwrap();
    let mut command = command(&[&["bench", "--sqlite"], &TINY[..]].concat());
    command.env("TMPDIR", directory.path());
    let report = finish(command, b"").json();
    assert_eq!(names(&report).len(), 5, "{report}");
    assert!(report["place"].as_str().unwrap().starts_with("SQLite 3."), "{report}");
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
}

/// Waits for a state, and then interrupts.
fn interrupt(mut bench: Child, mut is_under_way: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_under_way() {
        assert!(Instant::now() < deadline && bench.try_wait().unwrap().is_none(), "it does not get under way");
    }
    assert!(Command::new("kill").args(["-INT", &bench.id().to_string()]).status().unwrap().success());
    assert_eq!(bench.wait().unwrap().code(), Some(130));
}

fn start(mut command: Command) -> Child {
    command.stdout(Stdio::null()).spawn().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn interrupted_it_removes_its_schema() {
    let database: Database = postrider_testkit::database().await;
    let mut command = command(&ENDLESS);
    command.env("DATABASE_URL", database.url());
    let client = database.connect().await;
    let bench = start(command);
    let loaded = "select count(*) from pg_class where relname = 'floor_attempt'";
    tokio::task::block_in_place(|| {
        let runtime = tokio::runtime::Handle::current();
        interrupt(bench, || runtime.block_on(client.query_one(loaded, &[])).unwrap().get::<_, i64>(0) > 0);
    });
    assert_eq!(sql(&database, SCHEMAS).await, "0");
}

#[test]
fn interrupted_it_ends_its_server() {
    let directory = tempfile::Builder::new().prefix("b").tempdir_in("/tmp").unwrap();
    // The server may run as another user.
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = command(&ENDLESS);
    command.env("TMPDIR", directory.path());
    let socket =
        |place: &Path| fs::read_dir(place).unwrap().flatten().any(|entry| entry.path().join(".s.PGSQL.5432").exists());
    interrupt(start(command), || socket(directory.path()));
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0, "its files are gone, and the server with them");
}
