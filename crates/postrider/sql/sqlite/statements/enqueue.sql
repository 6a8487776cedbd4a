-- What producers write. The adapters of `src/enqueue` run these in the caller's transaction, with positional parameters.

-- name: message
-- One message, in the caller's transaction. The rules are those of the view ../views/enqueue.sql.
-- Caller: every adapter of src/enqueue, with parameters in this order. Transition: nothing -> pending.
insert into outbox_enqueue (message_id, topic, payload, namespace, tenant_id, lane, dedupe_key, priority, headers,
                            due_at, occurred_at, body, content_type, delay_us)
values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)

-- name: enqueued
-- What became of a message that `message` just wrote, or found written: ?1 is its id, ?2 to ?5 its namespace, topic,
-- tenant and dedupe key. One row: id (the first message's, if the key was known), number in the lane, whether it is new.
select a.id, m.sequence_id, a.id = ?1
from (
    select coalesce((select k.message_id from outbox_dedupe k
                     where k.namespace = coalesce(?2, 'default') and k.topic = ?3
                       and k.tenant = coalesce(hex(?4), '') and k.dedupe_key = ?5), ?1) as id
) a
left join outbox_message m on m.id = a.id
