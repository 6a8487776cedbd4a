-- Every dead letter, or every one of a sink. Caller: redrive.
select l.message_id, l.sink, l.parked from outbox_dead_letter l where :sink is null or l.sink = :sink
