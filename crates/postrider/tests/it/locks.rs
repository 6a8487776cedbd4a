//! The locks of the outbox are its own. A login without rights takes whatever locks it can and keeps nobody from anything; a
//! session that has the rights and keeps a lock is named, by `doctor` and by a migration that waited for it.

use std::time::{Duration, Instant};

use postrider::doctor::{self, Level, Limits};
use postrider::{ErrorKind, PostgresStore, Schema, migrate};
use postrider_testkit::Database;
use tokio_postgres::Client;
use uuid::Uuid;

use crate::support::{
    claim, claim_with, complete, enqueue, enqueue_lanes, enqueue_plain, fresh, login, number, partitions_of_2020, run,
    sqlstate, texts, try_sql, until_blocked, with_roles,
};

/// Every mode of LOCK TABLE.
const MODES: [&str; 8] = [
    "access share",
    "row share",
    "row exclusive",
    "share update exclusive",
    "share",
    "share row exclusive",
    "exclusive",
    "access exclusive",
];

/// Advisory locks under every key that the outbox ever used, and under all that anybody holds just now.
async fn take_advisory_locks(stranger: &Client, token: Uuid) {
    let names = "array['migrate/outbox', 'partitions/outbox', 'measure/outbox', 'inbox/outbox', \
                 'inbox snapshots/outbox', 'lanes/outbox/default']";
    let computed = format!(
        "select pg_try_advisory_lock(hashtextextended('postrider/' || k, 0)) \
         from unnest({names} || array['claim/{token}']) k"
    );
    stranger.query(&computed, &[]).await.unwrap();
    let copied = "select pg_try_advisory_lock((l.classid::bigint << 32) | l.objid::bigint) from pg_locks l \
                  where l.locktype = 'advisory' and l.pid <> pg_backend_pid()";
    stranger.query(copied, &[]).await.unwrap();
}

/// Everything that takes a lock of the outbox's own, one after the other. `up` replaces the functions, too.
async fn everything_goes_on(client: &mut Client, dead: Uuid, token: Uuid) {
    run(client, "set lock_timeout = '10s'").await;
    run(client, "update outbox.setting set functions_hash = 'an older build'").await;
    assert_eq!(texts(client, "select outbox.measure()::text").await, ["true"], "measure");
    assert_eq!(number(client, "select outbox.make_partitions(9)").await, 2, "make_partitions");
    assert_eq!(number(client, "select partitions_dropped from outbox.prune()").await, 1, "prune");
    run(client, "begin isolation level repeatable read").await;
    assert_eq!(texts(client, "select outbox.receive(gen_random_uuid())::text").await, ["true"], "receive");
    run(client, "commit").await;
    assert_eq!(number(client, "select outbox.prune_inbox(0)").await, 1, "prune_inbox");
    assert_eq!(number(client, &format!("select outbox.redrive(array['{dead}'::uuid])")).await, 1, "redrive");
    let held = claim_with(client, "w", 10, &format!(", lease_token => '{token}'")).await;
    assert_eq!(held.iter().filter_map(|held| held.sequence).collect::<Vec<_>>(), [1, 2, 3], "claim from lanes");
    assert_eq!(number(client, &format!("select outbox.abandon('{token}')")).await, 3, "abandon");
    assert!(migrate::up(client, &Schema::default()).await.unwrap().functions, "migrate up");
}

/// A parked lane of three, and a partition of long ago.
async fn prepare(client: &Client) -> Uuid {
    enqueue_lanes(client, 1, 3).await;
    let held = claim_with(client, "w", 1, ", lane_run => 1").await;
    complete(client, "w", &held[0], "FAILED").await.unwrap();
    partitions_of_2020(client).await;
    held[0].id
}

/// Whoever may log in may take any advisory lock, and keep it. Nothing of the outbox waits for one.
#[tokio::test]
async fn a_login_without_rights_stops_nothing() {
    let (database, mut client) = with_roles().await;
    let stranger = login(&database, &client, "").await;
    let dead = prepare(&client).await;
    let token = Uuid::from_u128(77);

    // While everything is under way, to copy what is held.
    let busy = database.connect().await;
    run(&busy, "begin; select outbox.measure(); select outbox.make_partitions(1); select outbox.prune_inbox()").await;
    take_advisory_locks(&stranger, token).await;
    run(&busy, "rollback").await;
    take_advisory_locks(&stranger, token).await;
    let tables = texts(
        &client,
        "select oid::regclass::text from pg_class where relnamespace = 'outbox'::regnamespace \
                                 and relkind in ('r', 'p', 'v')",
    )
    .await;
    for table in tables {
        for mode in MODES {
            let sql = format!("begin; lock table {table} in {mode} mode");
            assert_eq!(try_sql(&stranger, &sql).await, "42501", "{sql}");
            run(&stranger, "rollback").await;
        }
    }
    everything_goes_on(&mut client, dead, token).await;
    migrate::roles(&mut client, &Schema::default(), &Schema::default()).await.unwrap();
}

/// Who may read takes the lock that every reader takes. It is in the way of nothing but a drop.
#[tokio::test]
async fn a_reader_stops_no_lock_of_the_outbox() {
    let (database, mut client) = with_roles().await;
    let auditor = login(&database, &client, "outbox_auditor").await;
    let dead = prepare(&client).await;
    let locks = "select oid::regclass::text from pg_class where relnamespace = 'outbox'::regnamespace and relkind = 'r' \
                 and (relname like 'lock%' or relname in ('migration', 'setting', 'abandoned_claim'))";
    let locks = texts(&client, locks).await;
    assert!(locks.len() > 20, "{locks:?}");
    for table in &locks {
        for mode in &MODES[1..] {
            assert_eq!(try_sql(&auditor, &format!("begin; lock table {table} in {mode} mode")).await, "42501");
            run(&auditor, "rollback").await;
        }
    }
    run(&auditor, &format!("begin; lock table {} in access share mode", locks.join(", "))).await;
    everything_goes_on(&mut client, dead, Uuid::from_u128(77)).await;
}

/// The locks of several sinks are taken in their own order, not in the order of the sinks' names.
#[tokio::test]
async fn locks_of_several_sinks_never_deadlock() {
    let (database, client) = fresh().await;
    let (first, second) = (database.connect().await, database.connect().await);
    // Two sinks whose locks stand the other way round than their names.
    let pair = "select min(a) || ' ' || min(b) from (select a, b from \
                (select 's' || n as a from generate_series(10, 40) n) x, (select 's' || n as b from generate_series(10, 40) n) y \
                where a < b and outbox.lane_lock(a) > outbox.lane_lock(b) order by a, b limit 1) p";
    let pair = texts(&client, pair).await.remove(0);
    let (low, high) = pair.split_once(' ').unwrap();
    run(&first, &format!("begin; select outbox.hold_lane_fronts(array['{high}'])")).await;
    let both = format!("begin; select outbox.hold_lane_fronts(array['{low}', '{high}']); commit");
    let waiting = tokio::spawn(async move { try_sql(&second, &both).await });
    until_blocked(&client, 1).await;
    run(&first, &format!("select outbox.hold_lane_fronts(array['{low}']); commit")).await;
    assert_eq!(waiting.await.unwrap(), "00000");
}

/// An abandon waits for the claim with its token, and for no other; claims wait for neither.
#[tokio::test]
async fn an_abandon_waits_for_its_claim_alone() {
    for (ending, taken_back) in [("commit", 1), ("rollback", 0)] {
        let (database, client) = fresh().await;
        let (worker, abandoner) = (database.connect().await, database.connect().await);
        enqueue_plain(&client, 3).await;
        let (token, other) = (Uuid::from_u128(1), Uuid::from_u128(2));
        run(&worker, "begin").await;
        assert_eq!(claim_with(&worker, "w1", 1, &format!(", lease_token => '{token}'")).await.len(), 1);
        let abandon =
            tokio::spawn(async move { number(&abandoner, &format!("select outbox.abandon('{token}')")).await });
        until_blocked(&client, 1).await;
        run(&client, "set lock_timeout = '5s'").await;
        assert_eq!(claim_with(&client, "w2", 1, &format!(", lease_token => '{other}'")).await.len(), 1);
        assert_eq!(number(&client, &format!("select outbox.abandon('{other}')")).await, 1, "nor does another abandon");
        run(&worker, ending).await;
        assert_eq!(abandon.await.unwrap(), taken_back, "{ending}");
        let late = client.query(&format!("select from outbox.claim('w1', 1, 60, lease_token => '{token}')"), &[]).await;
        assert_eq!(sqlstate(&late.unwrap_err()), "P7002", "{ending}");
        assert_eq!(claim(&client, "w3", 10).await.len(), 3, "{ending}: nothing is left leased");
    }
}

/// A claim that meets an abandon of its own token under way waits for it, and is refused if it commits.
#[tokio::test]
async fn a_claim_that_is_being_abandoned_is_refused() {
    for (ending, claimed) in [("commit", Err("P7002".to_owned())), ("rollback", Ok(2))] {
        let (database, client) = fresh().await;
        let (worker, abandoner) = (database.connect().await, database.connect().await);
        enqueue_plain(&client, 2).await;
        let token = Uuid::from_u128(1);
        run(&abandoner, &format!("begin; select outbox.abandon('{token}')")).await;
        let sql = format!("select from outbox.claim('w', 10, 60, lease_token => '{token}')");
        let claim = tokio::spawn(async move {
            worker.query(&sql, &[]).await.map(|rows| rows.len()).map_err(|error| sqlstate(&error).to_owned())
        });
        until_blocked(&client, 1).await;
        run(&abandoner, ending).await;
        assert_eq!(claim.await.unwrap(), claimed, "{ending}");
    }
}

/// What a claim costs in transaction ids: one that finds nothing writes nothing, whatever it locks.
#[tokio::test]
async fn a_claim_that_finds_nothing_takes_no_transaction_id() {
    let (_database, client) = fresh().await;
    enqueue(&client, "t", ", lane => 'a', delay_seconds => 60").await;
    run(&client, "begin").await;
    assert_eq!(claim_with(&client, "w", 10, &format!(", lease_token => '{}'", Uuid::from_u128(1))).await, []);
    assert_eq!(texts(&client, "select pg_current_xact_id_if_assigned() is null || ''").await, ["true"]);
    run(&client, "commit").await;
}

async fn doctor_says(database: &Database, old_lock: Duration) -> Vec<(Level, String)> {
    let store = PostgresStore::connect(&database.url(), Schema::default()).await.unwrap();
    let found = doctor::postgres(&store, &Limits { old_lock, ..Limits::default() }).await;
    found.into_iter().filter(|one| one.check == "locks").map(|one| (one.level, one.seen)).collect()
}

/// Who keeps a lock on the outbox's tables is named, with what is locked.
#[tokio::test]
async fn doctor_names_who_keeps_a_lock() {
    let (database, client) = fresh().await;
    let holder = database.connect().await;
    run(&holder, "set application_name = 'forgotten'; begin; select outbox.measure()").await;
    let pid = number(&holder, "select pg_backend_pid()").await;
    let found = doctor_says(&database, Duration::ZERO).await;
    let named = found.iter().find(|(_, seen)| seen.contains(&format!("process {pid} of postgres (forgotten)")));
    assert_eq!(named.map(|(level, _)| *level), Some(Level::Warning), "{found:?}");
    assert_eq!(texts(&client, "select outbox.measure()::text").await, ["false"], "it is what keeps the sample away");
    let calm = doctor_says(&database, Duration::from_mins(5)).await;
    assert_eq!(calm.iter().map(|(level, _)| *level).collect::<Vec<_>>(), [Level::Ok], "{calm:?}");
    run(&holder, "rollback").await;
}

/// A migration waits for locks with a limit, and names who has them: another migrator, or somebody who reads.
#[tokio::test]
async fn a_migration_does_not_wait_for_ever_and_says_for_whom() {
    for keeps in ["lock table outbox.migration in exclusive mode", "select from outbox.status"] {
        let (database, client) = fresh().await;
        let (holder, mut migrator) = (database.connect().await, database.connect().await);
        run(&client, "update outbox.setting set functions_hash = 'an older build'").await;
        run(&holder, &format!("set application_name = 'forgotten'; begin; {keeps}")).await;
        let pid = number(&holder, "select pg_backend_pid()").await;
        run(&migrator, "set lock_timeout = '300ms'").await;
        let begun = Instant::now();
        let refusal = migrate::up(&mut migrator, &Schema::default()).await.unwrap_err();
        assert_eq!(refusal.kind(), ErrorKind::Locked, "{keeps}: {refusal:?}");
        assert!(begun.elapsed() < Duration::from_secs(20));
        let holder_words = format!("process {pid} of postgres (forgotten), in a transaction for ");
        for words in ["schema \"outbox\"", "in 300ms.", &holder_words, "run it again"] {
            assert!(refusal.to_string().contains(words), "{words}: {refusal}");
        }
        run(&holder, "commit").await;
        assert!(migrate::up(&mut migrator, &Schema::default()).await.unwrap().functions, "and then it works");
    }
}

/// Who makes the schema at the same time is waited for with the same limit.
#[tokio::test]
async fn a_schema_in_the_making_is_waited_for_with_a_limit() {
    let database = postrider_testkit::database().await.cluster().empty_database().await;
    let (holder, mut migrator) = (database.connect().await, database.connect().await);
    run(&holder, "begin; create schema outbox").await;
    run(&migrator, "set lock_timeout = '300ms'").await;
    let refusal = migrate::up(&mut migrator, &Schema::default()).await;
    assert!(matches!(&refusal, Err(error) if error.kind() == ErrorKind::Locked), "{refusal:?}");
    run(&holder, "rollback").await;
    migrate::up(&mut migrator, &Schema::default()).await.unwrap();
}

/// A session's own `lock_timeout` stands above the limit of a migration, and is the same afterwards.
#[tokio::test]
async fn a_migration_leaves_the_sessions_limits_alone() {
    let (_database, mut client) = fresh().await;
    run(&client, "set lock_timeout = '7s'").await;
    migrate::up(&mut client, &Schema::default()).await.unwrap();
    assert_eq!(texts(&client, "show lock_timeout").await, ["7s"]);
}
