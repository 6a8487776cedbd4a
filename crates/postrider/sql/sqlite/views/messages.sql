-- What was enqueued, as the producer said it, for a person's eyes: ids and times as text.
create view outbox_messages as
select lower(substr(hex(m.id), 1, 8) || '-' || substr(hex(m.id), 9, 4) || '-' || substr(hex(m.id), 13, 4) || '-'
             || substr(hex(m.id), 17, 4) || '-' || substr(hex(m.id), 21)) as message_id,
       strftime('%Y-%m-%dT%H:%M:%fZ', m.enqueued_at / 1000000.0, 'unixepoch') as enqueued_at, m.namespace, m.topic,
       m.tenant_id,
       m.lane, m.sequence_id, m.dedupe_key, m.priority,
       strftime('%Y-%m-%dT%H:%M:%fZ', m.occurred_at / 1000000.0, 'unixepoch') as occurred_at, m.content_type, m.headers,
       m.payload, m.body, coalesce(length(m.body), length(cast(m.payload as blob))) as payload_size_bytes
from outbox_message m;
