-- Ids of messages, newest first. Caller: list, which stops reading at its bound. Index: message_pk.
select m.id from outbox_message m where m.id >= :id_from and m.id < :id_before order by m.id desc limit :look_at
