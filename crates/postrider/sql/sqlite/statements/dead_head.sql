-- The dead head of a parked lane. Caller: skip. Index: outbox_delivery_lane. Zero rows: the lane's head is not dead, or
-- there is no such lane.
select h.message_id
from (
    select d.message_id, d.due_at from outbox_delivery d
    where d.sink = :sink and d.lane = :lane and d.lane is not null
    order by d.sequence_id
    limit 1
) h
where h.due_at = 9223372036854775807
