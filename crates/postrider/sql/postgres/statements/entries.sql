-- These messages as an operator of an edge site knows them: one row for each delivery that has not ended, one for a message
-- of which nothing is left to deliver (discarded, if the last attempt for a sink failed), with the last attempt and the last
-- failure. Caller: Inspect::entries.
-- $1: the messages, in the order of the answer. Every table is read by message id. Zero rows: none of them is there.
select m.message_id, d.sink, coalesce(d.state, case when exists (
           select from outbox.attempts a
           where a.message_id = m.message_id and a.state <> 'DISPATCHED' and not exists (
               select from outbox.attempts b
               where b.message_id = a.message_id and b.sink = a.sink and b.attempt_no > a.attempt_no)
       ) then 'discarded' else 'delivered' end) as state, m.topic, m.tenant_id, m.priority, m.occurred_at,
       d.due_at, d.claimed_by, d.claimed_at, d.lease_expires_at, coalesce(d.attempt_count, tried.attempts)::int as attempt_count,
       tried.last_attempt_at, coalesce(l.last_error_code, failed.error_code) as error_code,
       coalesce(l.last_error_message, failed.error_message) as error_message, l.failed_at as died_at, l.reason,
       m.payload_size_bytes::bigint as payload_size_bytes
from unnest($1::uuid[]) with ordinality as asked (message_id, place)
join outbox.messages m on m.message_id = asked.message_id
left join outbox.deliveries d on d.message_id = m.message_id
left join outbox.dead_letters l on l.message_id = d.message_id and l.sink = d.sink
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
