-- The oldest of them. Callers: redrive and discard, in the transaction that changes them.
-- Index: outbox_dead_letter_by_time, backwards. Zero rows: nothing matches.
select l.message_id, l.sink, l.parked
from matching l
order by l.died_at, l.message_id
limit :at_most
