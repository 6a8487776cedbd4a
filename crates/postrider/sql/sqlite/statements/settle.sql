-- Closes a lease that ended without an outcome: its attempt is recorded as ZOMBIE_REQUEUE. The lease itself stays; the
-- caller overwrites or clears it. Callers: claim, repair and unclaim, which have decided that the lease is over.
-- Zero rows: there was no lease.
insert into outbox_attempt (message_id, sink, attempt_no, state, claimed_at, completed_at, worker_id, error_code,
                            error_message)
select d.message_id, d.sink, d.attempt_no, 'ZOMBIE_REQUEUE', d.claimed_at, :now, d.claimed_by, 'LEASE_EXPIRED',
       'the lease ended before the worker reported an outcome'
from outbox_delivery d
where d.message_id = :message_id and d.sink = :sink and d.lease_token is not null
