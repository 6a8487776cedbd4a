-- What prune would take now: messages and dedupe keys. See prune_candidates.sql and prune_dedupe.sql.
select (select count(*) from outbox_message m
        where m.id < unhex(printf('%012x', max(:now - coalesce(
                  :older_than_us, (select s.retention_seconds * 1000000 from outbox_setting s)), 0) / 1000)
              || '00000000000000000000')
          and not exists (select 1 from outbox_delivery d where d.message_id = m.id)
          and not exists (select 1 from outbox_dead_letter l where l.message_id = m.id)),
       (select count(*) from outbox_dedupe k
        where k.message_id < unhex(printf('%012x', max(
                  :now - (select s.dedupe_window_seconds * 1000000 from outbox_setting s), 0) / 1000)
              || '00000000000000000000')
          and not exists (select 1 from outbox_delivery d where d.message_id = k.message_id)
          and not exists (select 1 from outbox_dead_letter l where l.message_id = k.message_id))
