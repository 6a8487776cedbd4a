//! Answers questions about dead letters, and about what operators did to them, in PostgreSQL. Called by `inspect.rs` and,
//! for the parameters of a filter, by `operate.rs`. Where every dead letter may be looked at, it reads the table rather
//! than the view, whose join would fetch as many messages. Nothing here writes.

use serde_json::value::RawValue;
use tokio_postgres::Row;
use tokio_postgres::types::{Json, Type};
use uuid::Uuid;

use super::{Parameter, PostgresStore};
use crate::error::Error;
use crate::inspect::{AuditRecord, DeadFilter, DeadGroup, DeadLetter, DeadPage, MAX_DEAD_GROUPS};

/// What `choose_dead.sql` takes, in the same words: $1 to $10 are `filter_parameters`. The first words hold for every letter
/// and are those of the indexes by time.
const MATCHES: &str = "num_nulls(l.died_at) <> 1 and ($1::uuid[] is null or l.message_id = any ($1)) and ($2::text is null or l.sink = $2) \
     and ($3::text is null or l.namespace = $3) and ($4::text is null or l.topic like outbox.topic_like($4)) \
     and ($5::uuid is null or l.tenant_id = $5) and ($6::text is null or l.lane = $6) \
     and ($7::text is null or l.reason = $7) and ($8::text is null or coalesce(l.error_code, '') = $8) \
     and ($9::timestamptz is null or l.died_at >= $9) and ($10::timestamptz is null or l.died_at < $10)";

pub(super) fn filter_parameters(filter: &DeadFilter) -> [Parameter<'_>; 10] {
    [
        (&filter.message_ids, Type::UUID_ARRAY),
        (&filter.sink, Type::TEXT),
        (&filter.namespace, Type::TEXT),
        (&filter.topic, Type::TEXT),
        (&filter.tenant_id, Type::UUID),
        (&filter.lane, Type::TEXT),
        (&filter.reason, Type::TEXT),
        (&filter.error_code, Type::TEXT),
        (&filter.died_from, Type::TIMESTAMPTZ),
        (&filter.died_to, Type::TIMESTAMPTZ),
    ]
}

pub(super) async fn dead_letters(
    store: &PostgresStore,
    filter: &DeadFilter,
    page: &DeadPage,
) -> Result<Vec<DeadLetter>, Error> {
    let (died_at, message_id, sink) =
        page.after.as_ref().map_or((None, None, None), |(at, id, sink)| (Some(at), Some(id), Some(sink)));
    // The page is cut before the messages are joined: one that is large is not read to be left out.
    let sql = format!(
        "select p.message_id, p.sink, p.died_at, p.reason, p.error_code, p.error_message, p.attempt_no, \
         p.attempt_count, p.parked, p.namespace, p.topic, p.tenant_id, p.lane, p.sequence_id, \
         coalesce(m.occurred_at, p.died_at) as occurred_at, coalesce(m.payload_size_bytes, 0)::int8 as payload_size_bytes \
         from (select l.* from outbox.dead_letter l where {MATCHES} and ($11::timestamptz is null or \
         ((l.died_at, l.message_id) <= ($11, $12) and not (l.died_at = $11 and l.message_id = $12 and l.sink <= $13))) \
         order by l.died_at desc, l.message_id desc, l.sink limit $14) p \
         left join outbox.messages m on m.message_id = p.message_id \
         order by p.died_at desc, p.message_id desc, p.sink"
    );
    let place: [Parameter<'_>; 4] = [
        (&died_at, Type::TIMESTAMPTZ),
        (&message_id, Type::UUID),
        (&sink, Type::TEXT),
        (&i64::from(page.limit), Type::INT8),
    ];
    let rows = store.ask(&sql, &[&filter_parameters(filter)[..], &place].concat()).await?;
    rows.iter().map(dead_letter).collect()
}

pub(super) async fn dead_groups(store: &PostgresStore, filter: &DeadFilter) -> Result<Vec<DeadGroup>, Error> {
    // The newest one's message is looked up for the groups that are told, instead of being carried through the grouping.
    let sql = format!(
        "select g.sink, g.topic, g.reason, g.error_code, g.count, g.first_died_at, g.last_died_at, n.error_message \
         from (select l.sink, l.topic, l.reason, l.error_code, count(*) as count, min(l.died_at) as first_died_at, \
         max(l.died_at) as last_died_at from outbox.dead_letter l where {MATCHES} \
         group by l.sink, l.topic, l.reason, l.error_code \
         order by count(*) desc, l.sink, l.topic, l.reason, l.error_code limit $11) g \
         left join lateral (select l.error_message from outbox.dead_letter l \
         where l.sink = g.sink and l.died_at = g.last_died_at and l.topic = g.topic and l.reason = g.reason \
         and l.error_code is not distinct from g.error_code and {MATCHES} \
         order by l.died_at desc, l.message_id desc limit 1) n on true \
         order by g.count desc, g.sink, g.topic, g.reason, g.error_code"
    );
    let at_most: [Parameter<'_>; 1] = [(&i64::from(MAX_DEAD_GROUPS), Type::INT8)];
    let rows = store.ask(&sql, &[&filter_parameters(filter)[..], &at_most].concat()).await?;
    rows.iter().map(dead_group).collect()
}

pub(super) async fn count_dead(store: &PostgresStore, filter: &DeadFilter) -> Result<u64, Error> {
    let sql = format!("select count(*) from outbox.dead_letter l where {MATCHES}");
    let rows = store.ask(&sql, &filter_parameters(filter)).await?;
    let count: i64 = rows.first().map(|row| row.try_get(0)).transpose()?.unwrap_or(0);
    Ok(u64::try_from(count).unwrap_or(0))
}

pub(super) async fn not_dead(store: &PostgresStore, filter: &DeadFilter) -> Result<Vec<Uuid>, Error> {
    let sql = format!(
        "select i.id from (select distinct i.id from unnest($1::uuid[]) i (id)) i \
         where not exists (select from outbox.dead_letter l where l.message_id = i.id and {MATCHES}) order by i.id"
    );
    let rows = store.ask(&sql, &filter_parameters(filter)).await?;
    rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
}

pub(super) async fn audit(store: &PostgresStore, before: Option<i64>, limit: u32) -> Result<Vec<AuditRecord>, Error> {
    let rows = store
        .ask(
            "select id, at, actor, db_user, action, detail, affected from outbox.audit_log \
             where $1::int8 is null or id < $1 order by id desc limit $2",
            &[(&before, Type::INT8), (&i64::from(limit), Type::INT8)],
        )
        .await?;
    rows.iter().map(audit_record).collect()
}

fn dead_letter(row: &Row) -> Result<DeadLetter, Error> {
    Ok(DeadLetter {
        message_id: row.try_get("message_id")?,
        sink: row.try_get("sink")?,
        died_at: row.try_get("died_at")?,
        reason: row.try_get("reason")?,
        error_code: row.try_get("error_code")?,
        error_message: row.try_get("error_message")?,
        attempt_no: row.try_get("attempt_no")?,
        attempt_count: row.try_get("attempt_count")?,
        parked: row.try_get("parked")?,
        namespace: row.try_get("namespace")?,
        topic: row.try_get("topic")?,
        tenant_id: row.try_get("tenant_id")?,
        lane: row.try_get("lane")?,
        sequence_id: row.try_get("sequence_id")?,
        occurred_at: row.try_get("occurred_at")?,
        payload_size_bytes: row.try_get("payload_size_bytes")?,
    })
}

fn dead_group(row: &Row) -> Result<DeadGroup, Error> {
    Ok(DeadGroup {
        sink: row.try_get("sink")?,
        topic: row.try_get("topic")?,
        reason: row.try_get("reason")?,
        error_code: row.try_get("error_code")?,
        count: row.try_get("count")?,
        first_died_at: row.try_get("first_died_at")?,
        last_died_at: row.try_get("last_died_at")?,
        error_message: row.try_get("error_message")?,
    })
}

fn audit_record(row: &Row) -> Result<AuditRecord, Error> {
    let Json(detail): Json<Box<RawValue>> = row.try_get("detail")?;
    Ok(AuditRecord {
        id: row.try_get("id")?,
        at: row.try_get("at")?,
        actor: row.try_get("actor")?,
        db_user: row.try_get("db_user")?,
        action: row.try_get("action")?,
        detail,
        affected: row.try_get("affected")?,
    })
}
