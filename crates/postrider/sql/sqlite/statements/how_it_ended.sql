-- How a message ended of which nothing is left to deliver: discarded if a sink (the one asked for) has attempts and none was
-- DISPATCHED: somebody gave it up or cancelled it. Caller: list. Index: attempt_pk. Zero rows: it was never tried for the sink that is asked for.
select case when min(t.delivered) = 0 then 'discarded' else 'delivered' end
from (
    select max(a.state = 'DISPATCHED') as delivered from outbox_attempt a
    where a.message_id = :message_id and (:sink is null or a.sink = :sink)
    group by a.sink
) t
having :sink is null or count(*) > 0
