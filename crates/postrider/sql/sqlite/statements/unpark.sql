-- A dead letter no longer parks its lane; end.sql takes its delivery away. Caller: skip.
update outbox_dead_letter set parked = 0 where message_id = :message_id and sink = :sink and parked
