-- What an operator does to sinks, routes and history, and the audit of it. Called by `store/sqlite/operate.rs`.

-- name: sink_is_known
-- Whether a sink of this name exists: it is `default`, or has a setting, a route, a delivery, a dead letter or an attempt, or
-- a relay has reported it. Attempts are looked through last, and only those of the messages that are meant.
select case
    when :sink = 'default'
      or exists (select 1 from outbox_sink s where s.name = :sink)
      or exists (select 1 from outbox_route r where r.sink = :sink)
      or exists (select 1 from outbox_relay r, json_each(r.sinks) s where json_extract(s.value, '$.sink') = :sink)
      or exists (select 1 from outbox_dead_letter l where l.sink = :sink)
      or exists (select 1 from outbox_delivery d where d.sink = :sink and d.lane is null)
      or exists (select 1 from outbox_delivery d where d.sink = :sink and d.lane is not null) then 1
    else exists (
        select 1 from outbox_attempt a
        where a.message_id >= :id_from and a.message_id < :id_before and a.sink = :sink
          and (:message_ids is null or a.message_id in (select unhex(i.value) from json_each(:message_ids) i)))
    end

-- name: replay_candidates
-- What replay looks at: these messages, or everything enqueued in a range of time, which is a range of ids; after `after`, if
-- that is given. `meant` says which of them have nothing open with the sink, `delivered` which of those it got before.
-- `message_ids` is a JSON array of ids as 32 hexadecimal digits. Index: message_pk. Fewer rows than the limit: that was all.
select m.id,
       (:namespace is null or m.namespace = :namespace)
           and (:topic is null or m.topic glob replace(replace(:topic, '[', '[[]'), '?', '[?]'))
           and not exists (select 1 from outbox_delivery d where d.message_id = m.id and d.sink = :sink)
           and not exists (select 1 from outbox_dead_letter l where l.message_id = m.id and l.sink = :sink) as meant,
       exists (select 1 from outbox_attempt a
               where a.message_id = m.id and a.sink = :sink and a.state = 'DISPATCHED') as delivered
from outbox_message m
where m.id >= :id_from and m.id < :id_before and (:after is null or m.id > :after)
  and (:message_ids is null or m.id in (select unhex(i.value) from json_each(:message_ids) i))
order by m.id
limit :at_most

-- name: replay_message
-- delivered (or never sent to this sink) -> pending; attempt numbers go on. What is pending, leased or dead for the sink
-- is left alone. In a lane it comes back at its own number. Caller: replay. Zero rows: nothing to replay.
insert into outbox_delivery (message_id, sink, occurred_at, due_at, priority, sequence_id, tenant_id, lane, attempt_no)
select m.id, :sink, m.occurred_at, :due_at, m.priority, m.sequence_id, m.tenant_id, m.lane,
       coalesce((select max(a.attempt_no) from outbox_attempt a where a.message_id = m.id and a.sink = :sink), 0)
from outbox_message m
where m.id = :message_id
  and not exists (select 1 from outbox_dead_letter l where l.message_id = m.id and l.sink = :sink)
on conflict do nothing

-- name: add_sink
-- A sink that is configured gets a row, with the defaults. Zero rows: it has one.
insert into outbox_sink (name) values (:sink) on conflict do nothing

-- name: configure_sink
-- What an operator sets about a sink; null leaves it as it is. Zero rows: it was so already.
update outbox_sink set paused = coalesce(:paused, paused), on_dead = coalesce(:on_dead, on_dead)
where name = :sink and (paused <> :paused or on_dead <> :on_dead)

-- name: add_route
-- New messages of a topic go to a sink; those already written keep theirs. Zero rows: the route was there.
insert into outbox_route (namespace, topic, sink) values (:namespace, :topic, :sink) on conflict do nothing

-- name: remove_route
-- New messages no longer go there. Zero rows: there was no such route.
delete from outbox_route where namespace = :namespace and topic = :topic and sink = :sink

-- name: routes
-- Which new messages go where.
select sink, topic, namespace from outbox_route order by namespace, topic, sink

-- name: write_audit
-- Writes down what an operator did, in the transaction that did it.
insert into outbox_audit (at, affected, actor, action, detail) values (:now, :affected, :actor, :action, :detail)

-- name: audit
-- What operators did, newest first. Caller: audit. Index: the table's own.
select a.id, a.at, a.actor, null as db_user, a.action, a.detail, a.affected
from outbox_audit a
where :before is null or a.id < :before
order by a.id desc
limit :limit
