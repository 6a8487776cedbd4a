-- How each sink stood every few seconds, and the attempts in between: what a chart is drawn from.
create view :"schema".samples as
select s.at, s.seconds, s.sink, s.pending, s.due, s.leased, s.expired, s.dead, s.parked_lanes,
       s.oldest_pending_age_seconds, s.oldest_due_age_seconds, s.dispatched, s.retryable, s.failed,
       s.zombie_requeue, s.latency_p50_ms, s.latency_p99_ms, s.last_success_at, s.last_error_at
from :"schema".sample s;
comment on view :"schema".samples is 'How each sink stood every few seconds, with the attempts and latencies in between.';
grant select on :"schema".samples to :"relay";
