-- Messages that are older than the retention (`older_than_us`, or the setting) and have ended everywhere, from
-- `after` on. Caller: prune, batch by batch. Index: message_pk: ids carry their time. Zero rows: that was all.
select m.id
from outbox_message m
where m.id > :after
  and m.id < unhex(printf('%012x', max(:now - coalesce(
          :older_than_us, (select s.retention_seconds * 1000000 from outbox_setting s)), 0) / 1000)
      || '00000000000000000000')
  and not exists (select 1 from outbox_delivery d where d.message_id = m.id)
  and not exists (select 1 from outbox_dead_letter l where l.message_id = m.id)
order by m.id
limit :batch_size
