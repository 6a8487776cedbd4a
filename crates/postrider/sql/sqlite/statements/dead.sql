-- Dead letters. Called by `store/sqlite/dead.rs`; `matching` is the first part of every statement that takes a filter.

-- name: matching
-- The dead letters that a filter means: the first part of the next five.
-- What is null does not matter; an empty `error_code` means those without one; `message_ids` is a JSON array of ids as 32
-- hexadecimal digits. Not materialized: where it
-- is looked at twice, each look reads what it needs.
with matching as not materialized (
    select l.* from outbox_dead_letter l
    where (:message_ids is null or l.message_id in (select unhex(i.value) from json_each(:message_ids) i))
      and (:sink is null or l.sink = :sink)
      and (:namespace is null or l.namespace = :namespace)
      and (:topic is null or l.topic glob replace(replace(:topic, '[', '[[]'), '?', '[?]'))
      and (:tenant_id is null or l.tenant_id = :tenant_id)
      and (:lane is null or l.lane = :lane)
      and (:reason is null or l.reason = :reason)
      and (:error_code is null or coalesce(l.error_code, '') = :error_code)
      and (:died_from is null or l.died_at >= :died_from)
      and (:died_to is null or l.died_at < :died_to)
)

-- name: choose
-- The oldest of them. Callers: redrive and discard, in the transaction that changes them.
-- Index: outbox_dead_letter_by_time, backwards. Zero rows: nothing matches.
select l.message_id, l.sink, l.parked
from matching l
order by l.died_at, l.message_id
limit :at_most

-- name: count
-- How many there are: what a redrive or a discard would take.
select count(*) from matching

-- name: missing
-- Which of the named messages have no dead letter of this kind.
select distinct unhex(i.value) as id
from json_each(:message_ids) i
where not exists (select 1 from matching l where l.message_id = unhex(i.value))
order by id

-- name: list
-- A page of them, newest first, after the last one of the page before. Index: outbox_dead_letter_by_time.
-- The page is cut before the messages are joined: one that is large is not read to be left out.
, page as (
    select l.* from matching l
    where :after_died_at is null
       or ((l.died_at, l.message_id) <= (:after_died_at, :after_message_id)
           and not (l.died_at = :after_died_at and l.message_id = :after_message_id and l.sink <= :after_sink))
    order by l.died_at desc, l.message_id desc, l.sink
    limit :limit
)
select p.message_id, p.sink, p.died_at, p.reason, p.error_code, p.error_message, p.attempt_no, p.attempt_count, p.parked,
       p.namespace, p.topic, p.tenant_id, p.lane, p.sequence_id, coalesce(m.occurred_at, p.died_at) as occurred_at,
       coalesce(length(m.body), length(cast(m.payload as blob)), 0) as payload_size_bytes
from page p
left join outbox_message m on m.id = p.message_id
order by p.died_at desc, p.message_id desc, p.sink

-- name: group
-- How many of each kind, the most first. The newest one's message is looked up for the groups that are told.
, kind as (
    select l.sink, l.topic, l.reason, l.error_code, count(*) as count, min(l.died_at) as first_died_at,
           max(l.died_at) as last_died_at
    from matching l
    group by l.sink, l.topic, l.reason, l.error_code
    order by count desc, l.sink, l.topic, l.reason, l.error_code
    limit :at_most
)
select k.sink, k.topic, k.reason, k.error_code, k.count, k.first_died_at, k.last_died_at,
       (select l.error_message from matching l
        where l.died_at = k.last_died_at and l.sink = k.sink and l.topic = k.topic and l.reason = k.reason
          and l.error_code is k.error_code
        order by l.message_id desc limit 1) as error_message
from kind k
order by k.count desc, k.sink, k.topic, k.reason, k.error_code

-- name: redrive
-- dead -> pending for what had left the queue: due now, with a new budget; attempt numbers go on. In a lane it comes
-- back at its own number, and waits while a lease lives anywhere in the lane.
insert into outbox_delivery (message_id, sink, occurred_at, due_at, priority, sequence_id, tenant_id, lane, attempt_no)
select l.message_id, l.sink, (select m.occurred_at from outbox_message m where m.id = l.message_id), :now, l.priority,
       l.sequence_id, l.tenant_id, l.lane, l.attempt_no
from outbox_dead_letter l
where l.message_id = :message_id and l.sink = :sink
on conflict do nothing

-- name: redrive_parked
-- dead -> pending for a lane head that stayed in its place: due now, with a new budget.
update outbox_delivery set due_at = :now, attempt_count = 0 where message_id = :message_id and sink = :sink

-- name: forget
-- The dead letter goes: redriven or discarded.
delete from outbox_dead_letter where message_id = :message_id and sink = :sink

-- name: dead_head
-- The dead head of a parked lane. Caller: skip. Index: outbox_delivery_lane. Zero rows: the lane's head is not dead, or
-- there is no such lane.
select h.message_id
from (
    select d.message_id, d.due_at from outbox_delivery d
    where d.sink = :sink and d.lane = :lane and d.lane is not null
    order by d.sequence_id
    limit 1
) h
where h.due_at = 9223372036854775807

-- name: unpark
-- A dead letter no longer parks its lane; `end` of complete.sql takes its delivery away. Caller: skip.
update outbox_dead_letter set parked = 0 where message_id = :message_id and sink = :sink and parked
