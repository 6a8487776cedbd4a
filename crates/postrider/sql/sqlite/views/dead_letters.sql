-- What waits for a person: why and when it died, and the last error. For a person's eyes: ids and times as text.
create view outbox_dead_letters as
select lower(substr(hex(l.message_id), 1, 8) || '-' || substr(hex(l.message_id), 9, 4) || '-' || substr(hex(l.message_id), 13, 4) || '-'
             || substr(hex(l.message_id), 17, 4) || '-' || substr(hex(l.message_id), 21)) as message_id,
       l.sink, strftime('%Y-%m-%dT%H:%M:%fZ', l.died_at / 1000000.0, 'unixepoch') as failed_at, l.reason,
       l.error_code as last_error_code, l.error_message as last_error_message, l.attempt_no, l.attempt_count, l.lane,
       l.sequence_id, l.parked, l.namespace, l.topic,
       coalesce(length(m.body), length(cast(m.payload as blob))) as payload_size_bytes
from outbox_dead_letter l
left join outbox_message m on m.id = l.message_id;
