-- The next lane after this one, and whether its head is due and free: one hop, whatever waits in the lane.
-- Caller: claim. Index: outbox_delivery_lane. Zero rows: that was the last lane.
select d.lane, d.due_at <= :now and (d.lease_expires_at is null or d.lease_expires_at <= :now)
from outbox_delivery d indexed by outbox_delivery_lane
where d.sink = :sink and d.lane > cast(:after as text) and d.lane is not null
order by d.lane, d.sequence_id
limit 1
