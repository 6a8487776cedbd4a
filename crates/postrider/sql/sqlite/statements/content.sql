-- Headers and content of a message that is held under a token. Caller: Store::content. Index: delivery_pk.
-- Zero rows: it is not held under this token.
select m.headers, m.payload, m.body
from outbox_message m
join outbox_delivery d on d.message_id = m.id
where m.id = :message_id and d.lease_token = :lease_token and d.lease_expires_at > :now
