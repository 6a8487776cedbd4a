-- One row for each sink that has or had work lately: the supervisor's view over queue, dead letters and attempts.
-- Reads the hot table once (see sinks.sql). The attempts of the last setting.status_window_seconds come from the samples
-- that ended in it and from the attempts after the last sample, so they reach back as far as the window and the one
-- interval that began before it; if that one is longer than the window, as after a pause, its attempts are read instead,
-- and if nobody measures, those of the window are. The last success and failure may be older: the last sample has them.
-- History is not read. Times are microseconds since 1970.
create view outbox_status as
with since as (
    select c.now - s.status_window_seconds * 1000000 as window_from,
           max(c.now - s.status_window_seconds * 1000000, coalesce((select max(m.at) from outbox_sample m), 0)) as sampled,
           -- The end of a sample that tells of more than the window.
           coalesce((select max(m.at) from outbox_sample m
                     where m.at > c.now - s.status_window_seconds * 1000000 and m.seconds > s.status_window_seconds), 0) as long
    from outbox_clock c cross join outbox_setting s
),
lately as (
    select p.sink, sum(p.dispatched) as dispatched, sum(p.retryable) as retryable, sum(p.failed) as failed,
           sum(p.zombies) as zombies, max(p.last_success_at) as last_success_at, max(p.last_error_at) as last_error_at
    from (
        select m.sink, m.dispatched, m.retryable, m.failed, m.zombie_requeue as zombies, m.last_success_at,
               m.last_error_at
        from outbox_sample m
        where m.at > (select max(window_from, long) from since)
        union all
        select m.sink, 0, 0, 0, 0, m.last_success_at, m.last_error_at
        from outbox_sample m
        where m.at = (select max(l.at) from outbox_sample l)
        union all
        select a.sink,
               count(*) filter (where a.state = 'DISPATCHED'),
               count(*) filter (where a.state = 'RETRYABLE'),
               count(*) filter (where a.state = 'FAILED'),
               count(*) filter (where a.state = 'ZOMBIE_REQUEUE'),
               max(a.completed_at) filter (where a.state = 'DISPATCHED'),
               max(a.completed_at) filter (where a.state not in ('DISPATCHED', 'CANCELLED'))
        from (
            select a.sink, a.state, a.completed_at from outbox_attempt a
            where a.completed_at >= (select sampled from since)
            union all
            select a.sink, a.state, a.completed_at from outbox_attempt a
            where a.completed_at >= (select window_from from since) and a.completed_at < (select long from since)
        ) a
        group by a.sink
    ) p
    group by p.sink
)
select coalesce(s.sink, a.sink) as sink,
       coalesce(s.paused, 0) as paused,
       coalesce(s.on_dead, 'park') as on_dead,
       coalesce(s.pending, 0) as pending,
       coalesce(s.due, 0) as due,
       coalesce(s.leased, 0) as leased,
       coalesce(s.expired, 0) as expired,
       coalesce(s.dead, 0) as dead,
       coalesce(s.parked_lanes, 0) as parked_lanes,
       coalesce(s.oldest_pending_age_seconds, 0.0) as oldest_pending_age_seconds,
       coalesce(s.oldest_due_age_seconds, 0.0) as oldest_due_age_seconds,
       cast((select t.status_window_seconds from outbox_setting t) as real) as recent_seconds,
       coalesce(a.dispatched, 0) as recent_dispatched,
       coalesce(a.retryable, 0) as recent_retryable,
       coalesce(a.failed, 0) as recent_failed,
       coalesce(a.zombies, 0) as recent_zombies,
       a.last_success_at,
       a.last_error_at,
       s.last_died_at
from outbox_sinks s
full join lately a on a.sink = s.sink
where s.sink is not null or a.dispatched + a.retryable + a.failed + a.zombies > 0;
