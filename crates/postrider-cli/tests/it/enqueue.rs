//! `postrider enqueue` with options: one message.

use std::fs;

use postrider_testkit::database;

use crate::support::{run, run_with_input, sql};

#[tokio::test]
async fn every_option_reaches_the_database() {
    let database = database().await;
    let tenant = "6f1c8b0e-0000-4000-8000-000000000001";
    let key = format!("{tenant}/1");
    let enqueued = run(
        &database,
        &[
            "enqueue",
            "--json",
            "--topic",
            "order.placed",
            "--payload",
            r#"{"n": 12345678901234567890, "x": 1.10}"#,
            "--namespace",
            "shop",
            "--tenant",
            tenant,
            "--lane",
            "order-7",
            "--dedupe-key",
            &key,
            "--priority",
            "-5",
            "--header",
            "a=b",
            "--header",
            "c=d=e",
            "--due-at",
            "2027-01-31T08:00:00+01:00",
            "--occurred-at",
            "2026-01-02T03:04:05.678901Z",
            "--content-type",
            "application/vnd.order+json",
        ],
    )
    .json();
    assert_eq!((&enqueued["sequence_id"], &enqueued["created"]), (&1.into(), &true.into()));
    let row = sql(
        &database,
        "set timezone = 'UTC'; select m.message_id, m.namespace, m.topic, m.tenant_id, m.lane, m.dedupe_key, m.priority, \
         m.headers, m.payload, m.content_type, m.occurred_at, d.due_at \
         from outbox.messages m join outbox.deliveries d using (message_id)",
    )
    .await;
    assert_eq!(
        row,
        format!(
            r#"{}|shop|order.placed|{tenant}|order-7|{key}|-5|{{"a": "b", "c": "d=e"}}|{{"n": 12345678901234567890, "x": 1.10}}|application/vnd.order+json|2026-01-02 03:04:05.678901+00|2027-01-31 07:00:00+00"#,
            enqueued["message_id"].as_str().unwrap()
        )
    );
}

/// Proves M3, but for the race of two producers.
#[tokio::test]
async fn a_known_dedupe_key_is_reported_with_the_first_id() {
    let database = database().await;
    let args = ["enqueue", "--topic", "t", "--payload", "1", "--dedupe-key", "k", "--lane", "l"];
    let first = run(&database, &args).ok();
    let second = run(&database, &args).ok();
    assert!(first.contains("sequence  1\ncreated   yes\n"), "{first}");
    assert!(second.contains("created   no, already enqueued under this dedupe key\n"), "{second}");
    assert_eq!(first.lines().next(), second.lines().next());
    assert_eq!(sql(&database, "select count(*) from outbox.messages").await, "1");
    let other_topic = ["enqueue", "--topic", "u", "--payload", "1", "--dedupe-key", "k", "--json"];
    assert_eq!(run(&database, &other_topic).json()["created"], true);
}

/// Proves M4.
#[tokio::test]
async fn a_foreign_dedupe_key_is_an_error_and_no_row() {
    let database = database().await;
    let tenant = "6f1c8b0e-0000-4000-8000-000000000001";
    let args = ["enqueue", "--topic", "t", "--payload", "1", "--tenant", tenant, "--dedupe-key", "other/1"];
    let refused = run(&database, &args);
    assert_eq!((refused.code, refused.stdout.as_str()), (5, ""));
    assert!(refused.stderr.contains("does not belong to tenant"), "{}", refused.stderr);
    assert_eq!(sql(&database, "select count(*) from outbox.messages").await, "0");
}

#[tokio::test]
async fn a_body_is_any_bytes_from_a_file_or_stdin() {
    let database = database().await;
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("body");
    fs::write(&file, [0, 255, 10, 0]).unwrap();
    let file = file.to_str().unwrap();
    run(&database, &["enqueue", "--topic", "t", "--body-file", file, "--content-type", "x/y"]).ok();
    run_with_input(&database, &["enqueue", "--topic", "t", "--body-file", "-", "--content-type", "x/y"], "text").ok();
    let bodies = sql(&database, "select encode(body, 'hex'), content_type from outbox.messages order by 1").await;
    assert_eq!(bodies, "00ff0a00|x/y\n74657874|x/y");
}

#[tokio::test]
async fn a_delay_counts_from_now() {
    let database = database().await;
    run(&database, &["enqueue", "--topic", "t", "--payload", "1", "--delay", "1h30m"]).ok();
    let due = "select due_at - enqueued_at between interval '89 minutes' and interval '91 minutes' \
               from outbox.messages join outbox.deliveries using (message_id)";
    assert_eq!(sql(&database, due).await, "t");
}

#[tokio::test]
async fn wrong_options_are_refused_before_the_database_is_asked() {
    let database = database().await;
    let cases: &[(&[&str], i32, &str)] = &[
        (&["--topic", "t"], 2, "--payload"),
        (&["--payload", "1"], 2, "--topic"),
        (&["--topic", "t", "--payload", "{a"], 5, "--payload is not JSON"),
        (&["--topic", "", "--payload", "1"], 5, "topic is empty"),
        (&["--topic", "t", "--payload", "1", "--priority", "101"], 5, "priority 101"),
        (&["--topic", "t", "--payload", "1", "--delay", "5"], 2, "write 500ms, 5s"),
        (&["--topic", "t", "--payload", "1", "--delay", "5s", "--due-at", "2027-01-31T08:00:00Z"], 2, "cannot be used"),
        (&["--topic", "t", "--payload", "1", "--header", "x"], 2, "NAME=VALUE"),
        (&["--topic", "t", "--payload", "1", "--file", "x"], 2, "cannot be used"),
        (&["--topic", "t", "--body-file", "/nowhere", "--content-type", "x/y"], 5, "cannot read /nowhere"),
        (&["--topic", "t", "--body-file", "/nowhere"], 2, "--content-type"),
        (&["--file", "/nowhere"], 5, "cannot read /nowhere"),
        (&["--file", "/"], 5, "cannot read /"),
        (&["--batch-size", "0"], 2, "from 1 to 10000"),
        (&["--batch-size", "10001"], 2, "from 1 to 10000"),
    ];
    for (args, code, complaint) in cases {
        let refused = run(&database, &[&["enqueue"], *args].concat());
        assert_eq!((refused.code, refused.stdout.as_str()), (*code, ""), "{args:?}: {}", refused.stderr);
        assert!(refused.stderr.starts_with("error: "), "{args:?}: {}", refused.stderr);
        assert!(refused.stderr.contains(complaint), "{args:?}: {}", refused.stderr);
    }
    assert_eq!(sql(&database, "select count(*) from outbox.messages").await, "0");
}
