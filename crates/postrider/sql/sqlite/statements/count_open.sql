-- Pending, pending and not due yet, leased: what cancel and retry_now would take, and what they leave alone.
select count(*) filter (where d.lease_token is null), count(*) filter (where d.lease_token is null and d.due_at > :now),
       count(*) filter (where d.lease_token is not null)
from matching d
