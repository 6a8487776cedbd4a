//! Identities are unique, races have one winner, and a change and its event commit together or not at all.

use std::collections::BTreeSet;
use std::future::IntoFuture as _;

use example_contacts::{Identity, TenantId, Unresolved, resolve, resolve_in, router};
use postrider_testkit::{Database, database};
use serde_json::{Value, json};
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;
use uuid::Uuid;

use crate::script::somebody_waits;

const OURS: TenantId = Uuid::from_u128(1);
const THEIRS: TenantId = Uuid::from_u128(2);

/// A database with the service's tables, and a pool for it. The handle keeps the server.
pub(crate) async fn service() -> (Database, PgPool) {
    let database = database().await;
    let pool = PgPoolOptions::new().max_connections(10).connect(&database.url()).await.unwrap();
    sqlx::raw_sql(include_str!("../../sql/schema.sql")).execute(&pool).await.unwrap();
    (database, pool)
}

fn email(value: &str) -> Identity {
    Identity::Email(value.to_owned())
}

fn external_id(value: &str) -> Identity {
    Identity::ExternalId(value.to_owned())
}

/// How many contacts, identities and events there are.
async fn counts(pool: &PgPool) -> (i64, i64, i64) {
    let count = async |query| sqlx::query_scalar(query).fetch_one(pool).await.unwrap();
    (
        count("select count(*) from contacts").await,
        count("select count(*) from contact_identities").await,
        count("select count(*) from outbox.messages").await,
    )
}

/// Proves H4: in one tenant an external id has one contact, and an email address one whatever its case; another tenant has
/// its own.
#[tokio::test]
async fn an_identity_leads_to_one_contact_of_its_tenant() {
    let (_database, pool) = service().await;
    let first = resolve(&pool, OURS, &[email("Ann@Example.org")]).await.unwrap();
    assert_eq!((first.created, first.added), (true, 1));
    let second = resolve(&pool, OURS, &[email("ann@EXAMPLE.org"), external_id("crm-7")]).await.unwrap();
    assert_eq!((second.contact_id, second.created, second.added), (first.contact_id, false, 1));
    let third = resolve(&pool, OURS, &[external_id("crm-7")]).await.unwrap();
    assert_eq!((third.contact_id, third.added), (first.contact_id, 0));
    let other_case = resolve(&pool, OURS, &[external_id("CRM-7")]).await.unwrap();
    assert_ne!(other_case.contact_id, first.contact_id, "the case of an external id counts");
    let theirs = resolve(&pool, THEIRS, &[email("ann@example.org"), external_id("crm-7")]).await.unwrap();
    assert_ne!(theirs.contact_id, first.contact_id);
    assert_eq!(counts(&pool).await, (3, 5, 8), "one event for each contact and each identity");
}

/// Proves H4: identities of two contacts are refused, and leave neither a row nor an event.
#[tokio::test]
async fn identities_of_two_contacts_are_refused() {
    let (_database, pool) = service().await;
    resolve(&pool, OURS, &[email("ann@example.org")]).await.unwrap();
    resolve(&pool, OURS, &[external_id("crm-8")]).await.unwrap();
    let both = [email("ann@example.org"), external_id("crm-8")];
    let refused = resolve(&pool, OURS, &both).await.unwrap_err();
    assert!(matches!(&refused, Unresolved::SeveralContacts(contacts) if contacts.len() == 2), "{refused}");
    assert_eq!(counts(&pool).await, (2, 2, 4));
}

/// Proves H4: an identity and its event commit together or not at all.
#[tokio::test]
async fn a_change_and_its_events_commit_together() {
    let (_database, pool) = service().await;
    let mut tx = pool.begin().await.unwrap();
    resolve_in(&mut tx, OURS, &[email("ann@example.org")]).await.unwrap().unwrap();
    assert_eq!(counts(&pool).await, (0, 0, 0), "nobody sees what is not committed");
    tx.rollback().await.unwrap();
    assert_eq!(counts(&pool).await, (0, 0, 0));
    // The outbox takes no events.
    sqlx::raw_sql("alter function outbox.enqueue_many rename to gone").execute(&pool).await.unwrap();
    resolve(&pool, OURS, &[email("ann@example.org")]).await.unwrap_err();
    assert_eq!(counts(&pool).await, (0, 0, 0), "without its event there is no contact");
}

/// Proves H4: of two requests at the same time, the second waits for the first and gets its contact.
#[tokio::test]
async fn a_racing_request_gets_the_winners_contact() {
    let (database, pool) = service().await;
    let mut first = pool.begin().await.unwrap();
    let winner =
        resolve_in(&mut first, OURS, &[email("ann@example.org"), external_id("crm-7")]).await.unwrap().unwrap();
    let second = tokio::spawn({
        let pool = pool.clone();
        async move { resolve(&pool, OURS, &[external_id("crm-7"), email("ANN@example.org")]).await }
    });
    somebody_waits(&database).await;
    first.commit().await.unwrap();
    let second = second.await.unwrap().unwrap();
    assert_eq!((second.contact_id, second.created, second.added), (winner.contact_id, false, 0));
    assert_eq!(counts(&pool).await, (1, 2, 3), "the second wrote nothing");
}

/// Proves H4: if the first gives up, the second makes the contact.
#[tokio::test]
async fn a_racing_request_goes_on_when_the_first_gives_up() {
    let (database, pool) = service().await;
    let mut first = pool.begin().await.unwrap();
    let gone = resolve_in(&mut first, OURS, &[email("ann@example.org")]).await.unwrap().unwrap();
    let second = tokio::spawn({
        let pool = pool.clone();
        async move { resolve(&pool, OURS, &[email("Ann@example.org"), external_id("crm-7")]).await }
    });
    somebody_waits(&database).await;
    first.rollback().await.unwrap();
    let second = second.await.unwrap().unwrap();
    assert!(second.created && second.contact_id != gone.contact_id);
    assert_eq!(counts(&pool).await, (1, 2, 3));
}

/// Proves H4, over HTTP: a hundred requests for ten people, each known by two identities, make ten contacts.
#[tokio::test(flavor = "multi_thread")]
async fn concurrent_requests_make_one_contact_for_each_person() {
    let (_database, pool) = service().await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/tenants/{OURS}/contacts", listener.local_addr().unwrap());
    tokio::spawn(axum::serve(listener, router(pool.clone())).into_future());
    // The client cannot be made without one, though it encrypts nothing here.
    rustls::crypto::ring::default_provider().install_default().unwrap();
    let client = reqwest::Client::new();
    let ask = |number: u32| {
        let (person, address) = (number % 10, format!("person-{}@example.org", number % 10));
        let body = match number % 3 {
            0 => json!({ "email": address.to_uppercase(), "external_id": format!("crm-{person}") }),
            1 => json!({ "external_id": format!("crm-{person}"), "email": address }),
            // Alone it makes the contact that the others find.
            _ => json!({ "email": address }),
        };
        let request = client.post(&url).json(&body).send();
        tokio::spawn(async move {
            let answer = request.await.unwrap();
            assert!(answer.status().is_success(), "{}", answer.status());
            (person, answer.json::<Value>().await.unwrap()["contact_id"].as_str().unwrap().to_owned())
        })
    };
    let requests: Vec<_> = (0..100).map(ask).collect();
    let mut people = BTreeSet::new();
    for request in requests {
        people.insert(request.await.unwrap());
    }
    assert_eq!(people.len(), 10, "{people:?}");
    assert_eq!(counts(&pool).await, (10, 20, 30));
}
