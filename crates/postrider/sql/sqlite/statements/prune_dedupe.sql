-- Dedupe keys past their window whose message is neither pending, leased nor dead.
-- Caller: prune. Index: outbox_dedupe_by_age. Zero rows: that was all.
delete from outbox_dedupe
where (namespace, topic, tenant, dedupe_key) in (
    select k.namespace, k.topic, k.tenant, k.dedupe_key
    from outbox_dedupe k indexed by outbox_dedupe_by_age
    where k.message_id < unhex(printf('%012x', max(
              :now - (select s.dedupe_window_seconds * 1000000 from outbox_setting s), 0) / 1000)
          || '00000000000000000000')
      and not exists (select 1 from outbox_delivery d where d.message_id = k.message_id)
      and not exists (select 1 from outbox_dead_letter l where l.message_id = k.message_id)
    limit :batch_size
)
