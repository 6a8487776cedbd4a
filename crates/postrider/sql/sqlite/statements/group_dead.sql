-- How many of each kind, the most first. The newest one's message is looked up for the groups that are told.
, kind as (
    select l.sink, l.topic, l.reason, l.error_code, count(*) as letters, min(l.died_at) as first_died_at,
           max(l.died_at) as last_died_at
    from matching l
    group by l.sink, l.topic, l.reason, l.error_code
    order by letters desc, l.sink, l.topic, l.reason, l.error_code
    limit :at_most
)
select k.sink, k.topic, k.reason, k.error_code, k.letters, k.first_died_at, k.last_died_at,
       (select l.error_message from matching l
        where l.died_at = k.last_died_at and l.sink = k.sink and l.topic = k.topic and l.reason = k.reason
          and l.error_code is k.error_code
        order by l.message_id desc limit 1) as error_message
from kind k
order by k.letters desc, k.sink, k.topic, k.reason, k.error_code
