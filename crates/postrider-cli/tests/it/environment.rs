//! The environment variables of the edge forwarder's document, each with its effect on a real process.

use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;
use std::process::Stdio;

use serde_json::Value;

use crate::support::{Outbox, Ran, command, finish, outboxes, run_at};

fn run_with(variables: &[(&str, &str)], args: &[&str]) -> Ran {
    let mut command = command(args);
    command.envs(variables.iter().copied());
    finish(command, b"")
}

/// The value of a key, and where it comes from.
fn effective(variables: &[(&str, &str)], key: &str) -> (Value, String) {
    let printed = run_with(variables, &["config", "print", "--json"]).json();
    let value = key.split('.').fold(&printed["config"], |value, key| &value[key]);
    (value.clone(), printed["sources"][key].as_str().unwrap_or_default().to_owned())
}

fn enqueue(outbox: &Outbox) -> String {
    let added = run_at(&outbox.url, &["enqueue", "--topic", "t", "--payload", "1", "--json"]).json();
    added["message_id"].as_str().unwrap().to_owned()
}

/// The attempts of a message: who made them, and what became of each.
fn attempts(outbox: &Outbox, id: &str) -> Vec<Value> {
    let story = run_at(&outbox.url, &["show", id, "--json"]).json();
    story["attempts"].as_array().unwrap().clone()
}

/// Where nobody listens.
fn nobody() -> String {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    format!("http://127.0.0.1:{port}/api/v1/edge/batch")
}

/// Proves E3: every variable is taken, under the document's name.
#[test]
fn every_variable_of_the_document_has_its_effect() {
    for (name, value, key, expected) in [
        ("OUTBOX_BATCH_SIZE", "50", "sinks.default.batch_size", Value::from(50)),
        ("OUTBOX_LEASE_SECONDS", "90", "relay.lease", Value::from("1m 30s")),
        ("OUTBOX_MAX_ATTEMPTS", "4", "sinks.default.retry.max_attempts", Value::from(4)),
        ("OUTBOX_BACKOFF_CAP_SECONDS", "20", "sinks.default.retry.max", Value::from("20s")),
        ("SYNC_INTERVAL_MS", "2500", "relay.poll", Value::from("2s 500ms")),
        ("INTERNAL_ADMIN_ENABLED", "true", "admin.enabled", Value::from(true)),
        ("INSTANCE_ID", "forwarder-pod-1", "relay.worker_id", Value::from("forwarder-pod-1")),
        ("DATABASE_URL", "sqlite:site.db", "databases.default.url", Value::from("sqlite:site.db")),
        ("CLOUD_INGESTION_URL", "http://cloud:3000/x", "sinks.default.http.url", Value::from("http://cloud:3000/***")),
        ("POSTRIDER_ADMIN_TOKEN", "hunter2", "admin.token", Value::from("***")),
    ] {
        let (found, source) = effective(&[(name, value)], key);
        assert_eq!((found, source), (expected, format!("variable {name}")), "{name}");
        let wins =
            effective(&[(name, value), ("INSTANCE_ID", "a"), ("POSTRIDER__RELAY__WORKER_ID", "b")], "relay.worker_id");
        assert_eq!(wins.0, "b", "POSTRIDER__ wins");
    }
    let host = effective(&[("HOSTNAME", "forwarder-pod-1")], "relay.worker_id");
    assert_eq!(host, (Value::from("forwarder-pod-1"), "variable HOSTNAME".to_owned()));
}

/// Proves E3: the document's defaults, where its cloud is what is forwarded to.
#[test]
fn the_defaults_of_the_document_hold_where_its_cloud_is_named() {
    let cloud = [("CLOUD_INGESTION_URL", "http://cloud:3000/x")];
    for (key, theirs, ours) in [
        ("sinks.default.batch_size", Value::from(100), Value::from(500)),
        ("sinks.default.retry.max_attempts", Value::from(10), Value::from(10)),
        ("sinks.default.retry.max", Value::from("5m"), Value::from("5m")),
        ("sinks.default.breaker.failures", Value::from(0), Value::from(20)),
        ("relay.poll", Value::from("1m"), Value::from("500ms")),
    ] {
        let (found, source) = effective(&cloud, key);
        assert_eq!(found, theirs, "{key}");
        assert!(source.starts_with("default with CLOUD_INGESTION_URL"), "{key}: {source}");
        assert_eq!(effective(&[], key), (ours, "default".to_owned()), "{key}");
    }
}

/// Proves E3: without a cloud and without a sink nothing is delivered from PostgreSQL; to stdout only if that is asked for.
#[tokio::test]
async fn nowhere_to_forward_to_is_an_error() {
    let [postgres, sqlite] = outboxes().await;
    let id = enqueue(&postgres);
    let site = [("DATABASE_URL", postgres.url.as_str())];
    for verb in ["run", "drain"] {
        let refused = run_with(&site, &[verb]);
        assert_eq!((refused.code, refused.stdout.as_str()), (2, ""), "{}", refused.stderr);
        for said in ["the configuration has no sink", "CLOUD_INGESTION_URL", "--stdout"] {
            assert!(refused.stderr.contains(said), "{said}: {}", refused.stderr);
        }
    }
    assert!(attempts(&postgres, &id).is_empty());
    let asked = run_with(&site, &["drain", "--stdout"]);
    assert_eq!((asked.code, asked.stdout.lines().count()), (0, 1), "{}", asked.stderr);
    let configured = [site[0], ("POSTRIDER__SINKS__DEFAULT__STDOUT", "{}")];
    assert_eq!(run_with(&configured, &["drain"]).code, 0);
    assert_eq!(run_with(&configured, &["drain", "--stdout"]).code, 2);
    enqueue(&sqlite);
    let first = run_with(&[("DATABASE_URL", sqlite.url.as_str())], &["drain"]);
    assert_eq!((first.code, first.stdout.lines().count()), (0, 1), "a file may be tried out: {}", first.stderr);
}

/// Proves E3: the instance's name stands beside its attempts, and the last of so many attempts is the last.
#[tokio::test]
async fn the_name_and_the_number_of_attempts_are_in_the_store() {
    for outbox in outboxes().await {
        let id = enqueue(&outbox);
        let cloud = nobody();
        let site = [
            ("DATABASE_URL", outbox.url.as_str()),
            ("CLOUD_INGESTION_URL", &cloud),
            ("INSTANCE_ID", "forwarder-pod-1"),
            ("HOSTNAME", "elsewhere"),
            ("OUTBOX_MAX_ATTEMPTS", "1"),
        ];
        let words = run_with(&site, &["drain"]).ok_with_words();
        assert!(words.contains("delivered 0, retried 0, dead 1,"), "{words}");
        assert_eq!(attempts(&outbox, &id)[0]["worker_id"], "forwarder-pod-1");

        let id = enqueue(&outbox);
        let words =
            run_with(&[("DATABASE_URL", &outbox.url), ("HOSTNAME", "site-7")], &["drain", "--stdout"]).ok_with_words();
        assert!(words.starts_with("delivered 1,"), "{words}");
        assert_eq!(attempts(&outbox, &id)[0]["worker_id"], "site-7");
    }
}

/// Proves E3, M10, P13: the document's interval is longer than a third of its lease; both hold, and ended leases are looked for
/// in between.
#[tokio::test]
async fn lease_and_interval_of_the_document_hold() {
    let [_, outbox] = outboxes().await;
    let mut run = command(&["run", "--listen", "none"]);
    run.env("DATABASE_URL", &outbox.url).env("CLOUD_INGESTION_URL", nobody());
    run.env("SYNC_INTERVAL_MS", "60000").env("OUTBOX_LEASE_SECONDS", "120").env("INSTANCE_ID", "site-7");
    let mut relay = run.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = Vec::new();
    for line in BufReader::new(relay.stderr.take().unwrap()).lines() {
        said.push(line.unwrap());
        if said.last().unwrap().contains("delivering") {
            break;
        }
    }
    drop(relay.kill());
    drop(relay.wait());
    let said = said.join("\n");
    for part in ["lease=\"2m 00s\"", "poll=\"1m 00s\"", "worker=\"site-7\"", "default (http)"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let cloud = [("CLOUD_INGESTION_URL", "http://cloud:3000/x"), ("SYNC_INTERVAL_MS", "60000")];
    assert_eq!(effective(&cloud, "relay.reap_every").0, "40s");
}

/// In our own words, what does not fit is refused.
#[test]
fn a_poll_of_our_own_is_refused_where_it_does_not_fit() {
    let url = ("DATABASE_URL", "sqlite:/nowhere/x.db");
    let wrong = run_with(&[("POSTRIDER__RELAY__POLL", "60s"), url], &["run"]);
    assert_eq!(wrong.code, 2, "{}", wrong.stderr);
    assert!(wrong.stderr.contains("poll at most every third of the lease"), "{}", wrong.stderr);
}

#[test]
fn a_wrong_variable_is_named_and_its_value_is_not() {
    for (name, value, said) in [
        ("OUTBOX_LEASE_SECONDS", "hunter2", "variable OUTBOX_LEASE_SECONDS: expected a number from 1 to 86400"),
        ("SYNC_INTERVAL_MS", "-1", "variable SYNC_INTERVAL_MS: expected a number"),
        ("POSTRIDER__RELAY__LEASE", "hunter2", "variable POSTRIDER__RELAY__LEASE: relay.lease: expected a duration"),
        ("POSTRIDER__RELAY__LAESE", "hunter2", "did you mean `lease`?"),
    ] {
        for args in [&["run"][..], &["config", "check"], &["check"]] {
            let wrong = run_with(&[(name, value), ("DATABASE_URL", "sqlite:/nowhere/x.db")], args);
            assert_eq!(wrong.code, 2, "{args:?}: {}", wrong.stderr);
            assert!(wrong.stderr.contains(said) && !wrong.stderr.contains("hunter2"), "{args:?}: {}", wrong.stderr);
        }
    }
}
