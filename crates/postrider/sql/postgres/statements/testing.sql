-- What an application's tests ask. Called by `testing.rs` and `store/postgres/testing.rs`, with the feature `testing` only.

-- name: enqueued
-- What this transaction sees in the outbox, the newest first: a JSON object for each message. In step with MAX_MESSAGES.
select jsonb_build_object(
           'message_id', m.id, 'namespace', m.namespace, 'topic', m.topic, 'tenant_id', m.tenant_id, 'lane', m.lane,
           'sequence_id', m.sequence_id, 'dedupe_key', m.dedupe_key, 'headers', coalesce(m.headers, '{}'), 'payload', m.payload
       )::text
from :"schema".message m
order by m.id desc
limit 1000

-- name: advance
-- As if $1 seconds had passed: whatever waits has waited so much longer, and leases end so much sooner. The owner's.
update :"schema".delivery d
set occurred_at = d.occurred_at - s.passed, due_at = d.due_at - s.passed, claimed_at = d.claimed_at - s.passed,
    lease_expires_at = d.lease_expires_at - s.passed
from (select $1::text::numeric * interval '1 second') s (passed)
