-- Messages that wait or are held, newest first, from the hot table. Caller: list, which stops reading at its limit.
select m.id, m.enqueued_at, m.namespace, m.topic, m.lane, m.sequence_id, d.sink, :state as state, d.attempt_no, d.due_at
from outbox_delivery d
join outbox_message m on m.id = d.message_id
where (d.lease_token is not null) = (:state = 'leased') and d.due_at <> 9223372036854775807
  and (:topic is null or m.topic = :topic) and (:tenant_id is null or m.tenant_id = :tenant_id)
  and (:lane is null or m.lane = :lane) and (:sink is null or d.sink = :sink)
  and (:before is null or d.message_id < :before)
order by d.message_id desc, d.sink
