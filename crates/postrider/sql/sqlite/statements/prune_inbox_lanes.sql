-- Spans that have not grown for so long that they are forgotten.
-- Caller: prune_inbox. Index: outbox_inbox_lane_by_age. Zero rows: that was all.
delete from outbox_inbox_lane
where (source, lane, tenant, first_sequence) in (
    select l.source, l.lane, l.tenant, l.first_sequence
    from outbox_inbox_lane l indexed by outbox_inbox_lane_by_age
    where l.remembered_at < :now - (select s.inbox_lane_retention_seconds * 1000000 from outbox_setting s)
    limit :batch_size
)
