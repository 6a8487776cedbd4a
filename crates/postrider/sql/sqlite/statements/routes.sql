-- Pending deliveries that are not where today's routes want them. Called by `store/sqlite/routes.rs`; `matching` is the first
-- part of `choose` and `count`.

-- name: matching
-- What today's routes would change: the first part of the next two. `named` has a row for each sink that the routes name
-- for a pending delivery: new if the sink never had the message, open if the message is pending or leased there. In a lane
-- only what stands before the first that is leased or parked counts: what is behind it would overtake it.
with held as materialized (
    select d.sink, d.lane, min(d.sequence_id) as sequence_id
    from outbox_delivery d
    where d.lane is not null and (d.lease_token is not null or d.due_at = 9223372036854775807)
    group by d.sink, d.lane
),
named as materialized (
    select distinct d.message_id, d.sink as source, d.lane, d.sequence_id, d.attempt_no, d.due_at,
           coalesce(r.sink, 'default') as sink,
           o.sink is null
               and not exists (select 1 from outbox_dead_letter l
                               where l.message_id = d.message_id and l.sink = coalesce(r.sink, 'default'))
               and not exists (select 1 from outbox_attempt a
                               where a.message_id = d.message_id and a.sink = coalesce(r.sink, 'default')) as is_new,
           coalesce(o.due_at < 9223372036854775807, 0) as is_open
    from outbox_delivery d
    join outbox_message m on m.id = d.message_id
    left join held h on h.sink = d.sink and h.lane = d.lane
    left join outbox_route r on r.namespace in ('*', m.namespace) and m.topic glob r.topic_glob
    left join outbox_delivery o on o.message_id = d.message_id and o.sink = coalesce(r.sink, 'default')
    where d.lease_token is null and d.due_at < 9223372036854775807
      and (h.sequence_id is null or d.sequence_id < h.sequence_id)
),
misrouted as materialized (
    select n.message_id, n.source, n.lane, n.sequence_id, n.attempt_no, n.due_at,
           max(n.is_new) as adds,
           n.attempt_no = 0 and max(n.sink = n.source) = 0 and max(n.is_new or n.is_open) as gone
    from named n
    group by n.message_id, n.source
)

-- name: choose
-- Pending deliveries that are not where the routes want them, the front of each lane first: a row for each sink that is
-- missing, or one without. Caller: apply, in the transaction that changes them. Zero rows: all are.
select c.message_id, c.source, case when c.attempt_no = 0 then c.due_at else :now end as due_at, n.sink as missing, c.gone
from (
    select c.* from misrouted c
    where c.adds or c.gone
    order by c.lane nulls first, c.sequence_id, c.message_id, c.source
    limit :at_most
) c
left join named n on n.message_id = c.message_id and n.source = c.source and n.is_new
order by c.lane nulls first, c.sequence_id, c.message_id, c.due_at

-- name: count
-- How many deliveries would be added and removed.
select (select count(*) from (select distinct n.message_id, n.sink from named n where n.is_new)) as added,
       (select count(*) from misrouted c where c.gone) as removed

-- name: add
-- A sink that never had this message gets it. In a lane it takes its own number. Caller: apply. Zero rows: another
-- delivery of the message has brought it there.
insert into outbox_delivery (message_id, sink, occurred_at, due_at, priority, sequence_id, tenant_id, lane)
select m.id, :sink, m.occurred_at, :due_at, m.priority, m.sequence_id, m.tenant_id, m.lane
from outbox_message m
where m.id = :message_id
on conflict do nothing
