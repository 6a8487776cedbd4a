//! `postrider status`, `list` and `show`: tables, the timeline, JSON.

use std::io::Read as _;
use std::process::{Command, Stdio};

use postrider_testkit::{Database, database};
use serde_json::Value;

use crate::support::{Outbox, command, filters, outboxes, run, run_at, sql};

const INVOICE: &str =
    "enqueue --topic invoice.due --lane customer-7 --dedupe-key i-1 --header source=shop --json --payload";

/// An invoice for two sinks with a history on both, and some orders. Attempts are given times of their own, so that
/// the timeline is the same in every run.
async fn story(database: &Database) -> String {
    sql(database, "select outbox.add_route('kafka', 'invoice.*'), outbox.add_route('webhook', 'invoice.*')").await;
    let mut args: Vec<&str> = INVOICE.split(' ').collect();
    args.push(r#"{"id": 12345678901234567890, "lines": [{"sku": "A-1", "price": 1.10}], "note": "Grüße"}"#);
    let id = run(database, &args).json()["message_id"].as_str().unwrap().to_owned();
    let attempts = format!(
        "insert into outbox.attempt (message_id, sink, attempt_no, state, worker_id, claimed_at, completed_at, latency_ms, \
         code, reference, error_code, error_message, answer) \
         select '{id}', a.sink, a.attempt_no, a.state::outbox.attempt_state, a.worker, t.at + a.claimed, t.at + a.completed, \
         a.latency, a.code, a.reference, a.error_code, a.error_message, a.answer \
         from outbox.message_id_time('{id}') t (at), (values \
         ('kafka', 1, 'DISPATCHED', 'relay-1', interval '10 ms', interval '31 ms', 19, null, 'p0@77', null, null, null), \
         ('webhook', 1, 'RETRYABLE', 'relay-1', '10 ms', '132 ms', 120, '503', null, 'HTTP_503', 'Service Unavailable', null), \
         ('webhook', 2, 'ZOMBIE_REQUEUE', 'relay-2', '1 s', '31 s', null, null, null, 'LEASE_EXPIRED', 'the lease ran out', null), \
         ('webhook', 3, 'FAILED', 'relay-1', '5 min', '312 s', 40, '422', null, 'HTTP_422', E'no such customer\\x1b[2J', \
         E'{{\"error\": {{\"code\": \"NO_CUSTOMER\"}}}}\\n\\tsee the manual') \
         ) a (sink, attempt_no, state, worker, claimed, completed, latency, code, reference, error_code, error_message, answer); \
         delete from outbox.delivery where message_id = '{id}' and sink = 'kafka'; \
         update outbox.delivery set due_at = 'infinity', attempt_no = 3, attempt_count = 3 where message_id = '{id}'; \
         insert into outbox.dead_letter (message_id, sink, died_at, reason, priority, size_bytes, lane, sequence_id, attempt_no, \
         attempt_count, parked) select '{id}', 'webhook', now(), 'FAILED', 0, 1, 'customer-7', 1, 3, 3, true"
    );
    sql(database, &attempts).await;
    for payload in ["1", "2", "3"] {
        run(database, &["enqueue", "--topic", "order.placed", "--payload", payload]).ok();
    }
    id
}

#[tokio::test]
async fn a_message_is_shown_with_its_timeline() {
    let database = database().await;
    let id = story(&database).await;
    let _bound = filters().bind_to_scope();
    insta::assert_snapshot!(run(&database, &["show", &id]).ok());
    let document = run(&database, &["show", &id, "--json"]).json();
    assert_eq!(document["attempts"][1]["error_code"], "HTTP_503");
    assert_eq!(document["attempts"].as_array().unwrap().len(), 4);
    let answers: Vec<&Value> = document["attempts"].as_array().unwrap().iter().map(|one| &one["answer"]).collect();
    assert_eq!(answers[..3], [&Value::Null; 3]);
    assert_eq!(answers[3], "{\"error\": {\"code\": \"NO_CUSTOMER\"}}\n\tsee the manual");
    assert_eq!(document["deliveries"][0]["state"], "dead");
    assert_eq!(document["headers"]["source"], "shop");
    assert!(document["enqueued_at"].as_str().unwrap().ends_with('Z'));
}

#[tokio::test]
async fn a_message_on_its_way_and_a_delivered_one() {
    let database = database().await;
    let waiting = ["enqueue", "--topic", "t", "--payload", "null", "--due-at", "2999-01-01T00:00:00Z", "--json"];
    let waiting = run(&database, &waiting).json()["message_id"].as_str().unwrap().to_owned();
    let shown = run(&database, &["show", &waiting]).ok();
    assert!(shown.contains("now ○ default  pending, due in "), "{shown}");
    let sent = run(&database, &["enqueue", "--topic", "t", "--payload", "1", "--json"]).json();
    let sent = sent["message_id"].as_str().unwrap();
    let leased = "select message_id from outbox.claim('relay-1', 1, 600)";
    assert_eq!(sql(&database, leased).await, sent);
    let shown = run(&database, &["show", sent]).ok();
    assert!(shown.contains("now ○ default  leased, attempt 1 by relay-1, 9m "), "{shown}");
    sql(&database, "select outbox.mark_delivered(lease_token, array[message_id]) from outbox.delivery where lease_token is not null").await;
    let shown = run(&database, &["show", sent]).ok();
    assert!(shown.contains("attempt 1  DISPATCHED") && shown.contains("now ○ delivered"), "{shown}");
    assert!(run(&database, &["list", "--state", "delivered"]).ok().contains(sent));
}

#[tokio::test]
async fn a_list_is_newest_first_and_goes_page_by_page() {
    let database = database().await;
    let id = story(&database).await;
    let list = run(&database, &["list"]).ok();
    let mut settings = filters();
    settings.add_filter(r"( \ds|\d\ds|now)  (pending|dead)", "<a>  $2");
    settings.bind(|| insta::assert_snapshot!(list));

    let page = run(&database, &["list", "--limit", "2", "--json"]).json();
    let next = page["next"].as_str().unwrap();
    let rest = run(&database, &["list", "--limit", "50", "--after", next, "--json"]).json();
    let states: Vec<_> = rest["items"].as_array().unwrap().iter().map(|m| m["state"].as_str().unwrap()).collect();
    assert_eq!((states.as_slice(), &rest["next"]), (&["pending", "dead"][..], &serde_json::Value::Null));

    for (filter, count) in [
        (&["--state", "dead"][..], 1),
        (&["--state", "leased"], 0),
        (&["--topic", "order.placed"], 3),
        (&["--lane", "customer-7"], 1),
        (&["--sink", "webhook"], 1),
        (&["--tenant", &id], 0),
    ] {
        let found = run(&database, &[&["list", "--json"], filter].concat()).json();
        assert_eq!(found["items"].as_array().unwrap().len(), count, "{filter:?}");
    }
    assert_eq!(run(&database, &["list", "--state", "leased"]).ok(), "no messages\n");
}

/// Proves P16 on the operator's side.
#[tokio::test]
async fn status_shows_every_sink() {
    let database = database().await;
    story(&database).await;
    sql(&database, "select outbox.configure_sink('kafka', true)").await;
    sql(&database, "select message_id from outbox.claim('relay-1', 1, 600)").await;
    let status = run(&database, &["status"]).ok();
    let mut settings = filters();
    settings.add_filter(r"(?m) +\d+m?s  (unserved|paused)$", "  <span>  $1");
    // On a busy machine it was a moment ago.
    settings.add_filter(r"(?m) +(now|\d+s ago)", "  <lately>");
    settings.bind(|| insta::assert_snapshot!(status));
    let document = run(&database, &["status", "--json"]).json();
    let webhook = &document["items"].as_array().unwrap().iter().find(|sink| sink["sink"] == "webhook").unwrap();
    assert_eq!((&webhook["dead"], &webhook["parked_lanes"]), (&1.into(), &1.into()));
    assert_eq!(
        webhook["recent"],
        serde_json::json!({"dispatched": 0, "retryable": 1, "failed": 1, "zombie_requeue": 1})
    );
}

/// `script` gives the command a terminal of its own.
#[tokio::test]
async fn colour_is_for_terminals_only() {
    let database = database().await;
    story(&database).await;
    let on_a_terminal = |no_color: &str| {
        let mut script = Command::new("script");
        script.args(["-qec", &format!("{} status", env!("CARGO_BIN_EXE_postrider")), "/dev/null"]);
        script.env("DATABASE_URL", database.url()).env("NO_COLOR", no_color).env("TERM", "xterm").stdin(Stdio::null());
        String::from_utf8(script.output().unwrap().stdout).unwrap()
    };
    assert!(on_a_terminal("").contains('\x1b'));
    assert!(!on_a_terminal("1").contains('\x1b'));
    assert!(!run(&database, &["status"]).ok().contains('\x1b'));
}

#[tokio::test]
async fn a_reader_that_has_had_enough_is_no_error() {
    let database = database().await;
    let many = "select count(*) from outbox.enqueue_many(array_fill('t'::text, array[5000]), array_fill('1'::jsonb, array[5000]))";
    sql(&database, many).await;
    for args in [&["list", "--limit", "5000"][..], &["list", "--limit", "5000", "--json"], &["migrate", "print"]] {
        let mut command = command(args);
        command.env("DATABASE_URL", database.url()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut first = [0; 1];
        child.stdout.take().unwrap().read_exact(&mut first).unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(
            (output.status.code(), String::from_utf8(output.stderr).unwrap()),
            (Some(0), String::new()),
            "{args:?}"
        );
    }
}

/// Listings and logs show the end of an id, and routes have taught everybody what `*` means.
#[tokio::test]
async fn a_message_is_found_by_what_is_known_of_it() {
    for Outbox { url, .. } in &outboxes().await {
        let put = |topic: &str, key: &str| {
            let args = ["enqueue", "--json", "--payload", "1", "--topic", topic, "--dedupe-key", key];
            run_at(url, &args).json()["message_id"].as_str().unwrap().to_owned()
        };
        let (placed, paid) = (put("order.placed", "7/placed"), put("order.paid", "7/paid"));
        let found = |args: &[&str]| {
            let document = run_at(url, &[&["list", "--json"], args].concat()).json();
            let ids = document["items"].as_array().unwrap().iter();
            ids.map(|line| line["message_id"].as_str().unwrap().to_owned()).collect::<Vec<_>>().join(" ")
        };
        let tail = &placed[placed.len() - 12..];
        assert_eq!(found(&["--id", tail]), placed);
        assert_eq!(found(&["--id", &format!("…{tail}")]), placed);
        assert_eq!(found(&["--dedupe-key", "7/paid"]), paid);
        assert_eq!(found(&["--topic", "order.*"]), format!("{paid} {placed}"));
        assert_eq!(found(&["--topic", "order.p?id"]), "");
        for args in [&["show", tail][..], &["explain", tail], &["show", "--dedupe-key", "7/placed"]] {
            let said = run_at(url, &[args, &["--json"]].concat()).json();
            assert_eq!(said["message_id"], *placed, "{args:?}");
        }
        let unknown = run_at(url, &["show", "00000000"]);
        assert!(
            unknown.code == 4 && unknown.stderr.contains("there is no message whose id ends with 00000000"),
            "{}",
            unknown.stderr
        );
        let wrong = run_at(url, &["show", "customer-7"]);
        assert!(wrong.code == 2 && wrong.stderr.contains("its last 4 or more hexadecimal digits"), "{}", wrong.stderr);
        assert_eq!(run_at(url, &["show"]).code, 2, "nothing is named");
    }
}
