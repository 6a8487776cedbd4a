-- Whether a delivery is out of attempts: by this limit, or by the one it was last claimed with.
-- Callers: claim, repair and unclaim, after settle.sql.
select d.attempt_count >= coalesce(:max_attempts, d.max_attempts)
from outbox_delivery d
where d.message_id = :message_id and d.sink = :sink
