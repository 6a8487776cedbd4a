-- A page of them, newest first, after the last one of the page before. Index: outbox_dead_letter_by_time.
-- The page is cut before the messages are joined: one that is large is not read to be left out.
, page as (
    select l.* from matching l
    where :after_died_at is null
       or ((l.died_at, l.message_id) <= (:after_died_at, :after_message_id)
           and not (l.died_at = :after_died_at and l.message_id = :after_message_id and l.sink <= :after_sink))
    order by l.died_at desc, l.message_id desc, l.sink
    limit :limit
)
select p.message_id, p.sink, p.died_at, p.reason, p.error_code, p.error_message, p.attempt_no, p.attempt_count, p.parked,
       p.namespace, p.topic, p.tenant_id, p.lane, p.sequence_id, coalesce(m.occurred_at, p.died_at) as occurred_at,
       coalesce(length(m.body), length(cast(m.payload as blob)), 0) as payload_size_bytes
from page p
left join outbox_message m on m.id = p.message_id
order by p.died_at desc, p.message_id desc, p.sink
