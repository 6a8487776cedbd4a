//! The older outbox's names, over this one: its nine checks, and the flows of its later, leased form, with the rights of
//! its own roles.

use std::time::Duration;

use postrider_testkit::psql;
use tokio_postgres::{Client, Error};
use uuid::Uuid;

use crate::accept::payments;
use crate::script::{PATIENCE, somebody_waits};

/// Enqueues and returns the id, the number and whether it is new.
async fn enqueue(client: &Client, instruction: &str, rail: &str) -> Result<(Uuid, i64, bool), Error> {
    let call = "select * from enqueue_payment_outbox($1, 'ann', 'k1', $2, '{\"amount\": 5}')";
    client.query_one(call, &[&instruction, &rail]).await.map(|row| (row.get(0), row.get(1), row.get(2)))
}

/// What a claim hands out: id, instruction, token.
async fn claim(client: &Client, worker: &str, lease_seconds: i32) -> Vec<(Uuid, String, Uuid)> {
    let call = "select outbox_id, instruction_id, lease_token from claim_outbox_batch(10, $1, $2)";
    let rows = client.query(call, &[&worker, &lease_seconds]).await.unwrap();
    rows.iter().map(|row| (row.get(0), row.get(1), row.get(2))).collect()
}

async fn complete(client: &Client, id: Uuid, token: Uuid, worker: &str, state: &str) -> Result<i32, Error> {
    let call = "select complete_outbox_attempt($1, $2, $3, $4::text::outbox_attempt_state, p_retry_delay_seconds => 0)";
    client.query_one(call, &[&id, &token, &worker, &state]).await.map(|row| row.get(0))
}

fn sqlstate(error: &Error) -> &str {
    error.code().map_or("", |code| code.code())
}

/// The states of a payment's attempts, in order.
async fn attempts(client: &Client, id: Uuid) -> String {
    let query = "select string_agg(attempt_no || ' ' || state, ', ' order by attempt_no) from payment_outbox_attempts \
                 where outbox_id = $1";
    client.query_one(query, &[&id]).await.unwrap().get(0)
}

/// Proves P17: eight of the nine checks, in psql; the ninth is in `run`.
#[tokio::test]
async fn the_proof_checks_pass() {
    let database = payments().await;
    let proof = psql(&database, include_str!("../../proof.sql")).await;
    assert!(proof.status.success(), "{}", proof.stderr);
    assert_eq!(proof.stderr.matches("NOTICE:  ok: ").count(), 8, "{}", proof.stderr);
    let left: i64 =
        database.connect().await.query_one("select count(*) from outbox.messages", &[]).await.unwrap().get(0);
    assert_eq!(left, 0, "they are rolled back");
}

/// Proves P17: each of the eight fails where its rule does not hold; what is broken is rolled back with the rest.
#[tokio::test]
async fn the_proof_checks_fail_when_a_rule_is_broken() {
    let database = payments().await;
    let change = |when: &str, change: &str| {
        format!(
            "create function pg_temp.change() returns trigger language plpgsql as $$ begin new.{change}; return new; end $$; \
             create trigger change before update on outbox.delivery for each row when ({when}) \
             execute function pg_temp.change()"
        )
    };
    let ends = "old.lease_token is not null and new.lease_token is null and new.attempt_no";
    for (number, broken) in [
        (1, "grant insert on outbox.message to payments_ingest".to_owned()),
        (2, "grant delete on outbox.attempt to payments_relay".to_owned()),
        (2, "alter table outbox.attempt disable trigger attempt_is_append_only".to_owned()),
        (3, "grant truncate on outbox.delivery to payments_relay".to_owned()),
        (4, "grant select on outbox.lane_sequence to outbox_auditor".to_owned()),
        (5, "alter table outbox.attempt drop constraint attempt_pk".to_owned()),
        (6, change("new.lease_token is not null and new.attempt_no = 2", "lease_expires_at := clock_timestamp()")),
        (7, change(&format!("{ends} = 2"), "attempt_count := 0")),
        (8, change(&format!("{ends} = 3"), "attempt_count := 0")),
    ] {
        let proof = include_str!("../../proof.sql").replacen("begin;\n", &format!("begin;\n{broken};\n"), 1);
        let proof = psql(&database, &proof).await;
        assert!(!proof.status.success(), "{broken}");
        assert!(proof.stderr.contains(&format!("ERROR:  {number}: ")), "{broken}: {}", proof.stderr);
    }
}

/// Proves P2, P6, P7: a known key returns the first payment while it waits, after it is settled, and whatever the rail; it
/// uses no number; and ingest may do nothing else.
#[tokio::test]
async fn enqueue_returns_the_existing_payment() {
    let database = payments().await;
    let ingest = database.connect_as("payments_ingest").await;
    let relay = database.connect_as("payments_relay").await;
    let (id, number, created) = enqueue(&ingest, "PAY-1", "instant").await.unwrap();
    assert_eq!((number, created), (1, true));
    assert_eq!(enqueue(&ingest, "PAY-1", "instant").await.unwrap(), (id, 1, false));
    assert_eq!(enqueue(&ingest, "PAY-1", "wire").await.unwrap(), (id, 1, false));
    let held = claim(&relay, "worker-1", 60).await;
    assert_eq!(complete(&relay, id, held[0].2, "worker-1", "DISPATCHED").await.unwrap(), 1);
    assert_eq!(enqueue(&ingest, "PAY-1", "instant").await.unwrap(), (id, 1, false), "settled");
    assert_eq!(enqueue(&ingest, "PAY-2", "wire").await.unwrap().1, 2, "without a gap");
    let operator = database.connect_as("payments_operator").await;
    let next = "select next_sequence_id from participant_outbox_sequences where participant_id = 'ann'";
    assert_eq!(operator.query_one(next, &[]).await.unwrap().get::<_, i64>(0), 3);
    let refused = ingest.query("select * from claim_outbox_batch(1, 'w', 60)", &[]).await.unwrap_err();
    assert_eq!(sqlstate(&refused), "42501");
    let refused = enqueue(&relay, "PAY-3", "instant").await.unwrap_err();
    assert_eq!(sqlstate(&refused), "42501");
}

/// Proves P6: of two producers with the same key at the same time, the second waits and gets the first one's payment.
#[tokio::test]
async fn racing_producers_get_one_payment() {
    let database = payments().await;
    let (mut first, second) =
        (database.connect_as("payments_ingest").await, database.connect_as("payments_ingest").await);
    let open = first.transaction().await.unwrap();
    let call = "select outbox_id from enqueue_payment_outbox('PAY-1', 'ann', 'k1', 'instant', '{}')";
    let id: Uuid = open.query_one(call, &[]).await.unwrap().get(0);
    let waiting = tokio::spawn(async move { enqueue(&second, "PAY-1", "instant").await });
    somebody_waits(&database).await;
    open.commit().await.unwrap();
    assert_eq!(waiting.await.unwrap().unwrap(), (id, 1, false));
}

/// Proves L1, L2, L7, P16: a claimed payment stays visible, with who holds it, the token and the end of the lease; a participant
/// has one payment under way, and nobody else gets it.
#[tokio::test]
async fn a_claim_shows_who_holds_what() {
    let database = payments().await;
    let ingest = database.connect_as("payments_ingest").await;
    let relay = database.connect_as("payments_relay").await;
    for (instruction, rail) in [("PAY-1", "instant"), ("PAY-2", "instant"), ("PAY-3", "wire")] {
        enqueue(&ingest, instruction, rail).await.unwrap();
    }
    let mut held = claim(&relay, "worker-1", 60).await;
    held.sort_by(|a, b| a.1.cmp(&b.1));
    let names: Vec<&str> = held.iter().map(|(_, name, _)| name.as_str()).collect();
    assert_eq!(names, ["PAY-1", "PAY-3"], "the first of each rail; PAY-2 is behind PAY-1");
    assert_eq!(claim(&relay, "worker-2", 60).await, []);
    let query = "select instruction_id, lease_token from payment_outbox_pending \
                 where claimed_by = 'worker-1' and lease_expires_at > now() order by instruction_id";
    let rows = relay.query(query, &[]).await.unwrap();
    let shown: Vec<(String, Uuid)> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
    assert_eq!(shown, held.iter().map(|(_, name, token)| (name.clone(), *token)).collect::<Vec<_>>());
    assert_eq!(attempts(&relay, held[0].0).await, "1 DISPATCHING");
    let status = "select rail_type, dispatching, pending from supervisor_outbox_status order by rail_type";
    let rows = relay.query(status, &[]).await.unwrap();
    let status: Vec<(String, i64, i64)> = rows.iter().map(|row| (row.get(0), row.get(1), row.get(2))).collect();
    assert_eq!(status, [("instant".to_owned(), 1, 1), ("wire".to_owned(), 1, 0)]);
}

/// Proves L3, L4, L5, L6: a worker whose lease ran out is refused with P7002, before and after another has the payment, and
/// changes nothing; the record has one row for each claim.
#[tokio::test]
async fn a_stale_worker_is_refused() {
    let database = payments().await;
    let ingest = database.connect_as("payments_ingest").await;
    let relay = database.connect_as("payments_relay").await;
    let (id, ..) = enqueue(&ingest, "PAY-1", "instant").await.unwrap();
    let stale = claim(&relay, "worker-a", 1).await.remove(0).2;
    let look = async {
        while relay.query_one("select repair_expired_leases()", &[]).await.unwrap().get::<_, i32>(0) == 0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, look).await.unwrap();
    let refused = complete(&relay, id, stale, "worker-a", "DISPATCHED").await.unwrap_err();
    assert_eq!(sqlstate(&refused), "P7002", "repaired");
    let fresh = claim(&relay, "worker-b", 60).await.remove(0).2;
    for (token, worker) in [(stale, "worker-a"), (stale, "worker-b"), (fresh, "worker-a")] {
        let refused = complete(&relay, id, token, worker, "DISPATCHED").await.unwrap_err();
        assert_eq!(sqlstate(&refused), "P7002", "{worker}");
        assert_eq!(refused.as_db_error().unwrap().message(), "LEASE_LOST");
    }
    assert_eq!(attempts(&relay, id).await, "1 ZOMBIE_REQUEUE, 2 DISPATCHING");
    assert_eq!(complete(&relay, id, fresh, "worker-b", "RETRYABLE").await.unwrap(), 2);
    let last = claim(&relay, "worker-b", 60).await.remove(0).2;
    assert_eq!(complete(&relay, id, last, "worker-b", "DISPATCHED").await.unwrap(), 3);
    assert_eq!(attempts(&relay, id).await, "1 ZOMBIE_REQUEUE, 2 RETRYABLE, 3 DISPATCHED");
    let left = relay.query_one("select count(*) from payment_outbox_pending", &[]).await.unwrap();
    assert_eq!(left.get::<_, i64>(0), 0);
}
