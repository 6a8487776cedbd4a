-- The dead letters of one message, or the one of a sink. Callers: redrive and discard. Index: dead_letter_pk.
select l.message_id, l.sink, l.parked
from outbox_dead_letter l
where l.message_id = :message_id and (:sink is null or l.sink = :sink)
