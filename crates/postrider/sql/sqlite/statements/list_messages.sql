-- Every message, newest first; where each stands is asked with deliveries_of.sql. Caller: list, which stops reading at
-- its limit. `sent`: whether it was delivered to the sink that is asked about.
select m.id, m.enqueued_at, m.namespace, m.topic, m.lane, m.sequence_id,
       :sink is null or exists (
           select 1 from outbox_attempt a where a.message_id = m.id and a.sink = :sink and a.state = 'DISPATCHED'
       ) as sent
from outbox_message m
where (:topic is null or m.topic = :topic) and (:tenant_id is null or m.tenant_id = :tenant_id)
  and (:lane is null or m.lane = :lane) and (:before is null or m.id < :before)
order by m.id desc
