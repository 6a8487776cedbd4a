-- Leases that ran out, and those taken before `claimed_before` if that is given. Callers: repair and unclaim.
-- Index: outbox_delivery_leased, which holds nothing else than leases. Zero rows: none.
select d.message_id, d.sink
from outbox_delivery d indexed by outbox_delivery_leased
where d.lease_token is not null and (d.lease_expires_at <= :now or d.claimed_at <= :claimed_before)
limit :batch_size
