-- Messages that wait or are held, newest first, from the hot table. Caller: list, which stops reading at its limit and
-- at its bound. `wanted`: whether the message is one that is asked for.
select m.id, m.enqueued_at, m.namespace, m.topic, m.lane, m.sequence_id, d.sink, :state as state, d.attempt_no, d.due_at,
       (:namespace is null or m.namespace = :namespace) and (:topic is null or m.topic glob replace(replace(:topic, '[', '[[]'), '?', '[?]')) as wanted
from outbox_delivery d
join outbox_message m on m.id = d.message_id
where (d.lease_token is not null) = (:state = 'leased') and d.due_at <> 9223372036854775807
  and (:tenant_id is null or d.tenant_id = :tenant_id) and (:lane is null or d.lane = :lane)
  and (:sink is null or d.sink = :sink) and d.message_id >= :id_from and d.message_id < :id_before
order by d.message_id desc, d.sink
