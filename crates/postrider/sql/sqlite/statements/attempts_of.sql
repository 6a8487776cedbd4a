-- Every attempt of a message, oldest first. Caller: show.
select a.sink, a.attempt_no, a.state, a.worker_id, a.claimed_at, a.completed_at, a.latency_ms, a.code, a.reference,
       a.error_code, a.error_message, a.answer
from outbox_attempt a
where a.message_id = :message_id
order by a.completed_at, a.sink, a.attempt_no
