-- The head of one lane for each of these sinks, with its last error. Caller: Inspect::explain. Index: delivery_lane.
-- A sink without a row has nothing left in the lane. $1 sinks, $2 lane.
select s.sink, h.message_id, h.sequence_id, nullif(h.due_at, 'infinity') as due_at, h.claimed_by, h.lease_expires_at,
       a.error_code, a.error_message
from unnest($1::text[]) s (sink)
cross join lateral (
    select d.message_id, d.sequence_id, d.due_at, d.claimed_by, d.lease_expires_at
    from outbox.delivery d
    where d.sink = s.sink and d.lane = $2 and d.lane is not null
    order by d.sequence_id
    limit 1
) h
left join lateral (
    select t.error_code, t.error_message
    from outbox.attempt t
    where t.message_id = h.message_id and t.sink = s.sink
    order by t.attempt_no desc
    limit 1
) a on true
