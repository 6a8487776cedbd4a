-- One row for each sink that has or had work lately: the supervisor's view over queue, dead letters and attempts.
-- Reads the hot table once and the attempts of the last setting.status_window_seconds; history is not read. Times are
-- microseconds since 1970.
create view outbox_status as
with sinks as (
    select 'default' as sink
    union select s.name from outbox_sink s
    union select r.sink from outbox_route r
    union select d.sink from outbox_delivery d
    union select l.sink from outbox_dead_letter l
),
queue as (
    select d.sink,
           count(*) filter (where d.lease_token is null and d.due_at < 9223372036854775807) as pending,
           count(*) filter (where d.lease_token is null and d.due_at <= c.now) as due,
           count(*) filter (where d.lease_token is not null) as leased,
           count(*) filter (where d.lease_expires_at <= c.now) as expired,
           count(*) filter (where d.due_at = 9223372036854775807) as parked_lanes,
           min(d.due_at) filter (where d.lease_token is null and d.due_at <= c.now) as oldest_due_at
    from outbox_clock c cross join outbox_delivery d
    group by d.sink
),
dead as (
    select l.sink, count(*) as dead, max(l.died_at) as last_died_at from outbox_dead_letter l group by l.sink
),
lately as (
    select a.sink,
           count(*) filter (where a.state = 'DISPATCHED') as dispatched,
           count(*) filter (where a.state = 'RETRYABLE') as retryable,
           count(*) filter (where a.state = 'FAILED') as failed,
           count(*) filter (where a.state = 'ZOMBIE_REQUEUE') as zombies,
           max(a.completed_at) filter (where a.state = 'DISPATCHED') as last_success_at,
           max(a.completed_at) filter (where a.state <> 'DISPATCHED') as last_error_at
    from outbox_attempt a
    where a.completed_at >= (select c.now - s.status_window_seconds * 1000000 from outbox_clock c, outbox_setting s)
    group by a.sink
)
select s.sink,
       coalesce(k.paused, 0) as paused,
       coalesce(k.on_dead, 'park') as on_dead,
       coalesce(q.pending, 0) as pending,
       coalesce(q.due, 0) as due,
       coalesce(q.leased, 0) as leased,
       coalesce(q.expired, 0) as expired,
       coalesce(d.dead, 0) as dead,
       coalesce(q.parked_lanes, 0) as parked_lanes,
       coalesce((c.now - q.oldest_due_at) / 1000000.0, 0.0) as oldest_due_age_seconds,
       coalesce(a.dispatched, 0) as recent_dispatched,
       coalesce(a.retryable, 0) as recent_retryable,
       coalesce(a.failed, 0) as recent_failed,
       coalesce(a.zombies, 0) as recent_zombies,
       a.last_success_at,
       a.last_error_at,
       d.last_died_at
from sinks s
cross join outbox_clock c
left join outbox_sink k on k.name = s.sink
left join queue q on q.sink = s.sink
left join dead d on d.sink = s.sink
left join lately a on a.sink = s.sink;
