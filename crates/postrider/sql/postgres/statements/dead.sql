-- Dead letters. Called by `store/postgres/inspect.rs`; `matching` is the first part of the others. Where every dead letter may be
-- looked at, the table is read rather than the view, whose join would fetch as many messages.

-- name: matching
-- The dead letters that a filter means, in the words of functions/dead.sql: $1 messages, $2 sink, $3 namespace,
-- $4 topic, $5 tenant, $6 lane, $7 reason, $8 error code (empty: those without one), $9 died from, $10 died before; null:
-- any. The first condition holds for every letter and is that of the indexes by time.
-- Not materialized: where it is looked at twice, each look reads what it needs.
with matching as not materialized (
    select l.* from :"schema".dead_letter l
    where num_nulls(l.died_at) <> 1
      and ($1::uuid[] is null or l.message_id = any ($1))
      and ($2::text is null or l.sink = $2)
      and ($3::text is null or l.namespace = $3)
      and ($4::text is null or l.topic like :"schema".topic_like($4))
      and ($5::text is null or l.tenant_id = $5)
      and ($6::text is null or l.lane = $6)
      and ($7::text is null or l.reason = $7)
      and ($8::text is null or coalesce(l.error_code, '') = $8)
      and ($9::timestamptz is null or l.died_at >= $9)
      and ($10::timestamptz is null or l.died_at < $10)
)

-- name: count
-- How many there are: what a redrive or a discard would take.
select count(*) from matching

-- name: missing
-- Which of the named messages have no dead letter of this kind.
select i.id
from (select distinct i.id from unnest($1::uuid[]) i (id)) i
where not exists (select from matching l where l.message_id = i.id)
order by i.id

-- name: list
-- A page of them, newest first, after the last one of the page before ($11 died at, $12 message, $13 sink); $14 limit.
-- The page is cut before the messages are joined: one that is large is not read to be left out.
, page as materialized (
    select l.* from matching l
    where $11::timestamptz is null
       or ((l.died_at, l.message_id) <= ($11, $12)
           and not (l.died_at = $11 and l.message_id = $12 and l.sink <= $13))
    order by l.died_at desc, l.message_id desc, l.sink
    limit $14
)
select p.*, coalesce(m.occurred_at, p.died_at) as occurred_at,
       coalesce(m.payload_size_bytes, 0)::int8 as payload_size_bytes
from page p
left join :"schema".messages m on m.message_id = p.message_id
order by p.died_at desc, p.message_id desc, p.sink

-- name: group
-- How many of each kind, the most first; $11 limit. The newest one's message is looked up for the groups that are told,
-- instead of being carried through the grouping.
, kind as (
    select l.sink, l.topic, l.reason, l.error_code, count(*) as count, min(l.died_at) as first_died_at,
           max(l.died_at) as last_died_at
    from matching l
    group by l.sink, l.topic, l.reason, l.error_code
    order by count(*) desc, l.sink, l.topic, l.reason, l.error_code
    limit $11
)
select k.sink, k.topic, k.reason, k.error_code, k.count, k.first_died_at, k.last_died_at, n.error_message
from kind k
left join lateral (
    select l.error_message from matching l
    where l.sink = k.sink and l.died_at = k.last_died_at and l.topic = k.topic and l.reason = k.reason
      and l.error_code is not distinct from k.error_code
    order by l.died_at desc, l.message_id desc
    limit 1
) n on true
order by k.count desc, k.sink, k.topic, k.reason, k.error_code
