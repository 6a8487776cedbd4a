-- The record of every try, for a person's eyes: ids and times as text.
create view outbox_attempts as
select lower(substr(hex(a.message_id), 1, 8) || '-' || substr(hex(a.message_id), 9, 4) || '-' || substr(hex(a.message_id), 13, 4) || '-'
             || substr(hex(a.message_id), 17, 4) || '-' || substr(hex(a.message_id), 21)) as message_id,
       a.sink, a.attempt_no, a.state, a.worker_id, strftime('%Y-%m-%dT%H:%M:%fZ', a.claimed_at / 1000000.0, 'unixepoch') as claimed_at,
       strftime('%Y-%m-%dT%H:%M:%fZ', a.completed_at / 1000000.0, 'unixepoch') as completed_at, a.latency_ms, a.code, a.reference,
       a.error_code, a.error_message, a.answer
from outbox_attempt a;
