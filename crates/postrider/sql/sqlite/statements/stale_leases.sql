-- Leases that ran out, and if `claimed_before` is given those taken before that, or in the future: the clock was ahead or
-- was set back. Callers: repair and unclaim.
-- Index: outbox_delivery_leased, which holds nothing else than leases. Zero rows: none.
select d.message_id, d.sink
from outbox_delivery d indexed by outbox_delivery_leased
where d.lease_token is not null
  and (d.lease_expires_at <= :now
       or (:claimed_before is not null and (d.claimed_at <= :claimed_before or d.claimed_at > :now)))
limit :batch_size
