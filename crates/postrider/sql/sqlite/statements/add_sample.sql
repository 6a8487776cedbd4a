-- One line of a sample. Caller: measure.
insert into outbox_sample (at, sink, seconds, pending, due, leased, expired, dead, parked_lanes, oldest_due_age_seconds,
                           dispatched, retryable, failed, zombie_requeue, latency_p50_ms, latency_p99_ms,
                           last_success_at, last_error_at)
values (:at, :sink, :seconds, :pending, :due, :leased, :expired, :dead, :parked_lanes, :oldest_due_age_seconds,
        :dispatched, :retryable, :failed, :zombie_requeue, :latency_p50_ms, :latency_p99_ms, :last_success_at,
        :last_error_at)
