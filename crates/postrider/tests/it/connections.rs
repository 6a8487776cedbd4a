//! The store's connections when things go wrong: how many there are, which server they lead to, and what is said when
//! there is none. A stalled database, hosts that refuse or hang, and a primary that becomes a standby are all real.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use postrider::lifecycle::{Claim, Completion, Outcome};
use postrider::operate::Action;
use postrider::{ErrorKind, Inspect as _, Message, Operate as _, PostgresStore, Queue as _, Schema, migrate};
use postrider_testkit::{Cluster, Database, FaultProxy};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::support::{fresh, number, run, texts, until_blocked};

/// The store's pool.
const MAX_CONNECTIONS: i64 = 8;
/// How many want one at the same time, and how often each gives up while the table is locked.
const CLAIMERS: usize = 11;
const GIVEN_UP_EACH: usize = 4;
const PATIENCE: Duration = Duration::from_millis(200);
/// Longer than anything here takes.
const DEADLINE: Duration = Duration::from_mins(1);

async fn open(url: &str) -> PostgresStore {
    PostgresStore::connect(url, Schema::default()).await.unwrap()
}

fn with(url: &str, settings: &str) -> String {
    format!("{url}?{settings}")
}

/// Statements that are given up keep their connections, so that a stalled database is not asked for more and more; and when
/// it goes on, so does everything.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stalled_database_is_not_asked_for_more_connections() {
    let (database, client) = fresh().await;
    let mut blocker = database.connect().await;
    let store = open(&with(&database.url(), "application_name=stalled")).await;
    store.enqueue(&(0..50).map(|n| Message::json("t", &n).unwrap()).collect::<Vec<_>>()).await.unwrap();

    let lock = blocker.transaction().await.unwrap();
    lock.batch_execute("lock table outbox.delivery").await.unwrap();
    let (given_up, enough) = (Arc::new(AtomicUsize::new(0)), CancellationToken::new());
    let claimers: Vec<_> = (0..CLAIMERS)
        .map(|n| {
            let (store, given_up, enough) = (store.clone(), Arc::clone(&given_up), enough.clone());
            tokio::spawn(async move {
                let claim = Claim::new(format!("w{n}")).lease(Duration::from_millis(500));
                while !enough.is_cancelled() {
                    if tokio::time::timeout(PATIENCE, store.claim(&claim)).await.is_err() {
                        given_up.fetch_add(1, Ordering::SeqCst);
                    }
                }
            })
        })
        .collect();
    let backends = "select count(*) from pg_stat_activity where application_name = 'stalled'";
    let mut most = 0;
    while given_up.load(Ordering::SeqCst) < CLAIMERS * GIVEN_UP_EACH {
        most = most.max(number(&client, backends).await);
    }
    assert!(most <= MAX_CONNECTIONS, "{most} connections for one store");
    assert_eq!(most, MAX_CONNECTIONS, "all of them wait");
    let error = store.claim(&Claim::new("w")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoFreeConnection, "{error:?}");
    assert!(error.to_string().contains(", 8 of them by statements that were given up"), "{error}");
    assert!(error.to_string().contains("statements that were given up"), "{error}");

    enough.cancel();
    futures_util::future::join_all(claimers).await;
    lock.commit().await.unwrap();
    let began = Instant::now();
    let mut delivered = 0;
    while delivered < 50 {
        assert!(began.elapsed() < DEADLINE, "{delivered} delivered");
        store.repair_expired_leases(100).await.unwrap();
        let held = store.claim(&Claim::new("w").batch_size(100)).await.unwrap();
        let outcomes: Vec<_> = held.iter().map(|held| Completion::new(held, Outcome::Dispatched)).collect();
        delivered += store.complete("w", &outcomes).await.unwrap().len();
    }
    assert!(number(&client, backends).await <= MAX_CONNECTIONS);
}

/// What nobody may wait for is ended by the server; the house-keeping and an operator's order are not.
#[tokio::test]
async fn the_server_ends_what_takes_too_long() {
    let (database, client) = fresh().await;
    let store = open(&database.url()).await;
    // The limit in force while a function runs, told by a trigger.
    run(
        &client,
        "create table told (function text, timeout text, isolation text); grant all on told to public; \
             create function tell() returns trigger language plpgsql as $$ begin \
             insert into public.told values (tg_table_name, current_setting('statement_timeout'), \
             current_setting('transaction_isolation')); return null; end $$; \
             create trigger tell after update or insert on outbox.delivery for each statement execute function tell(); \
             create trigger tell after insert on outbox.audit for each statement execute function tell()",
    )
    .await;
    let told = "select distinct concat_ws(' ', function, timeout, isolation) from told order by 1";
    store.enqueue(&[Message::json("t", &1).unwrap()]).await.unwrap();
    store.claim(&Claim::new("w")).await.unwrap();
    store.repair_expired_leases(10).await.unwrap();
    assert_eq!(texts(&client, told).await, ["delivery 25s read committed"]);
    run(&client, "truncate told").await;
    store.operate("someone", &Action::Pause { sink: "default".to_owned() }).await.unwrap();
    store.operate("someone", &Action::UnclaimStuck { older_than: Duration::ZERO, live: true }).await.unwrap();
    assert_eq!(texts(&client, told).await, ["audit 0 read committed", "delivery 0 read committed"]);

    // And what fails at the commit is an error.
    run(
        &client,
        "create table judged (n int unique deferrable initially deferred); insert into judged values (1); \
             create function judge() returns trigger language plpgsql as $$ begin \
             insert into public.judged values (1); return null; end $$; grant all on judged to public; \
             create trigger judge after insert on outbox.delivery for each statement execute function judge()",
    )
    .await;
    let error = store.enqueue(&[Message::json("t", &2).unwrap()]).await.unwrap_err();
    assert!(error.to_string().contains("23505"), "{error}");
    assert_eq!(number(&client, "select count(*) from outbox.message").await, 1);
}

/// A database may have any isolation by default: what is asked here is written for READ COMMITTED, and says so.
#[tokio::test]
async fn every_default_isolation_serves() {
    for isolation in ["repeatable read", "serializable"] {
        let database = postrider_testkit::database().await;
        let client = database.connect().await;
        let set = format!("alter database {} set default_transaction_isolation = '{isolation}'", database.name());
        run(&client, &set).await;
        let mut other = database.connect().await;
        assert_eq!(texts(&other, "show default_transaction_isolation").await, [isolation]);
        let store = open(&database.url()).await;
        store.enqueue(&(0..100).map(|n| Message::json("t", &n).unwrap()).collect::<Vec<_>>()).await.unwrap();
        store.enqueue(&[Message::json("t", &0).unwrap()]).await.unwrap();

        // A claim that has to look twice: it waits for a row that another one changes and commits meanwhile.
        let tx = other.transaction().await.unwrap();
        tx.batch_execute("lock table outbox.delivery in exclusive mode").await.unwrap();
        tx.batch_execute("update outbox.delivery set max_attempts = 5").await.unwrap();
        let waiting = tokio::spawn({
            let store = store.clone();
            async move { store.claim(&Claim::new("w").batch_size(1000)).await }
        });
        until_blocked(&client, 1).await;
        tx.commit().await.unwrap();
        assert_eq!(waiting.await.unwrap().unwrap().len(), 101, "{isolation}");

        let (a, b) = tokio::join!(store.measure(), store.measure());
        assert!(a.unwrap() ^ b.unwrap(), "one of two samples, and no error");
        store.prune().await.unwrap();
        store.operate("someone", &Action::Prune { older_than: Some(Duration::ZERO) }).await.unwrap();
        store.prune_inbox(None).await.unwrap();
        store.make_partitions().await.unwrap();
        assert_eq!(store.status().await.unwrap().len(), 1);

        // Migrators that wait for one another see what the first one did.
        let empty = Schema::new("twice").unwrap();
        let (mut one, mut two) = (database.connect().await, database.connect().await);
        let (one, two) = tokio::join!(migrate::up(&mut one, &empty), migrate::up(&mut two, &empty));
        let done = [one.unwrap(), two.unwrap()].map(|applied| applied.migrations.len());
        assert!(done.contains(&0) && done.iter().sum::<usize>() > 0, "{done:?}");
    }
}

/// A port that refuses, and one that takes connections and never says a word.
async fn bad_hosts() -> (u16, TcpListener, u16) {
    let gone = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let refusing = gone.local_addr().unwrap().port();
    drop(gone);
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let hanging = silent.local_addr().unwrap().port();
    (refusing, silent, hanging)
}

/// Hosts that refuse or hang are passed over, whatever their place, and the URL is written as libpq has it.
#[tokio::test]
async fn of_several_hosts_the_one_that_answers_is_used() {
    let (database, _client) = fresh().await;
    let (refusing, _silent, hanging) = bad_hosts().await;
    let (port, name) = (database.cluster().port(), database.name());
    let sockets = database.cluster().data_dir().parent().unwrap().display().to_string();
    for url in [
        format!("postgres://postgres@127.0.0.1:{refusing},127.0.0.1:{port}/{name}"),
        format!(
            "postgres://postgres@localhost:{hanging},127.0.0.1:{refusing},localhost:{port}/{name}?connect_timeout=1"
        ),
        format!("postgres://postgres@127.0.0.1:{hanging},127.0.0.1:{port}/{name}?connect_timeout=1&sslmode=disable"),
        format!("postgres://postgres@/{name}?host=127.0.0.1,localhost&port={refusing},{port}"),
        format!("postgres://postgres@nowhere.invalid,x/{name}?host=nowhere.invalid,127.0.0.1&port={port}"),
        format!("postgres://postgres@x,y/{name}?hostaddr=127.0.0.1,127.0.0.1&port={refusing},{port}"),
        format!("postgres://p%6Fstgres:p%40ss@127.0.0.1:{port}/{name}"),
        format!("postgres://postgres@{}:{port}/{name}", sockets.replace('/', "%2F")),
        format!("postgres:///{name}?user=postgres&host={sockets}&port={port}"),
        format!("host=127.0.0.1,{sockets} port={refusing},{port} user='postgres' dbname={name}"),
        format!("postgres://postgres@127.0.0.1:{port}/{name}?target_session_attrs=primary&gssencmode=prefer"),
    ] {
        let began = Instant::now();
        let store = open(&url).await;
        assert!(store.now().await.is_ok(), "{url}");
        assert!(began.elapsed() < Duration::from_secs(8), "{url} took {:?}", began.elapsed());
    }
}

/// Every host is named when none serves, and no password is.
#[tokio::test]
async fn all_hosts_are_named_when_none_answers() {
    let (refusing, _silent, hanging) = bad_hosts().await;
    let url = format!("postgres://app:hunter2@127.0.0.1:{refusing},localhost:{hanging}/shop?connect_timeout=1");
    let error = PostgresStore::connect(&url, Schema::default()).await.map(drop).unwrap_err();
    let said = error.to_string();
    for words in [
        format!("127.0.0.1:{refusing},localhost:{hanging}/shop"),
        format!("127.0.0.1:{refusing}: "),
        "Connection refused".to_owned(),
        format!("localhost:{hanging}: "),
        "no answer within 1 seconds".to_owned(),
    ] {
        assert!(said.contains(&words), "{words:?} is not in {said}");
    }
    assert!(!format!("{said}{error:?}").contains("hunter2"));
}

/// A primary and its former self, which has become a standby.
async fn primary_and_standby() -> (Database, Cluster) {
    let standby = Cluster::start().await;
    let database = standby.database().await;
    let primary = standby.duplicate().await;
    standby.demote().await;
    (database.on(&primary), standby)
}

/// `target_session_attrs` has all of libpq's words; an outbox looks for a server that takes writes.
#[tokio::test]
async fn the_server_that_is_wanted_is_found() {
    let (database, standby) = primary_and_standby().await;
    let (primary, standby, name) = (database.cluster().port(), standby.port(), database.name());
    let both = format!("postgres://postgres@127.0.0.1:{standby},127.0.0.1:{primary}/{name}");
    for (settings, expected) in [
        ("", primary),
        ("target_session_attrs=read-write", primary),
        ("target_session_attrs=primary", primary),
        ("target_session_attrs=any", standby),
        ("target_session_attrs=read-only", standby),
        ("target_session_attrs=standby", standby),
        ("target_session_attrs=prefer-standby", standby),
    ] {
        let store = open(&with(&both, settings)).await;
        let connection = store.connection().await.unwrap();
        assert_eq!(texts(&connection, "show port").await, [expected.to_string()], "{settings}");
    }
    let alone =
        |port: u16, wanted: &str| format!("postgres://postgres@127.0.0.1:{port}/{name}?target_session_attrs={wanted}");
    open(&alone(primary, "prefer-standby")).await;
    for (url, why) in [
        (alone(standby, "read-write"), "it is a standby"),
        (alone(standby, "primary"), "it is a standby"),
        (alone(primary, "standby"), "it is not a standby"),
        (alone(primary, "read-only"), "it is not read-only"),
    ] {
        let error = PostgresStore::connect(&url, Schema::default()).await.map(drop).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
}

/// After a failover behind one address, connections that lead to a standby are left, those that are idle too.
#[tokio::test]
async fn a_store_does_not_stay_with_a_standby() {
    let (database, standby) = primary_and_standby().await;
    let proxy = FaultProxy::start(standby.port()).await;
    let store = open(&proxy.url(&database)).await;
    // Idle connections to the standby, which answers what only reads.
    let idle = futures_util::future::join_all((0..4).map(|_| store.connection())).await;
    drop(idle);
    assert!(store.now().await.is_ok());
    for error in [
        store.can_write().await.unwrap_err(),
        store.claim(&Claim::new("w")).await.unwrap_err(),
        store.enqueue(&[Message::json("t", &1).unwrap()]).await.unwrap_err(),
        store.sleep("w", Duration::from_secs(1)).await.unwrap_err(),
        store.listen().await.map(drop).unwrap_err(),
        store.operate("someone", &Action::Prune { older_than: None }).await.unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::ReadOnly, "{error:?}");
        assert!(!error.is_refusal(), "{error}");
    }
    let idle = futures_util::future::join_all((0..4).map(|_| store.connection())).await;
    drop(idle);

    proxy.retarget(database.cluster().port());
    // The first call finds out; from then on everything leads to the primary.
    assert!(store.claim(&Claim::new("w")).await.is_err());
    store.can_write().await.unwrap();
    store.enqueue(&[Message::json("t", &1).unwrap()]).await.unwrap();
    assert_eq!(store.claim(&Claim::new("w")).await.unwrap().len(), 1);
    store.listen().await.map(drop).unwrap();
}

/// A database that is set to be read-only, as providers do when a disk is full, is not ready.
#[tokio::test]
async fn a_read_only_database_cannot_be_written() {
    let (database, client) = fresh().await;
    let store = open(&database.url()).await;
    store.can_write().await.unwrap();
    let set = format!("alter database {} set default_transaction_read_only = on", database.name());
    run(&client, &set).await;
    let store = open(&database.url()).await;
    let error = store.can_write().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ReadOnly, "{error:?}");
}
