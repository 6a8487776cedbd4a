//! What an operator is shown when something is wrong, at the command line and over the API: a sink that nobody serves, a
//! destination that refuses everything, a message with one attempt left. Real relays, on both stores. Commands are waited
//! for in the test itself, so the receivers need threads of their own.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use axum::Router;
use axum::http::StatusCode;
use axum::routing::any;
use serde_json::Value;
use tempfile::TempDir;
use tokio::net::TcpListener;

use crate::support::{Outbox, command, outboxes, run_at};

/// How long a state may take to come about on a busy machine.
const PATIENCE: Duration = Duration::from_mins(1);

/// Answers 503 to everything.
async fn refusing() -> String {
    let router = Router::new().fallback(any(|| async { (StatusCode::SERVICE_UNAVAILABLE, "closed for tonight") }));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, router).await });
    format!("http://{address}/")
}

/// `postrider run` with this configuration, ended with this value.
struct Relay {
    child: Child,
    _directory: TempDir,
}

impl Relay {
    fn start(url: &str, config: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("postrider.toml");
        std::fs::write(&file, config).unwrap();
        let mut run = command(&["run", "--config", file.to_str().unwrap()]);
        run.env("DATABASE_URL", url).stdout(Stdio::null()).stderr(Stdio::null());
        Self { child: run.spawn().unwrap(), _directory: directory }
    }

    /// Stops it without a chance to say good-bye.
    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        let asked = Command::new("kill").arg(self.child.id().to_string()).stderr(Stdio::null()).status();
        if !asked.is_ok_and(|status| status.success()) {
            let _ = self.child.kill();
        }
        let _ = self.child.wait();
    }
}

#[track_caller]
fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(begun.elapsed() < PATIENCE, "{what} does not come");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn sink(url: &str, name: &str) -> Value {
    let document = run_at(url, &["sinks", "--json"]).json();
    document["items"].as_array().unwrap().iter().find(|item| item["sink"] == name).cloned().unwrap_or(Value::Null)
}

fn finding(url: &str, check: &str) -> (Value, i32) {
    let ran = run_at(url, &["doctor", "--json"]);
    let document: Value = serde_json::from_str(&ran.stdout).unwrap();
    let found = document["findings"].as_array().unwrap().iter().find(|one| one["check"] == check);
    (found.cloned().unwrap_or(Value::Null), ran.code)
}

fn enqueue(url: &str, args: &[&str]) -> String {
    let args = [&["enqueue", "--payload", "1", "--json", "--topic"], args].concat();
    run_at(url, &args).json()["message_id"].as_str().unwrap().to_owned()
}

/// Retries soon, and opens the breaker after three failures for as long as a test takes.
fn hasty(name: &str, url: &str) -> String {
    format!(
        "[relay]\npoll = \"100ms\"\n[sinks.{name}]\nretry = {{ base = \"50ms\", max = \"50ms\", max_attempts = 1000 }}\n\
         breaker = {{ failures = 3, cool_down = \"10m\", cool_down_max = \"10m\" }}\nhttp.url = \"{url}\"\n"
    )
}

/// Every place shows the same word for a sink that no relay serves, and the doctor has a finding and advice for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sink_that_no_relay_serves_is_unserved_everywhere() {
    for Outbox { url, .. } in &outboxes().await {
        run_at(url, &["routes", "add", "bill.*", "billing"]).ok();
        for _ in 0..7 {
            enqueue(url, &["bill.due"]);
        }
        let _relay = Relay::start(url, "[sinks.default.stdout]\n");
        until("the relay's report", || (sink(url, "default")["state"] == "running").then_some(()));
        let billing = sink(url, "billing");
        assert_eq!((&billing["state"], &billing["relays"]), (&"unserved".into(), &0.into()), "{billing}");
        let status = run_at(url, &["status", "--json"]).json();
        assert_eq!(status["items"][0]["state"], "unserved", "{status}");
        for listing in ["sinks", "status"] {
            let said = run_at(url, &[listing]).ok();
            let line = said.lines().find(|line| line.starts_with("billing")).unwrap();
            assert!(line.contains("unserved") && !line.contains("running"), "{said}");
        }
        let (found, code) = finding(url, "unserved");
        assert_eq!((&found["level"], code), (&"bad".into(), 8), "{found}");
        assert!(found["seen"].as_str().unwrap().contains("sink billing: 7 messages pending, 7 due"), "{found}");
        assert!(found["fix"].as_str().unwrap().contains("[sinks.billing]"), "{found}");
        run_at(url, &["sinks", "pause", "billing"]).ok();
        assert_eq!(sink(url, "billing")["state"], "paused");
        assert_eq!(finding(url, "unserved").0["level"], "ok", "somebody decided that it waits");
    }
}

/// A destination that refuses everything is no "all is well", and its error is told wherever the breaker is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_open_breaker_is_found_and_explained_with_its_error() {
    for Outbox { url, .. } in &outboxes().await {
        let destination = refusing().await;
        for _ in 0..5 {
            enqueue(url, &["t"]);
        }
        let _relay = Relay::start(url, &hasty("default", &destination));
        until("the open breaker", || (sink(url, "default")["state"] == "breaker_open").then_some(()));
        let later = enqueue(url, &["t"]);
        let told = run_at(url, &["explain", &later, "--json"]).json()["deliveries"][0].clone();
        assert_eq!(told["code"], "BREAKER_OPEN", "{told}");
        assert!(told["why"].as_str().unwrap().contains("the last error was HTTP_503"), "{told}");
        assert!(told["advice"].as_str().unwrap().contains("postrider check"), "{told}");
        let (found, code) = finding(url, "breakers");
        assert_eq!((&found["level"], code), (&"bad".into(), 8), "{found}");
        let seen = found["seen"].as_str().unwrap();
        assert!(seen.contains("open at 1 of 1 relay") && seen.contains("HTTP_503"), "{found}");
        assert!(!run_at(url, &["doctor"]).stdout.contains("all is well"));
        let said = run_at(url, &["sinks"]).ok();
        assert!(said.contains("breaker open") && !said.contains("running"), "{said}");
    }
}

/// A message that is retried is told with how many attempts are left, and how to retry it at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_attempts_that_are_left_are_told() {
    for Outbox { url, .. } in &outboxes().await {
        let destination = refusing().await;
        let id = enqueue(url, &["t"]);
        let config = format!(
            "[sinks.default]\nretry = {{ base = \"1h\", max = \"1h\", max_attempts = 2 }}\nhttp.url = \"{destination}\"\n"
        );
        let _relay = Relay::start(url, &config);
        let told = until("the first failure", || {
            let told = run_at(url, &["explain", &id, "--json"]).json()["deliveries"][0].clone();
            (told["code"] == "RETRY_LATER").then_some(told)
        });
        let why = told["why"].as_str().unwrap();
        assert!(why.contains("attempt 1 of 2 failed at") && why.ends_with("; 1 attempt is left"), "{why}");
        assert!(told["advice"].as_str().unwrap().contains(&format!("postrider retry-now {id}")), "{told}");
        let shown = run_at(url, &["show", &id, "--json"]).json()["deliveries"][0].clone();
        assert_eq!((&shown["attempt_count"], &shown["max_attempts"]), (&1.into(), &2.into()), "{shown}");
    }
}

/// A relay that was killed while it held a message is missed before its lease ends.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_that_stopped_reporting_is_noticed() {
    for outbox in &outboxes().await {
        let Outbox { url, .. } = outbox;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        // Nobody answers: what was sent stays in the relay's hand.
        let destination = format!("http://{}/", listener.local_addr().unwrap());
        let id = enqueue(url, &["t"]);
        let config =
            format!("[relay]\nlease = \"10m\"\n[sinks.default]\ndeadline = \"5m\"\nhttp.url = \"{destination}\"\n");
        let mut relay = Relay::start(url, &config);
        let _taken = listener.accept().await.unwrap();
        until("the lease", || {
            let told = run_at(url, &["explain", &id, "--json"]).json()["deliveries"][0].clone();
            (told["code"] == "LEASED").then_some(())
        });
        relay.kill();
        let told = until("the missing report", || {
            let told = run_at(url, &["explain", &id, "--json"]).json()["deliveries"][0].clone();
            told["why"].as_str().unwrap().contains("has not reported for").then_some(told)
        });
        assert_eq!(told["code"], "LEASED", "{told}");
        assert!(told["why"].as_str().unwrap().contains("it reports every 10s"), "{told}");
        assert!(told["advice"].as_str().unwrap().contains("another relay takes the message over"), "{told}");
    }
}
