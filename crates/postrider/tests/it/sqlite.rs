//! What is SQLite's own about the embedded store: the application's file and its transactions, what is written there by
//! hand, files that cannot be used, threads, and files made by other builds. What every store promises is in
//! `contract.rs`; several processes on one file are in `sqlite/processes.rs`.

mod files;
mod processes;
mod scale;

use std::path::PathBuf;
use std::time::Duration;

use postrider::inspect::PageRequest;
use postrider::lifecycle::Completion;
use postrider::lifecycle::{Claim, Outcome};
use postrider::operate::{Action, Pruned};
use postrider::{ErrorKind, Message, Operate as _, Outbox, Queue as _, SqliteStore};
use postrider::{Inspect as _, sqlite};
use rusqlite::{Connection, TransactionBehavior};
use sqlx::{Connection as _, Row as _, SqliteConnection};
use tempfile::TempDir;
use uuid::Uuid;

fn message(topic: &str) -> Message {
    Message::json(topic, &serde_json::json!({"id": 7})).unwrap()
}

/// A directory of its own, a file in it, a store on the file, and an application's connection to it.
struct Site {
    directory: TempDir,
    store: SqliteStore,
    app: Connection,
}

impl Site {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let store = SqliteStore::open(directory.path().join("app.db")).unwrap();
        let app = Connection::open(store.path()).unwrap();
        app.busy_timeout(Duration::from_secs(30)).unwrap();
        app.execute_batch("create table orders (id integer primary key)").unwrap();
        Self { directory, store, app }
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("app.db")
    }

    fn number(&self, sql: &str) -> i64 {
        self.app.query_row(&format!("select ({sql})"), [], |row| row.get(0)).expect(sql)
    }

    /// Orders and messages that are there.
    fn counts(&self) -> (i64, i64) {
        (self.number("select count(*) from orders"), self.number("select count(*) from outbox_message"))
    }

    async fn claim(&self, batch_size: u32) -> Vec<postrider::lifecycle::Claimed> {
        self.store.claim(&Claim::new("w").batch_size(batch_size)).await.unwrap()
    }

    /// Each of these statements is a violation of a constraint.
    #[track_caller]
    fn assert_refused(&self, statements: &[&str]) {
        for sql in statements {
            let error = self.app.execute(sql, []).expect_err(sql);
            assert_eq!(error.sqlite_error_code(), Some(rusqlite::ErrorCode::ConstraintViolation), "{sql}: {error}");
        }
    }

    async fn deliver_all(&self) -> usize {
        let held = self.claim(1000).await;
        let completions: Vec<Completion> = held.iter().map(|one| Completion::new(one, Outcome::Dispatched)).collect();
        self.store.complete("w", &completions).await.unwrap().len()
    }
}

/// Proves M1, E11: rusqlite. Commit both, roll back both; a transaction that is dropped is rolled back.
#[tokio::test]
async fn a_rusqlite_transaction_commits_both_or_neither() {
    let mut site = Site::new();
    for (nth, end) in [(0, "rollback"), (0, "drop"), (1, "commit")] {
        let tx = site.app.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
        tx.execute("insert into orders default values", []).unwrap();
        let enqueued = sqlite::enqueue(&tx, &message("order.placed").lane("a").dedupe_key("k")).unwrap();
        assert_eq!((enqueued.created, enqueued.sequence_id), (true, Some(1)), "a rollback leaves no hole: {end}");
        match end {
            "commit" => tx.commit().unwrap(),
            "rollback" => tx.rollback().unwrap(),
            _ => drop(tx),
        }
        assert_eq!(site.counts(), (nth, nth), "{end}");
    }
    assert_eq!(site.claim(10).await[0].topic, "order.placed");
}

/// Proves M1, E11: sqlx, with its transaction and with a bare connection in one.
#[tokio::test]
async fn a_sqlx_transaction_commits_both_or_neither() {
    let site = Site::new();
    let outbox = Outbox::default();
    let url = format!("sqlite://{}", site.path().display());
    let mut connection = SqliteConnection::connect(&url).await.unwrap();
    for (nth, commit) in [(1, true), (1, false), (2, true)] {
        let mut tx = connection.begin().await.unwrap();
        sqlx::query("insert into orders default values").execute(&mut *tx).await.unwrap();
        let enqueued = outbox.enqueue(&mut tx, &message("order.placed").lane("a")).await.unwrap();
        assert_eq!(enqueued.sequence_id, Some(if commit { nth } else { nth + 1 }));
        let end = if commit { tx.commit().await } else { tx.rollback().await };
        end.unwrap();
        assert_eq!(site.counts(), (nth, nth), "commit: {commit}");
    }
    for (nth, end) in [(3, "commit"), (3, "rollback")] {
        sqlx::query("begin immediate").execute(&mut connection).await.unwrap();
        sqlx::query("insert into orders default values").execute(&mut connection).await.unwrap();
        let batch = [message("order.placed").dedupe_key(end)];
        let enqueued = outbox.enqueue_many(&mut connection, &batch).await.unwrap();
        assert!(enqueued[0].created);
        assert_eq!(outbox.enqueue_many(&mut connection, &batch).await.unwrap()[0].message_id, enqueued[0].message_id);
        sqlx::query(end).execute(&mut connection).await.unwrap();
        assert_eq!(site.counts(), (nth, nth), "{end}");
    }
    let payload = sqlx::query("select payload from outbox_messages").fetch_one(&mut connection).await.unwrap();
    assert_eq!(payload.get::<String, _>(0), r#"{"id":7}"#);
}

/// A batch that fails in the middle leaves nothing, and the caller's transaction goes on; with either driver.
#[tokio::test]
async fn a_failed_batch_leaves_nothing_in_the_transaction() {
    let mut site = Site::new();
    site.app
        .execute_batch(
            "create trigger no_bad before insert on outbox_message when new.topic = 'bad' \
             begin select raise(abort, 'the application says no'); end",
        )
        .unwrap();
    let batch = [message("good").lane("a").dedupe_key("k"), message("bad")];
    let tx = site.app.transaction().unwrap();
    tx.execute("insert into orders default values", []).unwrap();
    let error = sqlite::enqueue_many(&tx, &batch).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused, "{error:?}");
    assert!(error.reason().is_some_and(|reason| reason.contains("says no")), "{error:?}");
    tx.commit().unwrap();
    assert_eq!(site.counts(), (1, 0));
    assert_eq!(site.number("select count(*) from outbox_lane_sequence, outbox_dedupe"), 0);

    let mut connection = SqliteConnection::connect(&format!("sqlite://{}", site.path().display())).await.unwrap();
    let mut tx = connection.begin().await.unwrap();
    sqlx::query("insert into orders default values").execute(&mut *tx).await.unwrap();
    let error = Outbox::default().enqueue_many(&mut tx, &batch).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused, "{error:?}");
    assert!(error.reason().is_some_and(|reason| reason.contains("says no")), "{error:?}");
    tx.commit().await.unwrap();
    assert_eq!(site.counts(), (2, 0));
}

/// Proves M1: an INSERT into `outbox_enqueue` is a message, in any language; the rules hold there too.
#[tokio::test]
async fn plain_sql_enqueues() {
    let site = Site::new();
    site.app
        .execute_batch(
            "begin; insert into orders default values; \
             insert into outbox_enqueue (topic, payload, lane) values ('order.placed', '{\"id\": 7}', 'a'); commit",
        )
        .unwrap();
    let held = site.claim(10).await.remove(0);
    assert_eq!((held.topic.as_str(), held.namespace.as_str(), held.sequence_id), ("order.placed", "default", Some(1)));
    assert_eq!((held.message_id.get_version_num(), held.message_id.get_variant()), (7, uuid::Variant::RFC4122));
    let off = held.claimed_at.duration_since(site.store.show(held.message_id).await.unwrap().unwrap().enqueued_at);
    assert!(off.unwrap() < Duration::from_mins(1));
    for wrong in [
        "(topic) values ('t')",
        "(topic, payload) values ('', '1')",
        "(payload) values ('1')",
        "(topic, payload) values ('t', 'no json')",
        "(topic, payload, body) values ('t', '1', x'00')",
        "(topic, payload, priority) values ('t', '1', 101)",
        "(topic, payload, headers) values ('t', '1', '[]')",
        "(topic, payload, headers) values ('t', '1', '{\"a\": 1}')",
        "(topic, payload, due_at, delay_us) values ('t', '1', 1, 1)",
        "(topic, payload, delay_us) values ('t', '1', -1)",
        "(topic, payload, due_at) values ('t', '1', 9223372036854775807)",
        "(topic, payload, due_at) values ('t', '1', 253402300800000000)",
        "(topic, payload, occurred_at) values ('t', '1', 253402300800000000)",
        "(topic, payload, occurred_at) values ('t', '1', -62135596800000001)",
        "(topic, payload, tenant_id) values ('t', '1', x'00')",
        "(topic, payload, tenant_id) values ('t', '1', '')",
        "(topic, payload, tenant_id) values ('t', '1', hex(zeroblob(128)))",
        "(topic, payload, tenant_id, dedupe_key) values ('t', '1', 'tenant-1', 'k')",
        "(topic, payload, tenant_id, dedupe_key) values ('t', '1', 'tenant-1', 'tenant-10/k')",
        "(topic, payload, tenant_id, dedupe_key) values ('t', '1', 'tenant-1', 'tenant1/k')",
        "(topic, payload, tenant_id, dedupe_key) values ('t', '1', '00000000-0000-0000-0000-0000-0000000', \
         '000000000000000000000000000000/k')",
        "(topic, payload, lane) values ('t', '1', '')",
        "(topic, body) values ('t', zeroblob(16777217))",
    ] {
        site.assert_refused(&[&format!("insert into outbox_enqueue {wrong}")]);
    }
    assert_eq!(site.counts(), (1, 1));
    assert_eq!(site.number("select last_sequence from outbox_lane_sequence"), 1);
}

/// Proves P4: attempts and messages are written once, whichever way one tries to change them.
#[tokio::test]
async fn attempts_are_append_only() {
    let site = Site::new();
    site.store.enqueue(&[message("t"), message("pending").delay(Duration::from_hours(1))]).await.unwrap();
    assert_eq!(site.deliver_all().await, 1);
    site.assert_refused(&[
        "update outbox_attempt set state = 'FAILED'",
        "delete from outbox_attempt",
        "insert or replace into outbox_attempt select message_id, sink, attempt_no, 'FAILED', 0, 0, 0, 'x', null, \
         null, null, null, null from outbox_attempt",
        "insert or ignore into outbox_attempt select * from outbox_attempt",
        "update outbox_message set topic = 'other'",
        "insert or replace into outbox_message select * from outbox_message",
        "delete from outbox_message where topic = 'pending'",
        "insert into outbox_attempt (message_id, sink, attempt_no, state, claimed_at, completed_at, worker_id) \
         values (x'00', 's', 1, 'NO_SUCH_STATE', 0, 0, 'w')",
    ]);
    assert_eq!(site.number("select count(*) from outbox_attempt where state = 'DISPATCHED'"), 1);
}

/// The audit is append-only, too, and an action that cannot be written down is not carried out.
#[tokio::test]
async fn the_audit_is_append_only() {
    let site = Site::new();
    let pause = Action::Pause { sink: "s".to_owned() };
    assert_eq!(site.store.operate("ann", &pause).await.unwrap().affected, 1);
    site.assert_refused(&[
        "update outbox_audit set actor = 'bob'",
        "delete from outbox_audit",
        "insert or replace into outbox_audit select id, at, affected, 'bob', action, detail from outbox_audit",
        "insert into outbox_audit (at, affected, actor, action, detail) values (0, 0, '', 'a', '{}')",
        "insert into outbox_audit (at, affected, actor, action, detail) values (0, 0, 'a', 'a', '1')",
    ]);
    let forbid = "create trigger not_mallory before insert on outbox_audit when new.actor = 'mallory' \
                  begin select raise(abort, 'not mallory'); end";
    site.app.execute_batch(forbid).unwrap();
    let error = site.store.operate("mallory", &Action::Resume { sink: "s".to_owned() }).await.unwrap_err();
    assert!(error.to_string().contains("not mallory"), "{error}");
    assert_eq!(site.number("select count(*) from outbox_sink where paused"), 1);
    assert_eq!(site.number("select count(*) from outbox_audit_log where actor = 'ann' and action = 'pause'"), 1);
}

fn id_of_age(days: u64) -> Uuid {
    let then = std::time::SystemTime::now() - Duration::from_hours(24 * days);
    let then = then.duration_since(std::time::UNIX_EPOCH).unwrap();
    Uuid::new_v7(uuid::Timestamp::from_unix(uuid::NoContext, then.as_secs(), 0))
}

/// Proves H8: what was delivered goes after the retention, which counts from the end of delivery, with its attempts; keys go
/// after their window. What is kept for ever is kept.
#[tokio::test]
async fn history_is_pruned_by_age() {
    let site = Site::new();
    let put = |days: u64, key: &str| {
        let id = id_of_age(days);
        let sql = "insert into outbox_enqueue (message_id, topic, payload, dedupe_key) values (?1, 't', '1', ?2)";
        site.app.execute(sql, rusqlite::params![id, key]).unwrap();
        id
    };
    let [ancient, old, young] = [put(40, "ancient"), put(8, "old"), put(6, "young")];
    assert_eq!(site.deliver_all().await, 3);
    let waiting = put(50, "waiting");
    let for_ever = "update outbox_setting set retention_seconds = null, dedupe_window_seconds = null";
    site.app.execute_batch(for_ever).unwrap();
    assert_eq!(site.store.prune().await.unwrap(), Pruned::default());
    site.app.execute_batch("update outbox_setting set retention_seconds = 604800").unwrap();
    assert_eq!(site.store.prune().await.unwrap(), Pruned::default(), "all of it ended just now");
    site.app.execute_batch("update outbox_setting set dedupe_window_seconds = 2592000").unwrap();
    site.app.execute_batch("drop trigger outbox_attempt_is_append_only").unwrap();
    for (id, days) in [(ancient, 40), (old, 8), (young, 6)] {
        let ended = "update outbox_attempt set completed_at = completed_at - ?2 * 86400000000 where message_id = ?1";
        site.app.execute(ended, rusqlite::params![id, days]).unwrap();
    }
    let pruned = site.store.prune().await.unwrap();
    let audit = site.store.audit(&PageRequest::first(10)).await.unwrap().items;
    let entries: Vec<_> = audit.iter().map(|entry| (&*entry.actor, entry.action.as_str(), entry.affected)).collect();
    assert_eq!(entries, [("local", "prune", 3)], "nobody was named");
    assert_eq!((pruned.partitions_dropped, pruned.rest_deleted, pruned.dedupe_deleted), (0, 2, 1));
    for (id, stays) in [(ancient, false), (old, false), (young, true), (waiting, true)] {
        assert_eq!(site.store.show(id).await.unwrap().is_some(), stays);
    }
    assert_eq!(site.number("select count(*) from outbox_attempt"), 1, "attempts go with their message");
    let again = site.store.enqueue(&[Message::json("t", &1).unwrap().dedupe_key("old")]).await.unwrap();
    assert_eq!((again[0].message_id, again[0].created), (old, false), "the window is longer than the retention");
    assert_eq!(site.deliver_all().await, 1, "the one that waited");
    let everything = Action::Prune { older_than: Some(Duration::ZERO) };
    assert_eq!(site.store.operate("ann", &everything).await.unwrap().affected, 3, "two messages and a key");
    assert_eq!(site.number("select count(*) from outbox_message"), 0);
}

/// Thousands of messages are pruned batch by batch, and not one is left.
#[tokio::test]
async fn a_long_history_is_pruned_as_a_whole() {
    let site = Site::new();
    let tx = site.app.unchecked_transaction().unwrap();
    for _ in 0..2500 {
        let sql = "insert into outbox_enqueue (message_id, topic, payload) values (?1, 't', '1')";
        tx.execute(sql, [id_of_age(8)]).unwrap();
    }
    tx.commit().unwrap();
    while site.deliver_all().await > 0 {}
    let ended = "drop trigger outbox_attempt_is_append_only; \
                 update outbox_attempt set completed_at = completed_at - 8 * 86400000000";
    site.app.execute_batch(ended).unwrap();
    assert_eq!(site.store.prune().await.unwrap().rest_deleted, 2500);
    assert_eq!(site.number("select (select count(*) from outbox_message) + (select count(*) from outbox_attempt)"), 0);
}

/// A claim that finds nothing does not wait for a writer, nor do questions; a claim that finds something does.
#[tokio::test]
async fn an_idle_claim_needs_no_write_lock() {
    let site = Site::new();
    site.store.enqueue(&[message("later").delay(Duration::from_hours(1)), message("x").lane("a")]).await.unwrap();
    assert_eq!(site.claim(1).await.len(), 1);
    site.app.execute_batch("begin immediate; insert into orders default values").unwrap();
    assert_eq!(site.claim(10).await.len(), 0);
    assert_eq!(site.store.status().await.unwrap()[0].leased, 1);
    let enqueue = tokio::spawn({
        let store = site.store.clone();
        async move { store.enqueue(&[message("now")]).await }
    });
    site.app.execute_batch("commit").unwrap();
    assert!(enqueue.await.unwrap().unwrap()[0].created);
}

/// Whoever cannot wait for the lock is told what holds it up.
#[test]
fn a_busy_file_is_said_to_be_busy() {
    let site = Site::new();
    site.app.execute_batch("begin immediate").unwrap();
    let other = Connection::open(site.path()).unwrap();
    other.busy_timeout(Duration::ZERO).unwrap();
    let error = sqlite::enqueue(&other, &message("t")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Busy, "{error:?}");
    assert!(error.to_string().contains("BEGIN IMMEDIATE"), "{error}");
}

/// A database without an outbox is said to have none, by either driver.
#[tokio::test]
async fn a_database_without_an_outbox_says_so() {
    let mut plain = Connection::open_in_memory().unwrap();
    let error = sqlite::enqueue(&plain, &message("t")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutboxMissing, "{error:?}");
    let mut connection = SqliteConnection::connect("sqlite::memory:").await.unwrap();
    let error = Outbox::default().enqueue(&mut connection, &message("t")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutboxMissing, "{error:?}");
    sqlite::migrate(&mut plain).unwrap();
    assert!(sqlite::enqueue(&plain, &message("t")).unwrap().created, "it is in whatever file the application has");
}

/// One store serves runtimes of every kind, one after the other, and its threads end with it.
#[test]
fn a_store_outlives_runtimes_and_its_threads_end_with_it() {
    let threads = || {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap();
        let names = tasks.filter_map(|task| std::fs::read_to_string(task.unwrap().path().join("comm")).ok());
        names.filter(|name| name.starts_with("postrider-")).count()
    };
    let site = Site::new();
    let store = site.store.clone();
    for builder in [tokio::runtime::Builder::new_current_thread, tokio::runtime::Builder::new_multi_thread] {
        let runtime = builder().enable_all().build().unwrap();
        runtime.block_on(store.enqueue(&[message("t")])).unwrap();
    }
    assert_eq!((site.counts().1, threads()), (2, 2));
    drop(site);
    assert_eq!(threads(), 2, "a clone is left");
    drop(store);
    let deadline = std::time::Instant::now() + Duration::from_secs(10);
    while threads() > 0 {
        assert!(std::time::Instant::now() < deadline, "a thread is left");
        std::thread::yield_now();
    }
}

/// Proves P16, L7: the views tell a person what the tables hold, with ids and times as text.
#[tokio::test]
async fn views_are_for_people() {
    let site = Site::new();
    let tenant = "tenant-1";
    let id = site.store.enqueue(&[message("t").tenant(tenant).lane("a"), message("dead")]).await.unwrap()[0].message_id;
    let held = site.claim(10).await;
    let dead = held.iter().find(|one| one.topic == "dead").unwrap();
    site.store.finish("w", dead, Outcome::Failed(postrider::lifecycle::Failure::new("E1", "no"))).await.unwrap();
    let text = |sql: &str| site.app.query_row(sql, [], |row| row.get::<_, String>(0)).expect(sql);
    assert_eq!(text("select message_id from outbox_messages where tenant_id is not null"), id.to_string());
    assert_eq!(text("select tenant_id from outbox_messages where lane = 'a'"), tenant.to_string());
    assert_eq!(text("select claimed_by || ' ' || message_id from outbox_in_flight"), format!("w {id}"));
    assert_eq!(
        text("select lease_token from outbox_in_flight"),
        held[0].lease_token.0.to_string()[..8],
        "a token is a right"
    );
    assert_eq!(text("select lane || ' ' || state from outbox_lanes"), "a leased");
    assert_eq!(text("select reason || ' ' || last_error_code from outbox_dead_letters"), "FAILED E1");
    assert_eq!(text("select state || ' ' || attempt_no from outbox_attempts"), "FAILED 1");
    assert_eq!(text("select group_concat(state) from (select state from outbox_deliveries order by 1)"), "dead,leased");
    assert_eq!(text("select leased || ' ' || dead from outbox_status"), "1 1");
    let (enqueued, year) = (text("select enqueued_at from outbox_messages"), text("select strftime('%Y-', 'now')"));
    assert!(enqueued.starts_with(&year) && enqueued.ends_with('Z'), "{enqueued}");
}

/// Proves E4, P16: what happened last is known for good.
#[tokio::test]
async fn what_happened_last_is_kept() {
    let site = Site::new();
    let set = |settings: &str| site.app.execute_batch(&format!("update outbox_setting set {settings}")).unwrap();
    set(
        "status_window_seconds = 1, sample_lag_seconds = 0.001, sample_every_seconds = 0.002, sample_reach_seconds = 0.002",
    );
    let reach = async || set("sample_reach_seconds = 3600");
    crate::watching::assert_last_outcomes_are_kept(&site.store, reach).await;
}

/// The clock counts milliseconds: a head that failed within the one it was written in goes alone all the same, and a run
/// whose lease ended is still taken over as a whole.
#[tokio::test]
async fn a_failed_head_goes_alone_within_one_tick() {
    let site = Site::new();
    let lane: Vec<Message> = (0..3).map(|_| message("t").lane("a")).collect();
    site.store.enqueue(&lane).await.unwrap();
    let held = site.claim(1).await;
    site.store.nack("w", &held[0], Duration::ZERO, postrider::lifecycle::Failure::default()).await.unwrap();
    site.app.execute_batch("update outbox_delivery set due_at = 1").unwrap();
    let alone = site.claim(10).await;
    assert_eq!(alone.iter().map(|one| one.sequence_id).collect::<Vec<_>>(), [Some(1)]);
    site.store.ack("w", &alone[0]).await.unwrap();
    assert_eq!(site.claim(10).await.len(), 2);
    site.app.execute_batch("update outbox_delivery set lease_expires_at = 1").unwrap();
    assert_eq!(site.claim(10).await.len(), 2);
}

/// What another program wrote and nobody can read is dead at once, and stops nobody else, in a lane or not.
#[tokio::test]
async fn an_unreadable_message_stops_nobody_else() {
    let site = Site::new();
    let surrogate = r#"insert into outbox_enqueue (topic, payload, headers) values ('t', '1', '{"a": "\ud800"}')"#;
    site.app.execute_batch(surrogate).unwrap();
    site.app
        .execute_batch("insert into outbox_enqueue (topic, payload, lane) values ('t', '1', cast(x'61ff' as text))")
        .unwrap();
    site.store.enqueue(&[message("t"), message("t").lane("b"), message("t").lane("a")]).await.unwrap();
    assert_eq!(site.claim(10).await.len(), 3);
    assert_eq!(site.number("select count(*) from outbox_dead_letter where error_code = 'UNREADABLE'"), 2);
    assert_eq!(site.number("select count(*) from outbox_attempt where state = 'FAILED'"), 2);
}

/// A claim whose caller has gone while the write lock was waited for leases nothing.
#[tokio::test]
async fn a_claim_that_nobody_waits_for_leases_nothing() {
    let mut site = Site::new();
    site.store.enqueue(&[message("t")]).await.unwrap();
    let lock = site.app.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
    let claim = Claim::new("w");
    let waited = tokio::time::timeout(Duration::from_millis(300), site.store.claim(&claim)).await;
    assert!(waited.is_err(), "the file is locked");
    lock.rollback().unwrap();
    // Behind the forsaken one, on the same thread.
    let held = site.store.claim(&claim).await.unwrap();
    assert_eq!((held.len(), held[0].attempt_no), (1, 1));
}
