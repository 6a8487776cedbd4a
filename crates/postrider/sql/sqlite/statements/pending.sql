-- Open deliveries, as an operator chooses them. Called by `store/sqlite/pending.rs`; `matching` is the first part of every
-- statement that takes a filter.

-- name: matching
-- The open deliveries that a filter means: the first part of the next three. What is null does not
-- matter; `message_ids` is a JSON array of ids as 32 hexadecimal digits. A dead lane head that parks its lane is none of
-- them: it belongs to its dead letter. The message is looked up only if its namespace or topic is asked for.
with matching as not materialized (
    select d.* from outbox_delivery d
    where d.due_at < 9223372036854775807
      and (:message_ids is null or d.message_id in (select unhex(i.value) from json_each(:message_ids) i))
      and (:sink is null or d.sink = :sink)
      and (:tenant_id is null or d.tenant_id = :tenant_id)
      and (:lane is null or d.lane = :lane)
      and ((:namespace is null and :topic is null) or exists (
          select 1 from outbox_message m
          where m.id = d.message_id and (:namespace is null or m.namespace = :namespace)
            and (:topic is null or m.topic glob replace(replace(:topic, '[', '[[]'), '?', '[?]'))))
)

-- name: choose
-- Pending deliveries, those that are due next first; `due_after`: only those that are due later than this. Callers: retry_now
-- and cancel, in the transaction that changes them. Zero rows: nothing matches.
select d.message_id, d.sink, d.attempt_no
from matching d
where d.lease_token is null and (:due_after is null or d.due_at > :due_after)
order by d.due_at, d.message_id, d.sink
limit :at_most

-- name: count
-- Pending, pending and not due yet, leased: what cancel and retry_now would take, and what they leave alone.
select count(*) filter (where d.lease_token is null) as pending,
       count(*) filter (where d.lease_token is null and d.due_at > :now) as waiting,
       count(*) filter (where d.lease_token is not null) as leased
from matching d

-- name: missing
-- Which of the named messages have no open delivery of this kind.
select distinct unhex(i.value) as id
from json_each(:message_ids) i
where not exists (select 1 from matching d where d.message_id = unhex(i.value))
order by id

-- name: retry_now
-- pending, due later -> pending, due now. Caller: retry_now, for each that `choose` found.
update outbox_delivery set due_at = :now where message_id = :message_id and sink = :sink

-- name: cancel
-- The record of a delivery that an operator took back, under the next number; `end` of complete.sql takes the delivery away. Caller: cancel.
insert into outbox_attempt (message_id, sink, attempt_no, state, claimed_at, completed_at, worker_id, error_code, error_message)
values (:message_id, :sink, :attempt_no, 'CANCELLED', :now, :now, :actor, 'CANCELLED', 'an operator cancelled the delivery')
