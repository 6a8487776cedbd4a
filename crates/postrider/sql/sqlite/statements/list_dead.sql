-- Dead letters, newest message first. Caller: list, which stops reading at its limit and at its bound. `wanted`: whether
-- the message is one that is asked for.
select m.id, m.enqueued_at, m.namespace, m.topic, m.lane, m.sequence_id, l.sink, :state as state, l.attempt_no,
       null as due_at,
       (:namespace is null or m.namespace = :namespace) and (:topic is null or m.topic glob replace(replace(:topic, '[', '[[]'), '?', '[?]')) as wanted
from outbox_dead_letter l
join outbox_message m on m.id = l.message_id
where (:tenant_id is null or l.tenant_id = :tenant_id) and (:lane is null or l.lane = :lane)
  and (:sink is null or l.sink = :sink) and l.message_id >= :id_from and l.message_id < :id_before
order by l.message_id desc, l.sink
