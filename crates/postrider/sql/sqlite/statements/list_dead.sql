-- Dead letters, newest message first. Caller: list, which stops reading at its limit.
select m.id, m.enqueued_at, m.namespace, m.topic, m.lane, m.sequence_id, l.sink, :state as state, l.attempt_no,
       null as due_at
from outbox_dead_letter l
join outbox_message m on m.id = l.message_id
where (:topic is null or m.topic = :topic) and (:tenant_id is null or m.tenant_id = :tenant_id)
  and (:lane is null or m.lane = :lane) and (:sink is null or l.sink = :sink)
  and (:before is null or l.message_id < :before)
order by l.message_id desc, l.sink
