-- One row for each sink that has work, a dead letter, a route or a setting: how its queue stands now.
-- Reads the hot table once, and counts dead letters from their index; history is not read.
--
-- `due`: waiting, its time has come, and its lane, if it has one, is not held up. A lane is held up by a head that is
-- dead, or that is due later (to be retried, or scheduled): what stands behind it is pending and not due. What stands
-- behind a leased head is due, for its lane moves. The age of what is due in a lane counts from the head's due time at
-- the earliest.
-- One pass and one hash over the lanes; the head of each comes along as the least pair of number and due time. A window over
-- each lane in order costs three times as much, and to look the heads up is a choice: with old statistics (a burst into a
-- table that was last seen empty) the planner chooses to filter the whole table for each lane.
create view :"schema".sinks as
with lanes as (
    select d.sink, d.lane,
           count(*) filter (where d.lease_token is null and d.due_at < 'infinity') as pending,
           count(*) filter (where d.lease_token is null and d.due_at <= now()) as due,
           count(*) filter (where d.lease_token is not null) as leased,
           count(*) filter (where d.lease_expires_at <= now()) as expired,
           count(*) filter (where d.due_at = 'infinity') as parked,
           min(d.due_at) filter (where d.lease_token is null and d.due_at <= now()) as oldest_due_at,
           to_timestamp((min(array[d.sequence_id, date_part('epoch', d.due_at)]) filter (where d.lane is not null))[2])
               as head_due_at
    from :"schema".delivery d
    -- What has no lane is one group, which nothing holds up.
    group by d.sink, d.lane
),
queue as (
    select l.sink,
           sum(l.pending)::bigint as pending,
           sum(l.due) filter (where l.lane is null or l.head_due_at <= now())::bigint as due,
           sum(l.leased)::bigint as leased,
           sum(l.expired)::bigint as expired,
           sum(l.parked)::bigint as parked_lanes,
           min(greatest(l.oldest_due_at, l.head_due_at))
               filter (where l.due > 0 and (l.lane is null or l.head_due_at <= now())) as oldest_due_at
    from lanes l
    group by l.sink
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
       coalesce(extract(epoch from now() - q.oldest_due_at), 0)::double precision as oldest_due_age_seconds,
       d.last_died_at
from known n
left join :"schema".sink k on k.name = n.sink
left join queue q on q.sink = n.sink
left join dead d on d.sink = n.sink;
comment on view :"schema".sinks is
    'Each sink: its settings, and what is pending, due, leased and dead. Due is what nothing in its lane holds up.';
