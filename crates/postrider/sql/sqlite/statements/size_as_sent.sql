-- Content and headers of a message as they are sent, in bytes. Caller: claim, which hands out no more than it was asked for.
-- Zero rows: there is no such message.
select coalesce(octet_length(m.payload), octet_length(m.body), 0) + coalesce(octet_length(m.headers), 0)
from outbox_message m
where m.id = :message_id
