-- One row for each sink that has work, a dead letter, a route or a setting: how its queue stands now.
-- Reads the hot table once and counts dead letters; history is not read. Times are microseconds since 1970.
--
-- `due`: waiting, its time has come, and its lane, if it has one, is not held up. A lane is held up by a head that is
-- dead, or that is due later (to be retried, or scheduled): what stands behind it is pending and not due. What stands
-- behind a leased head is due, for its lane moves. The age of what is due in a lane counts from the head's due time at
-- the earliest.
create view outbox_sinks as
with lanes as (
    -- The clock as a subquery is read once; joined, it would be read for every row.
    select d.sink, d.lane,
           count(*) filter (where d.lease_token is null and d.due_at < 9223372036854775807) as pending,
           count(*) filter (where d.lease_token is null and d.due_at <= (select now from outbox_clock)) as due,
           count(*) filter (where d.lease_token is not null) as leased,
           count(*) filter (where d.lease_expires_at <= (select now from outbox_clock)) as expired,
           count(*) filter (where d.due_at = 9223372036854775807) as parked,
           -- Whatever it waits for, leased or not; a dead head is not waiting.
           min(d.occurred_at) filter (where d.due_at < 9223372036854775807) as oldest_occurred_at,
           min(d.due_at) filter (where d.lease_token is null and d.due_at <= (select now from outbox_clock)) as oldest_due_at,
           min(d.sequence_id) as head_sequence_id
    from outbox_delivery d
    -- What has no lane is one group, which nothing holds up.
    group by d.sink, d.lane
),
queue as (
    select l.sink, sum(l.pending) as pending,
           sum(case when l.lane is null or h.due_at <= (select now from outbox_clock) then l.due else 0 end) as due,
           sum(l.leased) as leased, sum(l.expired) as expired, sum(l.parked) as parked_lanes,
           min(l.oldest_occurred_at) as oldest_occurred_at,
           min(case when l.due = 0 then null when l.lane is null then l.oldest_due_at
                    when h.due_at <= (select now from outbox_clock) then max(l.oldest_due_at, h.due_at) end) as oldest_due_at
    from lanes l
    left join outbox_delivery h
      on h.sink = l.sink and h.lane = l.lane and h.sequence_id = l.head_sequence_id and h.lane is not null
    group by l.sink
),
dead as (
    select l.sink, count(*) as dead, max(l.died_at) as last_died_at from outbox_dead_letter l group by l.sink
),
known as (
    select 'default' as sink
    union select s.name from outbox_sink s
    union select r.sink from outbox_route r
    union select q.sink from queue q
    union select d.sink from dead d
)
select n.sink,
       coalesce(k.paused, 0) as paused,
       coalesce(k.on_dead, 'park') as on_dead,
       coalesce(q.pending, 0) as pending,
       coalesce(q.due, 0) as due,
       coalesce(q.leased, 0) as leased,
       coalesce(q.expired, 0) as expired,
       coalesce(d.dead, 0) as dead,
       coalesce(q.parked_lanes, 0) as parked_lanes,
       -- What occurs in the future has no age.
       max(coalesce((c.now - q.oldest_occurred_at) / 1000000.0, 0.0), 0.0) as oldest_pending_age_seconds,
       coalesce((c.now - q.oldest_due_at) / 1000000.0, 0.0) as oldest_due_age_seconds,
       d.last_died_at
from known n
cross join outbox_clock c
left join outbox_sink k on k.name = n.sink
left join queue q on q.sink = n.sink
left join dead d on d.sink = n.sink;
