//! What an enqueue costs the producer, in figures that do not depend on the machine: pages touched, write-ahead log bytes and
//! rows written, by a session's first call, by later ones, and by a batch of a thousand. The figures stand here; a change that
//! makes one fall lowers it. Measured on the schema that `migrate up` makes, without the row checks that other tests have.

use postrider::{Schema, migrate};
use postrider_testkit::Cluster;
use tokio_postgres::Client;

use crate::costs::{assert_no_dearer, pages, wal_position};
use crate::support::{number, run};

const BATCH: i64 = 1000;
/// How often a later call is repeated.
const CALLS: i64 = 100;

/// A message with a payload of 200 bytes for each `n`, and no options.
const ONE: &str = "outbox.enqueue('order.placed', jsonb_build_object('data', repeat('x', 180 + 0 * n)))";

/// What it was: PostgreSQL 14, 15 and 18 differ by less than a twentieth.
const FIGURES: [(&str, i64); 5] = [
    ("pages of a session's first enqueue", 650),
    ("pages of 100 later ones", 820),
    ("WAL bytes of 100 later ones", 69_900),
    ("pages of a batch of 1,000", 8_570),
    ("WAL bytes of a batch of 1,000", 705_300),
];

async fn rows_written(client: &Client) -> i64 {
    number(
        client,
        "select sum(pg_stat_get_xact_tuples_inserted(c.oid) + pg_stat_get_xact_tuples_updated(c.oid) \
                    + pg_stat_get_xact_tuples_deleted(c.oid))::bigint \
         from pg_class c where c.relnamespace = 'outbox'::regnamespace and c.relkind = 'r'",
    )
    .await
}

/// The guard on what producers pay: see [`FIGURES`].
#[tokio::test]
async fn an_enqueue_costs_no_more_than_it_did() {
    let settings =
        [("autovacuum", "off"), ("checkpoint_timeout", "1h"), ("max_wal_size", "8GB"), ("full_page_writes", "off")];
    let cluster = Cluster::start_with(&settings).await;
    let database = cluster.empty_database().await;
    let mut client = database.connect().await;
    migrate::up(&mut client, &Schema::default()).await.unwrap();
    let batch = format!(
        "outbox.enqueue_many(topic => array_fill('order.placed'::text, array[{BATCH}]), \
         payload => array_fill(jsonb_build_object('data', repeat('x', 180)), array[{BATCH}]))"
    );
    // Pages and statistics are there, and the pages are not the first of their tables.
    for _ in 0..2 {
        run(&client, &format!("select from {batch}")).await;
    }

    let producer = database.connect().await;
    let calls = |count| format!("generate_series(1, {count}) n cross join lateral {ONE}");
    let mut measured = vec![pages(&producer, &format!("from {}", calls(1))).await];
    run(&producer, "begin").await;
    let (rows, start) = (rows_written(&producer).await, wal_position(&producer).await);
    measured.push(pages(&producer, &format!("from {}", calls(CALLS))).await);
    measured.push(wal_position(&producer).await - start);
    assert_eq!(rows_written(&producer).await - rows, 2 * CALLS, "a message and its delivery, and nothing else");
    let (rows, start) = (rows_written(&producer).await, wal_position(&producer).await);
    measured.push(pages(&producer, &format!("from {batch}")).await);
    measured.push(wal_position(&producer).await - start);
    assert_eq!(rows_written(&producer).await - rows, 2 * BATCH, "messages and their deliveries, and nothing else");
    run(&producer, "commit").await;

    println!("{measured:?}");
    for ((what, figure), measured) in FIGURES.into_iter().zip(measured) {
        assert_no_dearer(what, measured, figure);
    }
}
