//! Instructions become messages once, with the rights of ingest alone, in each participant's order.

use std::collections::BTreeSet;

use example_payments::{Instruction, Rail, Refused, accept};
use postrider::Schema;
use postrider::migrate;
use postrider_testkit::{Database, database};
use serde_json::json;
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;

/// A database with the example's tables, logins, routes and names. The handle keeps the server.
pub(crate) async fn payments() -> Database {
    let database = database().await;
    let mut admin = database.connect().await;
    migrate::roles(&mut admin, &Schema::default(), &Schema::default()).await.unwrap();
    for script in [include_str!("../../sql/schema.sql"), include_str!("../../sql/logins.sql")] {
        admin.batch_execute(script).await.unwrap();
    }
    // Twice: it may be applied again.
    for _ in 0..2 {
        admin.batch_execute(include_str!("../../names.sql")).await.unwrap();
    }
    database
}

async fn ingest(database: &Database) -> PgPool {
    PgPoolOptions::new().max_connections(10).connect(&database.url_as("payments_ingest")).await.unwrap()
}

fn instruction(id: &str, rail: Rail, amount: i64) -> Instruction {
    Instruction {
        participant_id: "ann".to_owned(),
        instruction_id: id.to_owned(),
        idempotency_key: "k1".to_owned(),
        rail,
        payment: json!({ "amount": amount, "currency": "EUR", "destination": "10000001" }),
    }
}

/// Proves P6: a repeated request gets the first one's message and uses no number; another payment under the same key is
/// refused, on whatever rail.
#[tokio::test]
async fn a_repeated_instruction_is_one_payment() {
    let database = payments().await;
    let pool = ingest(&database).await;
    let first = accept(&pool, &instruction("PAY-1", Rail::Instant, 5)).await.unwrap();
    assert_eq!((first.sequence_id, first.created), (Some(1), true));
    let again = accept(&pool, &instruction("PAY-1", Rail::Instant, 5)).await.unwrap();
    assert_eq!((again.outbox_id, again.sequence_id, again.created), (first.outbox_id, Some(1), false));
    for other in [instruction("PAY-1", Rail::Instant, 6), instruction("PAY-1", Rail::Wire, 5)] {
        assert!(matches!(accept(&pool, &other).await, Err(Refused::Different)));
    }
    let next = accept(&pool, &instruction("PAY-2", Rail::Wire, 5)).await.unwrap();
    assert_eq!(next.sequence_id, Some(2), "one order over both rails, without a gap");
}

/// Proves P1, P6: forty racing requests for ten instructions make ten payments, numbered without gaps.
#[tokio::test(flavor = "multi_thread")]
async fn racing_requests_make_one_payment_for_each_instruction() {
    let database = payments().await;
    let pool = ingest(&database).await;
    let requests: Vec<_> = (0..40)
        .map(|number| {
            let pool = pool.clone();
            tokio::spawn(async move {
                let instruction = instruction(&format!("PAY-{}", number % 10), Rail::Instant, 5);
                accept(&pool, &instruction).await.unwrap()
            })
        })
        .collect();
    let mut payments = BTreeSet::new();
    let mut created = 0;
    for request in requests {
        let accepted = request.await.unwrap();
        created += u32::from(accepted.created);
        payments.insert((accepted.sequence_id.unwrap(), accepted.outbox_id));
    }
    assert_eq!(created, 10);
    assert!(payments.iter().map(|(number, _)| *number).eq(1..=10), "{payments:?}");
}
