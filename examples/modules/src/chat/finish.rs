//! Finishes a turn: the turn and its event, in one transaction. The same function four times, once for each driver; copy
//! that of yours. A turn that is finished again writes nothing, and says that its event is there. Whatever ends a function
//! early drops the transaction, which rolls it back.

use diesel::sql_types;
use diesel_async::{AsyncConnection as _, AsyncPgConnection, RunQueryDsl as _};
use postrider::{Enqueued, Outbox};
use sea_orm::{ConnectionTrait as _, DatabaseConnection, DbBackend, TransactionTrait as _};
use sqlx::PgPool;
use tokio_postgres::Client;

use super::Turn;

const FINISH_TURN: &str = include_str!("../../sql/finish_turn.sql");

/// Why a turn was not finished: neither it nor its event is there.
#[derive(Debug, thiserror::Error)]
pub enum Unfinished {
    /// Billing said so.
    #[error("the tenant's tokens are used up")]
    TenantIsClosed,
    /// The event cannot be sent.
    #[error("the event is not right")]
    Event(#[from] postrider::InvalidMessage),
    /// The outbox did not take the event.
    #[error("the event was not written")]
    Outbox(#[from] postrider::Error),
    /// The database did not do it.
    #[error("the database failed")]
    SeaOrm(#[from] sea_orm::DbErr),
    /// The same, by another driver.
    #[error("the database failed")]
    Diesel(#[from] diesel::result::Error),
    /// The same, by another driver.
    #[error("the database failed")]
    Sqlx(#[from] sqlx::Error),
    /// The same, by another driver.
    #[error("the database failed")]
    TokioPostgres(#[from] tokio_postgres::Error),
}

/// In a SeaORM transaction.
pub async fn finish_with_sea_orm(database: &DatabaseConnection, turn: &Turn) -> Result<Enqueued, Unfinished> {
    let tx = database.begin().await?;
    let values = [turn.tenant_id.into(), turn.turn_id.into(), turn.request_id.into(), turn.tokens.into()];
    let statement = sea_orm::Statement::from_sql_and_values(DbBackend::Postgres, FINISH_TURN, values);
    let row = tx.query_one_raw(statement).await?;
    if !row.map_or(Ok(false), |row| row.try_get_by_index(0))? {
        return Err(Unfinished::TenantIsClosed);
    }
    let enqueued = Outbox::default().enqueue(&tx, &turn.event()?).await?;
    tx.commit().await?;
    Ok(enqueued)
}

/// In a diesel-async transaction.
pub async fn finish_with_diesel_async(connection: &mut AsyncPgConnection, turn: &Turn) -> Result<Enqueued, Unfinished> {
    #[derive(diesel::QueryableByName)]
    struct Tenant {
        #[diesel(sql_type = sql_types::Bool)]
        open: bool,
    }
    let work = async |tx: &mut AsyncPgConnection| {
        let statement = diesel::sql_query(FINISH_TURN)
            .bind::<sql_types::Uuid, _>(turn.tenant_id)
            .bind::<sql_types::Uuid, _>(turn.turn_id)
            .bind::<sql_types::Uuid, _>(turn.request_id)
            .bind::<sql_types::BigInt, _>(turn.tokens);
        if !statement.get_result::<Tenant>(tx).await?.open {
            return Err(Unfinished::TenantIsClosed);
        }
        Ok(Outbox::default().enqueue(tx, &turn.event()?).await?)
    };
    connection.transaction(work).await
}

/// In a sqlx transaction.
pub async fn finish_with_sqlx(pool: &PgPool, turn: &Turn) -> Result<Enqueued, Unfinished> {
    let mut tx = pool.begin().await?;
    let statement = sqlx::query_scalar(FINISH_TURN).bind(turn.tenant_id).bind(turn.turn_id).bind(turn.request_id);
    if !statement.bind(turn.tokens).fetch_one(&mut *tx).await? {
        return Err(Unfinished::TenantIsClosed);
    }
    let enqueued = Outbox::default().enqueue(&mut tx, &turn.event()?).await?;
    tx.commit().await?;
    Ok(enqueued)
}

/// In a tokio-postgres transaction.
pub async fn finish_with_tokio_postgres(client: &mut Client, turn: &Turn) -> Result<Enqueued, Unfinished> {
    let tx = client.transaction().await?;
    let Turn { tenant_id, turn_id, request_id, tokens } = turn;
    if !tx.query_one(FINISH_TURN, &[tenant_id, turn_id, request_id, tokens]).await?.try_get::<_, bool>(0)? {
        return Err(Unfinished::TenantIsClosed);
    }
    let enqueued = Outbox::default().enqueue(&tx, &turn.event()?).await?;
    tx.commit().await?;
    Ok(enqueued)
}
