//! Several processes on one file. Workers claim, write what they received into a table of the application, and report;
//! some are killed in the middle of it, again and again. At the end nothing is missing and every lane is in order.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use postrider::lifecycle::{Claim, Completion, Outcome};
use postrider::{Message, Queue as _, SqliteStore};
use rusqlite::{Connection, params};

use super::Site;

const MESSAGES: i64 = 4000;
const BATCH: i64 = 100;
const LANES: i64 = 40;
const PROCESSES: usize = 4;
const LEASE: Duration = Duration::from_secs(1);
/// How long a worker is at work on a batch, so that it can be met with one in hand.
const WORK: Duration = Duration::from_millis(10);
/// Set for a child process: the file it works on. The same test is then the worker.
const WORKER_PATH: &str = "POSTRIDER_SQLITE_WORKER";

fn spawn_worker(test: &str, site: &Site) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(WORKER_PATH, site.path())
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

/// A worker process: claims, receives, reports. Ends when it is killed.
async fn work(path: &str) {
    let store = SqliteStore::open(path).unwrap();
    let log = Connection::open(path).unwrap();
    log.busy_timeout(Duration::from_secs(30)).unwrap();
    let worker = format!("worker-{}", std::process::id());
    loop {
        let claim = Claim::new(&worker).batch_size(50).lane_run(5).lease(LEASE).max_attempts(1_000_000);
        let held = store.claim(&claim).await.unwrap();
        if held.is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
            continue;
        }
        log.execute_batch("begin immediate").unwrap();
        for one in &held {
            log.prepare_cached("insert into received (message_id, lane, sequence_id) values (?1, ?2, ?3)")
                .unwrap()
                .execute(params![one.message_id, one.lane, one.sequence_id])
                .unwrap();
        }
        log.execute_batch("commit").unwrap();
        tokio::time::sleep(WORK).await;
        let outcomes: Vec<Completion> = held.iter().map(|one| Completion::new(one, Outcome::Dispatched)).collect();
        store.complete(&worker, &outcomes).await.unwrap();
    }
}

fn with_log() -> Site {
    let site = Site::new();
    site.app
        .execute_batch(
            "create table received (n integer primary key, message_id blob not null, lane text, sequence_id integer)",
        )
        .unwrap();
    site
}

/// Writes a batch, of which nine in ten have a lane.
async fn produce(site: &Site, nth: i64) {
    let messages: Vec<Message> = (0..BATCH)
        .map(|n| {
            let message = Message::json("t", &n).unwrap();
            if n % 10 == 0 { message } else { message.lane(format!("lane-{}", (n * 7 + nth) % LANES)) }
        })
        .collect();
    site.store.enqueue(&messages).await.unwrap();
}

/// Waits until one of the workers holds something; which one. `None`: all is done.
async fn someone_at_work(site: &Site, workers: &[Child]) -> Option<usize> {
    while site.number("select count(*) from outbox_delivery") > 0 {
        let mut holders = site.app.prepare_cached("select claimed_by from outbox_in_flight").unwrap();
        let holders = holders.query_map([], |row| row.get::<_, String>(0)).unwrap();
        for holder in holders.map(Result::unwrap) {
            let found = workers.iter().position(|worker| holder == format!("worker-{}", worker.id()));
            if found.is_some() {
                return found;
            }
        }
        tokio::task::yield_now().await;
    }
    None
}

async fn until_all_is_delivered(site: &Site) {
    let deadline = Instant::now() + Duration::from_mins(3);
    let delivered = "select count(*) from outbox_attempt where state = 'DISPATCHED'";
    while site.number(delivered) < MESSAGES {
        assert!(Instant::now() < deadline, "only {} of {MESSAGES} delivered", site.number(delivered));
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

fn end(workers: Vec<Child>) {
    for mut worker in workers {
        assert_eq!(worker.try_wait().unwrap(), None, "a worker ended by itself");
        worker.kill().unwrap();
        worker.wait().unwrap();
    }
}

fn assert_nothing_is_lost(site: &Site) {
    assert_eq!(site.number("select count(*) from outbox_message"), MESSAGES);
    assert_eq!(
        site.number("select count(*) from outbox_delivery") + site.number("select count(*) from outbox_dead_letter"),
        0
    );
    assert_eq!(site.number("select count(distinct message_id) from received"), MESSAGES, "every message arrived");
    let gaps = "select count(*) from (select count(*) as n, max(attempt_no) as high, \
                count(*) filter (where state = 'DISPATCHED') as delivered from outbox_attempt group by message_id) \
                where high <> n or delivered <> 1";
    assert_eq!(site.number(gaps), 0, "attempts are 1..n without gaps, one of them delivered");
    let disorder = "select count(*) from (select sequence_id, lag(sequence_id) over (partition by lane order by n) as before \
                    from (select lane, sequence_id, min(n) as n from received where lane is not null \
                    group by lane, sequence_id)) where sequence_id <> coalesce(before, 0) + 1";
    assert_eq!(site.number(disorder), 0, "first arrivals of a lane are in order, without a hole");
    let check: String = site.app.query_row("pragma integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(check, "ok");
}

/// Workers drain what is produced beside them; with `kill`, each batch costs one that has work its life. `test` is the
/// caller, as which a worker process runs too: then this returns nothing.
async fn drain_by_processes(test: &str, kill: bool) -> Option<Site> {
    if let Ok(path) = std::env::var(WORKER_PATH) {
        work(&path).await;
        return None;
    }
    let site = with_log();
    let mut workers: Vec<Child> = (0..PROCESSES).map(|_| spawn_worker(test, &site)).collect();
    for nth in 0..MESSAGES / BATCH {
        produce(&site, nth).await;
        let victim = if kill { someone_at_work(&site, &workers).await } else { None };
        if let Some(at) = victim {
            workers[at].kill().unwrap();
            workers[at].wait().unwrap();
            workers[at] = spawn_worker(test, &site);
        }
    }
    until_all_is_delivered(&site).await;
    end(workers);
    assert_nothing_is_lost(&site);
    Some(site)
}

/// Proves E2, E11, P2: several processes share one file: each message is handed out once, lanes stay in order.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn heavy_processes_share_a_file() {
    let test = "sqlite::processes::heavy_processes_share_a_file";
    let Some(site) = drain_by_processes(test, false).await else { return };
    let busy = site.number("select count(distinct worker_id) from outbox_attempt");
    assert!(busy > 1, "only one process had work");
}

/// Proves E11, L5, M5, P13: processes that are killed in the middle of their work lose nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn heavy_killed_processes_lose_nothing() {
    let test = "sqlite::processes::heavy_killed_processes_lose_nothing";
    let Some(site) = drain_by_processes(test, true).await else { return };
    let zombies = site.number("select count(*) from outbox_attempt where state = 'ZOMBIE_REQUEUE'");
    println!("{zombies} leases ran out");
    assert!(zombies > 0, "nobody died with a message in hand");
}
