//! What stands between a client and its server: the counting proxy and the pooler.

use std::collections::HashSet;

use postrider_testkit::{PgBouncer, WireCounter, database};
use tokio_postgres::{Client, NoTls};

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
async fn the_wire_counter_declines_encryption() {
    let database = database().await;
    let wire = WireCounter::start(database.cluster().port()).await;
    let client = connect(&format!("{}?sslmode=prefer", wire.url(&database))).await;
    client.batch_execute("select 1").await.unwrap();
    assert_eq!(wire.round_trips(), 1);

    drop(wire);
    assert!(client.batch_execute("select 1").await.is_err(), "connections end with the proxy");
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
