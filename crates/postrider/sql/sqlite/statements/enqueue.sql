-- What producers ask. The adapters of `src/enqueue` run it in the caller's transaction, with positional parameters. The insert
-- before it is made from the list of columns in `src/enqueue/columns.rs`.

-- name: enqueued
-- What became of a message that was just written or found written: ?1 is its id, ?2 to ?5 its namespace, topic,
-- tenant and dedupe key. One row: id (the first message's, if the key was known), number in the lane, whether it is new.
select a.id, m.sequence_id, a.id = ?1
from (
    select coalesce((select k.message_id from outbox_dedupe k
                     where k.namespace = coalesce(?2, 'default') and k.topic = ?3
                       and k.tenant = coalesce(?4, '') and k.dedupe_key = ?5), ?1) as id
) a
left join outbox_message m on m.id = a.id
