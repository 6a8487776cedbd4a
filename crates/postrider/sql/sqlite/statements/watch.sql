-- What relays report and measure. Called by `store/sqlite/watch.rs`.

-- name: clock
-- The clock, read once a transaction: what this transaction calls now.
select now from outbox_clock

-- name: report
-- A relay says that it is alive. Caller: report. When it first said so is kept.
insert into outbox_relay (worker_id, started_at, reported_at, every_us, version, sinks)
values (:worker_id, :now, :now, :every_us, :version, :sinks)
on conflict (worker_id) do update
set reported_at = excluded.reported_at, every_us = excluded.every_us, version = excluded.version, sinks = excluded.sinks

-- name: sign_off
-- A relay stops in good order. Zero rows: it never reported, or was forgotten.
delete from outbox_relay where worker_id = :worker_id

-- name: forget_relays
-- Relays that have been silent for so long that nobody misses them. Caller: report. Zero rows: none.
delete from outbox_relay
where reported_at < :now - (select s.relay_retention_seconds * 1000000 from outbox_setting s)
  and worker_id <> :worker_id

-- name: relays
-- Relays as they last reported. Caller: relays and explain.
select * from outbox_relays r order by r.worker_id

-- name: sample_times
-- When the last sample that is not from the future ended, and how often, how late and how far back samples are taken, in microseconds.
-- Caller: measure. Index: sample_pk.
select (select max(m.at) from outbox_sample m where m.at <= :now) as last_at,
       cast(s.sample_every_seconds * 1000000 as integer) as every_us,
       cast(s.sample_lag_seconds * 1000000 as integer) as lag_us,
       cast(s.sample_reach_seconds * 1000000 as integer) as reach_us
from outbox_setting s

-- name: last_sample
-- When the last sample that is not from the future ended. Caller: measure, to see that nobody else measured meanwhile.
select max(m.at) from outbox_sample m where m.at <= :now

-- name: measure
-- How every sink stands now, with the attempts from `from` on and before `to`. Caller: measure. The last success and failure
-- go on from the sample that was taken at `last_at`; if it is not there, or ended before `from`, the 10,000 attempts before
-- `from` tell, too.
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
known as (
    select o.sink, max(o.last_success_at) as last_success_at, max(o.last_error_at) as last_error_at
    from (
        select m.sink, m.last_success_at, m.last_error_at from outbox_sample m where m.at = :last_at
        union all
        select a.sink, case when a.state = 'DISPATCHED' then a.completed_at end,
               case when a.state not in ('DISPATCHED', 'CANCELLED') then a.completed_at end
        from (
            select a.sink, a.state, a.completed_at from outbox_attempt a indexed by outbox_attempt_completed
            where a.completed_at < :from
            order by a.completed_at desc
            limit case when :last_at is :from then 0 else 10000 end
        ) a
        union all
        select c.sink, c.last_success_at, c.last_error_at from counted c
    ) o
    group by o.sink
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
select :to as at, (:to - :from) / 1000000.0 as seconds, coalesce(q.sink, a.sink) as sink, coalesce(q.pending, 0) as pending, coalesce(q.due, 0) as due,
       coalesce(q.leased, 0) as leased, coalesce(q.expired, 0) as expired, coalesce(q.dead, 0) as dead,
       coalesce(q.parked_lanes, 0) as parked_lanes,
       coalesce(q.oldest_pending_age_seconds, 0.0) as oldest_pending_age_seconds,
       coalesce(q.oldest_due_age_seconds, 0.0) as oldest_due_age_seconds,
       coalesce(a.dispatched, 0) as dispatched, coalesce(a.retryable, 0) as retryable, coalesce(a.failed, 0) as failed,
       coalesce(a.zombie_requeue, 0) as zombie_requeue, l.p50_ms as latency_p50_ms, l.p99_ms as latency_p99_ms,
       o.last_success_at, o.last_error_at
from outbox_sinks q
full join counted a on a.sink = q.sink
left join known o on o.sink = coalesce(q.sink, a.sink)
left join latency l on l.sink = coalesce(q.sink, a.sink)

-- name: add_sample
-- One line of a sample. Caller: measure.
insert into outbox_sample (at, sink, seconds, pending, due, leased, expired, dead, parked_lanes,
                           oldest_pending_age_seconds, oldest_due_age_seconds, dispatched, retryable, failed,
                           zombie_requeue, latency_p50_ms, latency_p99_ms, last_success_at, last_error_at)
values (:at, :sink, :seconds, :pending, :due, :leased, :expired, :dead, :parked_lanes, :oldest_pending_age_seconds,
        :oldest_due_age_seconds, :dispatched, :retryable, :failed, :zombie_requeue, :latency_p50_ms, :latency_p99_ms,
        :last_success_at, :last_error_at)

-- name: prune_samples
-- Samples past their retention, oldest first, and those from the future: the clock was ahead or was set back. Caller: measure. Index: sample_pk. Zero rows: none.
delete from outbox_sample
where (at, sink) in (
    select s.at, s.sink from outbox_sample s
    where s.at < :at - (select t.sample_retention_seconds * 1000000 from outbox_setting t) or s.at > :now
    order by s.at
    limit :batch_size
)

-- name: samples
-- What was measured since then. Caller: samples. Index: sample_pk.
select * from outbox_samples s
where s.at >= :since
order by s.at, s.sink

-- name: future_times
-- Times that the clock cannot have written, had it always been right: leases, relays' reports and samples from later than
-- `latest`, and leases that last longer than `longest_us`. Caller: doctor.
select (select count(*) from outbox_delivery d indexed by outbox_delivery_leased
        where d.lease_token is not null and (d.claimed_at > :latest or d.lease_expires_at > :latest + :longest_us)) as leases,
       (select count(*) from outbox_relay r where r.reported_at > :latest) as reports,
       (select count(*) from outbox_sample s where s.at > :latest) as samples
