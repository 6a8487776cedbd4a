-- One row for each sink that has work, a dead letter, a route or a setting: how its queue stands now.
-- Reads the hot table once (see queues.sql), and counts dead letters from their index; history is not read.
create view :"schema".sinks as
with queue as materialized (
    select q.sink collate "C" as sink, q.pending, q.due, q.leased, q.expired, q.parked_lanes, q.oldest_occurred_at,
           q.oldest_due_at
    from :"schema".queues() q
),
dead as (
    select l.sink, count(*) as dead, max(l.died_at) as last_died_at from :"schema".dead_letter l group by l.sink
),
known as (
    select 'default'::text collate "C" as sink
    union select s.name from :"schema".sink s
    union select r.sink from :"schema".route r
    union select q.sink from queue q
    union select d.sink from dead d
)
select n.sink,
       coalesce(k.paused, false) as paused,
       coalesce(k.on_dead, 'park') as on_dead,
       coalesce(q.pending, 0) as pending,
       coalesce(q.due, 0) as due,
       coalesce(q.leased, 0) as leased,
       coalesce(q.expired, 0) as expired,
       coalesce(d.dead, 0) as dead,
       coalesce(q.parked_lanes, 0) as parked_lanes,
       -- What occurs in the future has no age.
       greatest(extract(epoch from now() - q.oldest_occurred_at), 0)::double precision as oldest_pending_age_seconds,
       coalesce(extract(epoch from now() - q.oldest_due_at), 0)::double precision as oldest_due_age_seconds,
       d.last_died_at
from known n
left join :"schema".sink k on k.name = n.sink
left join queue q on q.sink = n.sink
left join dead d on d.sink = n.sink;
comment on view :"schema".sinks is
    'Each sink: its settings, and what is pending, due, leased and dead. Due is what nothing in its lane holds up.';
