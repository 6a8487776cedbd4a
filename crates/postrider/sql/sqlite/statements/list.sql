-- What people ask about messages, lanes and sinks. Called by `store/sqlite/list.rs`, on the reader's connection. Where a table
-- or view has a record's columns, all are taken: `store/row.rs` reads them by name.

-- name: status
-- How every sink stands. Caller: inspection and gauges.
select * from outbox_status s order by s.sink

-- name: message
-- What the producer said. Zero rows: the message is not in the store.
select m.id as message_id, m.* from outbox_message m where m.id = :message_id

-- name: deliveries
-- Where a message stands for each sink that still has to do with it. Callers: list and show. Zero rows: delivered.
select d.sink,
       case when d.lease_token is not null then 'leased' when d.due_at = 9223372036854775807 then 'dead'
            else 'pending' end as state,
       nullif(d.due_at, 9223372036854775807) as due_at, d.attempt_no, d.attempt_count, d.max_attempts,
       d.claimed_by, d.lease_expires_at
from outbox_delivery d
where d.message_id = :message_id
union all
select l.sink, 'dead', null, l.attempt_no, l.attempt_count, null, null, null
from outbox_dead_letter l
where l.message_id = :message_id and l.parked = 0
order by 1

-- name: attempts
-- Every attempt of a message, oldest first. Caller: show.
select * from outbox_attempt a where a.message_id = :message_id order by a.completed_at, a.sink, a.attempt_no

-- name: entries
-- A message as an operator of an edge site knows it: one row for each delivery that has not ended, or one if nothing is left
-- to deliver (discarded, if a sink has attempts and none was DISPATCHED), with the last attempt and the last
-- failure. Caller: Inspect::entries, for each message asked for.
-- Every table is read by message id. Zero rows: the message is not in the store.
with open as (
    select d.sink,
           case when d.lease_token is not null then 'leased' when d.due_at = 9223372036854775807 then 'dead'
                else 'pending' end as state,
           nullif(d.due_at, 9223372036854775807) as due_at, d.claimed_by, d.claimed_at, d.lease_expires_at, d.attempt_count
    from outbox_delivery d
    where d.message_id = :message_id
    union all
    select l.sink, 'dead', null, null, null, null, l.attempt_count
    from outbox_dead_letter l
    where l.message_id = :message_id and l.parked = 0
)
select m.id as message_id, o.sink, coalesce(o.state, case when exists (
           select 1 from outbox_attempt a
           where a.message_id = m.id and not exists (
               select 1 from outbox_attempt b
               where b.message_id = a.message_id and b.sink = a.sink and b.state = 'DISPATCHED')
       ) then 'discarded' else 'delivered' end) as state, m.topic, m.tenant_id, m.priority,
       m.occurred_at, o.due_at, o.claimed_by, o.claimed_at, o.lease_expires_at,
       coalesce(o.attempt_count, (select count(*) from outbox_attempt a where a.message_id = m.id)) as attempt_count,
       (select max(a.completed_at) from outbox_attempt a
        where a.message_id = m.id and (o.sink is null or a.sink = o.sink)) as last_attempt_at,
       coalesce(l.error_code, f.error_code) as error_code, coalesce(l.error_message, f.error_message) as error_message,
       l.died_at, l.reason, coalesce(length(m.body), length(cast(m.payload as blob))) as payload_size_bytes
from outbox_message m
left join open o on true
left join outbox_dead_letter l on l.message_id = m.id and l.sink = o.sink
left join outbox_attempt f
  on f.message_id = m.id and (f.sink, f.attempt_no) = (
      select a.sink, a.attempt_no from outbox_attempt a
      where a.message_id = m.id and (o.sink is null or a.sink = o.sink) and a.state <> 'DISPATCHED'
      order by a.completed_at desc, a.attempt_no desc
      limit 1)
where m.id = :message_id
order by o.sink

-- name: messages
-- Every message, newest first; where each stands is asked with `deliveries`. Caller: list, which stops reading at
-- its limit and at its bound. `wanted`: whether the message is one that is asked for.
select m.id as message_id, m.enqueued_at, m.namespace, m.topic, m.lane, m.sequence_id, null as sink,
       'delivered' as state, null as attempt_no, null as due_at,
       (:namespace is null or m.namespace = :namespace) and (:topic is null or m.topic glob replace(replace(:topic, '[', '[[]'), '?', '[?]'))
       and (:tenant_id is null or m.tenant_id is :tenant_id) and (:lane is null or m.lane is :lane) as wanted
from outbox_message m
where m.id >= :id_from and m.id < :id_before
order by m.id desc

-- name: open
-- Messages that wait or are held, newest first, from the hot table. Caller: list, which stops reading at its limit and
-- at its bound. `wanted`: whether the message is one that is asked for.
select m.id as message_id, m.enqueued_at, m.namespace, m.topic, m.lane, m.sequence_id, d.sink, :state as state,
       d.attempt_no, d.due_at,
       (:namespace is null or m.namespace = :namespace) and (:topic is null or m.topic glob replace(replace(:topic, '[', '[[]'), '?', '[?]')) as wanted
from outbox_delivery d
join outbox_message m on m.id = d.message_id
where (d.lease_token is not null) = (:state = 'leased') and d.due_at <> 9223372036854775807
  and (:tenant_id is null or d.tenant_id = :tenant_id) and (:lane is null or d.lane = :lane)
  and (:sink is null or d.sink = :sink) and d.message_id >= :id_from and d.message_id < :id_before
order by d.message_id desc, d.sink

-- name: dead
-- Dead letters, newest message first. Caller: list, which stops reading at its limit and at its bound. `wanted`: whether
-- the message is one that is asked for.
select m.id as message_id, m.enqueued_at, m.namespace, m.topic, m.lane, m.sequence_id, l.sink, :state as state,
       l.attempt_no, null as due_at,
       (:namespace is null or m.namespace = :namespace) and (:topic is null or m.topic glob replace(replace(:topic, '[', '[[]'), '?', '[?]')) as wanted
from outbox_dead_letter l
join outbox_message m on m.id = l.message_id
where (:tenant_id is null or l.tenant_id = :tenant_id) and (:lane is null or l.lane = :lane)
  and (:sink is null or l.sink = :sink) and l.message_id >= :id_from and l.message_id < :id_before
order by l.message_id desc, l.sink

-- name: how_it_ended
-- How a message ended of which nothing is left to deliver: discarded if a sink (the one asked for) has attempts and none was
-- DISPATCHED: somebody gave it up or cancelled it. Caller: list. Index: attempt_pk. Zero rows: it was never tried for the sink that is asked for.
select case when min(t.delivered) = 0 then 'discarded' else 'delivered' end
from (
    select max(a.state = 'DISPATCHED') as delivered from outbox_attempt a
    where a.message_id = :message_id and (:sink is null or a.sink = :sink)
    group by a.sink
) t
having :sink is null or count(*) > 0

-- name: ids
-- Ids of messages, newest first. Caller: list, which stops reading at its bound. Index: message_pk.
select m.id from outbox_message m where m.id >= :id_from and m.id < :id_before order by m.id desc limit :look_at

-- name: find_open_ids
-- Messages with something left to deliver, or dead, whose id ends with these digits. Caller: list. Reads the hot table and
-- the dead letters once, as the status does.
select d.message_id from outbox_delivery d
where hex(d.message_id) like :ends and d.message_id >= :id_from and d.message_id < :id_before
union
select l.message_id from outbox_dead_letter l
where hex(l.message_id) like :ends and l.message_id >= :id_from and l.message_id < :id_before
order by 1 desc
limit :limit

-- name: find_key
-- The messages that a dedupe key stands for in one topic, without a tenant and of those that the key may begin with.
-- Caller: list. Index: dedupe_pk.
select d.message_id from outbox_dedupe d
where d.namespace = :namespace and d.topic = :topic and d.tenant in (select t.value from json_each(:tenants) t) and d.dedupe_key = :dedupe_key

-- name: next_key_topic
-- The next pair of namespace and topic that has dedupe keys. Caller: list. Index: dedupe_pk. Zero rows: there is none.
select d.namespace, d.topic from outbox_dedupe d
where (d.namespace, d.topic) > (:namespace, :topic)
order by d.namespace, d.topic
limit 1

-- name: lanes
-- Lanes: those that wait for a person first, then those whose head failed, then the deepest. Caller: lanes.
-- The page is chosen first; the heads' last errors are looked up for the page alone.
with page as materialized (
    select l.sink, l.lane, l.state, l.depth, l.head_sequence_id, l.head_message_id, l.head_due_at, l.head_attempt_count,
           l.head_failed, row_number() over (
               order by l.state = 'parked' desc, l.head_failed desc, l.depth desc, l.sink, l.lane) as place
    from outbox_lanes l
    where (:sink is null or l.sink = :sink) and (:lane is null or l.lane = :lane) and (:state is null or l.state = :state)
      and (:after is null or (l.state <> 'parked', not l.head_failed, -l.depth, l.sink, l.lane)
           > (:after ->> 0, :after ->> 1, :after ->> 2, :after ->> 3, :after ->> 4))
    order by place
    limit :limit
)
select p.sink, p.lane, p.state, p.depth, p.head_sequence_id, p.head_message_id, p.head_due_at, p.head_attempt_count,
       p.head_failed, a.error_code as head_error_code, a.error_message as head_error_message
from page p
left join outbox_attempt a
  on a.message_id = p.head_message_id and a.sink = p.sink and a.attempt_no = (
      select max(t.attempt_no) from outbox_attempt t where t.message_id = p.head_message_id and t.sink = p.sink)
order by p.place

-- name: lane_head
-- The head of a lane, with its last error. Caller: explain. Index: outbox_delivery_lane. Zero rows: nothing is in it.
select h.sink, h.message_id, h.sequence_id, nullif(h.due_at, 9223372036854775807) as due_at, h.claimed_by,
       h.lease_expires_at, a.error_code, a.error_message
from (
    select d.sink, d.message_id, d.sequence_id, d.due_at, d.claimed_by, d.lease_expires_at
    from outbox_delivery d indexed by outbox_delivery_lane
    where d.sink = :sink and d.lane = :lane and d.lane is not null
    order by d.sequence_id
    limit 1
) h
left join outbox_attempt a
  on a.message_id = h.message_id and a.sink = h.sink and a.attempt_no = (
      select max(t.attempt_no) from outbox_attempt t where t.message_id = h.message_id and t.sink = h.sink)

-- name: paused_sinks
-- Sinks that wait until they are resumed. Caller: explain.
select name from outbox_sink where paused
