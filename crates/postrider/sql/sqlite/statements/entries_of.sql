-- A message as an operator of an edge site knows it: one row for each delivery that has not ended, or one if nothing is left
-- to deliver (discarded, if a sink has attempts and none was DISPATCHED), with the last attempt and the last
-- failure. Caller: Inspect::entries, for each message asked for.
-- Every table is read by message id. Zero rows: the message is not in the store.
with open as (
    select d.sink,
           case when d.lease_token is not null then 'leased' when d.due_at = 9223372036854775807 then 'dead'
                else 'pending' end as state,
           nullif(d.due_at, 9223372036854775807) as due_at, d.claimed_by, d.claimed_at, d.lease_expires_at, d.attempt_count
    from outbox_delivery d
    where d.message_id = :message_id
    union all
    select l.sink, 'dead', null, null, null, null, l.attempt_count
    from outbox_dead_letter l
    where l.message_id = :message_id and l.parked = 0
)
select m.id as message_id, o.sink, coalesce(o.state, case when exists (
           select 1 from outbox_attempt a
           where a.message_id = m.id and not exists (
               select 1 from outbox_attempt b
               where b.message_id = a.message_id and b.sink = a.sink and b.state = 'DISPATCHED')
       ) then 'discarded' else 'delivered' end) as state, m.topic, m.tenant_id, m.priority,
       m.occurred_at, o.due_at, o.claimed_by, o.claimed_at, o.lease_expires_at,
       coalesce(o.attempt_count, (select count(*) from outbox_attempt a where a.message_id = m.id)) as attempt_count,
       (select max(a.completed_at) from outbox_attempt a
        where a.message_id = m.id and (o.sink is null or a.sink = o.sink)) as last_attempt_at,
       coalesce(l.error_code, f.error_code) as error_code, coalesce(l.error_message, f.error_message) as error_message,
       l.died_at, l.reason, coalesce(length(m.body), length(cast(m.payload as blob))) as payload_size_bytes
from outbox_message m
left join open o on true
left join outbox_dead_letter l on l.message_id = m.id and l.sink = o.sink
left join outbox_attempt f
  on f.message_id = m.id and (f.sink, f.attempt_no) = (
      select a.sink, a.attempt_no from outbox_attempt a
      where a.message_id = m.id and (o.sink is null or a.sink = o.sink) and a.state <> 'DISPATCHED'
      order by a.completed_at desc, a.attempt_no desc
      limit 1)
where m.id = :message_id
order by o.sink
