-- How the queue of each sink stands now: one row for each sink that has a delivery.
-- Caller: the view sinks, and through it status and measure. Changes nothing.
-- Reads the hot table once, with one hash over the lanes. The head of each lane comes along as the least pair of number and
-- due time. The planner has no choice, so old statistics do no harm: a burst into a table that was last seen empty made it
-- sort all deliveries (2.2 times as long for 105,000 in 1,000 lanes), or filter the whole table for each lane. A window over
-- each lane costs three times as much.
--
-- `due`: waiting, its time has come, and nothing holds up its lane. A lane is held up by a head that is dead or due later
-- (a retry, or scheduled): what stands behind it is pending and not due. What stands behind a leased head is due, for its
-- lane moves. The age of what is due in a lane counts from the head's due time at the earliest.
create or replace function :"schema".queues()
    returns table (
        sink text, pending bigint, due bigint, leased bigint, expired bigint, parked_lanes bigint,
        oldest_occurred_at timestamptz, oldest_due_at timestamptz
    )
    language sql stable security definer
    set search_path = pg_catalog, :"schema", pg_temp
    set enable_sort = off set max_parallel_workers_per_gather = 0 set jit = off
as $$
with lanes as (
    select d.sink, d.lane,
           count(*) filter (where d.lease_token is null and d.due_at < 'infinity') as pending,
           count(*) filter (where d.lease_token is null and d.due_at <= now()) as due,
           count(*) filter (where d.lease_token is not null) as leased,
           count(*) filter (where d.lease_expires_at <= now()) as expired,
           count(*) filter (where d.due_at = 'infinity') as parked,
           -- Whatever it waits for, leased or not; a dead head is not waiting.
           min(d.occurred_at) filter (where d.due_at < 'infinity') as oldest_occurred_at,
           min(d.due_at) filter (where d.lease_token is null and d.due_at <= now()) as oldest_due_at,
           to_timestamp((min(array[d.sequence_id, date_part('epoch', d.due_at)]) filter (where d.lane is not null))[2])
               as head_due_at
    from delivery d
    -- What has no lane is one group, which nothing holds up.
    group by d.sink, d.lane
)
select l.sink,
       sum(l.pending)::bigint,
       sum(l.due) filter (where l.lane is null or l.head_due_at <= now())::bigint,
       sum(l.leased)::bigint,
       sum(l.expired)::bigint,
       sum(l.parked)::bigint,
       min(l.oldest_occurred_at),
       min(greatest(l.oldest_due_at, l.head_due_at))
           filter (where l.due > 0 and (l.lane is null or l.head_due_at <= now()))
from lanes l
group by l.sink
$$;
comment on function :"schema".queues is
    'Each sink that has a delivery: pending, due, leased, expired, parked lanes, when the oldest occurred, and since when the oldest is due.';
grant execute on function :"schema".queues to :"relay", :"reader", :"operator", :"auditor";
