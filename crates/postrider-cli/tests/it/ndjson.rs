//! `postrider enqueue` with NDJSON: many messages, batch by batch.

use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use postrider_testkit::database;
use tempfile::TempDir;

use crate::support::{command, run, run_with_input, sql};

/// Lines 1 to `count`, over seven lanes, in order; the payload is the line's number.
fn lines(count: u64) -> String {
    (1..=count).fold(String::new(), |mut lines, line| {
        let _ = writeln!(lines, r#"{{"topic": "t", "payload": {line}, "lane": "lane-{}"}}"#, line % 7);
        lines
    })
}

fn file(content: &str) -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("messages.ndjson");
    fs::write(&file, content).unwrap();
    (directory, file)
}

/// Proves P1 for a whole file: each lane is numbered from 1 without a hole, in the order of the lines.
#[tokio::test]
async fn a_good_file_is_written_in_order() {
    let database = database().await;
    let (_directory, file) = file(&lines(2_500));
    let file = file.to_str().unwrap();
    let summary = run(&database, &["enqueue", "--file", file]).ok();
    assert!(summary.starts_with("enqueued 2,500, duplicates 0, in "), "{summary}");
    let lanes = "select count(*), min(first), bool_and(count = last), bool_and(ordered) from (select lane, count(*), \
                 min(sequence_id) as first, max(sequence_id) as last, \
                 array_agg(payload::text::int order by sequence_id) = array_agg(payload::text::int order by \
                 payload::text::int) as ordered from outbox.messages group by lane) l";
    assert_eq!(sql(&database, lanes).await, "7|1|t|t");

    let document = run(&database, &["enqueue", "--file", file, "--batch-size", "10000", "--json"]).json();
    assert_eq!((&document["enqueued"], &document["batches"]), (&2_500.into(), &1.into()));
    assert!(document["messages_per_second"].as_f64().unwrap() > 0.0, "{document}");
}

#[tokio::test]
async fn a_bad_line_stops_with_its_number_and_what_is_committed() {
    let database = database().await;
    let mut content: Vec<String> = lines(2_500).lines().map(str::to_owned).collect();
    content[1_233] = r#"{"topic": "t", "payload": 1, "priority": "high"}"#.to_owned();
    let (_directory, file) = file(&content.join("\n"));
    let file = file.to_str().unwrap();

    let stopped = run(&database, &["enqueue", "--file", file]);
    assert_eq!((stopped.code, stopped.stdout.as_str()), (5, ""));
    let expected = format!(
        "error: line 1234: priority must be a whole number from -100 to 100, not \"high\"\n\
         note: 1,000 messages up to line 1000 committed, nothing after\n\
         hint: correct it, then go on with: tail -n +1001 {file} | postrider enqueue\n"
    );
    assert_eq!(stopped.stderr, expected);
    assert_eq!(sql(&database, "select count(*), max(payload::text::int) from outbox.messages").await, "1000|1000");

    let error = run(&database, &["enqueue", "--file", file, "--json", "--batch-size", "400"]).error();
    assert_eq!(error["code"], "invalid_input");
    assert_eq!(
        (&error["line"], &error["enqueued"], &error["next_line"]),
        (&1_234.into(), &1_200.into(), &1_201.into())
    );
}

#[tokio::test]
async fn an_unknown_field_names_the_nearest_one() {
    let database = database().await;
    let stopped = run_with_input(&database, &["enqueue"], r#"{"topic": "t", "payload": 1, "dedup_key": "k"}"#);
    assert_eq!(stopped.code, 5);
    insta::assert_snapshot!(stopped.stderr);
    assert_eq!(sql(&database, "select count(*) from outbox.messages").await, "0");
}

/// The database alone knows that jsonb cannot hold these; the line is found all the same.
#[tokio::test]
async fn what_only_the_database_refuses_has_a_line_number_too() {
    let database = database().await;
    for bad in [r#""\ud800""#, "1e999999"] {
        let mut content: Vec<String> = lines(100).lines().map(str::to_owned).collect();
        content[76] = format!(r#"{{"topic": "t", "payload": {bad}}}"#);
        let error =
            run_with_input(&database, &["enqueue", "--json", "--batch-size", "50"], &content.join("\n")).error();
        assert_eq!(
            (&error["code"], &error["line"], &error["next_line"]),
            (&"invalid_input".into(), &77.into(), &51.into()),
            "{error}"
        );
    }
    assert_eq!(sql(&database, "select count(*) from outbox.messages").await, "100", "50 of each run");
}

#[tokio::test]
async fn an_empty_input_is_no_error() {
    let database = database().await;
    let nothing = run(&database, &["enqueue"]).ok();
    assert!(nothing.starts_with("enqueued 0, duplicates 0, in "), "{nothing}");
    let blank = run_with_input(&database, &["enqueue", "--file", "-", "--json"], "\n  \n\r\n").json();
    assert_eq!((&blank["enqueued"], &blank["batches"]), (&0.into(), &0.into()));
}

#[tokio::test]
async fn payloads_survive_exactly() {
    let database = database().await;
    let payload =
        r#"{"n": 12345678901234567890, "x": 1.10, "y": 123456789012345678901234567890.123456789, "z": "ü\n"}"#;
    let line = format!("{{\"topic\": \"t\", \"payload\": {payload}}}\n");
    run_with_input(&database, &["enqueue"], &line).ok();
    assert_eq!(sql(&database, "select payload from outbox.messages").await, payload);
    let id = sql(&database, "select message_id from outbox.messages").await;
    let document = run(&database, &["show", &id, "--json"]).ok();
    assert!(document.contains(payload), "{document}");
}

/// Proves M3 for many messages: known keys are counted, and nothing is written for them.
#[tokio::test]
async fn duplicates_are_counted() {
    let database = database().await;
    let input = (1..=30).fold(String::new(), |mut lines, n| {
        let _ = writeln!(lines, r#"{{"topic": "t", "payload": {n}, "dedupe_key": "k{}"}}"#, n % 10);
        lines
    });
    let first = run_with_input(&database, &["enqueue", "--batch-size", "15"], &input).ok();
    assert!(first.starts_with("enqueued 10, duplicates 20, in "), "{first}");
    let second = run_with_input(&database, &["enqueue", "--json"], &input).json();
    assert_eq!((&second["enqueued"], &second["duplicates"]), (&0.into(), &30.into()));
    assert_eq!(sql(&database, "select count(*) from outbox.messages").await, "10");
}

/// Ctrl-C ends a run between two batches, and what is committed is told.
#[tokio::test]
async fn an_interrupt_says_where_to_go_on() {
    let database = database().await;
    let mut command = command(&["enqueue", "--batch-size", "2", "--json"]);
    command.env("DATABASE_URL", database.url()).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(lines(3).as_bytes()).unwrap();
    while sql(&database, "select count(*) from outbox.messages").await != "2" {}
    let signalled = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(signalled.success());
    let output = child.wait_with_output().unwrap();
    drop(stdin);
    let error: serde_json::Value = serde_json::from_slice(&output.stderr).unwrap();
    assert_eq!((output.status.code(), &error["error"]["code"]), (Some(130), &"interrupted".into()));
    assert_eq!((&error["error"]["enqueued"], &error["error"]["next_line"]), (&2.into(), &3.into()));
}
