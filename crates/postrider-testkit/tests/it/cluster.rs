//! What a private server does for its test: isolation, kill, freeze, restart and reconfiguration.

use std::time::Duration;

use postrider_testkit::{Cluster, Database, database, psql};
use tokio::time::timeout;

async fn number(database: &Database, query: &str) -> i32 {
    database.connect().await.query_one(query, &[]).await.unwrap().get(0)
}

#[tokio::test]
async fn databases_are_isolated_and_migrated() {
    let cluster = Cluster::start().await;
    let (one, other, empty) = tokio::join!(cluster.database(), cluster.database(), cluster.empty_database());
    assert_ne!(one.name(), other.name());
    one.connect().await.batch_execute("create table only_here ()").await.unwrap();

    let here = "select count(*)::int from pg_class where relname = 'only_here'";
    assert_eq!(number(&one, here).await, 1);
    assert_eq!(number(&other, here).await, 0);

    let migrated = "select count(*)::int from pg_namespace where nspname = 'outbox'";
    assert_eq!(number(&one, migrated).await, 1);
    assert_eq!(number(&empty, migrated).await, 0);
}

#[tokio::test]
async fn the_server_is_the_one_that_was_asked_for() {
    let cluster = Cluster::start_with(&[("application_name", "it's ours"), ("shared_buffers", "16MB")]).await;
    let client = cluster.empty_database().await.connect().await;
    let row = client
        .query_one(
            "select current_setting('server_version_num')::int / 10000, current_setting('data_directory'),
                    current_setting('fsync'), current_setting('shared_buffers'),
                    (select datcollate::text from pg_database where datname = current_database()),
                    (select reset_val from pg_settings where name = 'application_name')",
            &[],
        )
        .await
        .unwrap();
    assert_eq!(u32::try_from(row.get::<_, i32>(0)).unwrap(), cluster.version());
    assert_eq!(row.get::<_, &str>(1), cluster.data_dir().to_str().unwrap());
    assert_eq!(row.get::<_, &str>(2), "on");
    assert_eq!(row.get::<_, &str>(3), "16MB");
    assert_eq!(row.get::<_, &str>(4), "C");
    assert_eq!(row.get::<_, &str>(5), "it's ours");
    assert!(cluster.bin_dir().join("postgres").is_file());
}

#[tokio::test]
async fn what_was_committed_survives_kill9_and_restart() {
    let cluster = Cluster::start().await;
    let database = cluster.empty_database().await;
    let client = database.connect().await;
    client.batch_execute("create table kept (n int); insert into kept values (1)").await.unwrap();
    client.batch_execute("begin; insert into kept values (2)").await.unwrap();

    cluster.kill9();
    assert!(client.batch_execute("select 1").await.is_err());
    assert!(tokio_postgres::connect(&database.url(), tokio_postgres::NoTls).await.is_err());
    cluster.kill9();

    cluster.restart().await;
    assert_eq!(number(&database, "select sum(n)::int from kept").await, 1);
}

#[tokio::test]
async fn a_running_server_is_restarted_cleanly_on_the_same_port() {
    let cluster = Cluster::start().await;
    let database = cluster.empty_database().await;
    let client = database.connect().await;
    let (port, started) = (cluster.port(), "select extract(epoch from pg_postmaster_start_time())::float8::text");
    let before: String = client.query_one(started, &[]).await.unwrap().get(0);

    cluster.restart().await;
    assert_eq!(cluster.port(), port);
    assert!(client.batch_execute("select 1").await.is_err(), "sessions are ended");
    let after: String = database.connect().await.query_one(started, &[]).await.unwrap().get(0);
    assert_ne!(before, after);
    let log = std::fs::read_to_string(cluster.data_dir().with_file_name("log")).unwrap();
    assert!(log.contains("database system is shut down"), "it was not crash recovery: {log}");
}

#[tokio::test]
async fn a_paused_server_is_silent_until_it_is_resumed() {
    let cluster = Cluster::start().await;
    let client = cluster.empty_database().await.connect().await;

    cluster.pause();
    let query = client.query_one("select 7", &[]);
    tokio::pin!(query);
    assert!(timeout(Duration::from_millis(200), &mut query).await.is_err(), "no answer, and no error either");

    cluster.resume();
    assert_eq!(query.await.unwrap().get::<_, i32>(0), 7);

    cluster.pause();
    cluster.kill9();
    cluster.restart().await;
    cluster.pause();
    cluster.restart().await;
    assert_eq!(number(&cluster.empty_database().await, "select 8").await, 8);
}

#[tokio::test]
async fn a_reconfigured_server_shows_the_new_setting() {
    let cluster = Cluster::start().await;
    let database = cluster.empty_database().await;
    let cost = "select current_setting('random_page_cost')::float8::int";
    assert_eq!(number(&database, cost).await, 4);

    cluster.reconfigure(&[("random_page_cost", "9"), ("max_connections", "77")]).await;
    assert_eq!(number(&database, cost).await, 9);
    assert_eq!(number(&database, "select current_setting('max_connections')::int").await, 200);

    cluster.restart().await;
    assert_eq!(number(&database, "select current_setting('max_connections')::int").await, 77);
}

#[test]
fn the_shared_server_serves_several_runtimes() {
    let one = || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let database = database().await;
            assert_eq!(number(&database, "select 3").await, 3);
            (database.cluster().port(), database.name().to_owned())
        })
    };
    let (first, second) = std::thread::scope(|scope| {
        let (first, second) = (scope.spawn(one), scope.spawn(one));
        (first.join().unwrap(), second.join().unwrap())
    });
    assert_eq!(first.0, second.0, "one server");
    assert_ne!(first.1, second.1, "two databases");
    assert_eq!(one().0, first.0, "and it outlives the runtime that started it");
}

#[tokio::test]
async fn psql_runs_a_script_and_stops_at_an_error() {
    let database = database().await;
    let good = psql(&database, "create role clerk login;\nselect 1, 'ä';\nselect 2;").await;
    assert!(good.status.success(), "{}", good.stderr);
    assert_eq!(good.stdout, "1|ä\n2\n");

    let bad = psql(&database, "select 1;\nselect nothing;\nselect 2;").await;
    assert!(!bad.status.success());
    assert_eq!(bad.stdout, "1\n");
    assert!(bad.stderr.contains("\"nothing\""), "{}", bad.stderr);

    let clerk = database.connect_as("clerk").await;
    assert_eq!(clerk.query_one("select current_user::text", &[]).await.unwrap().get::<_, &str>(0), "clerk");
}
