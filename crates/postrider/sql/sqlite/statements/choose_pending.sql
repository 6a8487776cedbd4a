-- Pending deliveries, those that are due next first; `due_after`: only those that are due later than this. Callers: retry_now
-- and cancel, in the transaction that changes them. Zero rows: nothing matches.
select d.message_id, d.sink, d.attempt_no
from matching d
where d.lease_token is null and (:due_after is null or d.due_at > :due_after)
order by d.due_at, d.message_id, d.sink
limit :at_most
