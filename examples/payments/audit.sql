-- The story of one payment, found by its instruction: what was asked for, the message, every attempt, what operators did.
-- Run by auditors: psql -X -v instruction_id=PAY-1 -f audit.sql. It reads only, with the rights of outbox_auditor.

\echo The instruction
select i.instruction_id, i.idempotency_key, i.participant_id, i.rail, i.payment, i.accepted_at
from instructions i where i.instruction_id = :'instruction_id' order by i.accepted_at;

-- The dedupe key is the instruction and its idempotency key; find_keys has an index for it.
create temporary table audited as
select k as message_id, i.idempotency_key
from instructions i, outbox.find_keys(i.instruction_id || '/' || i.idempotency_key) k
where i.instruction_id = :'instruction_id';

\echo The message
select m.message_id as outbox_id, m.topic, m.lane as participant_id, m.sequence_id, m.enqueued_at,
       coalesce((select d.state from outbox.deliveries d where d.message_id = m.message_id),
                (select case t.state when 'DISPATCHED' then 'settled' else 'given up' end from outbox.attempts t
                 where t.message_id = m.message_id order by t.attempt_no desc limit 1)) as state
from outbox.messages m join audited a using (message_id) order by m.enqueued_at;

\echo Every attempt
select t.attempt_no, t.state, t.sink as rail, t.worker_id, t.claimed_at, t.latency_ms, t.code as rail_code, t.error_code,
       t.reference as rail_reference
from outbox.attempts t join audited a using (message_id) order by t.message_id, t.attempt_no;

\echo What operators did to it
select l.at, l.actor, l.db_user, l.action, l.affected
from outbox.audit_log l, audited a
where l.detail::text like '%' || a.message_id || '%' order by l.id;
