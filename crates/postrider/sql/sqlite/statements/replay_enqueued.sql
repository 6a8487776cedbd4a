-- replay_message.sql for everything enqueued in a range of time, which is a range of ids, to the millisecond.
-- Index: message_pk.
insert into outbox_delivery (message_id, sink, due_at, priority, sequence_id, tenant_id, lane, attempt_no)
select m.id, :sink, :now, m.priority, m.sequence_id, m.tenant_id, m.lane,
       coalesce((select max(a.attempt_no) from outbox_attempt a where a.message_id = m.id and a.sink = :sink), 0)
from outbox_message m
where m.id >= unhex(printf('%012x', max(:enqueued_from, 0) / 1000) || '00000000000000000000')
  and m.id < unhex(printf('%012x', max(:enqueued_to, 0) / 1000) || '00000000000000000000')
  and (:namespace is null or m.namespace = :namespace)
  and (:topic is null or m.topic = :topic)
  and not exists (select 1 from outbox_dead_letter l where l.message_id = m.id and l.sink = :sink)
on conflict do nothing
