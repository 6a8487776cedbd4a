-- What replay looks at: everything enqueued in a range of time, which is a range of ids, to the millisecond; after
-- `after`, if that is given; a negative limit is none. `meant` says which of them are to be delivered again. Index:
-- message_pk. Fewer rows than the limit: that was all.
select m.id,
       (:namespace is null or m.namespace = :namespace)
           and (:topic is null or m.topic = :topic)
           and not exists (select 1 from outbox_dead_letter l where l.message_id = m.id and l.sink = :sink) as meant
from outbox_message m
where m.id >= unhex(printf('%012x', max(:enqueued_from, 0) / 1000) || '00000000000000000000')
  and m.id < unhex(printf('%012x', max(:enqueued_to, 0) / 1000) || '00000000000000000000')
  and (:after is null or m.id > :after)
order by m.id
limit :at_most
