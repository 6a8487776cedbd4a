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
    from outbox.messages m where m.message_id = asked.message_id offset 0
) m
left join lateral (
    select d.message_id, d.sink, d.state, d.due_at, d.claimed_by, d.claimed_at, d.lease_expires_at, d.attempt_count
    from outbox.deliveries d where d.message_id = m.message_id offset 0
) d on true
left join lateral (
    select l.died_at as failed_at, l.reason, l.error_code as last_error_code, l.error_message as last_error_message
    from outbox.dead_letter l where l.message_id = d.message_id and l.sink = d.sink offset 0
) l on true
left join lateral (
    select case when not bool_and(t.delivered) then 'discarded' else 'delivered' end as state
    from (
        select bool_or(a.state = 'DISPATCHED') as delivered from outbox.attempts a
        where a.message_id = m.message_id
        group by a.sink
    ) t
    where d.sink is null
) ended on true
cross join lateral (
    select count(*) as attempts, max(a.completed_at) as last_attempt_at
    from outbox.attempts a
    where a.message_id = m.message_id and (d.sink is null or a.sink = d.sink)
) tried
left join lateral (
    select a.error_code, a.error_message
    from outbox.attempts a
    where a.message_id = m.message_id and (d.sink is null or a.sink = d.sink) and a.state <> 'DISPATCHED'
    order by a.completed_at desc, a.attempt_no desc
    limit 1
) failed on true
order by asked.place, d.sink
