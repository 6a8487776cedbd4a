//! Group roles: made once for the server, granted for one schema. The command line calls this; a migration
//! repeats the grants after functions or views were replaced. Login roles are the operator's to make and to grant to.

use serde::Serialize;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, GenericClient, Transaction};

use super::{become_owner, begin, check, grants, is_code, lock, locked};
use crate::error::Error;
use crate::schema::Schema;

pub(super) const GRANTS: &str = include_str!("../../sql/postgres/roles.sql");

/// The group roles of one schema.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Roles {
    /// Owns everything; cannot log in.
    pub owner: String,
    /// May enqueue, and nothing else.
    pub producer: String,
    /// May note what it received.
    pub receiver: String,
    /// May claim, complete and keep house.
    pub relay: String,
    /// Reads everything, changes nothing.
    pub reader: String,
    /// Reads everything, acts on what is in the outbox.
    pub operator: String,
    /// Reads everything but the sequences.
    pub auditor: String,
}

impl Roles {
    /// `<prefix>_owner` and so on. The prefix obeys the rules of a schema name.
    #[must_use]
    pub fn new(prefix: &Schema) -> Self {
        let name = |role: &str| format!("{prefix}_{role}");
        Self {
            owner: name("owner"),
            producer: name("producer"),
            receiver: name("receiver"),
            relay: name("relay"),
            reader: name("reader"),
            operator: name("operator"),
            auditor: name("auditor"),
        }
    }

    /// All of them, the owner first.
    #[must_use]
    pub fn names(&self) -> [&str; 7] {
        self.pairs().map(|(_, name)| name)
    }

    fn pairs(&self) -> [(&'static str, &str); 7] {
        [
            ("owner", &self.owner),
            ("producer", &self.producer),
            ("receiver", &self.receiver),
            ("relay", &self.relay),
            ("reader", &self.reader),
            ("operator", &self.operator),
            ("auditor", &self.auditor),
        ]
    }
}

/// Makes the group roles that are missing, hands the schema to the owner role and grants each what it may do. Safe to
/// repeat. Needs CREATEROLE, and ownership of the schema.
pub async fn roles(client: &mut Client, schema: &Schema, prefix: &Schema) -> Result<Roles, Error> {
    check(client, schema).await?;
    match try_roles(client, schema, prefix).await {
        Err(error) if is_code(&error, &SqlState::LOCK_NOT_AVAILABLE) => Err(locked(client, schema, error).await),
        done => done,
    }
}

async fn try_roles(client: &mut Client, schema: &Schema, prefix: &Schema) -> Result<Roles, Error> {
    let roles = Roles::new(prefix);
    let tx = begin(client).await?;
    lock(&tx, schema).await?;
    for (_, role) in roles.pairs() {
        // Two databases of one server may do this at once: whoever comes second finds the role there.
        tx.batch_execute(&format!(
            "do $$ begin if not exists (select from pg_roles where rolname = '{role}') then \
             create role \"{role}\" nologin; end if; \
             exception when duplicate_object or unique_violation then null; end $$"
        ))
        .await?;
    }
    let owner = &roles.owner;
    // Handing over takes the right to act as the new owner. From PostgreSQL 16 on, whoever makes a role may grant it but
    // does not have it; who has it already and may not grant it needs nothing.
    tx.batch_execute(&format!(
        "do $$ begin if not (select rolsuper from pg_roles where rolname = current_user) then \
         execute format('grant \"{owner}\" to %I', current_user); end if; \
         exception when insufficient_privilege then null; end $$"
    ))
    .await?;
    hand_over(&tx, schema, owner).await?;
    become_owner(&tx, schema).await?;
    grant(&tx, schema, prefix.as_str()).await?;
    tx.batch_execute(&schema.fill(&format!("update :\"schema\".setting set role_prefix = '{prefix}'"))).await?;
    tx.commit().await?;
    Ok(roles)
}

/// Those that the server does not have.
pub(super) async fn missing(client: &impl GenericClient, roles: &Roles) -> Result<Vec<String>, Error> {
    let names: Vec<&str> = roles.names().into();
    let sql = "select n.name from unnest($1::text[]) with ordinality n(name, place) \
               where not exists (select from pg_catalog.pg_roles r where r.rolname = n.name) order by n.place";
    let rows = client.query_typed(sql, &[(&names, Type::TEXT_ARRAY)]).await?;
    rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
}

/// Everything in the schema belongs to the owner role; SECURITY DEFINER functions then run with its rights.
async fn hand_over(tx: &Transaction<'_>, schema: &Schema, owner: &str) -> Result<(), Error> {
    tx.batch_execute(&format!(
        "alter schema {0} owner to \"{owner}\"; \
         do $$ declare o record; begin \
         for o in select c.oid::regclass as name, c.relkind as kind from pg_class c \
                  where c.relnamespace = '{0}'::regnamespace and c.relkind in ('r', 'p', 'v') loop \
         execute format('alter %s %s owner to \"{owner}\"', case o.kind when 'v' then 'view' else 'table' end, o.name); \
         end loop; \
         for o in select p.oid::regprocedure as name from pg_proc p where p.pronamespace = '{0}'::regnamespace loop \
         execute format('alter function %s owner to \"{owner}\"', o.name); end loop; \
         for o in select t.oid::regtype as name from pg_type t left join pg_class c on c.oid = t.typrelid \
                  where t.typnamespace = '{0}'::regnamespace and (t.typtype = 'e' or c.relkind = 'c') loop \
         execute format('alter type %s owner to \"{owner}\"', o.name); end loop; \
         end $$",
        schema.quoted()
    ))
    .await?;
    Ok(())
}

pub(super) async fn grant(tx: &Transaction<'_>, schema: &Schema, prefix: &str) -> Result<(), Error> {
    let roles = Roles::new(&Schema::new(prefix)?);
    let sql = roles
        .pairs()
        .iter()
        .fold(grants(schema), |sql, (word, role)| sql.replace(&format!(":\"{word}\""), &format!("\"{role}\"")));
    tx.batch_execute(&sql).await?;
    Ok(())
}
