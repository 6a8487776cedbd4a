-- The attempts of a message that prune_message.sql has just deleted.
delete from outbox_attempt where message_id = :message_id
