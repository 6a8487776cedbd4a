-- The record of every try.
create view :"schema".attempts as
select a.message_id, a.sink, a.attempt_no, a.state::text as state, a.worker_id, a.claimed_at, a.completed_at,
       a.latency_ms, a.code, a.reference, a.error_code, a.error_message, a.answer
from :"schema".attempt a;
comment on view :"schema".attempts is 'Every attempt and how it ended.';
