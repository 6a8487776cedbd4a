-- History that is over, deleted batch by batch. Called by `store/sqlite/prune.rs`.

-- name: candidates
-- Messages that have ended everywhere, the last time longer ago than the retention (`older_than_us`, or the setting; if
-- that is null too, none), from `after` on. Caller: prune, batch by batch. Index: message_pk: ids carry their time. Zero rows: that was all.
select m.id
from outbox_message m
where m.id > :after
  and m.id < unhex(printf('%012x', max(:now - coalesce(
          :older_than_us, (select s.retention_seconds * 1000000 from outbox_setting s)), 0) / 1000)
      || '00000000000000000000')
  and not exists (select 1 from outbox_delivery d where d.message_id = m.id)
  and not exists (select 1 from outbox_dead_letter l where l.message_id = m.id)
  and not exists (select 1 from outbox_attempt a
                  where a.message_id = m.id and a.completed_at > :now - coalesce(
                      :older_than_us, (select s.retention_seconds * 1000000 from outbox_setting s)))
order by m.id
limit :batch_size

-- name: message
-- delivered -> gone. The message goes first: its attempts may go only when it is no longer there.
delete from outbox_message where id = :message_id

-- name: attempts
-- The attempts of a message that `message` has just deleted.
delete from outbox_attempt where message_id = :message_id

-- name: dedupe
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

-- name: prunable
-- What prune would take now: messages and dedupe keys. See `candidates` and `dedupe`.
select 0 as partitions_dropped,
       (select count(*) from outbox_message m
        where m.id < unhex(printf('%012x', max(:now - coalesce(
                  :older_than_us, (select s.retention_seconds * 1000000 from outbox_setting s)), 0) / 1000)
              || '00000000000000000000')
          and not exists (select 1 from outbox_delivery d where d.message_id = m.id)
          and not exists (select 1 from outbox_dead_letter l where l.message_id = m.id)
          and not exists (select 1 from outbox_attempt a
                          where a.message_id = m.id and a.completed_at > :now - coalesce(
                              :older_than_us, (select s.retention_seconds * 1000000 from outbox_setting s)))) as rest_deleted,
       (select count(*) from outbox_dedupe k
        where k.message_id < unhex(printf('%012x', max(
                  :now - (select s.dedupe_window_seconds * 1000000 from outbox_setting s), 0) / 1000)
              || '00000000000000000000')
          and not exists (select 1 from outbox_delivery d where d.message_id = k.message_id)
          and not exists (select 1 from outbox_dead_letter l where l.message_id = k.message_id)) as dedupe_deleted

-- name: kept
-- For how many seconds history and dedupe keys are kept; null: for ever. Caller: the doctor.
select cast(retention_seconds as real), cast(dedupe_window_seconds as real) from outbox_setting
