-- Where a message stands for each sink that still has to do with it. Callers: list and show. Zero rows: delivered.
select d.sink,
       case when d.lease_token is not null then 'leased' when d.due_at = 9223372036854775807 then 'dead'
            else 'pending' end as state,
       nullif(d.due_at, 9223372036854775807) as due_at, d.attempt_no, d.attempt_count, d.max_attempts,
       d.claimed_by, d.lease_expires_at
from outbox_delivery d
where d.message_id = :message_id
union all
select l.sink, 'dead', null, l.attempt_no, l.attempt_count, null, null, null
from outbox_dead_letter l
where l.message_id = :message_id and l.parked = 0
order by 1
