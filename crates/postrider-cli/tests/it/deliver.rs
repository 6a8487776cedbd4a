//! `postrider run` and `postrider drain`, on both stores: what is written to stdout, what is left, how it ends.

use std::fs::File;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::Uri;
use axum::routing::any;
use serde_json::Value;

use crate::support::{Outbox, Ran, command, finish, outboxes, run_at, sql};

fn enqueue(outbox: &Outbox, args: &[&str]) -> String {
    let document = run_at(&outbox.url, &[&["enqueue", "--json", "--topic", "t"], args].concat()).json();
    document["message_id"].as_str().unwrap().to_owned()
}

/// How the default sink stands.
fn standing(outbox: &Outbox) -> Value {
    run_at(&outbox.url, &["status", "--json"]).json()["items"][0].clone()
}

#[tokio::test]
async fn a_message_is_one_line_with_everything_it_says() {
    for outbox in outboxes().await {
        let tenant = "tenant-1";
        let id = enqueue(
            &outbox,
            &[
                "--payload",
                r#"{"n": 12345678901234567890, "x": 1.10}"#,
                "--namespace",
                "shop",
                "--tenant",
                tenant,
                "--lane",
                "order-7",
                "--dedupe-key",
                &format!("{tenant}/1"),
                "--priority",
                "5",
                "--header",
                "a=b",
                "--occurred-at",
                "2026-01-02T03:04:05.678Z",
                "--content-type",
                "application/vnd.order+json",
            ],
        );
        let drained = run_at(&outbox.url, &["drain"]);
        assert_eq!(drained.code, 0, "{}", drained.stderr);
        let expected = format!(
            "{{\"message_id\":\"{id}\",\"namespace\":\"shop\",\"topic\":\"t\",\"tenant_id\":\"{tenant}\",\
             \"lane\":\"order-7\",\"sequence_id\":1,\"dedupe_key\":\"{tenant}/1\",\"priority\":5,\
             \"headers\":{{\"a\":\"b\"}},\"payload\":{{\"n\": 12345678901234567890, \"x\": 1.10}},\
             \"content_type\":\"application/vnd.order+json\",\"occurred_at\":\"2026-01-02T03:04:05.678Z\",\
             \"attempt_no\":1}}\n"
        );
        assert_eq!(drained.stdout, expected);
        assert!(drained.stderr.starts_with("delivered 1, retried 0, dead 0, handed back 0, in "), "{}", drained.stderr);
        assert!(run_at(&outbox.url, &["show", &id]).ok().contains("attempt 1  DISPATCHED"));
    }
}

#[tokio::test]
async fn a_drain_leaves_what_is_not_due() {
    for outbox in outboxes().await {
        enqueue(&outbox, &["--payload", "1"]);
        let later = enqueue(&outbox, &["--payload", "2", "--delay", "1h"]);
        let drained = run_at(&outbox.url, &["drain", "--json"]);
        assert_eq!(drained.stdout.lines().count(), 1, "{}", drained.stdout);
        let account: Value = serde_json::from_str(&drained.stderr).unwrap();
        assert_eq!((&account["delivered"], &account["handed_back"]), (&1.into(), &0.into()), "{account}");
        let sink = standing(&outbox);
        assert_eq!((&sink["pending"], &sink["due"], &sink["leased"]), (&1.into(), &0.into(), &0.into()), "{sink}");
        assert!(run_at(&outbox.url, &["list", "--state", "pending"]).ok().contains(&later));
    }
}

/// Proves H6, as far as the command goes: cron starts it with next to no environment, from anywhere, without a terminal,
/// as often as it likes.
#[tokio::test]
async fn a_scheduler_can_start_a_drain() {
    for outbox in outboxes().await {
        let lines = (1..=1_200).map(|n| format!("{{\"topic\": \"t\", \"payload\": {n}, \"lane\": \"l{}\"}}\n", n % 7));
        let mut enqueue = command(&["enqueue"]);
        enqueue.env("DATABASE_URL", &outbox.url);
        finish(enqueue, lines.collect::<String>().as_bytes());
        let scheduled = || {
            let mut drain = command(&["drain", "--stdout", "--database-url", &outbox.url]);
            drain.env_clear().current_dir("/");
            finish(drain, b"")
        };
        let first = scheduled();
        assert_eq!(first.code, 0, "{}", first.stderr);
        let mut last = [0; 7];
        for line in first.stdout.lines() {
            let message: Value = serde_json::from_str(line).unwrap();
            let payload = usize::try_from(message["payload"].as_u64().unwrap()).unwrap();
            assert!(last[payload % 7] < payload, "each lane in order: {line}");
            last[payload % 7] = payload;
        }
        assert_eq!(first.stdout.lines().count(), 1_200);
        let again = scheduled();
        assert_eq!((again.code, again.stdout.as_str()), (0, ""), "{}", again.stderr);
        assert!(again.stderr.starts_with("delivered 0, "), "{}", again.stderr);
    }
}

/// A destination that fails is no error of the drain: the messages are due again later.
#[tokio::test]
async fn a_drain_that_cannot_deliver_counts_retries() {
    for outbox in outboxes().await {
        enqueue(&outbox, &["--payload", "1"]);
        let mut drain = command(&["drain", "--stdout"]);
        drain.env("DATABASE_URL", &outbox.url).stdout(File::options().write(true).open("/dev/full").unwrap());
        let output = drain.stderr(Stdio::piped()).output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(0), "{stderr}");
        assert!(stderr.starts_with("delivered 0, retried 1, dead 0, handed back 0, in "), "{stderr}");
        assert_eq!(standing(&outbox)["pending"], 1);
    }
}

#[tokio::test]
async fn only_the_named_sinks_are_delivered() {
    for outbox in outboxes().await {
        enqueue(&outbox, &["--payload", "1"]);
        let other = run_at(&outbox.url, &["drain", "--sink", "audit", "--sink", "kafka"]);
        assert_eq!((other.code, other.stdout.as_str()), (0, ""), "{}", other.stderr);
        let both = run_at(&outbox.url, &["drain", "--sink", "audit", "--sink", "default"]);
        assert_eq!((both.code, both.stdout.lines().count()), (0, 1), "{}", both.stderr);
    }
}

/// Proves M10 and P10 at the command line: what does not go together is refused before anything is delivered.
#[tokio::test]
async fn options_that_do_not_go_together_are_refused() {
    for outbox in outboxes().await {
        enqueue(&outbox, &["--payload", "1"]);
        let cases: &[(&[&str], &str)] = &[
            (
                &["run", "--lease", "3s", "--poll", "1001ms", "--deadline", "1s"],
                "poll at most every third of the lease",
            ),
            (&["run", "--lease", "30s", "--deadline", "30s"], "must end before the lease does"),
            (&["drain", "--lease", "30s", "--deadline", "30s"], "must end before the lease does"),
            (&["run", "--batch-size", "0"], "batch_size must be between 1 and 10000"),
            (&["run", "--sink", ""], "is not 1 to 255 bytes long"),
            (&["run", "--sink", "a", "--sink", "a"], "two sinks named \"a\""),
            (&["run", "--worker-id", ""], "worker_id must be 1 to 255 bytes"),
            (&["run", "--rate", "0"], "invalid value '0'"),
            (&["run", "--lease", "soon"], "is not a duration"),
            (&["run", "--max-memory-bytes", "64MB"], "is not a size"),
            (&["run", "--log", "a=b=c"], "the log filter"),
        ];
        for (args, says) in cases {
            let Ran { code, stdout, stderr } = run_at(&outbox.url, args);
            assert_eq!((code, stdout.as_str()), (2, ""), "{args:?}: {stderr}");
            assert!(stderr.starts_with("error: ") && stderr.contains(says), "{args:?}: {stderr}");
        }
        assert_eq!(standing(&outbox)["pending"], 1);
    }
}

/// A producer's role may not deliver, and is told so at the start; a relay's may.
#[tokio::test]
async fn a_role_that_may_not_deliver_is_told_at_once() {
    let database = postrider_testkit::Cluster::start().await.database().await;
    run_at(&database.url(), &["migrate", "roles"]).ok();
    sql(&database, "create role shop login in role outbox_producer; create role site login in role outbox_relay").await;
    run_at(&database.url_as("shop"), &["enqueue", "--topic", "t", "--payload", "1"]).ok();
    for args in [["run", "--json"], ["drain", "--json"]] {
        let denied = run_at(&database.url_as("shop"), &args);
        assert_eq!((denied.code, &denied.error()["code"]), (7, &"denied".into()), "{}", denied.stderr);
    }
    let drained = run_at(&database.url_as("site"), &["drain"]);
    assert_eq!((drained.code, drained.stdout.lines().count()), (0, 1), "{}", drained.stderr);
}

/// Calls in flight: of each sink, and of both together. Each with the most there ever were.
#[derive(Default)]
struct InFlight {
    now: [AtomicUsize; 3],
    most: [AtomicUsize; 3],
}

async fn count_calls(State(calls): State<Arc<InFlight>>, uri: Uri) {
    let counted = [usize::from(uri.path() != "/a"), 2];
    for at in counted {
        calls.most[at].fetch_max(calls.now[at].fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
    }
    // How long a call takes: long enough for all that may be made at once.
    tokio::time::sleep(Duration::from_millis(50)).await;
    for at in counted {
        calls.now[at].fetch_sub(1, Ordering::SeqCst);
    }
}

/// Proves P12: each sink has at most its own number of calls in flight, and all sinks together at most the process's.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_concurrency_of_the_process_binds_over_all_sinks() {
    for outbox in outboxes().await {
        let calls = Arc::new(InFlight::default());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = Router::new().fallback(any(count_calls)).with_state(Arc::clone(&calls));
        tokio::spawn(async move { axum::serve(listener, router).await });
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("postrider.toml");
        let sinks =
            ["a", "b"].map(|sink| format!("[sinks.{sink}]\nconcurrency = 3\nhttp.url = \"http://{address}/{sink}\"\n"));
        std::fs::write(&file, format!("[relay]\nconcurrency = 4\n{}", sinks.concat())).unwrap();
        for sink in ["a", "b"] {
            run_at(&outbox.url, &["routes", "add", "t", sink]).ok();
        }
        let mut add = command(&["enqueue"]);
        add.env("DATABASE_URL", &outbox.url);
        assert_eq!(finish(add, "{\"topic\": \"t\", \"payload\": 1}\n".repeat(20).as_bytes()).code, 0);
        let words = run_at(&outbox.url, &["drain", "--config", file.to_str().unwrap()]).ok_with_words();
        assert!(words.starts_with("delivered 40,"), "{words}");
        let most = [0, 1, 2].map(|at| calls.most[at].load(Ordering::SeqCst));
        assert!(most[0] <= 3 && most[1] <= 3 && most[2] == 4, "{most:?}");
    }
}
