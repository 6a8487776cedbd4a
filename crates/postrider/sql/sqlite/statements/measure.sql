-- How every sink stands now, with the attempts from `from` on and before `to`. Caller: measure.
-- Indexes: outbox_attempt_completed, which has all that is counted. The latencies are asked of the messages.
with counted as (
    select a.sink,
           count(*) filter (where a.state = 'DISPATCHED') as dispatched,
           count(*) filter (where a.state = 'RETRYABLE') as retryable,
           count(*) filter (where a.state = 'FAILED') as failed,
           count(*) filter (where a.state = 'ZOMBIE_REQUEUE') as zombie_requeue,
           max(a.completed_at) filter (where a.state = 'DISPATCHED') as last_success_at,
           max(a.completed_at) filter (where a.state not in ('DISPATCHED', 'CANCELLED')) as last_error_at
    from outbox_attempt a indexed by outbox_attempt_completed
    where a.completed_at >= :from and a.completed_at < :to
    group by a.sink
),
placed as (
    select l.sink, l.latency_ms, row_number() over (partition by l.sink order by l.latency_ms) as place,
           count(*) over (partition by l.sink) as placed
    from (
        select a.sink, max(a.completed_at - m.enqueued_at, 0) / 1000.0 as latency_ms
        from outbox_attempt a indexed by outbox_attempt_completed
        join outbox_message m on m.id = a.message_id
        where a.completed_at >= :from and a.completed_at < :to and a.state = 'DISPATCHED'
    ) l
),
latency as (
    -- The first that at least half, or 99 of 100, are not slower than.
    select p.sink,
           max(p.latency_ms) filter (where p.place = (p.placed + 1) / 2) as p50_ms,
           max(p.latency_ms) filter (where p.place = (p.placed * 99 + 99) / 100) as p99_ms
    from placed p
    group by p.sink
)
select coalesce(q.sink, a.sink) as sink, coalesce(q.pending, 0) as pending, coalesce(q.due, 0) as due,
       coalesce(q.leased, 0) as leased, coalesce(q.expired, 0) as expired, coalesce(q.dead, 0) as dead,
       coalesce(q.parked_lanes, 0) as parked_lanes, coalesce(q.oldest_due_age_seconds, 0.0) as oldest_due_age_seconds,
       coalesce(a.dispatched, 0) as dispatched, coalesce(a.retryable, 0) as retryable, coalesce(a.failed, 0) as failed,
       coalesce(a.zombie_requeue, 0) as zombie_requeue, l.p50_ms as latency_p50_ms, l.p99_ms as latency_p99_ms,
       a.last_success_at, a.last_error_at
from outbox_sinks q
full join counted a on a.sink = q.sink
left join latency l on l.sink = coalesce(q.sink, a.sink)
