//! What an operator does with the command line: dead letters, lanes, sinks, replay, and the audit that remembers it. The
//! real binary, on both stores.

use std::io::{Read as _, Write as _};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use crate::support::{Outbox, command, finish, outboxes, run_at};

/// Delivers to an address where nobody answers, with one attempt each: what is due is dead then.
fn kill_all(url: &str) {
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut drain = command(&["drain", "--cloud-url", &format!("http://{closed}/"), "--max-attempts", "1"]);
    drain.env("DATABASE_URL", url);
    assert_eq!(finish(drain, b"").code, 0);
}

fn enqueue(url: &str, args: &[&str]) -> String {
    let args = [&["enqueue", "--payload", "1", "--json", "--topic"], args].concat();
    run_at(url, &args).json()["message_id"].as_str().unwrap().to_owned()
}

fn count(url: &str, what: &str) -> u64 {
    let status = run_at(url, &["status", "--json"]).json();
    status["items"].as_array().unwrap().iter().map(|sink| sink[what].as_u64().unwrap()).sum()
}

/// The newest entry of the audit.
fn last_entry(url: &str) -> Value {
    run_at(url, &["audit", "--limit", "1", "--json"]).json()["items"][0].clone()
}

/// Two dead letters without a lane, and a lane of three with a dead head.
fn trouble(url: &str) -> [String; 3] {
    let ids =
        [enqueue(url, &["order.placed"]), enqueue(url, &["order.cancelled"]), enqueue(url, &["step", "--lane", "c-7"])];
    kill_all(url);
    for _ in 0..2 {
        enqueue(url, &["step", "--lane", "c-7"]);
    }
    ids
}

#[tokio::test]
async fn dead_letters_are_listed_grouped_and_redriven() {
    for Outbox { url, .. } in &outboxes().await {
        let [placed, ..] = trouble(url);
        let list = run_at(url, &["dlq", "list", "--json"]).json();
        assert_eq!(list["items"].as_array().unwrap().len(), 3, "{list}");
        let one = run_at(url, &["dlq", "list", "--topic", "order.placed", "--from", "1h ago", "--to", "now", "--json"])
            .json();
        assert_eq!(one["items"][0]["message_id"], *placed);
        assert_eq!(one["items"][0]["reason"], "ATTEMPTS_EXHAUSTED");
        let first = run_at(url, &["dlq", "list", "--limit", "2", "--json"]).json();
        let rest = run_at(url, &["dlq", "list", "--after", first["next"].as_str().unwrap(), "--json"]).json();
        assert_eq!((rest["items"].as_array().unwrap().len(), &rest["next"]), (1, &Value::Null));
        let groups = run_at(url, &["dlq", "groups"]).ok();
        assert!(groups.contains("order.placed") && groups.contains("order.cancelled"), "{groups}");

        let dry = run_at(url, &["dlq", "redrive", "--all", "--dry-run"]).ok();
        assert_eq!(dry, "would make 3 dead letters pending again\n");
        assert_eq!(count(url, "dead"), 3);
        assert_eq!(run_at(url, &["dlq", "redrive", &placed]).ok(), "redriven 1 dead letter\n", "one needs no question");
        let asked = run_at(url, &["dlq", "redrive", "--all"]);
        assert_eq!((asked.code, count(url, "dead")), (2, 2), "{}", asked.stderr);
        assert!(asked.stderr.contains("there is no terminal to confirm it") && asked.stderr.contains("--yes"));
        let all = run_at(url, &["dlq", "redrive", "--all", "--yes", "--json"]).json();
        assert_eq!(all, json!({"matching": 2, "affected": 2, "remaining": 0, "missing": [], "dry_run": false}));
        assert_eq!((count(url, "dead"), count(url, "pending")), (0, 5));
        assert_eq!(run_at(url, &["dlq", "redrive", "--all", "--yes"]).ok(), "no dead letters\n");
        let entry = last_entry(url);
        assert_eq!((&entry["action"], &entry["affected"]), (&"redrive".into(), &2.into()), "{entry}");
        assert!(entry["actor"].as_str().unwrap().contains('@'), "{entry}");
    }
}

#[tokio::test]
async fn a_discard_is_counted_and_lets_its_lane_go_on() {
    for Outbox { url, .. } in &outboxes().await {
        trouble(url);
        let refused = run_at(url, &["dlq", "discard", "--lane", "c-7"]);
        assert_eq!((refused.code, count(url, "dead")), (2, 3), "{}", refused.stderr);
        assert!(refused.stderr.contains("This gives up 1 dead letter for good"), "{}", refused.stderr);
        assert_eq!(run_at(url, &["dlq", "discard", "--lane", "c-7", "--yes"]).ok(), "discarded 1 dead letter\n");
        assert_eq!((count(url, "dead"), count(url, "parked_lanes")), (2, 0));
        for (args, words) in [
            (&["dlq", "discard"][..], "say which dead letters"),
            (&["dlq", "discard", "--all", "--sink", "x"], "it does not go with ids or filters"),
        ] {
            let wrong = run_at(url, args);
            assert!(wrong.code == 2 && wrong.stderr.contains(words), "{}", wrong.stderr);
        }
    }
}

/// A terminal of its own, into which the test types.
fn on_a_terminal(url: &str, args: &str) -> Child {
    let mut script = Command::new("script");
    script.args(["-qec", &format!("{} {args}", env!("CARGO_BIN_EXE_postrider")), "/dev/null"]);
    script.env("DATABASE_URL", url).env("TERM", "xterm").stdin(Stdio::piped()).stdout(Stdio::piped());
    script.spawn().unwrap()
}

#[tokio::test]
async fn on_a_terminal_the_number_has_to_be_typed() {
    for Outbox { url, .. } in &outboxes().await {
        trouble(url);
        for (typed, code, dead) in [("y\n", 1, 3), ("3\n", 0, 0)] {
            let mut child = on_a_terminal(url, "dlq discard --all");
            let (mut stdin, mut stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
            let mut said = String::new();
            while !said.contains("Type 3 to go on: ") {
                let mut byte = [0];
                stdout.read_exact(&mut byte).unwrap_or_else(|error| panic!("{error}: {said}"));
                said.push(char::from(byte[0]));
            }
            stdin.write_all(typed.as_bytes()).unwrap();
            stdout.read_to_string(&mut said).unwrap();
            assert_eq!((child.wait().unwrap().code(), count(url, "dead")), (Some(code), dead), "{said}");
        }
    }
}

/// More than one order takes: the batches add up, and what dies again meanwhile is not taken twice.
#[tokio::test]
async fn many_are_redriven_in_batches() {
    let [postgres, _] = outboxes().await;
    let (url, many) = (&postgres.url, 10_050);
    let lines = "{\"topic\": \"t\", \"payload\": 1}\n".repeat(many);
    let mut enqueue = command(&["enqueue"]);
    enqueue.env("DATABASE_URL", url);
    assert_eq!(finish(enqueue, lines.as_bytes()).code, 0);
    postgres
        .sql(
            "with gone as (delete from outbox.delivery returning *) insert into outbox.dead_letter (message_id, sink, died_at, \
             reason, priority, size_bytes, attempt_no, attempt_count, parked) select message_id, sink, now(), 'FAILED', priority, 1, 1, 1, \
             false from gone",
        )
        .await;
    let done = run_at(url, &["dlq", "redrive", "--sink", "default", "--yes", "--json"]).json();
    assert_eq!(done, json!({"matching": many, "affected": many, "remaining": 0, "missing": [], "dry_run": false}));
    let entries = run_at(url, &["audit", "--json"]).json();
    let affected: Vec<u64> =
        entries["items"].as_array().unwrap().iter().map(|one| one["affected"].as_u64().unwrap()).collect();
    assert_eq!(affected, [50, 10_000], "one entry for each batch");
}

#[tokio::test]
async fn a_parked_lane_is_seen_explained_and_skipped() {
    for Outbox { url, .. } in &outboxes().await {
        let [_, _, head] = trouble(url);
        let lanes = run_at(url, &["lanes", "--state", "parked", "--json"]).json();
        let lane = &lanes["items"][0];
        assert_eq!((&lane["lane"], &lane["depth"], &lane["head_message_id"]), (&"c-7".into(), &3.into(), &json!(head)));
        let why = run_at(url, &["explain", &head]).ok();
        assert!(why.contains("default  DEAD") && why.contains('→'), "{why}");
        let behind = run_at(url, &["list", "--state", "pending", "--json"]).json()["items"][0]["message_id"].clone();
        let why = run_at(url, &["explain", behind.as_str().unwrap(), "--json"]).json();
        assert_eq!(
            (&why["deliveries"][0]["code"], &why["deliveries"][0]["behind"]),
            (&"LANE_PARKED".into(), &json!(head))
        );
        assert!(run_at(url, &["lanes", "skip", "default", "c-7"]).ok().contains("goes on"));
        assert_eq!((count(url, "parked_lanes"), count(url, "dead")), (0, 3), "the head stays a dead letter");
        let again = run_at(url, &["lanes", "skip", "default", "c-7", "--json"]);
        assert_eq!((again.code, &again.error()["code"]), (4, &"not_found".into()));
        let nobody = run_at(url, &["explain", "019a8f3c-6b1e-7c02-9d55-0f2b6a3e8d41"]);
        assert_eq!(nobody.code, 4, "{}", nobody.stderr);
    }
}

#[tokio::test]
async fn a_sink_is_paused_by_its_right_name_only() {
    for Outbox { url, .. } in &outboxes().await {
        assert!(run_at(url, &["sinks", "pause", "default"]).ok().contains("is paused"));
        let sinks = run_at(url, &["sinks", "--json"]).json();
        assert_eq!((&sinks["items"][0]["sink"], &sinks["items"][0]["paused"]), (&"default".into(), &true.into()));
        assert!(run_at(url, &["sinks"]).ok().contains("paused"));
        run_at(url, &["sinks", "resume", "default"]).ok();
        assert_eq!(run_at(url, &["sinks", "--json"]).json()["items"][0]["paused"], false);
        let wrong = run_at(url, &["sinks", "pause", "defualt"]);
        assert_eq!(wrong.code, 4);
        assert!(wrong.stderr.contains("did you mean \"default\"?"), "{}", wrong.stderr);
        let actions: Vec<Value> = run_at(url, &["audit", "--json"]).json()["items"]
            .as_array()
            .unwrap()
            .iter()
            .map(|entry| entry["action"].clone())
            .collect();
        assert_eq!(actions, ["resume", "pause"]);
        assert!(run_at(url, &["audit"]).ok().contains("sink=default"));
    }
}

#[tokio::test]
async fn what_was_delivered_is_replayed_by_its_time() {
    for Outbox { url, .. } in &outboxes().await {
        for topic in ["order.placed", "order.placed", "order.cancelled"] {
            enqueue(url, &[topic]);
        }
        assert_eq!(run_at(url, &["drain"]).code, 0);
        enqueue(url, &["order.placed"]);
        let span = ["replay", "--sink", "default", "--from", "1h ago", "--to", "now"];
        let dry = run_at(url, &[&span[..], &["--dry-run"]].concat()).ok();
        assert_eq!(dry, "would replay 3 messages\n", "what is pending is left alone");
        let refused = run_at(url, &span);
        assert_eq!((refused.code, count(url, "pending")), (2, 1), "{}", refused.stderr);
        let some = [&span[..], &["--topic", "order.placed", "--yes", "--rate", "100", "--json"]].concat();
        let done = json!({"matching": 2, "affected": 2, "never_delivered": 0, "remaining": 0, "missing": [], "dry_run": false});
        assert_eq!(run_at(url, &some).json(), done);
        assert_eq!(count(url, "pending"), 3);
        let wrong = run_at(url, &["replay", "--sink", "x", "--from", "now", "--to", "1h ago"]);
        assert!(wrong.code == 2 && wrong.stderr.contains("--from has to be before --to"), "{}", wrong.stderr);
        assert_eq!(last_entry(url)["action"], "replay");
    }
}

#[tokio::test]
async fn stuck_claims_are_taken_back_and_history_is_pruned() {
    for Outbox { url, .. } in &outboxes().await {
        enqueue(url, &["t"]);
        assert_eq!(run_at(url, &["unclaim-stuck"]).ok(), "no lease has ended\n");
        let nothing = run_at(url, &["unclaim-stuck", "--older-than", "0s", "--json"]).json();
        let expected =
            json!({"matching": 0, "affected": 0, "remaining": 0, "leased": 0, "missing": [], "dry_run": false});
        assert_eq!(nothing, expected);
        assert_eq!(run_at(url, &["drain"]).code, 0);
        assert_eq!(run_at(url, &["prune", "--older-than", "7d"]).ok(), "nothing is old enough\n");
    }
}

#[tokio::test]
async fn routes_are_applied_to_what_is_pending() {
    for Outbox { url, .. } in &outboxes().await {
        enqueue(url, &["order.placed"]);
        enqueue(url, &["other"]);
        let apply = |more: &[&str]| run_at(url, &[&["routes", "apply"][..], more].concat());
        assert_eq!(apply(&[]).ok(), "every pending delivery is where the routes send it\n");
        run_at(url, &["routes", "add", "order.*", "orders"]).ok();
        assert_eq!(apply(&["--dry-run"]).ok(), "would change 2 deliveries: add 1, remove 1\n");
        let asked = apply(&[]);
        assert!(asked.code == 2 && asked.stderr.contains("This changes 2 deliveries"), "{}", asked.stderr);
        let done = apply(&["--yes", "--json"]).json();
        assert_eq!((&done["affected"], &done["added"], &done["removed"]), (&json!(2), &json!(1), &json!(1)), "{done}");
        assert_eq!(last_entry(url)["action"], "apply_routes");
        assert_eq!(apply(&["--yes"]).ok(), "every pending delivery is where the routes send it\n");
    }
}

#[tokio::test]
async fn what_waits_is_made_due() {
    for Outbox { url, .. } in &outboxes().await {
        let ids: Vec<String> = (0..3).map(|_| enqueue(url, &["t", "--delay", "1h"])).collect();
        enqueue(url, &["t"]);
        assert_eq!(count(url, "due"), 1);
        assert_eq!(run_at(url, &["retry-now", "--all", "--dry-run"]).ok(), "would make 3 messages due now\n");
        assert_eq!(run_at(url, &["retry-now", &ids[0]]).ok(), "made 1 message due now\n", "one needs no question");
        let asked = run_at(url, &["retry-now", "--sink", "default"]);
        assert_eq!((asked.code, count(url, "due")), (2, 2), "{}", asked.stderr);
        assert!(asked.stderr.contains("there is no terminal to confirm it"), "{}", asked.stderr);
        let rest = run_at(url, &["retry-now", "--sink", "default", "--yes", "--json"]).json();
        assert_eq!(rest, json!({"matching": 2, "affected": 2, "remaining": 0, "missing": [], "dry_run": false}));
        assert_eq!(run_at(url, &["retry-now", "--all"]).ok(), "nothing waits for its time\n");
        let wrong = run_at(url, &["retry-now"]);
        assert!(wrong.code == 2 && wrong.stderr.contains("say which deliveries"), "{}", wrong.stderr);
        assert_eq!(last_entry(url)["action"], "retry_now");
        assert_eq!(count(url, "due"), 4);
    }
}

#[tokio::test]
async fn routes_are_changed_in_the_operators_name() {
    for Outbox { url, .. } in &outboxes().await {
        run_at(url, &["routes", "add", "order.*", "orders", "audit"]).ok();
        run_at(url, &["routes", "remove", "order.*", "audit"]).ok();
        let entries = run_at(url, &["audit", "--json"]).json();
        let actions: Vec<&str> =
            entries["items"].as_array().unwrap().iter().map(|one| one["action"].as_str().unwrap()).collect();
        assert_eq!(actions, ["remove_route", "add_route", "add_route"]);
    }
}

#[tokio::test]
async fn a_list_is_cut_by_time_and_namespace() {
    for Outbox { url, .. } in &outboxes().await {
        enqueue(url, &["a", "--namespace", "billing"]);
        enqueue(url, &["b"]);
        for (filter, found) in [
            (&["--namespace", "billing"][..], 1),
            (&["--from", "1h ago"], 2),
            (&["--to", "1h ago"], 0),
            (&["--from", "2026-01-01T00:00:00Z", "--to", "2026-01-02T00:00:00Z"], 0),
            (&["--from", "1h ago", "--state", "pending", "--namespace", "default"], 1),
        ] {
            let list = run_at(url, &[&["list", "--json"], filter].concat()).json();
            assert_eq!(list["items"].as_array().unwrap().len(), found, "{filter:?}");
        }
        let wrong = run_at(url, &["list", "--from", "yesterday"]);
        assert!(wrong.code == 2 && wrong.stderr.contains("is not a time"), "{}", wrong.stderr);
    }
}

/// Under cron and in containers nobody sets USER: the audit names the user id's owner.
#[tokio::test]
async fn the_audit_names_a_user_without_any_variable() {
    let [outbox, _] = outboxes().await;
    let id = Command::new("id").arg("-un").output().unwrap();
    let user = String::from_utf8(id.stdout).unwrap();
    let mut pause = command(&["sinks", "pause", "default"]);
    pause.env("DATABASE_URL", &outbox.url).env_remove("USER").env_remove("LOGNAME");
    finish(pause, b"").ok();
    let actor = last_entry(&outbox.url)["actor"].as_str().unwrap().to_owned();
    assert!(actor.starts_with(&format!("{}@", user.trim())), "{actor}");
}

/// An id that nobody knows.
const UNKNOWN: &str = "019a8f3c-6b1e-7c02-9d55-0f2b6a3e8d41";

#[tokio::test]
async fn what_was_replayed_to_a_mistyped_sink_is_cancelled() {
    for Outbox { url, .. } in &outboxes().await {
        let ids: Vec<String> = (0..3).map(|_| enqueue(url, &["t", "--lane", "a"])).collect();
        let dry = run_at(url, &["cancel", "--sink", "default", "--dry-run"]).ok();
        assert_eq!(dry, "would cancel 3 deliveries\n");
        let asked = run_at(url, &["cancel", &ids[0]]);
        assert_eq!((asked.code, count(url, "pending")), (2, 3), "{}", asked.stderr);
        assert!(asked.stderr.contains("This cancels 1 delivery for good"), "{}", asked.stderr);
        assert_eq!(run_at(url, &["cancel", &ids[0], "--yes"]).ok(), "cancelled 1 delivery\n");
        let why = run_at(url, &["explain", &ids[0]]).ok();
        assert!(why.contains("CANCELLED") && why.contains("cancelled it at"), "{why}");
        assert!(run_at(url, &["show", &ids[0]]).ok().contains("CANCELLED"));
        let listed = run_at(url, &["list", "--state", "discarded", "--json"]).json();
        assert_eq!(listed["items"][0]["message_id"], *ids[0], "{listed}");
        for filter in [&["--topic", "u"][..], &["--namespace", "n"], &["--lane", "b"], &["--tenant", UNKNOWN]] {
            let none = run_at(url, &[&["cancel", "--yes"], filter].concat()).ok();
            assert_eq!(none, "nothing is pending\n", "{filter:?}");
        }
        let all = run_at(url, &["cancel", "--lane", "a", "--topic", "t", "--yes", "--json"]).json();
        assert_eq!(
            all,
            json!({"matching": 2, "affected": 2, "leased": 0, "remaining": 0, "missing": [], "dry_run": false})
        );
        let entry = last_entry(url);
        assert_eq!((&entry["action"], &entry["detail"]["lane"]), (&"cancel".into(), &"a".into()), "{entry}");
        let wrong = run_at(url, &["cancel"]);
        assert!(wrong.code == 2 && wrong.stderr.contains("say which deliveries"), "{}", wrong.stderr);
    }
}

#[tokio::test]
async fn a_replay_asks_for_its_sink_and_counts_what_it_never_had() {
    for Outbox { url, .. } in &outboxes().await {
        run_at(url, &["routes", "add", "public", "default", "partner"]).ok();
        enqueue(url, &["secret"]);
        let public = enqueue(url, &["public"]);
        assert_eq!(run_at(url, &["drain", "--sink", "partner"]).code, 0);
        assert_eq!(run_at(url, &["drain"]).code, 0);
        let span = ["replay", "--sink", "partner", "--from", "1h ago", "--to", "now"];
        let dry = run_at(url, &[&span[..], &["--dry-run"]].concat()).ok();
        assert!(dry.starts_with("would replay 1 message; 1 never delivered to this sink"), "{dry}");
        let dry = run_at(url, &[&span[..], &["--include-never-delivered", "--dry-run"]].concat()).ok();
        assert_eq!(dry, "would replay 2 messages; 1 of them for the first time\n");
        let done = run_at(url, &[&span[..], &["--yes", "--json"]].concat()).json();
        assert_eq!(
            done,
            json!({"matching": 1, "affected": 1, "never_delivered": 1, "remaining": 0, "missing": [], "dry_run": false})
        );
        assert_eq!(run_at(url, &["drain", "--sink", "partner"]).code, 0);

        for more in [&["--dry-run"][..], &["--yes"], &["--yes", "--include-never-delivered"]] {
            let mistyped = ["replay", "--sink", "partnre", "--from", "1h ago", "--to", "now"];
            let refused = run_at(url, &[&mistyped[..], more].concat());
            assert_eq!((refused.code, count(url, "pending")), (4, 0), "{}", refused.stderr);
            assert!(refused.stderr.contains("there is no sink \"partnre\""), "{}", refused.stderr);
        }
        // By its id alone, and an id that is not there is told.
        let one = run_at(url, &["replay", "--sink", "partner", &public, UNKNOWN, "--yes", "--json"]);
        let document: Value = serde_json::from_str(&one.stdout).unwrap();
        assert_eq!((one.code, &document["affected"], &document["missing"]), (4, &1.into(), &json!([UNKNOWN])));
        assert_eq!(count(url, "pending"), 1);
    }
}

#[tokio::test]
async fn ids_that_are_not_meant_are_named() {
    for Outbox { url, .. } in &outboxes().await {
        let dead = enqueue(url, &["t"]);
        kill_all(url);
        let pending = enqueue(url, &["t", "--delay", "1h"]);
        for verb in ["redrive", "discard"] {
            let none = run_at(url, &["dlq", verb, UNKNOWN, "--yes"]);
            assert_eq!(
                (none.code, none.stdout),
                (4, format!("no dead letters\nno dead letter of {UNKNOWN}\n")),
                "{verb}"
            );
        }
        let some = run_at(url, &["dlq", "redrive", &dead, UNKNOWN, &pending, "--yes", "--json"]);
        let document: Value = serde_json::from_str(&some.stdout).unwrap();
        assert_eq!((some.code, &document["affected"]), (4, &1.into()), "{document}");
        assert_eq!(document["missing"], json!([UNKNOWN, pending]));
        for verb in ["retry-now", "cancel"] {
            let some = run_at(url, &[verb, &pending, UNKNOWN, "--yes"]);
            assert_eq!(some.code, 4, "{verb}: {}", some.stdout);
            assert!(some.stdout.contains(&format!("no open delivery of {UNKNOWN}\n")), "{verb}: {}", some.stdout);
            assert!(!some.stdout.contains(&pending), "{verb}: {}", some.stdout);
        }
        assert_eq!(run_at(url, &["cancel", &dead, "--yes"]).ok(), "cancelled 1 delivery\n");
    }
}

#[tokio::test]
async fn prune_and_unclaim_count_and_ask_first() {
    let [postgres, sqlite] = outboxes().await;
    let many: Vec<String> = (0..2).map(|_| enqueue(&postgres.url, &["t"])).collect();
    postgres.sql("select count(*) from outbox.claim('w', 10, 600)").await;
    postgres.sql("update outbox.delivery set lease_expires_at = now() - interval '1 minute', claimed_at = now() - interval '7 minutes'").await;
    let dry = run_at(&postgres.url, &["unclaim-stuck", "--dry-run"]).ok();
    assert_eq!(dry, "would take back 2 messages\n");
    let dry = run_at(&postgres.url, &["unclaim-stuck", "--older-than", "10m", "--dry-run"]).ok();
    assert_eq!(dry, "would take back 2 messages\n", "what has ended is free, whatever its age");
    postgres.sql("update outbox.delivery set lease_expires_at = now() + interval '6 minutes'").await;
    let left = run_at(&postgres.url, &["unclaim-stuck", "--older-than", "0s", "--yes"]).ok();
    let words = "no lease has ended; 2 more under live leases (--live takes them)\n";
    assert_eq!((left.as_str(), count(&postgres.url, "leased")), (words, 2));
    let young = run_at(&postgres.url, &["unclaim-stuck", "--live", "--older-than", "10m", "--dry-run"]).ok();
    assert_eq!(young, "no lease has ended or was taken longer than 10m 00s ago\n");
    let dry = run_at(&postgres.url, &["unclaim-stuck", "--live", "--dry-run"]).ok();
    assert_eq!(dry, "would take back 2 messages, 2 of them under live leases\n");
    let asked = run_at(&postgres.url, &["unclaim-stuck", "--live"]);
    assert!(asked.stderr.contains("takes 2 messages away from workers"), "{}", asked.stderr);
    assert_eq!((asked.code, count(&postgres.url, "leased")), (2, 2), "{}", asked.stderr);
    assert!(asked.stderr.contains("there is no terminal to confirm it"), "{}", asked.stderr);
    let done = run_at(&postgres.url, &["unclaim-stuck", "--live", "--yes", "--json"]).json();
    assert_eq!(done, json!({"matching": 2, "affected": 2, "remaining": 0, "missing": [], "dry_run": false}));
    assert_eq!(last_entry(&postgres.url)["action"], "unclaim_stuck");
    assert_eq!(many.len(), 2);

    let url = &sqlite.url;
    for _ in 0..2 {
        enqueue(url, &["t"]);
    }
    assert_eq!(run_at(url, &["drain"]).code, 0);
    let dry = run_at(url, &["prune", "--older-than", "0s", "--dry-run"]).ok();
    assert_eq!(dry, "would drop 2 rows\n");
    let asked = run_at(url, &["prune", "--older-than", "0s"]);
    assert_eq!(asked.code, 2, "{}", asked.stdout);
    assert!(asked.stderr.contains("This drops 2 rows for good"), "{}", asked.stderr);
    assert_eq!(run_at(url, &["list", "--json"]).json()["items"].as_array().unwrap().len(), 2);
    let done = run_at(url, &["prune", "--older-than", "0s", "--yes", "--json"]).json();
    assert_eq!(done, json!({"matching": 2, "affected": 2, "remaining": 0, "missing": [], "dry_run": false}));
    assert_eq!(last_entry(url)["action"], "prune");
}

/// The database's login stands beside whoever the command line says it is.
#[tokio::test]
async fn the_audit_shows_the_login() {
    let [postgres, sqlite] = outboxes().await;
    for (url, login) in
        [(&postgres.url, Value::from(postgres.sql("select session_user").await)), (&sqlite.url, Value::Null)]
    {
        run_at(url, &["sinks", "pause", "default"]).ok();
        let entry = last_entry(url);
        assert_eq!(entry["db_user"], login, "{entry}");
        assert!(entry["actor"].as_str().unwrap().contains('@'), "{entry}");
    }
    postgres.sql("select outbox.configure_sink('default', paused => false)").await;
    assert_eq!(last_entry(&postgres.url)["action"], "resume", "SQL by hand is audited, too");
    assert!(run_at(&postgres.url, &["audit"]).ok().contains("LOGIN"));
}
