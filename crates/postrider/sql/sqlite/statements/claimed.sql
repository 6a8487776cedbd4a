-- What the producer said, and the terms of the lease that was just taken. Caller: claim.
-- lost_leases: how many of the two attempts before this one ended because their lease ran out; asked only of what was
-- tried before.
select m.id, d.sink, m.namespace, m.topic, m.tenant_id, m.lane, m.sequence_id, m.dedupe_key, d.priority, m.headers,
       m.payload, m.body, m.content_type, m.occurred_at, d.due_at, d.attempt_no, d.attempt_count,
       case when d.attempt_count > 1 then (
           select count(*) from outbox_attempt a
           where a.message_id = d.message_id and a.sink = d.sink
             and a.attempt_no between d.attempt_no - 2 and d.attempt_no - 1 and a.state = 'ZOMBIE_REQUEUE'
       ) else 0 end as lost_leases,
       d.lease_token, d.claimed_at, d.lease_expires_at
from outbox_delivery d
join outbox_message m on m.id = d.message_id
where d.message_id = :message_id and d.sink = :sink
