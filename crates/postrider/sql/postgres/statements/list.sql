-- What people ask about messages, lanes and sinks. Called by `store/postgres/list.rs`. Where a view has a record's columns,
-- all are taken: `store/row.rs` reads them by name.

-- name: now
-- The database's clock.
select clock_timestamp()

-- name: status
-- How every sink stands.
select * from :"schema".status order by sink

-- name: message
-- What the producer said. Zero rows: the message is not in the store.
select * from :"schema".messages where message_id = $1

-- name: deliveries
-- Where a message stands for each sink that still has to do with it. Zero rows: delivered.
select * from :"schema".deliveries where message_id = $1 order by sink

-- name: attempts
-- Every attempt of a message, oldest first.
select * from :"schema".attempts where message_id = $1 order by completed_at, sink, attempt_no

-- name: entries
-- These messages as an operator of an edge site knows them: one row for each delivery that has not ended, one for a message
-- of which nothing is left to deliver (discarded, if a sink has attempts and none was DISPATCHED), with the last
-- attempt and the last failure. Caller: Inspect::entries.
-- $1: the messages, in the order of the answer. Every table is read by message id, in joins that cannot be turned around:
-- with old statistics a plan could read a whole table for each. Zero rows: none of them is there.
select m.message_id, d.sink, coalesce(d.state, ended.state) as state, m.topic, m.tenant_id, m.priority, m.occurred_at,
       d.due_at, d.claimed_by, d.claimed_at, d.lease_expires_at, coalesce(d.attempt_count, tried.attempts)::int as attempt_count,
       tried.last_attempt_at, coalesce(l.last_error_code, failed.error_code) as error_code,
       coalesce(l.last_error_message, failed.error_message) as error_message, l.failed_at as died_at, l.reason,
       m.payload_size_bytes::bigint as payload_size_bytes
from unnest($1::uuid[]) with ordinality as asked (message_id, place)
cross join lateral (
    select m.message_id, m.topic, m.tenant_id, m.priority, m.occurred_at, m.payload_size_bytes
    from :"schema".messages m where m.message_id = asked.message_id offset 0
) m
left join lateral (
    select d.message_id, d.sink, d.state, d.due_at, d.claimed_by, d.claimed_at, d.lease_expires_at, d.attempt_count
    from :"schema".deliveries d where d.message_id = m.message_id offset 0
) d on true
left join lateral (
    select l.died_at as failed_at, l.reason, l.error_code as last_error_code, l.error_message as last_error_message
    from :"schema".dead_letter l where l.message_id = d.message_id and l.sink = d.sink offset 0
) l on true
left join lateral (
    select case when not bool_and(t.delivered) then 'discarded' else 'delivered' end as state
    from (
        select bool_or(a.state = 'DISPATCHED') as delivered from :"schema".attempts a
        where a.message_id = m.message_id
        group by a.sink
    ) t
    where d.sink is null
) ended on true
cross join lateral (
    select count(*) as attempts, max(a.completed_at) as last_attempt_at
    from :"schema".attempts a
    where a.message_id = m.message_id and (d.sink is null or a.sink = d.sink)
) tried
left join lateral (
    select a.error_code, a.error_message
    from :"schema".attempts a
    where a.message_id = m.message_id and (d.sink is null or a.sink = d.sink) and a.state <> 'DISPATCHED'
    order by a.completed_at desc, a.attempt_no desc
    limit 1
) failed on true
order by asked.place, d.sink

-- name: lanes
-- Lanes: those that wait for a person first, then those whose head failed, then the deepest. Caller: Inspect::lanes.
-- The page is chosen first; the heads' last errors are looked up for the page alone.
-- $1 sink, $2 lane, $3 state, $4 limit, $5 the place of the last lane of the page before.
with page as materialized (
    select l.sink, l.lane, l.state, l.depth, l.head_sequence_id, l.head_message_id, l.head_due_at, l.head_attempt_count,
           l.head_failed, row_number() over (
               order by l.state = 'parked' desc, l.head_failed desc, l.depth desc, l.sink, l.lane) as place
    from :"schema".lanes l
    where ($1::text is null or l.sink = $1) and ($2::text is null or l.lane = $2) and ($3::text is null or l.state = $3)
      and ($5::text is null or (l.state <> 'parked', not l.head_failed, -l.depth, l.sink, l.lane)
           > (($5::jsonb ->> 0)::boolean, ($5::jsonb ->> 1)::boolean, ($5::jsonb ->> 2)::bigint, $5::jsonb ->> 3, $5::jsonb ->> 4))
    order by place
    limit $4
)
select p.sink, p.lane, p.state, p.depth, p.head_sequence_id, p.head_message_id, p.head_due_at, p.head_attempt_count,
       p.head_failed, a.error_code as head_error_code, a.error_message as head_error_message
from page p
left join lateral (
    select t.error_code, t.error_message
    from :"schema".attempts t
    where t.message_id = p.head_message_id and t.sink = p.sink
    order by t.attempt_no desc
    limit 1
) a on true
order by p.place

-- name: lane_heads
-- The head of one lane for each of these sinks, with its last error. Caller: Inspect::explain. Index: delivery_lane.
-- A sink without a row has nothing left in the lane. $1 sinks, $2 lane.
select s.sink, h.message_id, h.sequence_id, nullif(h.due_at, 'infinity') as due_at, h.claimed_by, h.lease_expires_at,
       a.error_code, a.error_message
from unnest($1::text[]) s (sink)
cross join lateral (
    select d.message_id, d.sequence_id, d.due_at, d.claimed_by, d.lease_expires_at
    from :"schema".delivery d
    where d.sink = s.sink and d.lane = $2 and d.lane is not null
    order by d.sequence_id
    limit 1
) h
left join lateral (
    select t.error_code, t.error_message
    from :"schema".attempt t
    where t.message_id = h.message_id and t.sink = s.sink
    order by t.attempt_no desc
    limit 1
) a on true

-- name: paused_sinks
-- Sinks that wait until they are resumed.
select name from :"schema".sink where paused
