-- What replay looks at: these messages, or everything enqueued in a range of time, which is a range of ids; after `after`, if
-- that is given. `meant` says which of them have nothing open with the sink, `delivered` which of those it got before.
-- `message_ids` is a JSON array of ids as 32 hexadecimal digits. Index: message_pk. Fewer rows than the limit: that was all.
select m.id,
       (:namespace is null or m.namespace = :namespace)
           and (:topic is null or m.topic glob replace(replace(:topic, '[', '[[]'), '?', '[?]'))
           and not exists (select 1 from outbox_delivery d where d.message_id = m.id and d.sink = :sink)
           and not exists (select 1 from outbox_dead_letter l where l.message_id = m.id and l.sink = :sink) as meant,
       exists (select 1 from outbox_attempt a
               where a.message_id = m.id and a.sink = :sink and a.state = 'DISPATCHED') as delivered
from outbox_message m
where m.id >= :id_from and m.id < :id_before and (:after is null or m.id > :after)
  and (:message_ids is null or m.id in (select unhex(i.value) from json_each(:message_ids) i))
order by m.id
limit :at_most
