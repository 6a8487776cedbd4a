//! Finds or makes the contact that identities belong to, and writes the events of what it changed. `http.rs` calls
//! `resolve`; the tests call `resolve_in` to play races by hand. Uniqueness is the database's: this file never decides by a
//! look alone.

use postrider::{Message, Outbox};
use serde_json::json;
use sqlx::{PgConnection, PgPool, Row as _};
use uuid::Uuid;

/// How tenants are told apart. The outbox takes any text.
pub type TenantId = Uuid;

/// A request that lost a race finds the winner's contact at its second try. More is needed only if a third request moves in
/// between.
const MOST_TRIES: u32 = 5;

/// What leads to a contact.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Identity {
    /// Unique for each tenant, whatever its case.
    Email(String),
    /// Unique for each tenant.
    ExternalId(String),
}

impl Identity {
    fn parts(&self) -> (&'static str, &str) {
        match self {
            Self::Email(value) => ("email", value),
            Self::ExternalId(value) => ("external_id", value),
        }
    }
}

/// The contact, and what this call changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resolved {
    /// The one contact that every given identity leads to.
    pub contact_id: Uuid,
    /// Whether this call made it.
    pub created: bool,
    /// How many identities this call added to it.
    pub added: usize,
}

/// Why there is no such contact.
#[derive(Debug, thiserror::Error)]
pub enum Unresolved {
    /// To merge contacts is a person's decision.
    #[error("the identities belong to {} contacts", .0.len())]
    SeveralContacts(Vec<Uuid>),
    /// Others were faster, every time.
    #[error("other requests changed the same identities; try again")]
    Busy,
    /// The database did not do it.
    #[error("the database failed")]
    Database(#[from] sqlx::Error),
    /// The outbox did not take an event.
    #[error("the event was not written")]
    Outbox(#[from] postrider::Error),
}

/// Resolves identities in a transaction of its own. Racing calls with a common identity return the same contact.
pub async fn resolve(pool: &PgPool, tenant: TenantId, identities: &[Identity]) -> Result<Resolved, Unresolved> {
    for _ in 0..MOST_TRIES {
        let mut tx = pool.begin().await?;
        if let Some(resolved) = resolve_in(&mut tx, tenant, identities).await? {
            tx.commit().await?;
            return Ok(resolved);
        }
        tx.rollback().await?;
    }
    Err(Unresolved::Busy)
}

/// One try, in the caller's transaction, which must be READ COMMITTED. `None`: another request has just taken one of the
/// identities. The caller must roll back then, and may try again.
pub async fn resolve_in(
    tx: &mut PgConnection,
    tenant: TenantId,
    identities: &[Identity],
) -> Result<Option<Resolved>, Unresolved> {
    let (types, values): (Vec<_>, Vec<_>) = identities.iter().map(Identity::parts).unzip();
    let owners = find_owners(tx, tenant, &types, &values).await?;
    let (contact_id, created) = match owners.as_slice() {
        [] => (add_contact(tx, tenant).await?, true),
        [owner] => (*owner, false),
        _ => return Err(Unresolved::SeveralContacts(owners)),
    };
    let added = add_identities(tx, tenant, contact_id, &types, &values).await?;
    // What was not added may be ours already, or somebody else's since the first look.
    if find_owners(tx, tenant, &types, &values).await? != [contact_id] {
        return Ok(None);
    }
    let events = events(tenant, contact_id, created, &added)?;
    Outbox::default().enqueue_many(tx, &events).await?;
    Ok(Some(Resolved { contact_id, created, added: added.len() }))
}

/// One event for each change. The lane is the contact: its events arrive in the order of the changes.
fn events(
    tenant: TenantId,
    contact_id: Uuid,
    created: bool,
    added: &[(String, String)],
) -> Result<Vec<Message>, postrider::Error> {
    let event = |topic: &str, payload: serde_json::Value| {
        Ok(Message::json(topic, &payload)?.tenant(tenant).lane(format!("contact/{contact_id}")))
    };
    let new = created.then(|| event("contact.created", json!({ "contact_id": contact_id })));
    let identified = added.iter().map(|(kind, value)| {
        event("contact.identified", json!({ "contact_id": contact_id, "type": kind, "value": value }))
    });
    new.into_iter().chain(identified).collect()
}

async fn find_owners(
    tx: &mut PgConnection,
    tenant: TenantId,
    types: &[&str],
    values: &[&str],
) -> Result<Vec<Uuid>, sqlx::Error> {
    let query = sqlx::query_scalar(include_str!("../sql/find_owners.sql"));
    query.bind(tenant).bind(types).bind(values).fetch_all(tx).await
}

async fn add_contact(tx: &mut PgConnection, tenant: TenantId) -> Result<Uuid, sqlx::Error> {
    sqlx::query_scalar(include_str!("../sql/add_contact.sql")).bind(tenant).fetch_one(tx).await
}

/// The type and value of each identity that is new.
async fn add_identities(
    tx: &mut PgConnection,
    tenant: TenantId,
    contact_id: Uuid,
    types: &[&str],
    values: &[&str],
) -> Result<Vec<(String, String)>, sqlx::Error> {
    let query = sqlx::query(include_str!("../sql/add_identities.sql"));
    let rows = query.bind(tenant).bind(contact_id).bind(types).bind(values).fetch_all(tx).await?;
    rows.iter().map(|row| Ok((row.try_get(0)?, row.try_get(1)?))).collect()
}
