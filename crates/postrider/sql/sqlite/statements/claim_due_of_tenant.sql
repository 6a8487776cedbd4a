-- claim_due.sql for one tenant. Index: outbox_delivery_due_of_tenant.
select d.message_id, d.lease_token is not null or d.attempt_count >= :max_attempts as unsettled
from outbox_delivery d indexed by outbox_delivery_due_of_tenant
where d.sink = :sink and d.tenant_id = :tenant_id and d.lane is null and d.priority = :priority and d.due_at <= :now
  and (d.lease_expires_at is null or d.lease_expires_at <= :now)
order by d.due_at, d.message_id
limit :room
