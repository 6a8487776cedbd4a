-- Due deliveries without a lane, of one priority: due time, then id. Those not yet due are not read.
-- Caller: claim. Index: outbox_delivery_due. `unsettled`: its last lease ended without an outcome, or it is out of
-- attempts. Zero rows: nothing of this priority is due and free.
select d.message_id, d.lease_token is not null or d.attempt_count >= :max_attempts as unsettled
from outbox_delivery d indexed by outbox_delivery_due
where d.sink = :sink and d.lane is null and d.priority = :priority and d.due_at <= :now
  and (d.lease_expires_at is null or d.lease_expires_at <= :now)
order by d.due_at, d.message_id
limit :room
