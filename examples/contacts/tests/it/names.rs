//! The older outbox's names, over this one: its smoke tests, its worker, and two claims at the same time.

use postrider_testkit::{Database, psql};
use sqlx::{AssertSqlSafe, PgPool, Row as _};
use uuid::Uuid;

use crate::resolve::service;

async fn named() -> (Database, PgPool) {
    let (database, pool) = service().await;
    let names = include_str!("../../names.sql");
    // Twice: it may be applied again.
    for _ in 0..2 {
        sqlx::raw_sql(names).execute(&pool).await.unwrap();
    }
    (database, pool)
}

/// Proves H7: order, overlap, token and identities, in psql.
#[tokio::test]
async fn the_smoke_tests_pass() {
    let (database, pool) = named().await;
    let smoked = psql(&database, include_str!("../../smoke.sql")).await;
    assert!(smoked.status.success(), "{}", smoked.stderr);
    assert_eq!(smoked.stderr.matches("NOTICE:  ok: ").count(), 4, "{}", smoked.stderr);
    let left: i64 = sqlx::query_scalar("select count(*) from outbox.messages").fetch_one(&pool).await.unwrap();
    assert_eq!(left, 0, "they are rolled back");
}

/// A smoke test that cannot fail proves nothing: each is run on a database where its rule does not hold.
#[tokio::test]
async fn the_smoke_tests_fail_when_a_rule_is_broken() {
    let replaced = "alter function app.outbox_claim rename to real_claim; \
                    create function app.outbox_claim(integer, uuid, uuid) returns setof public.outbox language ";
    let newest_first = format!("{replaced} sql as 'select * from app.real_claim($1, $2, $3) order by created_at desc'");
    let forgetful = format!(
        "{replaced} plpgsql as 'begin return query select * from app.real_claim($1, $2, $3); perform outbox.abandon($2); end'"
    );
    let trusting = "create or replace function app.outbox_mark_delivered(p_token uuid, p_ids uuid[]) returns integer \
                    language sql as 'select cardinality(p_ids)'";
    for (broken, says) in [
        (newest_first.as_str(), "not 1,2,3"),
        (&forgetful, "two claims overlap"),
        (trusting, "instead of {0,3,0}"),
        ("drop index uniq_identity_external", "external_id acct_123: refused is f"),
        ("drop index uniq_identity_email_lower", "email alice@example.com: refused is f"),
    ] {
        let (database, pool) = named().await;
        sqlx::raw_sql(AssertSqlSafe(broken.to_owned())).execute(&pool).await.unwrap();
        let smoked = psql(&database, include_str!("../../smoke.sql")).await;
        assert!(!smoked.status.success() && smoked.stderr.contains(says), "{broken}: {}", smoked.stderr);
    }
}

/// Proves H1, H2: the older worker's two calls, with its own token: what one claim holds, another neither takes nor waits
/// for, and one call finishes the batch.
#[tokio::test]
async fn an_older_worker_runs_unchanged() {
    let (_database, pool) = named().await;
    let (ours, theirs) = (Uuid::from_u128(1), Uuid::from_u128(2));
    let insert = "insert into outbox (topic, payload, tenant_id) select 'contact.created', to_jsonb(n), $1 \
                  from generate_series(1, 10) n returning id, attempts, delivered_at is null";
    for tenant in [ours, theirs] {
        let rows = sqlx::query(insert).bind(tenant).fetch_all(&pool).await.unwrap();
        assert!(rows.iter().all(|row| row.get::<i32, _>(1) == 0 && row.get(2)));
    }
    let claim = "select id, processing_token from app.outbox_claim($1, $2, $3)";
    let (first, second) = (Uuid::new_v4(), Uuid::new_v4());
    // The first claim is still open while the second is made.
    let mut open = pool.begin().await.unwrap();
    let held = sqlx::query(claim).bind(6).bind(first).bind(ours).fetch_all(&mut *open).await.unwrap();
    let others = sqlx::query(claim).bind(6).bind(second).bind(ours).fetch_all(&pool).await.unwrap();
    open.commit().await.unwrap();
    assert_eq!((held.len(), others.len()), (6, 4), "ten of this tenant, and none of the other");
    let ids = |rows: &[sqlx::postgres::PgRow]| rows.iter().map(|row| row.get(0)).collect::<Vec<Uuid>>();
    assert!(ids(&held).iter().all(|id| !ids(&others).contains(id)));
    assert!(held.iter().all(|row| row.get::<Uuid, _>(1) == first), "the token is the caller's");
    let finish = async |token: Uuid, ids: Vec<Uuid>| -> i32 {
        let query = sqlx::query_scalar("select app.outbox_mark_delivered($1, $2)");
        query.bind(token).bind(ids).fetch_one(&pool).await.unwrap()
    };
    assert_eq!(finish(second, ids(&held)).await, 0, "another's token");
    assert_eq!(finish(first, ids(&held)).await, 6);
    assert_eq!(finish(first, ids(&held)).await, 0, "each is counted once");
    let standing = "select (count(*) filter (where delivered_at is not null and attempts = 1 and processing_token is null), \
                    count(*) filter (where processing_token = $1), count(*))::text from outbox";
    let standing: String = sqlx::query_scalar(standing).bind(second).fetch_one(&pool).await.unwrap();
    assert_eq!(standing, "(6,4,20)");
    let made = sqlx::query("insert into outbox (id, topic, payload) values (gen_random_uuid(), 't', '1')");
    let refused = made.execute(&pool).await.unwrap_err();
    assert_eq!(refused.as_database_error().unwrap().code().unwrap(), "0A000");
}
