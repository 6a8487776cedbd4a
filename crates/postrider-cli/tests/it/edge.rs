//! From an edge site to the cloud with real processes: `CLOUD_INGESTION_URL` alone makes `postrider drain` and `postrider
//! run` forward batches, and `postrider receive` takes each event once. The example of it runs to its end, and its page tells
//! where everything of the edge forwarder's document is.

mod names;

use std::collections::BTreeSet;
use std::process::Stdio;

use postrider::operate::{Action, MAX_PER_ACTION, Replay};
use postrider::{Operate as _, SqliteStore};
use serde_json::Value;

use crate::receive::{Receiver, drained, ids};
use crate::support::{Outbox, command, finish, outboxes, run_at, run_example};

fn enqueue(site: &Outbox, count: usize) -> BTreeSet<String> {
    let line = |n: usize| {
        format!(
            "{{\"topic\": \"meter.read\", \"payload\": {{\"n\": {n}}}, \"lane\": \"meter-{}\", \
             \"tenant_id\": \"tenant-1\"}}\n",
            n % 7
        )
    };
    let mut enqueue = command(&["enqueue"]);
    enqueue.env("DATABASE_URL", &site.url);
    let input: String = (0..count).map(line).collect();
    assert_eq!(finish(enqueue, input.as_bytes()).code, 0);
    let listed = run_at(&site.url, &["list", "--limit", "1000", "--json"]).json();
    let id = |message: &Value| message["message_id"].as_str().unwrap().to_owned();
    listed["items"].as_array().unwrap().iter().map(id).collect()
}

/// `postrider drain` with nothing but the address of the cloud.
fn forward(site: &Outbox, url: &str) -> String {
    let mut drain = command(&["drain"]);
    drain.env("DATABASE_URL", &site.url).env("CLOUD_INGESTION_URL", format!("{url}/api/v1/edge/batch"));
    let ran = finish(drain, b"");
    assert_eq!((ran.code, ran.stdout.as_str()), (0, ""), "{}", ran.stderr);
    ran.stderr
}

/// Proves E1: a site forwards batches over HTTP, and the cloud deduplicates by (tenant, event), where the event id is the
/// message id. Delivered again after the site forgot that it had been, nothing goes on twice.
#[tokio::test]
async fn a_site_forwards_and_the_cloud_takes_each_event_once() {
    let [cloud, other_site] = outboxes().await;
    let [_, site] = outboxes().await;
    let receiver = Receiver::start(&cloud, &[]);
    let sent = enqueue(&site, 150);
    let words = forward(&site, &receiver.url);
    assert!(words.starts_with("delivered 150, retried 0, dead 0,"), "{words}");
    let arrived = drained(&cloud);
    assert_eq!(ids(&arrived).into_iter().collect::<BTreeSet<_>>(), sent, "the event id is the message id");
    assert_eq!(arrived.len(), 150);
    for lane in 0..7 {
        let numbers: Vec<i64> = arrived
            .iter()
            .filter(|message| message["lane"] == format!("meter-{lane}"))
            .map(|message| message["payload"]["n"].as_i64().unwrap())
            .collect();
        assert!(numbers.is_sorted(), "lane {lane}: {numbers:?}");
    }

    // A second site, and the first one's messages once more.
    let more = enqueue(&other_site, 20);
    forward(&other_site, &receiver.url);
    assert_eq!(ids(&drained(&cloud)).into_iter().collect::<BTreeSet<_>>(), more);
    replay(&site, &sent).await;
    let words = forward(&site, &receiver.url);
    assert!(words.starts_with("delivered 150,"), "a duplicate is delivered: {words}");
    assert!(drained(&cloud).is_empty(), "and goes on no second time");
    receiver.stop();
}

/// As after a restore from a backup.
async fn replay(site: &Outbox, ids: &BTreeSet<String>) {
    let store = SqliteStore::open(site.url.strip_prefix("sqlite:").unwrap()).unwrap();
    let message_ids = Some(ids.iter().map(|id| id.parse().unwrap()).collect());
    let replay = Replay { sink: "default".to_owned(), message_ids, at_most: MAX_PER_ACTION, ..Replay::default() };
    assert_eq!(store.operate("ann", &Action::Replay(replay)).await.unwrap().affected, 150);
}

/// The cloud is away when the site starts, and comes back: `postrider run` gets through by itself.
#[tokio::test]
async fn a_site_waits_for_a_cloud_that_is_away() {
    let [cloud, site] = outboxes().await;
    let away = Receiver::start(&cloud, &[]);
    let url = away.url.clone();
    away.stop();
    let sent = enqueue(&site, 30);
    let words = forward(&site, &url);
    assert!(words.starts_with("delivered 0, retried "), "{words}");
    let mut run = command(&["run"]);
    run.env("DATABASE_URL", &site.url).env("CLOUD_INGESTION_URL", format!("{url}/api/v1/edge/batch"));
    let mut relay = run.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let address = url.strip_prefix("http://").unwrap();
    let back = Receiver::start(&cloud, &["--listen", address]);
    let mut arrived = BTreeSet::new();
    for _ in 0..600 {
        arrived.extend(ids(&drained(&cloud)));
        if arrived.len() == sent.len() {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    drop(relay.kill());
    drop(relay.wait());
    back.stop();
    assert_eq!(arrived, sent);
}

/// Proves E1, E2, E3, E7, E10, E11: three forwarders at a site, on both stores, a link that fails, and the five walks as the
/// document writes them.
#[tokio::test]
async fn the_example_runs_to_its_end() {
    let said = run_example("edge").await;
    for walk in 1..=5 {
        assert!(said.contains(&format!("\n# Walk {walk}. ")), "{said}");
    }
}

/// Proves E10: the example's page has a line for every variable, endpoint, metric, alert and walk of the document.
#[test]
fn the_page_of_the_example_maps_the_whole_document() {
    let page = include_str!("../../../../examples/edge/README.md");
    let row = |begins: &str| page.lines().any(|line| line.starts_with(&format!("| {begins}")));
    let cell = |name: &str| page.lines().any(|line| line.starts_with("| ") && line.contains(&format!("`{name}`")));
    let variables = "DATABASE_URL CLOUD_INGESTION_URL OUTBOX_BATCH_SIZE OUTBOX_LEASE_SECONDS OUTBOX_MAX_ATTEMPTS \
        OUTBOX_BACKOFF_CAP_SECONDS SYNC_INTERVAL_MS INTERNAL_ADMIN_ENABLED INSTANCE_ID HOSTNAME";
    let metrics = "outbox_pending_total outbox_claimed_total outbox_dlq_total sync_send_success_total \
        sync_send_failure_total sync_batch_latency_ms oldest_pending_age_seconds";
    let endpoints = [
        "GET /api/health",
        "GET /api/ready",
        "GET /api/v1/sync/state",
        "GET /api/v1/sync/outbox",
        "POST /api/v1/sync/trigger",
        "GET /api/v1/sync/dlq",
        "POST /api/v1/sync/redrive",
        "POST /api/v1/sync/unclaim-stuck",
    ];
    for name in variables.split_whitespace().chain(metrics.split_whitespace()).chain(endpoints) {
        assert!(cell(name), "{name}");
    }
    for begins in ["1 | ", "2 | ", "3 | ", "4 | ", "5 | ", "Warning: ", "Critical: ", "DLQ: "] {
        assert!(row(begins), "{begins}");
    }
}

/// Proves E3, E10, M6: in the forwarder's third walk the cloud answers 500, or nobody answers: after ten attempts every message
/// is a dead letter, and not one of the attempts is spared by a breaker.
#[tokio::test]
async fn a_cloud_that_is_down_makes_dead_letters_after_ten_attempts() {
    const MANY: usize = 30;
    let broken = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let answers_500 = format!("http://{}/api/v1/edge/batch", broken.local_addr().unwrap());
    let refuse = axum::Router::new().fallback(async || axum::http::StatusCode::INTERNAL_SERVER_ERROR);
    let server = tokio::spawn(async { axum::serve(broken, refuse).await });
    let away = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let refuses = format!("http://{}/api/v1/edge/batch", away.local_addr().unwrap());
    drop(away);
    let [one, other] = outboxes().await;
    for (site, cloud, code) in [(&one, &answers_500, "HTTP_500"), (&other, &refuses, "UNREACHABLE")] {
        let mut put = command(&["enqueue"]);
        put.env("DATABASE_URL", &site.url);
        assert_eq!(finish(put, "{\"topic\": \"t\", \"payload\": 1}\n".repeat(MANY).as_bytes()).code, 0);
        let mut run = command(&["run", "--listen", "none"]);
        run.env("DATABASE_URL", &site.url).env("CLOUD_INGESTION_URL", cloud);
        run.env("OUTBOX_BATCH_SIZE", "5").env("OUTBOX_BACKOFF_CAP_SECONDS", "1").env("SYNC_INTERVAL_MS", "100");
        let mut relay = run.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let mut dead = Vec::new();
        for _ in 0..600 {
            let listed = run_at(&site.url, &["dlq", "list", "--limit", "100", "--json"]).json();
            dead = listed["items"].as_array().unwrap().clone();
            if dead.len() == MANY {
                break;
            }
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
        drop(relay.kill());
        drop(relay.wait());
        assert_eq!(dead.len(), MANY, "{code}");
        for letter in dead {
            assert_eq!((&letter["reason"], &letter["attempt_count"]), (&"ATTEMPTS_EXHAUSTED".into(), &10.into()));
            assert!(letter["error_code"].as_str().unwrap().starts_with(code), "{letter}");
        }
    }
    server.abort();
}
