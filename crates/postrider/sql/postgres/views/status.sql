-- One row for each sink that has or had work lately: the supervisor's view over queue, dead letters and attempts.
-- Reads the hot table once (see queues.sql) and what recent_attempts() reads; history is not read.
create view :"schema".status as
select coalesce(s.sink, a.sink) as sink,
       coalesce(s.paused, false) as paused,
       coalesce(s.on_dead, 'park') as on_dead,
       coalesce(s.pending, 0) as pending,
       coalesce(s.due, 0) as due,
       coalesce(s.leased, 0) as leased,
       coalesce(s.expired, 0) as expired,
       coalesce(s.dead, 0) as dead,
       coalesce(s.parked_lanes, 0) as parked_lanes,
       coalesce(s.oldest_pending_age_seconds, 0) as oldest_pending_age_seconds,
       coalesce(s.oldest_due_age_seconds, 0) as oldest_due_age_seconds,
       (select extract(epoch from t.status_window) from :"schema".setting t)::double precision as recent_seconds,
       coalesce(a.dispatched, 0) as recent_dispatched,
       coalesce(a.retryable, 0) as recent_retryable,
       coalesce(a.failed, 0) as recent_failed,
       coalesce(a.zombie_requeue, 0) as recent_zombies,
       a.last_success_at,
       a.last_error_at,
       s.last_died_at
from :"schema".sinks s
full join :"schema".recent_attempts() a on a.sink = s.sink
where s.sink is not null or a.dispatched + a.retryable + a.failed + a.zombie_requeue > 0;
comment on view :"schema".status is
    'Each sink: pending, due, leased, dead, the ages of the oldest, and the attempts of the last minutes.';
grant select on :"schema".status to :"relay";
