//! An outbox in an SQLite file: made by itself, used by every command, and what is said when it cannot be used.

use std::fs;

use crate::support::{Ran, command, finish, run_at};

/// Proves E11: with no server, no setting and an empty directory, a message goes all the way.
#[test]
fn a_site_without_a_database_server_works() {
    let directory = tempfile::tempdir().unwrap();
    let here = |args: &[&str]| {
        let mut command = command(args);
        command.current_dir(directory.path());
        finish(command, b"")
    };
    let missing = here(&["status"]);
    assert_eq!((missing.code, missing.stdout.as_str()), (6, ""));
    assert!(!directory.path().join("postrider.db").exists(), "a look makes no file");

    let first = here(&["enqueue", "--topic", "order.placed", "--payload", "{\"id\": 7}", "--lane", "order-7"]);
    assert_eq!((first.code, first.stderr.as_str()), (0, "created sqlite:postrider.db\n"));
    let second = here(&["enqueue", "--topic", "order.paid", "--payload", "8", "--lane", "order-7", "--json"]).json();
    assert_eq!(second["sequence_id"], 2);
    let id = second["message_id"].as_str().unwrap();

    assert!(here(&["status"]).ok().contains("default        2    2"));
    let drained = here(&["drain"]);
    let topics: Vec<String> = drained
        .stdout
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()["topic"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!((drained.code, topics.as_slice()), (0, &["order.placed".to_owned(), "order.paid".to_owned()][..]));
    assert!(here(&["list", "--state", "delivered"]).ok().contains(id));
    assert!(here(&["show", id]).ok().contains("DISPATCHED"));
}

#[test]
fn many_messages_and_a_bad_one() {
    let directory = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}/outbox.db", directory.path().display());
    let enqueue = |args: &[&str], input: &str| {
        let mut command = command(&[&["enqueue", "--batch-size", "100", "--json"], args].concat());
        command.env("DATABASE_URL", &url);
        finish(command, input.as_bytes())
    };
    let mut lines: Vec<String> =
        (1..=250).map(|n| format!(r#"{{"topic": "t", "payload": {n}, "dedupe_key": "k{n}"}}"#)).collect();
    let loaded = enqueue(&[], &lines.join("\n")).json();
    assert_eq!((&loaded["enqueued"], &loaded["batches"]), (&250.into(), &3.into()));
    assert_eq!(enqueue(&[], &lines.join("\n")).json()["duplicates"], 250);

    // Deeper than SQLite reads JSON: only the store knows, and the line is found all the same.
    for line in &mut lines {
        *line = line.replace("\"k", "\"again-");
    }
    lines[149] = format!(r#"{{"topic": "t", "payload": {}{}}}"#, "[".repeat(1_500), "]".repeat(1_500));
    let error = enqueue(&[], &lines.join("\n")).error();
    assert_eq!(
        (&error["code"], &error["line"], &error["enqueued"], &error["next_line"]),
        (&"invalid_input".into(), &150.into(), &100.into(), &101.into()),
        "{error}"
    );
}

#[test]
fn files_that_cannot_be_used() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| format!("sqlite:{}/{name}", directory.path().display());
    fs::write(directory.path().join("text.db"), "this is not a database, but it is long enough to be looked at")
        .unwrap();
    rusqlite::Connection::open(directory.path().join("app.db")).unwrap().execute_batch("create table t (a)").unwrap();
    let reading: &[&[&str]] =
        &[&["status"], &["list"], &["show", "019a8f3c-6b1e-7c02-9d55-0f2b6a3e8d41"], &["list", "--state", "dead"]];
    let writing: &[&[&str]] = &[&["run"], &["drain"], &["enqueue", "--topic", "t", "--payload", "1"]];
    let cases = [
        (path("none.db"), reading, 6, "unreachable", "the file does not exist"),
        (path("app.db"), reading, 3, "schema_not_current", "there is no outbox in sqlite:"),
        (path("text.db"), reading, 6, "unreachable", "it is not a SQLite database"),
        (path("text.db"), writing, 6, "unreachable", "it is not a SQLite database"),
        (path("nowhere/x.db"), writing, 6, "unreachable", "does not exist: create it first"),
        (path(""), writing, 6, "unreachable", "it is a directory"),
        ("sqlite:/proc/outbox.db".to_owned(), writing, 6, "unreachable", "let this user write the file"),
        ("sqlite:".to_owned(), writing, 2, "usage", "names no file"),
        ("sqlite::memory:".to_owned(), writing, 2, "usage", "would be gone"),
        (path("x.db?mode=rwc"), writing, 2, "usage", "question mark"),
    ];
    for (url, commands, code, word, says) in cases {
        for args in commands {
            let refused = run_at(&url, args);
            assert_eq!((refused.code, refused.stdout.as_str()), (code, ""), "{url} {args:?}: {}", refused.stderr);
            assert!(
                refused.stderr.starts_with("error: ") && refused.stderr.contains(says),
                "{url}: {}",
                refused.stderr
            );
            assert!(refused.stderr.contains("\nhint: "), "{url}: {}", refused.stderr);
            assert_eq!(run_at(&url, &[args, &["--json"][..]].concat()).error()["code"], word);
        }
    }
    let left: Vec<_> = fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left.len(), 2, "nothing was made: {left:?}");
    let tables = rusqlite::Connection::open(directory.path().join("app.db")).unwrap();
    assert!(!tables.table_exists(None, "outbox_message").unwrap(), "a look changes nothing");
}

#[test]
fn a_file_needs_no_migrations() {
    let directory = tempfile::tempdir().unwrap();
    let url = format!("sqlite://{}/outbox.db", directory.path().display());
    for verb in ["up", "status"] {
        let said = run_at(&url, &["migrate", verb]).ok();
        assert_eq!(said, "nothing to do: an SQLite file is brought up to date when it is opened\n");
        assert_eq!(run_at(&url, &["migrate", verb, "--json"]).json()["migrates_itself"], true);
    }
    let Ran { code, stderr, .. } = run_at(&url, &["migrate", "roles"]);
    assert_eq!((code, stderr.lines().next()), (2, Some("error: an SQLite file has no roles")));
}

/// A file that a newer postrider made is left alone.
#[test]
fn a_newer_file_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}/outbox.db", directory.path().display());
    assert_eq!(run_at(&url, &["drain"]).code, 0);
    let file = rusqlite::Connection::open(directory.path().join("outbox.db")).unwrap();
    file.execute_batch(
        "insert into outbox_migration (version, name, checksum, applied_at) values (99, 'later', 'x', 0)",
    )
    .unwrap();
    for args in [&["status"][..], &["run"], &["enqueue", "--topic", "t", "--payload", "1"]] {
        let refused = run_at(&url, args);
        assert_eq!((refused.code, refused.stdout.as_str()), (3, ""), "{}", refused.stderr);
        assert!(refused.stderr.contains("use a newer postrider"), "{}", refused.stderr);
    }
}
