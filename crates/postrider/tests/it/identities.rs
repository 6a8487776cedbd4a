//! The fourth smoke test of claim hardening: identities are unique per tenant, and the identity and its event commit
//! together. The table is the application's; the outbox only has to share its transaction. One tenant throughout: with
//! two, nothing could collide.

use tokio_postgres::Client;
use uuid::Uuid;

use crate::support::{fresh, number, sqlstate};

/// A service's own table: an external id is unique per tenant, an email per tenant whatever its case.
const TABLE: &str = "create table contact_identities (tenant_id uuid not null, contact_id uuid not null, type text not null, \
                     value text not null); \
                     create unique index uniq_identity_external on contact_identities (tenant_id, type, value) \
                     where type = 'external_id'; \
                     create unique index uniq_identity_email on contact_identities (tenant_id, type, lower(value)) \
                     where type = 'email'";

/// Writes an identity and the event that tells of it, in one transaction.
async fn identify(client: &mut Client, tenant: Uuid, kind: &str, value: &str) -> Result<(), tokio_postgres::Error> {
    let tx = client.transaction().await?;
    // The event first: what undoes it is the transaction, not the order of statements.
    let event =
        "select * from outbox.enqueue('contact.identified', jsonb_build_object('value', $2::text), tenant_id => $1)";
    tx.query(event, &[&tenant, &value]).await?;
    let identity = "insert into contact_identities values ($1, gen_random_uuid(), $2, $3)";
    tx.execute(identity, &[&tenant, &kind, &value]).await?;
    tx.commit().await
}

/// Proves H7: a duplicate identity is refused and leaves neither row nor event; the first one has both.
#[tokio::test]
async fn an_identity_and_its_event_are_unique_together() {
    let (_database, mut client) = fresh().await;
    client.batch_execute(TABLE).await.unwrap();
    let (ours, theirs) = (Uuid::from_u128(1), Uuid::from_u128(2));
    identify(&mut client, ours, "external_id", "acct_123").await.unwrap();
    identify(&mut client, ours, "email", "Alice@Example.com").await.unwrap();
    for (kind, value) in [("external_id", "acct_123"), ("email", "alice@example.com"), ("email", "ALICE@EXAMPLE.COM")] {
        let error = identify(&mut client, ours, kind, value).await.unwrap_err();
        assert_eq!(sqlstate(&error), "23505", "{kind} {value}");
    }
    identify(&mut client, theirs, "external_id", "acct_123").await.unwrap();
    assert_eq!(number(&client, "select count(*) from contact_identities").await, 3);
    assert_eq!(number(&client, "select count(*) from outbox.messages").await, 3);
    assert_eq!(number(&client, "select pending from outbox.status").await, 3);
}
