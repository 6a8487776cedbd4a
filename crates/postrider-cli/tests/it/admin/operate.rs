//! What operators do, on both stores: by filter, in dry runs, and with who did it written down.

use serde_json::{Value, json};

use super::server::{OPERATE, Server, claim, kill, message, send, store};
use crate::support::outboxes;

#[tokio::test]
async fn dead_letters_are_redriven_and_discarded_by_filter() {
    for outbox in outboxes().await {
        let (server, store) = (Server::serve(&outbox), store(&outbox));
        kill(&*store, &[message("a", 1), message("a", 2)], "HTTP_400").await;
        kill(&*store, &[message("a", 3), message("b", 4)], "TIMEOUT").await;
        let act = async |what: &str, filter: Value, dry_run: bool| {
            let body = json!({"filter": filter, "dry_run": dry_run});
            server.post(&format!("/api/v1/dead-letters/{what}"), body).await.ok()
        };
        let dry = act("redrive", json!({"topic": "a", "error_code": "HTTP_400"}), true).await;
        let to = &dry["died_to"];
        assert_eq!(
            dry,
            json!({"matching": 2, "affected": 0, "remaining": 2, "missing": [], "dry_run": true, "died_to": to})
        );
        assert_eq!(server.get("/api/v1/sync/state").await.ok()["dlq_count"], 4, "nothing was changed");
        // It means those that were counted, not what dies while somebody reads the count.
        kill(&*store, &[message("a", 5)], "HTTP_400").await;
        let done = act("redrive", json!({"topic": "a", "error_code": "HTTP_400", "died_to": to}), false).await;
        assert_eq!(done, json!({"matching": 2, "affected": 2, "remaining": 0, "missing": [], "dry_run": false}));
        assert_eq!(act("discard", json!({"error_code": "HTTP_400"}), false).await["affected"], 1);
        let state = server.get("/api/v1/sync/state").await.ok();
        assert_eq!((&state["pending_count"], &state["dlq_count"]), (&json!(2), &json!(2)));

        let none = act("discard", json!({"died_to": "2020-01-01T00:00:00Z"}), false).await;
        assert_eq!((&none["matching"], &none["affected"]), (&json!(0), &json!(0)));
        assert_eq!(act("discard", json!({"topic": "b"}), false).await["affected"], 1);
        assert_eq!(act("discard", json!({}), false).await["affected"], 1);
        let state = server.get("/api/v1/sync/state").await.ok();
        assert_eq!((&state["pending_count"], &state["dlq_count"]), (&json!(2), &json!(0)));
        let audit = server.look("/api/v1/audit?limit=1").await.ok();
        assert_eq!(audit["items"][0]["action"], "discard");
        let more =
            server.look(&format!("/api/v1/audit?limit=100&after={}", audit["next"].as_str().unwrap())).await.ok();
        let actions: Vec<_> = more["items"].as_array().unwrap().iter().map(|entry| entry["action"].clone()).collect();
        assert_eq!(
            (json!(actions), &more["next"]),
            (json!(["discard", "discard", "discard", "redrive"]), &Value::Null),
            "{more}"
        );
        let unknown = "019a8f3c-6b1e-7c02-9d55-0f2b6a3e8d41";
        let missing = act("redrive", json!({"message_ids": [unknown]}), false).await;
        assert_eq!((&missing["affected"], &missing["missing"]), (&json!(0), &json!([unknown])));
    }
}

/// More than the store takes at once: batch after batch, until none is left.
#[tokio::test]
async fn slow_more_than_one_batch_is_redriven() {
    let [_, outbox] = outboxes().await;
    let (server, store) = (Server::serve(&outbox), store(&outbox));
    let messages: Vec<_> = (0..10_050).map(|n| message("t", n)).collect();
    for part in messages.chunks(5_000) {
        store.enqueue(part).await.unwrap();
    }
    loop {
        let many = postrider::lifecycle::Claim::new("hand").batch_size(5_000);
        let claimed = store.claim(&many).await.unwrap();
        if claimed.is_empty() {
            break;
        }
        let failed = || postrider::lifecycle::Outcome::Failed(postrider::lifecycle::Failure::new("X", "no"));
        let ends: Vec<_> = claimed.iter().map(|one| postrider::lifecycle::Completion::new(one, failed())).collect();
        store.complete("hand", &ends).await.unwrap();
    }
    let done = server.post("/api/v1/sync/redrive", json!({"allDlq": true})).await.ok();
    assert_eq!(done, json!({"redriven": 10_050, "remaining": 0}));
    let audit = server.look("/api/v1/audit").await.ok();
    let affected: Vec<i64> =
        audit["items"].as_array().unwrap().iter().map(|entry| entry["affected"].as_i64().unwrap()).collect();
    assert_eq!(affected, [50, 10_000]);
}

#[tokio::test]
async fn a_parked_lane_goes_on_without_its_head() {
    for outbox in outboxes().await {
        let (server, store) = (Server::serve(&outbox), store(&outbox));
        kill(&*store, &[message("t", 1).lane("a")], "REFUSED").await;
        store.enqueue(&[message("t", 2).lane("a")]).await.unwrap();
        let parked = server.get("/api/v1/lanes?state=parked").await.ok();
        let lane = &parked["items"][0];
        assert_eq!(
            (&lane["lane"], &lane["depth"], &lane["head_error_code"]),
            (&json!("a"), &json!(2), &json!("REFUSED"))
        );
        let skip = json!({"sink": "default", "lane": "a"});
        assert_eq!(server.post("/api/v1/lanes/skip", skip.clone()).await.ok(), json!({"affected": 1}));
        assert_eq!(claim(&*store).await.len(), 1, "the second is handed out");
        assert_eq!(server.post("/api/v1/lanes/skip", skip).await.refused(404), "NOT_FOUND");
        assert_eq!(server.get("/api/v1/sync/state").await.ok()["dlq_count"], 1, "the head stays a dead letter");
    }
}

#[tokio::test]
async fn a_sink_is_paused_and_resumed() {
    for outbox in outboxes().await {
        let (server, store) = (Server::serve(&outbox), store(&outbox));
        store.enqueue(&[message("t", 1)]).await.unwrap();
        let order = async |path: &str| send(server.request(reqwest::Method::POST, path).bearer_auth(OPERATE)).await;
        let paused = order("/api/v1/sinks/default/pause").await.ok();
        assert_eq!(paused, json!({"affected": 1}));
        assert!(claim(&*store).await.is_empty());
        assert_eq!(server.get("/api/v1/sinks").await.ok()["items"][0]["paused"], true);
        let resumed = order("/api/v1/sinks/default/resume").await.ok();
        assert_eq!(resumed, json!({"affected": 1}));
        assert_eq!(claim(&*store).await.len(), 1);
        // A name with what a path cannot hold, and one that is mistyped.
        assert_eq!(order("/api/v1/sinks/no%20such%2Fsink/pause").await.refused(404), "NOT_FOUND");
        let audit = server.look("/api/v1/audit").await.ok();
        let actions: Vec<&str> =
            audit["items"].as_array().unwrap().iter().map(|entry| entry["action"].as_str().unwrap()).collect();
        assert_eq!(actions, ["resume", "pause"]);
    }
}

#[tokio::test]
async fn what_was_delivered_is_replayed_at_a_rate() {
    for outbox in outboxes().await {
        let (server, store) = (Server::serve(&outbox), store(&outbox));
        store.enqueue(&[message("a", 1), message("a", 2), message("b", 3)]).await.unwrap();
        for held in claim(&*store).await {
            store.ack("hand", &held).await.unwrap();
        }
        // Still on its way: nothing to deliver again.
        store.enqueue(&[message("a", 4)]).await.unwrap();
        let (from, to) = ("2020-01-01T00:00:00Z", "2100-01-01T00:00:00Z");
        let body = json!({"sink": "default", "from": from, "to": to, "topic": "a", "dry_run": true});
        let dry = server.post("/api/v1/replay", body).await.ok();
        assert_eq!(
            dry,
            json!({"matching": 2, "affected": 0, "remaining": 2, "never_delivered": 0, "missing": [], "dry_run": true})
        );
        let body = json!({"sink": "default", "from": from, "to": to, "topic": "a", "per_second": 1});
        let done = server.post("/api/v1/replay", body).await.ok();
        assert_eq!(done, json!({"matching": 2, "affected": 2, "remaining": 0, "missing": [], "dry_run": false}));
        let pending = server.get("/api/v1/messages?state=pending&topic=a").await.ok();
        let mut due: Vec<jiff::Timestamp> = pending["items"].as_array().unwrap()[1..]
            .iter()
            .map(|item| item["due_at"].as_str().unwrap().parse().unwrap())
            .collect();
        due.sort();
        assert_eq!(due[1].as_millisecond() - due[0].as_millisecond(), 1_000, "{pending}");
        let wrong = json!({"sink": "default", "from": from, "to": to, "per_second": 0});
        assert_eq!(server.post("/api/v1/replay", wrong).await.refused(400), "INVALID_INPUT");
    }
}

#[tokio::test]
async fn what_waits_is_made_due_by_sink_and_by_id() {
    for outbox in &outboxes().await {
        let store = store(outbox);
        let later = || message("t", 1).delay(std::time::Duration::from_hours(1));
        let ids = store.enqueue(&[later(), later(), later()]).await.unwrap();
        let server = Server::serve(outbox);
        let retry = async |body| server.post("/api/v1/retry-now", body).await.ok();
        let said = |matching, affected, remaining, dry_run: bool| json!({"matching": matching, "affected": affected, "remaining": remaining, "missing": [], "dry_run": dry_run});
        assert_eq!(retry(json!({"filter": {}, "dry_run": true})).await, said(3, 0, 3, true));
        let one = json!({"filter": {"message_ids": [ids[0].message_id]}});
        assert_eq!(retry(one).await, said(1, 1, 0, false));
        assert_eq!(retry(json!({"filter": {"sink": "nobody"}})).await["matching"], 0);
        assert_eq!(retry(json!({"filter": {"sink": "default", "topic": "t"}})).await["affected"], 2);
        assert_eq!(store.status().await.unwrap()[0].due, 3);
        let entry = &server.get("/api/v1/audit").await.ok()["items"][0];
        assert_eq!((&entry["action"], &entry["actor"]), (&json!("retry_now"), &json!("ops@127.0.0.1")), "{entry}");
    }
}

/// What was replayed to a sink by mistake is taken back; what a worker holds is left alone, and told.
#[tokio::test]
async fn pending_deliveries_are_cancelled_by_filter() {
    for outbox in &outboxes().await {
        let (server, store) = (Server::serve(outbox), store(outbox));
        store.enqueue(&[message("held", 1)]).await.unwrap();
        let held = claim(&*store).await;
        let ids = store.enqueue(&[message("t", 2), message("t", 3), message("u", 4)]).await.unwrap();
        let cancel = async |filter: Value, dry_run: bool| {
            server.post("/api/v1/cancel", json!({"filter": filter, "dry_run": dry_run})).await.ok()
        };
        let dry = cancel(json!({"sink": "default"}), true).await;
        assert_eq!(
            dry,
            json!({"matching": 3, "affected": 0, "remaining": 3, "leased": 1, "missing": [], "dry_run": true})
        );
        let unknown = "019a8f3c-6b1e-7c02-9d55-0f2b6a3e8d41";
        let one = cancel(json!({"message_ids": [ids[2].message_id, unknown]}), false).await;
        assert_eq!((&one["affected"], &one["missing"]), (&json!(1), &json!([unknown])));
        assert_eq!(cancel(json!({"topic": "t", "namespace": "default"}), false).await["affected"], 2);
        let explained = server.get(&format!("/api/v1/messages/{}/explain", ids[0].message_id)).await.ok();
        assert_eq!(explained["deliveries"][0]["code"], "CANCELLED", "{explained}");
        store.ack("hand", &held[0]).await.unwrap();
        let entry = &server.get("/api/v1/audit").await.ok()["items"][0];
        assert_eq!((&entry["action"], &entry["actor"]), (&json!("cancel"), &json!("ops@127.0.0.1")), "{entry}");
        assert!(entry.get("db_user").is_some(), "{entry}");
        let read = send(server.request(reqwest::Method::POST, "/api/v1/cancel").json(&json!({"filter": {}}))).await;
        assert_eq!(read.status, 401, "{}", read.text);
    }
}

/// A replay by id means that message alone; what the sink never had is left out unless it is asked for, and a sink that
/// nobody has heard of is refused.
#[tokio::test]
async fn a_replay_means_what_its_sink_had() {
    for outbox in &outboxes().await {
        let (server, store) = (Server::serve(outbox), store(outbox));
        store
            .operate("ann", &postrider::operate::Action::AddRoute { route: postrider::Route::new("both", "partner") })
            .await
            .unwrap();
        store
            .operate("ann", &postrider::operate::Action::AddRoute { route: postrider::Route::new("both", "default") })
            .await
            .unwrap();
        let ids = store.enqueue(&[message("both", 1), message("both", 2), message("secret", 3)]).await.unwrap();
        for sink in ["default", "partner"] {
            let wanted = postrider::lifecycle::Claim::new("hand").sink(sink.to_owned());
            for held in store.claim(&wanted).await.unwrap() {
                store.ack("hand", &held).await.unwrap();
            }
        }
        let replay = async |body: Value| server.post("/api/v1/replay", body).await;
        let span =
            json!({"sink": "partner", "from": "2020-01-01T00:00:00Z", "to": "2100-01-01T00:00:00Z", "dry_run": true});
        let dry = replay(span).await.ok();
        assert_eq!((&dry["matching"], &dry["never_delivered"]), (&json!(2), &json!(1)), "{dry}");
        let one = replay(json!({"sink": "partner", "message_ids": [ids[0].message_id]})).await.ok();
        assert_eq!((&one["affected"], &one["missing"]), (&json!(1), &json!([])));
        let secret = json!({"sink": "partner", "message_ids": [ids[2].message_id]});
        assert_eq!(replay(secret).await.ok()["affected"], 0);
        let pending = server.get("/api/v1/messages?state=pending").await.ok();
        assert_eq!(pending["items"].as_array().unwrap().len(), 1, "{pending}");
        for dry_run in [true, false] {
            let mistyped = json!({"sink": "partnre", "message_ids": [ids[0].message_id], "dry_run": dry_run});
            assert_eq!(replay(mistyped).await.refused(404), "NOT_FOUND");
        }
        assert_eq!(replay(json!({"sink": "partner"})).await.refused(400), "INVALID_INPUT");
    }
}
