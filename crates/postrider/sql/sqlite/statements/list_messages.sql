-- Every message, newest first; where each stands is asked with deliveries_of.sql. Caller: list, which stops reading at
-- its limit and at its bound. `wanted`: whether the message is one that is asked for.
select m.id, m.enqueued_at, m.namespace, m.topic, m.lane, m.sequence_id,
       (:namespace is null or m.namespace = :namespace) and (:topic is null or m.topic glob replace(replace(:topic, '[', '[[]'), '?', '[?]'))
       and (:tenant_id is null or m.tenant_id is :tenant_id) and (:lane is null or m.lane is :lane) as wanted
from outbox_message m
where m.id >= :id_from and m.id < :id_before
order by m.id desc
