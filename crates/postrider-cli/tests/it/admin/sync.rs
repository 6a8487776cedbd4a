//! The endpoints that edge sites know, with exactly their JSON, on both stores.

use std::collections::BTreeSet;
use std::time::Duration;

use postrider::lifecycle::{Failure, Outcome};
use reqwest::Method;
use serde_json::{Value, json};

use super::server::{READ, Server, claim, kill, message, send, store, until};
use crate::support::outboxes;

const TENANT: &str = "tenant-1";

fn keys(document: &Value) -> BTreeSet<&str> {
    document.as_object().unwrap().keys().map(String::as_str).collect()
}

/// Proves E4: the state has the document's six fields, and they tell what is there.
#[tokio::test]
async fn the_state_is_the_documents() {
    for outbox in outboxes().await {
        let server = Server::serve(&outbox);
        let empty = json!({"pending_count": 0, "claimed_count": 0, "dlq_count": 0, "oldest_pending_age_seconds": 0,
            "last_success_at": null, "last_error_at": null});
        assert_eq!(server.get("/api/v1/sync/state").await.ok(), empty);

        let store = store(&outbox);
        kill(&*store, &[message("t", 1)], "REFUSED").await;
        store.enqueue(&[message("t", 2), message("t", 3)]).await.unwrap();
        let held = claim(&*store).await;
        store.ack("hand", &held[0]).await.unwrap();
        store.enqueue(&[message("t", 4), message("t", 5), message("t", 6)]).await.unwrap();
        let state = server.get("/api/v1/sync/state").await.ok();
        assert_eq!(keys(&state), keys(&empty));
        for (field, value) in [("pending_count", 3), ("claimed_count", 1), ("dlq_count", 1)] {
            assert_eq!(state[field], value, "{state}");
        }
        assert!(state["oldest_pending_age_seconds"].is_u64(), "{state}");
        for field in ["last_success_at", "last_error_at"] {
            let time = state[field].as_str().unwrap();
            assert!(time.parse::<jiff::Timestamp>().is_ok() && time.ends_with('Z'), "{state}");
        }
    }
}

/// Proves E4: the last success is told when it is long past.
#[tokio::test]
async fn the_state_keeps_the_last_success() {
    let [outbox, _] = outboxes().await;
    let (server, store) = (Server::serve(&outbox), store(&outbox));
    store.enqueue(&[message("t", 1)]).await.unwrap();
    store.ack("hand", &claim(&*store).await[0]).await.unwrap();
    let before = server.get("/api/v1/sync/state").await.ok();
    outbox.sql("update outbox.setting set status_window = '1 microsecond', sample_reach = sample_every").await;
    outbox.sql("select pg_sleep(1.1), outbox.measure()").await;
    let after = server.get("/api/v1/sync/state").await.ok();
    assert!(before["last_success_at"].is_string());
    assert_eq!(after["last_success_at"], before["last_success_at"]);
}

/// Proves E4, E8: a line of the outbox in each state, with what is kept of its last failure.
#[tokio::test]
async fn a_line_of_the_outbox_has_the_documents_fields() {
    for outbox in outboxes().await {
        let (server, store) = (Server::serve(&outbox), store(&outbox));
        kill(&*store, &[message("meter.read", 1).tenant(TENANT).priority(7)], "REFUSED").await;
        store.enqueue(&[message("t", 2), message("t", 3)]).await.unwrap();
        let held = claim(&*store).await;
        store.ack("hand", &held[0]).await.unwrap();
        let failed =
            Outcome::Retryable { retry_after: Duration::from_hours(1), failure: Failure::new("HTTP_503", "away") };
        store.finish("hand", &held[1], failed).await.unwrap();
        store.enqueue(&[message("t", 4)]).await.unwrap();
        assert_eq!(claim(&*store).await.len(), 1);

        let all: BTreeSet<&str> = "id tenant_id event_type status priority occurred_at next_attempt_at claimed_by \
            claimed_at lease_expires_at attempt_count last_attempt_at last_error_code last_error_message failed_at \
            dlq_reason payload_size_bytes sink"
            .split_whitespace()
            .collect();
        let one = async |status: &str| {
            let document = server.get(&format!("/api/v1/sync/outbox?status={status}&limit=5")).await.ok();
            let items = document["items"].as_array().unwrap().clone();
            assert_eq!(items.len(), 1, "{status}: {items:?}");
            assert_eq!(keys(&items[0]), all);
            assert_eq!(items[0]["status"], status);
            items[0].clone()
        };
        let dead = one("dlq").await;
        for (field, value) in [
            ("tenant_id", json!(TENANT)),
            ("event_type", json!("meter.read")),
            ("priority", json!(7)),
            ("attempt_count", json!(1)),
            ("last_error_code", json!("REFUSED")),
            ("last_error_message", json!("the destination said no")),
            ("dlq_reason", json!("FAILED")),
            ("next_attempt_at", Value::Null),
            ("claimed_by", Value::Null),
        ] {
            assert_eq!(dead[field], value, "{field}: {dead}");
        }
        assert!(dead["failed_at"].is_string() && dead["payload_size_bytes"].as_i64().unwrap() > 5, "{dead}");
        let listed = server.look("/api/v1/sync/dlq?limit=5").await.ok();
        assert_eq!(listed, json!({"items": [dead]}), "the operators' list has the same");

        let pending = one("pending").await;
        assert_eq!((&pending["last_error_code"], &pending["attempt_count"]), (&json!("HTTP_503"), &json!(1)));
        assert!(pending["next_attempt_at"].is_string() && pending["last_attempt_at"].is_string(), "{pending}");
        for status in ["claimed", "sending"] {
            let claimed = one(status).await;
            assert_eq!(claimed["claimed_by"], "hand");
            assert!(claimed["claimed_at"].is_string() && claimed["lease_expires_at"].is_string(), "{claimed}");
        }
        let acked = one("acked").await;
        assert_eq!((&acked["sink"], &acked["attempt_count"]), (&Value::Null, &json!(1)), "{acked}");
        let default = server.get("/api/v1/sync/outbox").await.ok();
        assert_eq!(default["items"], json!([pending]), "pending, if nothing else is asked for");
    }
}

/// Proves E5, E6: dead letters are pending again with a new budget, by id or all of them, and the audit says who did it;
/// their attempts are still there, and the next one's number goes on.
#[tokio::test]
async fn dead_letters_are_redriven_with_a_new_budget() {
    for outbox in outboxes().await {
        let (server, store) = (Server::serve(&outbox), store(&outbox));
        let ids = kill(&*store, &[message("t", 1), message("t", 2), message("t", 3)], "REFUSED").await;
        let some = server.post("/api/v1/sync/redrive", json!({"ids": [ids[0]]})).await.ok();
        assert_eq!(some, json!({"redriven": 1, "remaining": 0}));
        let again = server.post("/api/v1/sync/redrive", json!({"ids": [ids[0]]})).await.ok();
        assert_eq!(again["redriven"], 0, "it is dead no more");
        // As the document's sample has them.
        let both = json!({"allDlq": true, "ids": ["uuid1", "uuid2"]});
        let rest = server.post("/api/v1/sync/redrive", both).await.ok();
        assert_eq!(rest["redriven"], 2, "with both it is every dead letter");
        for wrong in [json!({}), json!({"ids": ["uuid1", "uuid2"]})] {
            assert_eq!(server.post("/api/v1/sync/redrive", wrong).await.refused(400), "INVALID_INPUT");
        }

        let pending = server.get("/api/v1/sync/outbox?status=pending").await.ok();
        let items = pending["items"].as_array().unwrap();
        assert_eq!(items.len(), 3);
        for item in items {
            assert_eq!((&item["attempt_count"], &item["last_error_code"]), (&json!(0), &json!("REFUSED")), "{item}");
        }
        for held in claim(&*store).await {
            assert_eq!(held.attempt_no, 2);
            store.ack("hand", &held).await.unwrap();
        }
        let shown = server.get(&format!("/api/v1/messages/{}", ids[0])).await.ok();
        let states: Vec<&str> =
            shown["attempts"].as_array().unwrap().iter().map(|one| one["state"].as_str().unwrap()).collect();
        assert_eq!(states, ["FAILED", "DISPATCHED"]);

        let audit = server.look("/api/v1/audit").await.ok();
        let entries = audit["items"].as_array().unwrap();
        assert!(
            entries.iter().all(|entry| entry["actor"] == "ops@127.0.0.1" && entry["action"] == "redrive"),
            "{audit}"
        );
        let affected: Vec<i64> = entries.iter().map(|entry| entry["affected"].as_i64().unwrap()).collect();
        assert_eq!(affected, [2, 0, 1], "newest first");
    }
}

/// Proves E5: what is held under a lease that ended is pending again; what a living worker holds only if that is asked for.
#[tokio::test]
async fn stuck_claims_are_taken_back() {
    for outbox in outboxes().await {
        let (server, store) = (Server::serve(&outbox), store(&outbox));
        store.enqueue(&[message("t", 1), message("t", 2)]).await.unwrap();
        let held = claim(&*store).await;
        let path = "/api/v1/sync/unclaim-stuck";
        let now = json!({"olderThanSeconds": 0});
        let left = json!({"unclaimed": 0, "ended": 0, "live": 2});
        assert_eq!(server.post(path, now).await.ok(), left, "nothing has ended");
        let counted = json!({"olderThanSeconds": 0, "live": true, "dryRun": true});
        assert_eq!(server.post(path, counted).await.ok(), left);
        let young = json!({"olderThanSeconds": 300, "live": true});
        assert_eq!(server.post(path, young).await.ok(), json!({"unclaimed": 0, "ended": 0, "live": 0}));
        let live = json!({"olderThanSeconds": 0, "live": true});
        assert_eq!(server.post(path, live).await.ok(), json!({"unclaimed": 2, "ended": 0, "live": 2}));
        assert!(store.ack("hand", &held[0]).await.is_err(), "the worker has lost its lease");
        assert_eq!(server.get("/api/v1/sync/state").await.ok()["pending_count"], 2);
        for wrong in
            [json!({"olderThanSeconds": -1}), json!({"olderThanSeconds": u64::MAX}), json!({"olderThanSeconds": "1"})]
        {
            assert_eq!(server.post(path, wrong).await.refused(400), "INVALID_INPUT");
        }
    }
}

/// Proves H6: an HTTP call starts a cycle. A relay that finds nothing looks again after twice the time, each time: some ten
/// seconds after its last message it looks once, and then not for ten seconds more. What becomes due in between, without
/// anybody announcing it, is delivered by the call.
#[tokio::test]
async fn a_trigger_wakes_the_relay() {
    const DUE_IN: Duration = Duration::from_millis(11_500);
    const BEFORE_ITS_OWN_LOOK: Duration = Duration::from_secs(7);
    let [_, outbox] = outboxes().await;
    let server = Server::run(&outbox, &["--poll", "10m", "--lease", "40m"]);
    let store = store(&outbox);
    store.enqueue(&[message("t", 1)]).await.unwrap();
    let delivered =
        async || server.get("/api/v1/sync/outbox?status=acked").await.ok()["items"].as_array().unwrap().len();
    until("the relay has delivered the first", async || delivered().await == 1).await;
    let later = store.enqueue(&[message("t", 2).delay(DUE_IN)]).await.unwrap();
    until("the second is due", async || store.status().await.unwrap()[0].due == 1).await;
    let asked_at = store.now().await.unwrap();
    let trigger = send(server.request(Method::POST, "/api/v1/sync/trigger").bearer_auth(READ)).await;
    assert_eq!(trigger.ok(), json!({"triggered": true}));
    until("the second is delivered", async || delivered().await == 2).await;
    let shown = store.show(later[0].message_id).await.unwrap().unwrap();
    let took = shown.attempts[0].claimed_at.duration_since(asked_at).unwrap_or_default();
    assert!(took < BEFORE_ITS_OWN_LOOK, "it was claimed {took:?} after the call, as if nobody had called");
}

/// Where nothing delivers there is nothing to wake.
#[tokio::test]
async fn a_trigger_without_a_relay_says_so() {
    let [_, outbox] = outboxes().await;
    let server = Server::open(&outbox);
    let answer = send(server.request(Method::POST, "/api/v1/sync/trigger")).await.ok();
    assert_eq!(answer["triggered"], false);
    assert!(answer["reason"].as_str().unwrap().contains("delivers nothing"), "{answer}");
}
