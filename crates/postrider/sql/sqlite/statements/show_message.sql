-- What the producer said. Zero rows: the message is not in the store.
select m.id, m.enqueued_at, m.occurred_at, m.namespace, m.topic, m.tenant_id, m.lane, m.sequence_id, m.dedupe_key,
       m.priority, m.content_type, m.headers, m.payload, m.body
from outbox_message m
where m.id = :message_id
