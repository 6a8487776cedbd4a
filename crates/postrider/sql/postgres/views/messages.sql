-- What was enqueued, as the producer said it, with the time it was written and the size of its content.
create view :"schema".messages as
select m.id as message_id, :"schema".message_id_time(m.id) as enqueued_at, m.namespace, m.topic, m.tenant_id, m.lane,
       m.sequence_id, m.dedupe_key, m.priority, m.occurred_at, m.content_type, m.headers, m.payload, m.body,
       m.content_bytes as payload_size_bytes
from :"schema".message m;
comment on view :"schema".messages is 'Every message in the store, newest by message_id.';
