-- Where each message stands for each sink that still has to do with it: pending, leased or dead. What was delivered
-- has no row here; its attempts tell. For a person's eyes: ids and times as text.
create view outbox_deliveries as
select lower(substr(hex(q.message_id), 1, 8) || '-' || substr(hex(q.message_id), 9, 4) || '-' || substr(hex(q.message_id), 13, 4) || '-'
             || substr(hex(q.message_id), 17, 4) || '-' || substr(hex(q.message_id), 21)) as message_id,
       q.sink, q.state, strftime('%Y-%m-%dT%H:%M:%fZ', q.due_at / 1000000.0, 'unixepoch') as due_at, q.priority, q.lane,
       q.sequence_id, q.attempt_no, q.attempt_count, q.max_attempts, q.claimed_by,
       strftime('%Y-%m-%dT%H:%M:%fZ', q.claimed_at / 1000000.0, 'unixepoch') as claimed_at,
       strftime('%Y-%m-%dT%H:%M:%fZ', q.lease_expires_at / 1000000.0, 'unixepoch') as lease_expires_at
from (
    select d.message_id, d.sink,
           case when d.lease_token is not null then 'leased' when d.due_at = 9223372036854775807 then 'dead'
                else 'pending' end as state,
           nullif(d.due_at, 9223372036854775807) as due_at, d.priority, d.lane, d.sequence_id, d.attempt_no,
           d.attempt_count, d.max_attempts, d.claimed_by, d.claimed_at, d.lease_expires_at
    from outbox_delivery d
    union all
    select l.message_id, l.sink, 'dead', null, l.priority, l.lane, l.sequence_id, l.attempt_no, l.attempt_count, null,
           null, null, null
    from outbox_dead_letter l
    where l.parked = 0
) q;
