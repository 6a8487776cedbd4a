-- The next lower priority in use, and its earliest due time: one hop, whatever waits there.
-- Caller: claim. Index: outbox_delivery_due. Zero rows: no lower one.
select d.priority, d.due_at <= :now
from outbox_delivery d indexed by outbox_delivery_due
where d.sink = :sink and d.lane is null and d.priority < :below
order by d.priority desc, d.due_at
limit 1
