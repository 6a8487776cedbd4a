-- The dead letter goes: redriven or discarded.
delete from outbox_dead_letter where message_id = :message_id and sink = :sink
