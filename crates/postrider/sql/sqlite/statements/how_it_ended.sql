-- How a message ended of which nothing is left to deliver: discarded if the last attempt for a sink (the one asked for)
-- failed. Caller: list. Index: attempt_pk. Zero rows: it was never tried for the sink that is asked for.
select case when max(t.state <> 'DISPATCHED') then 'discarded' else 'delivered' end
from (
    -- The state beside the highest number is the last attempt's.
    select a.state, max(a.attempt_no) from outbox_attempt a
    where a.message_id = :message_id and (:sink is null or a.sink = :sink)
    group by a.sink
) t
having :sink is null or count(*) > 0
