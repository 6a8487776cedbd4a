//! What happens when relays die, stand still or run into a message that kills them. Each relay is a process of its own,
//! so that the kernel can end it at any instruction; the receiver is one file that all of them append to, so that its
//! line order is the order of arrival.

mod books;
mod child;
mod cuts;
mod log;
mod receiver;

use std::ops::Deref;
use std::path::Path;
use std::time::{Duration, Instant};

use postrider::Message;
use postrider_relay::RelayOptions;
use tempfile::TempDir;

use self::child::{Mood, Orders, RelayProcess};
use self::receiver::arrivals;
use crate::support::{self, PATIENCE};

const LEASE: Duration = Duration::from_secs(3);

/// A fresh outbox, and a directory for what its relays write.
struct Site {
    directory: TempDir,
    outbox: support::Site,
}

impl Deref for Site {
    type Target = support::Site;

    fn deref(&self) -> &support::Site {
        &self.outbox
    }
}

impl Site {
    async fn new() -> Self {
        Self { directory: tempfile::tempdir().expect("a temporary directory"), outbox: support::site().await }
    }

    fn orders(&self, worker_id: &str, mood: Mood) -> Orders {
        let mut orders = Orders::new(&self.database.url(), worker_id, self.directory.path(), mood);
        orders.lease = LEASE;
        orders
    }

    fn arrived(&self) -> usize {
        arrivals(&self.directory.path().join(child::RECEIVER)).messages.len()
    }

    async fn text(&self, sql: &str) -> String {
        self.client.query_one(sql, &[]).await.expect("query").get(0)
    }
}

/// Waits until it is so.
async fn until(what: &str, mut reached: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !reached() {
        assert!(Instant::now() < deadline, "waited {PATIENCE:?} in vain: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn message(payload: &str) -> Message {
    Message::json("t", payload).expect("json")
}

fn open(gate: &Path) {
    std::fs::write(gate, "").expect("open the gate");
}

const HISTORY: &str = "select coalesce(string_agg(attempt_no || ' ' || state || ' ' || worker_id, ', ' \
                       order by message_id, attempt_no), '') from outbox.attempts";

/// Proves P13. A killed relay's messages arrive through another one within its lease and a second; the default lease is
/// 120 seconds.
#[tokio::test]
async fn heavy_messages_of_a_killed_relay_arrive_through_another() {
    assert_eq!(RelayOptions::default().lease.as_secs(), 120);
    let site = Site::new().await;
    let in_lanes = (0..15).map(|n| message("in a lane").lane(format!("lane-{}", n % 3)));
    let messages: Vec<Message> = (0..15).map(|_| message("without a lane")).chain(in_lanes).collect();
    site.enqueue(&messages).await;
    let mut holding = site.orders("holding", Mood::Gate(site.directory.path().join("never")));
    // Three claims, each of five without a lane and one whole lane.
    holding.max_messages = 30;
    let holding = RelayProcess::start(&holding);
    // Each lane's first message, and all without a lane.
    until("the handlers hold messages", || site.arrived() == 18).await;
    site.until("select count(*) = 30 from outbox.in_flight where claimed_by = 'holding'").await;

    // The other relay is there and awake: what the first has no room for goes to it.
    let other = RelayProcess::start(&site.orders("other", Mood::Prompt));
    site.enqueue(&[message("for the other")]).await;
    site.until("select count(*) = 1 from outbox.attempts where worker_id = 'other'").await;

    let killed_at = Instant::now();
    holding.kill();
    site.until("select count(*) = 31 from outbox.attempts where worker_id = 'other' and state = 'DISPATCHED'").await;
    let took = killed_at.elapsed();
    println!("all arrived {took:?} after the kill; the lease is {LEASE:?}");
    assert!(took <= LEASE + Duration::from_secs(1), "it took {took:?}");
    assert_eq!(
        site.text("select string_agg(distinct state, ' ') from outbox.attempts where worker_id = 'holding'").await,
        "ZOMBIE_REQUEUE"
    );
    other.end().await;
}

/// Proves L6, M6. A relay that stood still past its lease is refused when it wakes: it says so once, records nothing
/// and gives nothing back. Its handler may have finished in the meantime, or not.
#[tokio::test]
async fn heavy_a_relay_that_wakes_after_its_lease_is_refused() {
    for finishes in [true, false] {
        let site = Site::new().await;
        let gate = site.directory.path().join("gate");
        let sleeper = RelayProcess::start(&site.orders("sleeper", Mood::Gate(gate.clone())));
        site.enqueue(&[message("slow").lane("lane")]).await;
        until("the handler holds the message", || site.arrived() == 1).await;
        sleeper.stop();

        let other = RelayProcess::start(&site.orders("other", Mood::Prompt));
        site.until("select count(*) = 1 from outbox.attempts where state = 'DISPATCHED'").await;
        if finishes {
            open(&gate);
        }
        sleeper.go_on();
        until("it says that it lost its lease", || sleeper.log().contains("lease lost")).await;
        // Ends when everything it did is recorded, so nothing can come after.
        let log = sleeper.end().await;
        let warnings: Vec<&str> = log.lines().filter(|line| line.contains("lease lost")).collect();
        println!("its handler finishes: {finishes}\n{log}");
        assert_eq!(warnings.len(), 1, "{log}");
        assert_eq!(site.text(HISTORY).await, "1 ZOMBIE_REQUEUE sleeper, 2 DISPATCHED other");
        other.end().await;
    }
}

/// Proves M5: a crash counts. A message that ends every process that touches it runs out of attempts and is dead; what
/// was claimed beside it is delivered, and nothing else dies.
#[tokio::test]
async fn heavy_a_message_that_aborts_its_relay_dies_alone() {
    const OTHERS: usize = 500;
    let site = Site::new().await;
    let mut messages: Vec<Message> = (0..OTHERS)
        .map(|n| if n % 3 == 0 { message("fine").lane(format!("lane-{}", n % 10)) } else { message("fine") })
        .collect();
    messages.insert(OTHERS / 2, message("poison"));
    site.enqueue(&messages).await;
    let mut orders = site.orders("mortal", Mood::AbortOn("poison".to_owned()));
    orders.lease = Duration::from_millis(1_500);
    orders.max_attempts = 5;

    let began = Instant::now();
    let mut restarts = 0;
    let mut relay = RelayProcess::start(&orders);
    while site.number("select count(*) from outbox.delivery").await > 0 {
        assert!(began.elapsed() < PATIENCE, "not done after {restarts} restarts: {}", relay.log());
        if relay.has_ended() {
            restarts += 1;
            relay = RelayProcess::start(&orders);
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    println!("done after {restarts} restarts and {:?}", began.elapsed());
    assert_eq!(
        site.text("select string_agg(payload::text || ' ' || reason, ', ') from outbox.dead_letters join outbox.messages using (message_id)")
            .await,
        "\"poison\" ATTEMPTS_EXHAUSTED"
    );
    assert_eq!(restarts, 5, "one for each attempt of the message");
    let delivered = "select count(*)::text from outbox.attempts where state = 'DISPATCHED'";
    assert_eq!(site.text(delivered).await, OTHERS.to_string());
    relay.end().await;
}
