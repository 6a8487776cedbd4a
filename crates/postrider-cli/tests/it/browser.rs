//! The web page, in a real browser, against a real `postrider run` on a real database, delivering to a receiver that
//! refuses until it is told to accept. The stories themselves are Node programs in `tests/browser/`; each fails on
//! anything the page logs as an error, breaks of the content security policy included.

use std::io::{BufRead, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Html;
use axum::routing::{get, post};
use postrider_testkit::{Database, database, story};
use tempfile::TempDir;
use tokio::net::TcpListener;

use crate::receive::{Receiver, drained};
use crate::support::{command, outboxes, run, sql};

const TOKEN: &str = "the-operators-token";
const PATIENCE: Duration = Duration::from_mins(1);

/// Tries everything a message can try in a page, and carries a number that JavaScript cannot hold.
const HOSTILE: &str = r#"{"note": "<img src=x onerror=\"window.pwned = 1; alert(1)\"></script><script>window.pwned = 2</script>", "n": 12345678901234567890}"#;

/// What the receiver does with messages.
enum Accepts {
    FromTheStart,
    WhenTold,
}

/// Refuses with 422, which is final, until it accepts: from the start, or once it is told to at `/accept`.
async fn receiver(accepts: Accepts) -> String {
    async fn take(State(accepts): State<Arc<AtomicBool>>) -> (StatusCode, &'static str) {
        if accepts.load(Ordering::SeqCst) {
            (StatusCode::OK, "thanks")
        } else {
            (StatusCode::UNPROCESSABLE_ENTITY, "the order has no customer")
        }
    }
    async fn accept(State(accepts): State<Arc<AtomicBool>>) {
        accepts.store(true, Ordering::SeqCst);
    }
    let neutral = get(async || Html("<!doctype html><title>another site</title><body></body>"));
    let router = Router::new().route("/events", post(take)).route("/accept", post(accept)).route("/neutral", neutral);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let router = router.with_state(Arc::new(AtomicBool::new(matches!(accepts, Accepts::FromTheStart))));
    tokio::spawn(async move { axum::serve(listener, router).await });
    format!("http://{address}")
}

/// A relay with its page, until it is dropped.
struct World {
    database: Database,
    receiver: String,
    page: String,
    relay: Child,
    _directory: TempDir,
}

impl World {
    async fn start(accepts: Accepts) -> Self {
        Self::start_with(accepts, "").await
    }

    /// With this in `[admin]` of its configuration.
    async fn start_with(accepts: Accepts, admin: &str) -> Self {
        let database = database().await;
        let receiver = receiver(accepts).await;
        let directory = tempfile::tempdir().unwrap();
        let config = directory.path().join("postrider.toml");
        std::fs::write(&config, format!("[sinks.default.http]\nurl = \"{receiver}/events\"\n[admin]\n{admin}\n"))
            .unwrap();
        let mut relay = command(&["run", "--listen", "127.0.0.1:0", "--config", config.to_str().unwrap()]);
        relay.env("DATABASE_URL", database.url()).env("POSTRIDER_ADMIN_TOKEN", TOKEN).stderr(Stdio::piped());
        let mut relay = relay.spawn().unwrap();
        let mut said = BufReader::new(relay.stderr.take().unwrap());
        let page = address(&mut said);
        // What it says later is read, so that it never waits for a reader.
        std::thread::spawn(move || said.read_to_end(&mut Vec::new()));
        Self { database, receiver, page, relay, _directory: directory }
    }

    fn enqueue(&self, payload: &str, lane: Option<&str>) -> String {
        let lane = lane.map(|lane| vec!["--lane", lane]).unwrap_or_default();
        let args = [vec!["enqueue", "--json", "--topic", "order.paid", "--payload", payload], lane].concat();
        run(&self.database, &args).json()["message_id"].as_str().unwrap().to_owned()
    }

    async fn until_dead(&self, count: usize) {
        let begun = Instant::now();
        while sql(&self.database, "select count(*) from outbox.dead_letter").await != count.to_string() {
            assert!(begun.elapsed() < PATIENCE, "the receiver refused, and nothing died");
            tokio::task::yield_now().await;
        }
    }

    async fn tell(&self, name: &str, variables: &[(&str, &str)]) {
        let mut all = vec![("PAGE", self.page.as_str()), ("RECEIVER", &self.receiver), ("TOKEN", TOKEN)];
        all.extend(variables);
        let told = story(&[&stories().join(name)], &all).await;
        assert!(told.status.success(), "{name}:\n{}{}", told.stdout, told.stderr);
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let asked = Command::new("kill").arg(self.relay.id().to_string()).status();
        if !asked.is_ok_and(|status| status.success()) {
            let _ = self.relay.kill();
        }
        let _ = self.relay.wait();
    }
}

fn stories() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/browser")
}

/// Where it says that the page is.
fn address(said: &mut impl BufRead) -> String {
    let mut lines = Vec::new();
    for line in said.lines() {
        let line = line.unwrap();
        if let Some((_, rest)) = line.split_once("the page are at ") {
            let end = rest.find(|letter: char| letter.is_whitespace() || letter == '"').unwrap_or(rest.len());
            return rest[..end].to_owned();
        }
        lines.push(line);
    }
    panic!("it ended without saying where the page is: {lines:#?}");
}

#[tokio::test]
async fn a_dead_letter_is_inspected_redriven_and_seen_delivered() {
    let world = World::start(Accepts::WhenTold).await;
    world.enqueue(r#"{"first": true}"#, Some("customer-7"));
    let hostile = world.enqueue(HOSTILE, None);
    world.until_dead(2).await;
    world.tell("redrive.mjs", &[("MESSAGE", &hostile)]).await;
}

#[tokio::test]
async fn a_blocked_lane_is_explained_and_its_head_skipped() {
    let world = World::start(Accepts::WhenTold).await;
    let head = world.enqueue("1", Some("customer-7"));
    world.until_dead(1).await;
    let behind = world.enqueue("2", Some("customer-7"));
    world.tell("lanes.mjs", &[("MESSAGE", &behind), ("HEAD", &head)]).await;
}

#[tokio::test]
async fn a_sink_is_paused_and_resumed_by_who_signs_in() {
    let world = World::start_with(Accepts::FromTheStart, "loopback_reads_without_token = true").await;
    world.enqueue("1", None);
    world.tell("sinks.mjs", &[]).await;
}

#[tokio::test]
async fn an_unserved_sink_is_seen_and_a_message_is_found_by_what_is_known_of_it() {
    let world = World::start(Accepts::FromTheStart).await;
    run(&world.database, &["routes", "add", "bill.*", "billing"]).ok();
    let args = ["enqueue", "--json", "--topic", "bill.due", "--payload", "1", "--dedupe-key", "bill-7/due"];
    let message = run(&world.database, &args).json()["message_id"].as_str().unwrap().to_owned();
    world.enqueue("2", None);
    world.tell("search.mjs", &[("MESSAGE", &message)]).await;
}

#[tokio::test]
async fn where_there_is_a_token_the_page_asks_for_it() {
    let world = World::start(Accepts::FromTheStart).await;
    world.enqueue("1", None);
    world.tell("sign-in.mjs", &[]).await;
}

#[tokio::test]
async fn no_other_site_shows_the_page_in_a_frame() {
    let world = World::start(Accepts::FromTheStart).await;
    world.tell("framing.mjs", &[]).await;
}

#[tokio::test]
async fn a_page_that_was_rebound_to_this_machine_reads_and_sends_nothing() {
    let world = World::start(Accepts::FromTheStart).await;
    let [_, outbox] = outboxes().await;
    let receiver = Receiver::start(&outbox, &[]);
    world.tell("rebound.mjs", &[("RECEIVE", &receiver.url)]).await;
    assert_eq!(drained(&outbox).len(), 0);
}

#[tokio::test]
async fn what_waits_is_retried_and_cancelled() {
    let world = World::start(Accepts::FromTheStart).await;
    let later = |lane: &[&str]| {
        let args = ["enqueue", "--json", "--topic", "order.paid", "--payload", "1", "--delay", "1h"];
        run(&world.database, &[&args, lane].concat()).json()["message_id"].as_str().unwrap().to_owned()
    };
    let (first, second) = (later(&[]), later(&[]));
    for _ in 0..2 {
        later(&["--lane", "rest"]);
    }
    world.tell("deliveries.mjs", &[("FIRST", &first), ("SECOND", &second)]).await;
}

#[tokio::test]
async fn every_view_fits_a_phone_and_a_desk_in_light_and_dark() {
    let world = World::start(Accepts::WhenTold).await;
    let long = "a-lane-with-a-name-that-is-far-too-long-for-any-phone-".repeat(4);
    let message = world.enqueue(HOSTILE, Some(&long));
    world.until_dead(1).await;
    world.tell("views.mjs", &[("MESSAGE", &message)]).await;
}

#[tokio::test]
async fn what_the_page_computes_is_right() {
    let told = story(&[Path::new("--test"), &stories().join("pure.test.mjs")], &[]).await;
    assert!(told.status.success(), "{}{}", told.stdout, told.stderr);
}
