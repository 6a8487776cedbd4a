-- What was measured since then. Caller: samples. Index: sample_pk.
select s.at, s.seconds, s.sink, s.pending, s.due, s.leased, s.expired, s.dead, s.parked_lanes, s.oldest_due_age_seconds,
       s.dispatched, s.retryable, s.failed, s.zombie_requeue, s.latency_p50_ms, s.latency_p99_ms
from outbox_samples s
where s.at >= :since
order by s.at, s.sink
