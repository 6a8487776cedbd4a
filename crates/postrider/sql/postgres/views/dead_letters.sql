-- What waits for a person: why and when it died, and the last error.
create view :"schema".dead_letters as
select l.message_id, l.sink, l.died_at as failed_at, l.reason, l.error_code as last_error_code,
       l.error_message as last_error_message, l.attempt_no, l.attempt_count, l.tenant_id, l.lane, l.sequence_id,
       l.parked, l.namespace, l.topic, m.occurred_at,
       m.content_bytes as payload_size_bytes
from :"schema".dead_letter l
left join :"schema".message m on m.id = l.message_id;
comment on view :"schema".dead_letters is 'Dead letters with their reason and last error.';
