-- claim_priority.sql for one tenant. Index: outbox_delivery_due_of_tenant.
select d.priority, d.due_at <= :now
from outbox_delivery d indexed by outbox_delivery_due_of_tenant
where d.sink = :sink and d.tenant_id = :tenant_id and d.lane is null and d.priority < :below
order by d.priority desc, d.due_at
limit 1
