-- How many leases unclaim would end: see stale_leases.sql.
select count(*)
from outbox_delivery d indexed by outbox_delivery_leased
where d.lease_token is not null
  and (d.lease_expires_at <= :now or d.claimed_at <= :claimed_before or d.claimed_at > :now)
