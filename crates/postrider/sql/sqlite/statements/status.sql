-- How every sink stands. Caller: inspection and gauges.
select s.sink, s.paused, s.on_dead, s.pending, s.due, s.leased, s.expired, s.dead, s.parked_lanes,
       s.oldest_due_age_seconds, s.recent_seconds, s.recent_dispatched, s.recent_retryable, s.recent_failed,
       s.recent_zombies, s.last_success_at, s.last_error_at
from outbox_status s
order by s.sink
