//! A configuration file: sinks, routes and schemas, on both stores; `postrider check` and `postrider routes`.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use tempfile::TempDir;

use crate::support::{Outbox, outboxes, run_at};

/// Two archives in files, of which one gets everything and the other orders alone.
fn two_archives(directory: &TempDir) -> (PathBuf, PathBuf, PathBuf) {
    let root = directory.path();
    fs::write(
        root.join("order.json"),
        r#"{"type": "object", "required": ["id"], "properties": {"id": {"type": "integer", "minimum": 1}}}"#,
    )
    .unwrap();
    let (all, orders) = (root.join("all.ndjson"), root.join("orders.ndjson"));
    let config = format!(
        r#"
        [sinks.all]
        deadline = "10s"
        [sinks.all.file]
        path = "{}"
        sync = "never"

        [sinks.orders.file]
        path = "{}"

        [[routes]]
        topic = "*"
        sinks = ["all"]
        [[routes]]
        topic = "order.*"
        sinks = ["orders"]

        [schemas]
        "order.*" = "order.json"
        "#,
        all.display(),
        orders.display()
    );
    let file = root.join("postrider.toml");
    fs::write(&file, config).unwrap();
    (file, all, orders)
}

fn topics(file: &Path) -> Vec<String> {
    let text = fs::read_to_string(file).unwrap_or_default();
    let topic = |line: &str| serde_json::from_str::<Value>(line).unwrap()["topic"].as_str().unwrap().to_owned();
    text.lines().map(topic).collect()
}

fn enqueue(outbox: &Outbox, topic: &str, payload: &str) {
    run_at(&outbox.url, &["enqueue", "--topic", topic, "--payload", payload]).ok();
}

/// Each delivery has its own sink, and what breaks its schema is sent to none.
#[tokio::test]
async fn messages_fan_out_to_the_sinks_of_a_configuration() {
    for outbox in outboxes().await {
        let directory = tempfile::tempdir().unwrap();
        let (config, all, orders) = two_archives(&directory);
        let drain = ["drain", "--config", config.to_str().unwrap()];
        enqueue(&outbox, "order.placed", r#"{"id": 1}"#);
        run_at(&outbox.url, &drain).ok_with_words();
        assert!(topics(&all).is_empty(), "a route concerns new messages only: this one waits for the sink default");
        enqueue(&outbox, "order.placed", r#"{"id": 2}"#);
        enqueue(&outbox, "order.placed", r#"{"id": 0}"#);
        enqueue(&outbox, "user.left", "{}");
        let words = run_at(&outbox.url, &drain).ok_with_words();
        assert!(words.contains("\ndelivered 3, retried 0, dead 2,"), "{words}");
        assert_eq!(topics(&all), ["order.placed", "user.left"]);
        assert_eq!(topics(&orders), ["order.placed"]);
        let dead = run_at(&outbox.url, &["list", "--state", "dead", "--json"]).json();
        let id = dead["items"][0]["message_id"].as_str().unwrap().to_owned();
        let story = run_at(&outbox.url, &["show", &id]).ok();
        assert!(story.contains("INVALID_PAYLOAD") && story.contains("/id: "), "{story}");
    }
}

#[tokio::test]
async fn routes_are_shown_and_changed() {
    for outbox in outboxes().await {
        assert_eq!(run_at(&outbox.url, &["routes"]).ok(), "no routes: every message goes to the sink default\n");
        let added = run_at(&outbox.url, &["routes", "add", "order.*", "orders", "audit"]).ok();
        assert!(
            added.starts_with(
                "changed, for new messages only: what is already written keeps its sinks until `postrider routes apply`\n"
            ),
            "{added}"
        );
        let again = run_at(&outbox.url, &["routes", "add", "order.*", "audit"]).ok();
        assert!(again.starts_with("nothing changed: it was so already\n"), "{again}");
        let routes = run_at(&outbox.url, &["routes", "--json"]).json();
        assert_eq!(routes["items"][0], serde_json::json!({"namespace": "*", "topic": "order.*", "sink": "audit"}));
        assert_eq!(routes["items"].as_array().unwrap().len(), 2);
        run_at(&outbox.url, &["routes", "remove", "order.*", "orders"]).ok();
        let gone = run_at(&outbox.url, &["routes", "remove", "order.*", "orders"]);
        assert_eq!(gone.code, 4, "{}", gone.stderr);
        let shown = run_at(&outbox.url, &["routes"]).ok();
        assert_eq!(
            shown,
            "NAMESPACE  TOPIC    SINK\n*          order.*  audit\nwhat matches none goes to the sink default\n"
        );
    }
}

#[tokio::test]
async fn a_check_says_what_works_what_is_weak_and_what_is_broken() {
    for outbox in outboxes().await {
        let directory = tempfile::tempdir().unwrap();
        let (config, _, _) = two_archives(&directory);
        let check = ["check", "--config", config.to_str().unwrap()];
        let words = run_at(&outbox.url, &check).ok();
        assert!(words.contains("✓ it answers, and its schema is current"), "{words}");
        assert!(words.contains("sink all (file)") && words.contains("! lines are not synced"), "{words}");
        assert!(words.ends_with("everything works; 1 could be better\n"), "{words}");

        let broken = fs::read_to_string(&config).unwrap().replace("orders.ndjson", "nowhere/orders.ndjson");
        fs::write(&config, broken).unwrap();
        let found = run_at(&outbox.url, &[&check[..], &["--json"]].concat());
        assert_eq!(found.code, 8, "{}", found.stderr);
        let document: Value = serde_json::from_str(&found.stdout).unwrap();
        assert_eq!((&document["broken"], &document["weak"]), (&1.into(), &1.into()), "{document}");
        run_at(&outbox.url, &["enqueue", "--topic", "t", "--payload", "1"]).ok();
        let words = run_at(&outbox.url, &check).stdout;
        assert!(words.contains("! messages go to sinks that are not configured here: default"), "{words}");
        let away = run_at("postgres://nobody@127.0.0.1:1/x", &check);
        assert_eq!(away.code, 8);
        assert!(away.stdout.contains("✗"), "{}", away.stdout);
    }
}

#[tokio::test]
async fn what_is_wrong_with_a_configuration_is_told_before_anything_starts() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("postrider.toml");
    let (path, url) = (file.to_str().unwrap(), format!("sqlite:{}/outbox.db", directory.path().display()));
    for (text, said) in [
        ("[sinks.a.kafak]\n", "kafak"),
        ("[sinks.a]\n", "no table says what it is"),
        ("", "the configuration has no sink"),
        ("[sinks.a.stdout]\n[schemas]\nt = \"none.json\"\n", "none.json"),
    ] {
        fs::write(&file, text).unwrap();
        for command in ["run", "drain", "check"] {
            let refused = run_at(&url, &[command, "--config", path]);
            assert_eq!(refused.code, 2, "{command} {text}: {}", refused.stderr);
            assert!(refused.stderr.contains(said), "{command} {text}: {}", refused.stderr);
        }
    }
    let missing = run_at(&url, &["run", "--config", "/nowhere.toml"]);
    assert!(missing.code == 2 && missing.stderr.contains("there is no such file"), "{}", missing.stderr);
    assert!(!directory.path().join("outbox.db").exists(), "nothing was made");
}

#[tokio::test]
async fn a_configuration_is_checked_as_a_whole() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("postrider.toml");
    let (path, url) = (file.to_str().unwrap(), format!("sqlite:{}/outbox.db", directory.path().display()));
    fs::write(
        &file,
        "[sinks.a.stdout]\n[sinks.b.stdout]\n[[routes]]\ntopic = \"x.*\"\nsinks = [\"a\", \"b\"]\n\
         [[routes]]\ntopic = \"y\"\nsinks = [\"a\"]\n",
    )
    .unwrap();
    let said = run_at(&url, &["config", "check", "--config", path]).ok();
    assert_eq!(said, "the configuration can be used: 1 database, 2 sinks, 2 routes\n");

    fs::write(&file, "[relay]\nleese = \"1m\"\n[sinks.a.http]\nurl = 7\n[sinks.b.stdoud]\n").unwrap();
    let refused = run_at(&url, &["config", "check", "--config", path]);
    assert_eq!(refused.code, 2, "{}", refused.stderr);
    for fault in ["relay.leese", "sinks.a.http.url", "sinks.b.stdoud"] {
        assert!(refused.stderr.contains(fault), "{fault}: {}", refused.stderr);
    }
    if cfg!(not(feature = "kafka")) {
        fs::write(&file, "[sinks.a.kafka]\nbrokers = \"x:9092\"\n[sinks.b]\n").unwrap();
        let refused = run_at(&url, &["config", "check", "--config", path]).stderr;
        assert!(refused.contains("--features kafka") && refused.contains("sink \"b\": no table says"), "{refused}");
    }
}
