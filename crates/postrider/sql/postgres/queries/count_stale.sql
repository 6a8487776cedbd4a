-- How many leases ended, or were taken longer ago than $1 seconds or in the future: what unclaim_stuck would take.
select count(*)
from outbox.delivery d
where d.lease_expires_at <= clock_timestamp()
   or (d.lease_token is not null
       and (d.claimed_at <= clock_timestamp() - $1::text::numeric * interval '1 second' or d.claimed_at > clock_timestamp()))
