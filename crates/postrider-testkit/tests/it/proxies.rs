//! What stands between a client and its server: the counting proxy, the breaking proxy and the pooler.

use std::{collections::HashSet, time::Duration};

use postrider_testkit::{Database, FaultCounts, FaultProxy, PgBouncer, WireCounter, database};
use tokio::time::timeout;
use tokio_postgres::{Client, NoTls};

/// Long enough to see that nothing comes.
const A_WHILE: Duration = Duration::from_millis(200);

async fn connect(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

#[tokio::test]
async fn the_wire_counter_counts_round_trips() {
    let database = database().await;
    let wire = WireCounter::start(database.cluster().port()).await;
    let client = connect(&wire.url(&database)).await;
    assert_eq!((wire.connections(), wire.round_trips()), (1, 0), "start-up is not counted");

    client.batch_execute("select 1").await.unwrap();
    assert_eq!(wire.round_trips(), 1);
    client.batch_execute("select 1; select 2").await.unwrap();
    assert_eq!(wire.round_trips(), 2);

    wire.reset();
    let statement = client.prepare("select $1::text || 'Z'").await.unwrap();
    assert_eq!(wire.round_trips(), 1);
    let long = "SQ".repeat(150_000);
    let text: String = client.query_one(&statement, &[&long]).await.unwrap().get(0);
    assert_eq!((text.len(), wire.round_trips()), (300_001, 2), "a body is not mistaken for messages");

    assert!(client.batch_execute("select 1/0").await.is_err());
    assert_eq!(wire.round_trips(), 3);
}

#[tokio::test]
async fn what_is_sent_together_is_one_round_trip() {
    let database = database().await;
    let wire = WireCounter::start(database.cluster().port()).await;
    let client = connect(&wire.url(&database)).await;
    let long = format!("select '{}'", "SQ".repeat(150_000));
    for statement in ["select 1", &long, "select 1/0"] {
        wire.reset();
        let (begun, _, ended) = tokio::join!(
            client.batch_execute("begin"),
            client.batch_execute(statement),
            client.batch_execute("commit")
        );
        begun.and(ended).unwrap();
        assert_eq!(wire.round_trips(), 1, "{} bytes", statement.len());
    }
    client.batch_execute("begin").await.unwrap();
    client.batch_execute("commit").await.unwrap();
    assert_eq!(wire.round_trips(), 3, "what waits for its answer is one each");
}

#[tokio::test]
async fn a_cut_after_a_commit_follows_a_pipelined_transaction() {
    let (database, proxy, client) = behind_fault_proxy().await;
    proxy.cut_after_commit("kept", 1);
    // The answers before it were sent, but a connection that is cut may lose them.
    let (_, _, committed) = tokio::join!(
        client.batch_execute("begin"),
        client.batch_execute("insert into kept values (1)"),
        client.batch_execute("commit")
    );
    assert!(committed.is_err(), "nobody hears of the commit");
    assert_eq!((kept(&database).await.as_str(), proxy.cuts_to_come()), ("1", 0));
}

/// A copy and a standby: what a failover finds, behind an address that moves.
#[tokio::test]
async fn a_proxy_leads_to_another_server_when_told() {
    let standby = postrider_testkit::Cluster::start().await;
    let database = standby.database().await;
    let primary = standby.duplicate().await;
    standby.demote().await;
    let proxy = FaultProxy::start(standby.port()).await;
    let old = connect(&proxy.url(&database)).await;
    proxy.retarget(primary.port());
    let new = connect(&proxy.url(&database)).await;
    for (client, in_recovery) in [(&old, true), (&new, false)] {
        let row = client.query_one("select pg_is_in_recovery(), count(*) from outbox.setting", &[]).await.unwrap();
        assert_eq!((row.get::<_, bool>(0), row.get::<_, i64>(1)), (in_recovery, 1));
    }
}

#[tokio::test]
async fn the_wire_counter_declines_encryption() {
    let database = database().await;
    let wire = WireCounter::start(database.cluster().port()).await;
    let client = connect(&format!("{}?sslmode=prefer", wire.url(&database))).await;
    client.batch_execute("select 1").await.unwrap();
    assert_eq!(wire.round_trips(), 1);

    drop(wire);
    assert!(client.batch_execute("select 1").await.is_err(), "connections end with the proxy");
}

async fn behind_fault_proxy() -> (Database, FaultProxy, Client) {
    let database = database().await;
    database.connect().await.batch_execute("create table kept (n int)").await.unwrap();
    let proxy = FaultProxy::start(database.cluster().port()).await;
    let client = connect(&proxy.url(&database)).await;
    (database, proxy, client)
}

async fn kept(database: &Database) -> String {
    let sql = "select coalesce(string_agg(n::text, ' ' order by n), '') from kept";
    database.connect().await.query_one(sql, &[]).await.unwrap().get(0)
}

#[tokio::test]
async fn the_fault_proxy_passes_everything_on_until_told_otherwise() {
    let (database, proxy, client) = behind_fault_proxy().await;
    let long = "SQZ".repeat(100_000);
    let text: String = client.query_one("select $1::text || 'Z'", &[&long]).await.unwrap().get(0);
    assert_eq!(text, format!("{long}Z"));
    assert!(client.batch_execute("select 1/0").await.is_err());
    client.batch_execute("begin; insert into kept values (1); commit").await.unwrap();
    assert_eq!(kept(&database).await, "1");
    assert_eq!(proxy.counts(), FaultCounts { connections: 1, ..FaultCounts::default() });

    drop(proxy);
    assert!(client.batch_execute("select 1").await.is_err(), "connections end with the proxy");
}

#[tokio::test]
async fn the_fault_proxy_cuts_every_connection_and_takes_new_ones() {
    let (database, proxy, client) = behind_fault_proxy().await;
    let other = connect(&proxy.url(&database)).await;
    client.batch_execute("begin; insert into kept values (1)").await.unwrap();
    let sleeping = tokio::spawn(async move { other.batch_execute("select pg_sleep(60)").await });

    proxy.cut_all();
    assert!(client.batch_execute("commit").await.is_err());
    assert!(sleeping.await.unwrap().is_err(), "whatever is on its way");
    connect(&proxy.url(&database)).await.batch_execute("insert into kept values (2)").await.unwrap();
    assert_eq!(kept(&database).await, "2");
    assert_eq!(proxy.counts(), FaultCounts { connections: 3, cut: 2, ..FaultCounts::default() });
}

#[tokio::test]
async fn a_cut_after_a_commit_hides_what_was_done() {
    let (database, proxy, client) = behind_fault_proxy().await;
    proxy.cut_after_commit("", 1);
    assert!(client.execute("insert into kept select g from generate_series(1, $1) g", &[&3]).await.is_err());
    assert_eq!(kept(&database).await, "1 2 3", "the statement was prepared, run once, committed, and not answered");
    assert!(client.batch_execute("select 1").await.is_err(), "the connection is gone");
    assert_eq!((proxy.counts().cut_after_commit, proxy.cuts_to_come()), (1, 0));

    // A long answer is kept back as a whole.
    let client = connect(&proxy.url(&database)).await;
    proxy.cut_after_commit("", 1);
    let long = client.simple_query("insert into kept select g from generate_series(4, 50000) g returning n").await;
    assert!(long.is_err());
    let row = database.connect().await.query_one("select count(*) from kept", &[]).await.unwrap();
    assert_eq!(row.get::<_, i64>(0), 50_000);
}

#[tokio::test]
async fn a_cut_after_a_commit_waits_for_the_commit() {
    let (database, proxy, client) = behind_fault_proxy().await;
    proxy.cut_after_commit("kept", 1);
    client.batch_execute("select 1").await.unwrap();
    assert!(client.batch_execute("insert into kept values (1/0)").await.unwrap_err().as_db_error().is_some());
    client.batch_execute("begin; insert into kept values (1)").await.unwrap();
    client.batch_execute("insert into kept values (2)").await.unwrap();
    client.batch_execute("rollback /* kept */").await.unwrap();
    assert_eq!(proxy.cuts_to_come(), 1, "none of these committed anything");

    client.batch_execute("begin; insert into kept values (3)").await.unwrap();
    assert!(client.batch_execute("commit /* kept */").await.is_err());
    assert_eq!((kept(&database).await.as_str(), proxy.cuts_to_come()), ("3", 0));

    proxy.cut_after_commit("kept", 7);
    proxy.cut_after_commit("kept", 0);
    connect(&proxy.url(&database)).await.batch_execute("insert into kept values (4)").await.unwrap();
    assert_eq!(kept(&database).await, "3 4");
}

#[tokio::test]
async fn the_fault_proxy_refuses_new_connections_only() {
    let (database, proxy, client) = behind_fault_proxy().await;
    proxy.refuse(true);
    assert!(tokio_postgres::connect(&proxy.url(&database), NoTls).await.is_err());
    client.batch_execute("select 1").await.unwrap();
    proxy.refuse(false);
    connect(&proxy.url(&database)).await.batch_execute("select 1").await.unwrap();
    assert_eq!(proxy.counts(), FaultCounts { connections: 2, refused: 1, ..FaultCounts::default() });
}

#[tokio::test]
async fn a_stalled_proxy_is_silent_until_it_goes_on() {
    let (database, proxy, client) = behind_fault_proxy().await;
    proxy.stall(true);
    let query = client.query_one("select 7", &[]);
    let url = proxy.url(&database);
    let newcomer = connect(&url);
    tokio::pin!(query, newcomer);
    assert!(timeout(A_WHILE, &mut query).await.is_err(), "no answer, and no error either");
    assert!(timeout(A_WHILE, &mut newcomer).await.is_err());

    proxy.stall(false);
    assert_eq!(query.await.unwrap().get::<_, i32>(0), 7);
    newcomer.await.batch_execute("select 1").await.unwrap();
}

#[tokio::test]
async fn clients_of_the_pooler_share_two_sessions() {
    let database = database().await;
    let pooler = PgBouncer::start(&database).await;
    let mut backends = HashSet::new();
    let mut clients = Vec::new();
    for _ in 0..6 {
        clients.push(connect(&pooler.url()).await);
    }
    // Two transactions held open, so that both sessions exist; the other clients then take turns.
    for client in &clients[..2] {
        client.batch_execute("begin; select 1").await.unwrap();
    }
    for client in &clients[..2] {
        client.batch_execute("commit").await.unwrap();
    }
    for client in &clients {
        let rows = client.simple_query("select pg_backend_pid()").await.unwrap();
        let row = rows.iter().find_map(|message| match message {
            tokio_postgres::SimpleQueryMessage::Row(row) => row.get(0),
            _ => None,
        });
        backends.insert(row.unwrap().to_owned());
    }
    assert!(backends.len() <= 2, "six clients on {backends:?}");
}
