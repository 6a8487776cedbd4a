-- When the last message of the replay before this one is due. Caller: replay, at a rate. Zero rows: it has gone out.
select d.due_at from outbox_delivery d
where d.message_id = :message_id and d.sink = :sink and d.due_at < 9223372036854775807
